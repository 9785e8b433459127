"""The tables of tests of SQLite files, and what those tests write to them."""

from __future__ import annotations

from typing import Final

from hbasemk.store.abc import ALL_VERSIONS, NewCell, Put, Table

MANY: Final = Table("many", (b"c", b"d"), ALL_VERSIONS)
ONE: Final = Table("one", (b"d",), 1)
TABLES: Final = [MANY, ONE]
FLAG: Final = (b"d", b"flag")


def flag(row: bytes, value: bytes = b"1") -> Put:
    """Return a change of one cell of a row of the table ``one``."""
    return Put(row, [NewCell(*FLAG, value)])
