"""All rows of nodes, for a run that looks at everything and not only at what the journal names.

It finds what a window has missed: marks of deletions, and private cells of branches that are long gone, which a process that
slept wrote late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hbasemk.format import revisions, schema
from hbasemk.kernel.batches import batched
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import ALL_VERSIONS, CellVersion, Delete, Get, Page, Row, Scan

PRIVATE: Final = "cells of ended branches"
ROWS: Final = 100
COLUMNS: Final = 1000


def collect(run: Run, collect_row: Callable[[bytes], None], forget: Callable[[Sequence[bytes]], None]) -> None:
    """Call ``collect_row`` and ``forget`` for every row, and delete private cells of branches that are gone."""
    scan = Scan(None, None, ROWS, columns=(schema.DELETED, schema.LAST_REVISION))
    checked = 0
    while True:
        rows = run.instance.store.scan(schema.NODES, scan)
        for row in rows:
            collect_row(row.key)
            run.delete(PRIVATE, schema.NODES, _private(run, row.key))
        forget([row.key for row in rows])
        checked += len(rows)
        run.progress("nodes", checked)
        if len(rows) < ROWS:
            return
        scan = scan._replace(start=rows[-1].key + b"\0")


def _private(run: Run, key: bytes) -> Iterator[Delete]:
    """Yield the private cells up to the horizon whose branch is gone: no row says that it is still to be swept."""
    for row in _pages(run, key):
        found = [cell for cell in row.cells if revisions.is_branch(cell.timestamp)]
        ids = sorted({cell.timestamp for cell in found})
        rows = list(journal_rows(run.instance.store, ids, (schema.COMMITTED, schema.SWEPT)))
        gone = {one.revision for one in rows if one.swept is not None or not one.cells}
        cells = [CellVersion(*cell[:3]) for cell in found if cell.timestamp in gone]
        if cells:
            yield Delete(key, cells)


def _pages(run: Run, key: bytes) -> Iterator[Row]:
    """Yield all versions of a row up to the horizon, in pages of columns."""
    store, before = run.instance.store, run.horizon + 1
    for family in (schema.DATA, schema.CHILDREN):
        after: bytes | None = None
        more = True
        while more:
            (page,) = store.read(schema.NODES, [Get(key, page=Page(family, after, COLUMNS), before=before)])
            more = len(page.cells) == COLUMNS
            for part in batched(page.cells, COLUMNS):
                after = part[-1].qualifier
                columns = [(cell.family, cell.qualifier) for cell in part]
                yield from store.read(schema.NODES, [Get(key, columns, before=before, versions=ALL_VERSIONS)])
