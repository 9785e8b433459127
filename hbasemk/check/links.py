"""The check of links between rows: parents to children, children to parents, properties to blobs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hbasemk.check import problem as kinds
from hbasemk.check.cell_values import blobs_of
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.errors import InvalidPathError
from hbasemk.format import paths, schema, values
from hbasemk.kernel.blobs import HEAD, Head
from hbasemk.store.abc import Cell, Column, Get

ALIVE: Final = (schema.DELETED,)
OWN: Final = (schema.DELETED, schema.LAST_REVISION)
REMEMBERED: Final = 10_000
"""The number of existing blobs to remember."""


class Listed(NamedTuple):
    """A child that its parent has listed since ``revision``."""

    parent: str
    path: str
    revision: int


class Links:
    """Checks links in one snapshot; ``cells`` reads the visible cells of gets (one for each column)."""

    def __init__(self, context: CheckContext, cells: Callable[[Sequence[Get]], Sequence[Sequence[Cell]]]) -> None:
        self._context = context
        self._cells = cells
        self._blobs: OrderedDict[str, None] = OrderedDict()
        self._referred: list[tuple[str, bytes, Cell]] = []

    def check_listed(self, listed: Sequence[Listed]) -> Iterator[Problem]:
        """Yield dangling child entries: listed children that do not exist."""
        possible: list[Listed] = []
        gets: list[Get] = []
        for one in listed:
            try:
                gets.append(Get(paths.key(one.path), columns=ALIVE))
                possible.append(one)
            except InvalidPathError as error:
                yield Problem(kinds.DANGLING, one.path[:200], text(one.revision), str(error))
        dangling = [
            one
            for one, cells in zip(possible, self._cells(gets), strict=True)
            if not cells or cells[0].value != schema.ALIVE
        ]
        if not dangling:
            return
        rows = self._cells([Get(paths.key(one.path), columns=OWN) for one in dangling])
        for one, cells in zip(dangling, rows, strict=True):
            found = {cell[:2]: cell for cell in cells}
            detail = "its parent lists it, but there is no such node"
            yield Problem(kinds.DANGLING, one.path, text(one.revision), detail, repairable=not _is_lifeless(found))

    def check_parents(self, nodes: Sequence[tuple[str, int]]) -> Iterator[Problem]:
        """Yield orphaned and unlisted nodes (given with the revisions that added them), and dangling blob references."""
        below: dict[str, list[tuple[str, int]]] = {}
        for path, life in nodes:
            if path != paths.ROOT:
                below.setdefault(paths.parent(path), []).append((path, life))
        gets = [
            Get(
                paths.key(above),
                columns=[*OWN, *(schema.child_column(paths.name(path)) for path, _ in children)],
            )
            for above, children in below.items()
        ]
        for children, cells in zip(below.values(), self._cells(gets), strict=True):
            found = {cell[:2]: cell for cell in cells}
            parent = found.get(schema.DELETED)
            for path, life in children:
                listed = found.get(schema.child_column(paths.name(path)))
                if parent is None or parent.value != schema.ALIVE:
                    detail = "it exists, but its parent does not"
                    yield Problem(kinds.ORPHAN, path, text(life), detail, repairable=not _is_lifeless(found))
                elif listed is None or listed.value != schema.PRESENT or listed.timestamp < parent.timestamp:
                    yield self._unlisted(path, life, parent.timestamp)
        yield from self._check_blobs()

    def _unlisted(self, path: str, life: int, parent_life: int) -> Problem:
        """Return the problem of an unlisted node; it is not repairable if its parent has a property with its name."""
        column = schema.property_column(paths.name(path))
        cells = self._cells([Get(paths.key(paths.parent(path)), columns=(column,))])[0]
        taken = any(cell.value != values.TOMBSTONE and cell.timestamp >= parent_life for cell in cells)
        detail = "it exists, but its parent does not list it" + (", and has a property of its name" if taken else "")
        return Problem(kinds.UNLISTED, path, text(life), detail, repairable=not taken)

    # --- blobs -------------------------------------------------------------------------------------------

    def refers(self, path: str, qualifier: bytes, cell: Cell) -> None:
        """Record a property with references; the next batch checks them."""
        self._referred.append((path, qualifier, cell))

    def _check_blobs(self) -> Iterator[Problem]:
        referred, self._referred = self._referred, []
        ids = {one for _, _, cell in referred for one in blobs_of(cell.value)}
        unknown = sorted(one for one in ids if one not in self._blobs and _key_of(one) is not None)
        rows = self._context.read(schema.BLOBS, [Get(_key_of(one) or b"", columns=HEAD) for one in unknown])
        heads = {one: Head.of(row) for one, row in zip(unknown, rows, strict=True)}
        # A collector dooms no blob that the snapshot refers to. A writer that finds one doomed completes it before it commits.
        existing = {one for one, head in heads.items() if head.is_complete} | (ids & self._blobs.keys())
        doomed = {one for one, head in heads.items() if head.is_doomed}
        for path, qualifier, cell in referred:
            for one in blobs_of(cell.value):
                if one not in existing:
                    state = "a collection deletes, or has deleted in part" if one in doomed else "does not exist"
                    detail = f"{schema.describe((cell.family, qualifier))} refers to blob {one[:80]!r}, which {state}"
                    yield Problem(kinds.BLOB_REFERENCE, path, text(cell.timestamp), detail)
        for one in existing:
            self._blobs[one] = None
        while len(self._blobs) > REMEMBERED:
            self._blobs.popitem(last=False)


def _is_lifeless(found: Mapping[Column, Cell]) -> bool:
    """Return whether a row has cells, but nothing that began or ended a life: a repair would hide the cells for good."""
    return schema.LAST_REVISION in found and schema.DELETED not in found


def _key_of(blob: str) -> bytes | None:
    try:
        key = bytes.fromhex(blob)
    except ValueError:
        return None
    return key if len(key) == 32 and key.hex() == blob else None
