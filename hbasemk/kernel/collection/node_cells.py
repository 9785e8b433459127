"""The deletion of versions of nodes that no readable view needs: of the rows that some revisions touched, or of given rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.batches import batched
from hbasemk.kernel.collection import deletions, rule
from hbasemk.kernel.collection.all_versions import VersionReader
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.collection.widths import WidthReader
from hbasemk.store.abc import ALL_VERSIONS, CellVersion, Column, Delete, DeleteBelow, Get, Page, Row
from hbasemk.store.sizes import by_size

ROWS: Final = 100
"""The number of rows of nodes that one call reads, and another deletes from."""
FEW_ROWS: Final = 25
"""As :data:`ROWS`, in a store where all other writers wait while one writes."""
COLUMNS: Final = 1000
"""The number of columns of one row that one call reads."""

SUPERSEDED: Final = "superseded versions"
ENDED: Final = "cells of deleted nodes"
FORGOTTEN: Final = "marks of deletions"


class NodeCells:
    """Deletes cells of nodes for one run. Cells of the aborted revisions ``hidden`` are ignored."""

    def __init__(self, run: Run, hidden: frozenset[int]) -> None:
        self._run = run
        self._hidden = hidden
        self._store = run.instance.store
        self._versions = VersionReader(self._store)
        self._widths = WidthReader(self._store, COLUMNS)
        self._rows = FEW_ROWS if self._store.supports_transactions else ROWS

    def collect_window(self, rows: Sequence[JournalRow], end: int) -> None:
        """Delete what the view at ``end`` does not need of the rows that these revisions touched."""
        touched: dict[str, dict[Column, None]] = {}
        lives: set[str] = set()
        for row in rows:
            for change in row.changes:
                touched.setdefault(change.path, {}).update(dict.fromkeys(change.columns()))
                if change.lives:
                    lives.add(change.path)
        whole = self._with_earlier_lives([path for path in touched if path in lives], end)
        narrow = [path for path in touched if path not in whole and len(touched[path]) <= COLUMNS]
        for part in batched(narrow, self._rows):
            gets = [
                Get(paths.key(path), columns=list({**touched[path], schema.DELETED: None}), before=end + 1)
                for path in part
            ]
            self.delete(self._versions.read(gets), end)
        self._collect_whole([paths.key(path) for path in touched if path in whole], end)
        for path in touched:
            if path not in whole and len(touched[path]) > COLUMNS:
                self.collect_wide(paths.key(path), end)

    def _with_earlier_lives(self, candidates: Sequence[str], end: int) -> set[str]:
        """Return the nodes that had a life up to ``end`` which is over. Nobody lists the columns of such a life."""
        found = set()
        for part in batched(candidates, ROWS):
            gets = [
                Get(paths.key(path), columns=(schema.DELETED,), before=end + 1, versions=ALL_VERSIONS) for path in part
            ]
            for path, row in zip(part, self._store.read(schema.NODES, gets), strict=True):
                if [cell.value for cell in row.cells] != [schema.ALIVE]:
                    found.add(path)
        return found

    def _collect_whole(self, keys: Sequence[bytes], end: int) -> None:
        """Delete what the view at ``end`` does not need of whole rows."""
        for part in batched(keys, self._rows):
            sizes = dict(zip(part, self._widths.read(part, end + 1), strict=True))
            small = [key for key in part if max(sizes[key]) < COLUMNS]
            for group in by_size(small, lambda key: sum(sizes[key]), self._rows, 4 * COLUMNS):  # noqa: B023 - used at once
                gets = [Get(key, before=end + 1) for key in group]
                self.delete(self._versions.read(gets), end, whole=True)
            for key in part:
                if max(sizes[key]) >= COLUMNS:
                    self.collect_wide(key, end)

    def collect_wide(self, key: bytes, end: int) -> None:
        """Delete what the view at ``end`` does not need of one row, in pages of columns."""
        if self._run.writes:
            self._collect_children(key, end)
        for family in (schema.DATA, schema.CHILDREN):
            for row, with_lives in self._pages(key, family, end):
                self.delete([row], end, with_lives=with_lives)

    def _collect_children(self, key: bytes, end: int) -> None:
        """Delete the child columns of ended lives as one range, if it contains nothing else."""
        ended = life = 0
        kind = SUPERSEDED
        for row, _ in self._pages(key, schema.CHILDREN, end):
            versions = self._versions_of(row)
            if schema.DELETED not in versions:
                return
            life, value = max(versions[schema.DELETED])
            kind = SUPERSEDED if value == schema.ALIVE else ENDED
            gone = set(rule.collectable(versions, end))
            below = [cell for cell in row.cells if cell.family == schema.CHILDREN and cell.timestamp < life]
            if not gone.issuperset(CellVersion(*cell[:3]) for cell in below):
                return
            ended += len(below)
        if ended:
            self._run.cells[kind] += ended
            self._send([], [DeleteBelow(key, (), [(schema.CHILDREN, life)])])

    def _pages(self, key: bytes, family: bytes, end: int) -> Iterator[tuple[Row, bool]]:
        """Yield all versions up to ``end`` of the columns of a family, in pages, each together with ``deleted``.

        Also says whether ``deleted`` is a column of this page.
        """
        after: bytes | None = None
        more = True
        while more:
            page = Get(key, page=Page(family, after, COLUMNS), before=end + 1)
            (row,) = self._store.read(schema.NODES, [page])
            more = len(row.cells) == COLUMNS
            if not row.cells:
                return
            after = row.cells[-1].qualifier
            columns = {(cell.family, cell.qualifier): None for cell in row.cells}
            get = Get(key, columns=list({**columns, schema.DELETED: None}), before=end + 1)
            yield self._versions.read([get])[0], schema.DELETED in columns

    def delete(self, rows: Iterable[Row], end: int, *, whole: bool = False, with_lives: bool = True) -> None:
        """Delete the versions of these columns that the view at ``end`` does not need; ``deleted`` is among the columns.

        ``whole``: the rows contain all columns. Unless ``with_lives``, the versions of ``deleted`` stay: another page of the row
        contains them.
        """
        deletes: list[Delete] = []
        ranges: list[DeleteBelow] = []
        for row in rows:
            versions = self._versions_of(row)
            lives = versions.get(schema.DELETED)
            if lives is None:
                # Without a life nothing says what the cells mean: another collector has forgotten the node, or it is damage.
                continue
            gone = set(rule.collectable(versions, end))
            if not with_lives:
                gone = {cell for cell in gone if cell[:2] != schema.DELETED}
            if gone:
                life, value = max(lives)
                families = deletions.ended_families(row, gone, life) if whole else []
                exact, below = deletions.split(row, gone, families)
                deletes += exact
                ranges += below
                self._run.cells[SUPERSEDED if value == schema.ALIVE else ENDED] += len(gone)
        self._send(deletes, ranges)

    def _versions_of(self, row: Row) -> dict[Column, list[tuple[int, bytes]]]:
        """Return the versions of trunk by column, without those of aborted revisions."""
        versions: dict[Column, list[tuple[int, bytes]]] = {}
        for family, qualifier, version, value in row.cells:
            if not revisions.is_branch(version) and version not in self._hidden:
                versions.setdefault((family, qualifier), []).append((version, value))
        return versions

    def _send(self, deletes: Sequence[Delete], ranges: Sequence[DeleteBelow]) -> None:
        if deletes and self._run.writes:
            self._store.delete(schema.NODES, deletes)
        if ranges and self._run.writes:
            self._store.delete_below(schema.NODES, ranges)
        self._run.pause(max(len(deletes), len(ranges)))

    def forget_window(self, rows: Sequence[JournalRow], end: int) -> None:
        """Delete the marks of nodes that these revisions deleted, if nothing has revived them up to ``end``."""
        self.forget([paths.key(path) for path in removed(rows)], end)

    def forget(self, keys: Sequence[bytes], end: int) -> None:
        """Delete the marks of deleted nodes that were deleted up to ``end``, and that nothing revived up to there."""
        for part in batched(keys, self._rows):
            gets = [Get(key, columns=(schema.DELETED,), before=end + 1, versions=ALL_VERSIONS) for key in part]
            exact: list[Delete] = []
            ranges: list[DeleteBelow] = []
            for row in self._store.read(schema.NODES, gets):
                lives = self._versions_of(row).get(schema.DELETED)
                if lives is not None and max(lives)[1] != schema.ALIVE:
                    gone = {CellVersion(*schema.DELETED, version) for version, _ in lives}
                    singly, below = deletions.split(row, gone)
                    exact += singly
                    ranges += below
                    # An estimate has counted the others already.
                    self._run.cells[FORGOTTEN] += len(gone) if self._run.writes else 1
            self._send(exact, ranges)


def removed(rows: Sequence[JournalRow]) -> list[str]:
    """Return the paths of the nodes that some revisions removed, each once."""
    return list(dict.fromkeys(one.path for row in rows for one in row.changes if one.kind == changes.REMOVED))
