"""A small repository that has a cell of every kind, for tests that damage copies of it."""

from __future__ import annotations

from typing import NamedTuple

from hbasemk import Repository
from hbasemk.format import schema
from hbasemk.store.abc import Cell, Scan, Store, scan_all


class Contents(NamedTuple):
    """Ids in the repository: of its first revision, of a branch, and of a blob."""

    first: str
    branch: str
    blob: str


def fill(repository: Repository) -> Contents:
    """Add nodes, a blob, an adjusted number and a branch, and remove a node."""
    first = repository.head.revision
    blob = repository.blobs.write(b"content")
    with repository.transaction("made") as tx:
        tx.add("/a", {"n": 1, "list": [1, "x"], "blob": blob})
        tx.add("/a/b")
        tx.add("/c")
        tx.add("/d")
    branch = repository.branch()
    branch.run(lambda tx: tx.set("/a", "n", 2))
    repository.run(lambda tx: tx.remove("/c"))
    repository.adjust("/d", "count", 1)
    repository.run(lambda tx: tx.set("/d", "count", 5))
    return Contents(first, branch.revision, blob.id)


def all_cells(store: Store) -> list[tuple[str, bytes, Cell]]:
    """Return the table, the key of the row and the newest version of each cell; every table has some."""
    cells = [
        (table.name, row.key, cell)
        for table in schema.TABLES
        for row in scan_all(store, table.name, Scan(None, None, 1000))
        for cell in row.cells
    ]
    assert {table for table, _, _ in cells} == {table.name for table in schema.TABLES}
    return cells
