"""The space that a repository uses: the file of SQLite, or the cells or files of tables of HBase."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from contextlib import closing
from typing import Final

from benchmarks.systems.hbasemk import cells_size, file_size
from hbasemk.format import schema
from hbasemk.kernel.instance import Instance

ADMINISTRATOR: Final = ("/opt/hbase/bin/administrator", "/opt/hbase/conf")
DATA: Final = "/data/hbase/data/default"
COMPACTION_S: Final = 300
TABLES: Final = (schema.NODES, schema.JOURNAL)


class SpaceError(Exception):
    """HBase did not compact a table."""


def space(instance: Instance, container: str | None = None) -> dict[str, int]:
    """Return the bytes of the SQLite file, or of each of the tables ``nodes`` and ``journal`` of HBase.

    For HBase this is the size of all versions that a scan returns. That is what a major compaction leaves. If ``container``
    names the container of a standalone HBase (``docker/``), flush and compact each table there, and measure its files.
    """
    if instance.store.supports_transactions:
        return {"the file": file_size(instance.location)}
    if container is None:
        return {table: cells_size(instance.store, [table]) for table in TABLES}
    return {table: _compacted(container, name) for table, name in _names(instance).items()}


def flush(instance: Instance, container: str) -> None:
    """Let HBase, in this container, write the versions of the tables that it has in memory into a new file of each."""
    for name in _names(instance).values():
        _administer(container, f"flush {name}")


def space_in_use(instance: Instance) -> int:
    """Return the bytes of all pages of the SQLite file, or of all versions in the tables ``nodes`` and ``journal`` of HBase.

    Unlike :func:`space`, this does not wait for the writers.
    """
    if not instance.store.supports_transactions:
        return cells_size(instance.store, TABLES)
    with closing(sqlite3.connect(instance.location, timeout=30)) as sql:
        pages, size = (int(sql.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    return pages * size


def _names(instance: Instance) -> dict[str, str]:
    """Return the names that HBase has for the tables."""
    prefix = instance.location.rpartition("prefix=")[2]
    return {table: prefix + table for table in TABLES}


def _compacted(container: str, table: str) -> int:
    """Flush a table, run a major compaction, wait for its end, and return the bytes of the files."""
    _administer(container, f"flush {table}")
    flushed = _files(container, table)
    _administer(container, f"major-compact {table}")
    deadline = time.monotonic() + COMPACTION_S
    # A major compaction replaces all files.
    while flushed.keys() & (files := _files(container, table)).keys():
        if time.monotonic() > deadline:
            raise SpaceError(f"the major compaction of {table} did not end within {COMPACTION_S} s")
        time.sleep(1)
    return sum(files.values())


def _files(container: str, table: str) -> dict[str, int]:
    """Return the sizes of a table's files, without checksums and temporary files."""
    find = ["find", f"{DATA}/{table}", "-mindepth", "3", "-type", "f", "-not", "-path", "*/.*", "-printf", "%p %s\n"]
    lines = _run(["docker", "exec", container, *find]).splitlines()
    sizes = dict(line.rsplit(" ", 1) for line in lines)
    return {name: int(size) for name, size in sizes.items() if "/recovered.edits/" not in name}


def _administer(container: str, command: str) -> None:
    answer = _run(["docker", "exec", "--interactive", container, *ADMINISTRATOR], command + "\n")
    if "ok" not in answer.splitlines():
        raise SpaceError(f"HBase did not {command}: {answer[-500:]}")


def _run(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SpaceError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    return done.stdout
