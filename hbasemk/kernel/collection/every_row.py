"""All rows of nodes, for a run that looks at everything and not only at what the journal names.

It finds what a window has missed: marks of deletions, and cells that a process that slept wrote late. These are private cells
of deleted branches, and cells of aborted revisions whose journal rows may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.format import revisions, schema
from hbasemk.kernel import settings
from hbasemk.kernel.batches import batched
from hbasemk.kernel.collection import late_cells
from hbasemk.kernel.collection.all_versions import VersionReader
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.collection.widths import WidthReader
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import CellVersion, Delete, Get, Page, Row, Scan
from hbasemk.store.sizes import by_size

PRIVATE: Final = "cells of ended branches"
ROWS: Final = 100
COLUMNS: Final = 1000
"""The number of columns of one family that one call reads."""
CELLS: Final = 4000
"""The number of columns of several rows that one call reads."""


class Actions(NamedTuple):
    """What a run does with all rows: with whole rows, with a row that is too wide to be read at once, and with its mark."""

    collect_rows: Callable[[Sequence[Row]], None]
    collect_wide: Callable[[bytes], None]
    forget: Callable[[Sequence[bytes]], None]


def collect(run: Run, actions: Actions) -> None:
    """Act on every row, and delete private cells of deleted branches, and late cells of aborted revisions."""
    hidden = settings.read_watermark(run.instance.store).hidden
    versions = VersionReader(run.instance.store)
    widths = WidthReader(run.instance.store, COLUMNS)
    scan = Scan(None, None, ROWS, columns=(schema.DELETED, schema.LAST_REVISION))
    checked = 0
    while True:
        keys = [row.key for row in run.instance.store.scan(schema.NODES, scan)]
        narrow, wide = _by_width(run, widths, keys)
        for group in by_size(narrow, lambda found: found[1], ROWS, CELLS):
            rows = versions.read([Get(key, before=run.horizon + 1) for key, _ in group])
            actions.collect_rows(rows)
            run.delete(PRIVATE, schema.NODES, _private(run, rows))
            run.delete(late_cells.KIND, schema.NODES, late_cells.of_hidden(run, rows, hidden))
        for key in wide:
            actions.collect_wide(key)
            for page in _pages(run, versions, key):
                run.delete(PRIVATE, schema.NODES, _private(run, [page]))
                run.delete(late_cells.KIND, schema.NODES, late_cells.of_hidden(run, [page], hidden))
        actions.forget(keys)
        checked += len(keys)
        run.progress("nodes", checked)
        if len(keys) < ROWS:
            return
        scan = scan._replace(start=keys[-1] + b"\0")


def _by_width(run: Run, widths: WidthReader, keys: Sequence[bytes]) -> tuple[list[tuple[bytes, int]], list[bytes]]:
    """Return the rows with few columns, each with their number, and the other rows."""
    counted = list(zip(keys, widths.read(keys, run.horizon + 1), strict=True))
    narrow = [(key, sum(columns)) for key, columns in counted if max(columns) < COLUMNS]
    return narrow, [key for key, columns in counted if max(columns) >= COLUMNS]


def _private(run: Run, rows: Sequence[Row]) -> list[Delete]:
    """Return the private cells in rows up to the horizon whose branch is gone: no row says that it is still to be swept."""
    found = [(row.key, cell) for row in rows for cell in row.cells if revisions.is_branch(cell.timestamp)]
    ids = sorted({cell.timestamp for _, cell in found})
    known = list(journal_rows(run.instance.store, ids, (schema.COMMITTED, schema.SWEPT)))
    gone = {one.revision for one in known if one.swept is not None or not one.cells}
    return [Delete(key, [CellVersion(*cell[:3])]) for key, cell in found if cell.timestamp in gone]


def _pages(run: Run, versions: VersionReader, key: bytes) -> Iterator[Row]:
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
                yield from versions.read([Get(key, columns, before=before)])
