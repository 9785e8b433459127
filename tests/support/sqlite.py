"""The tables of tests of SQLite files, and what those tests write to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Table
from hbasemk.store.sqlite import SqliteStore

MANY: Final = Table("many", (b"c", b"d"), ALL_VERSIONS)
ONE: Final = Table("one", (b"d",), 1)
TABLES: Final = [MANY, ONE]
FLAG: Final = (b"d", b"flag")


def statements(store: SqliteStore, gets: list[Get], table: str = "many") -> int:
    """Return how many statements a read of these gets runs."""
    made: list[str] = []
    with store._connections._idle[0].sql as sql:
        sql.set_trace_callback(made.append)
        store.read(table, gets)
        sql.set_trace_callback(None)
    return sum("SELECT" in one for one in made)


def flag(row: bytes, value: bytes = b"1") -> Put:
    """Return a change of one cell of a row of the table ``one``."""
    return Put(row, [NewCell(*FLAG, value)])


HEAD = """
import os, resource, sys
from hbasemk.store.abc import *
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
def flag(row, value=b"1"): return Put(row, [NewCell(b"d", b"flag", value)])
def attempt(call):
    try: print(call())
    except Exception as error: print(type(error).__name__, error)
store = SqliteStore(sys.argv[1])
"""


def run(script: str, path: Path) -> str:
    """Run a script in its own process and return its output."""
    ran = subprocess.run([sys.executable, "-c", HEAD + script, str(path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
