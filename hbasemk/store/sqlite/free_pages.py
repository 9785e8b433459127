"""The free pages of a file: SQLite uses them again, and gives them back to the operating system on request.

Only files that were created for it can shrink while they are in use (``docs/operations.md``, "Old revisions").
"""

from __future__ import annotations

from typing import Final

from hbasemk.store.sqlite.connection import Connection

AT_ONCE: Final = 500
"""The number of pages that one transaction gives back."""
RESERVE: Final = 32
"""One page of so many may stay free, for what is written next."""
_INCREMENTAL: Final = 2


def give_back(connection: Connection) -> bool:
    """Give back some free pages at the end of the file; return whether there are more."""
    sql = connection.sql
    if sql.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
        return False
    free = (
        sql.execute("PRAGMA freelist_count").fetchone()[0] - sql.execute("PRAGMA page_count").fetchone()[0] // RESERVE
    )
    if free <= 0:
        return False
    connection.begin(False)
    for _ in range(min(free, AT_ONCE)):
        # Each step of this statement gives back one page, and Python makes only the first step: it returns no columns.
        sql.execute("PRAGMA incremental_vacuum(1)")
    connection.commit()
    return bool(free > AT_ONCE)
