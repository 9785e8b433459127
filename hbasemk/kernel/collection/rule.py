"""Which versions of one row no readable view needs.

The readable views are "all of trunk up to the horizon", every later one, and the *retained* views below the horizon. Only
trunk versions up to the horizon are considered. The rule treats a row, or some of its columns together with ``deleted``.
It keeps these versions:

- K1: what a readable view shows;
- K2: a view's newest version of a column, while a lower version that it masks is kept;
- K3: what the read-back of a commit on a retained view must find.

Collectors pass no retained views, because branches and checkpoints keep the horizon at or below their views.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from hbasemk.format import schema, values
from hbasemk.format.extent import Extent
from hbasemk.store.abc import CellVersion, Column

Versions = Mapping[Column, Sequence[tuple[int, bytes]]]
"""The trunk versions of some columns of a row, in any order: timestamp and value."""

_OWN: Final = (schema.DELETED, schema.LAST_REVISION)


def collectable(
    versions: Versions, horizon: int, retained: Collection[Extent] = (), *, remember_deleted: bool = True
) -> list[CellVersion]:
    """Return the versions up to the horizon that neither a readable view nor a commit on one needs.

    ``versions`` contain ``deleted``, all of its versions. With ``remember_deleted`` a node that is deleted at the horizon
    keeps the mark of its deletion, which distinguishes it from one that never existed.
    """
    views = [Extent(horizon), *retained]
    kept = {(column, at) for view in views for column, at in _needed(versions, view)}
    kept.update((column, at) for view in retained for column, at in _conflicting(versions, view, horizon))
    if remember_deleted:
        last = _newest(versions.get(schema.DELETED, ()), Extent(horizon))
        if last is not None and last[1] != schema.ALIVE:
            kept.add((schema.DELETED, last[0]))
    _add_masking(versions, views, kept)
    return [
        CellVersion(*column, at)
        for column, found in versions.items()
        for at, _ in sorted(found)
        if at <= horizon and (column, at) not in kept
    ]


def _needed(versions: Versions, view: Extent) -> Iterator[tuple[Column, int]]:
    """Yield what a view shows of the row (K1); of a node that does not exist in it, nothing."""
    life = _newest(versions.get(schema.DELETED, ()), view)
    if life is None or life[1] != schema.ALIVE:
        return
    created = life[0]
    yield schema.DELETED, created
    for column, found in versions.items():
        newest = _newest(found, view)
        if newest is not None and newest[0] >= created and not _is_nothing(column, newest, created):
            yield column, newest[0]


def _conflicting(versions: Versions, view: Extent, horizon: int) -> Iterator[tuple[Column, int]]:
    """Yield the versions that a commit on a retained view must still find (K3)."""
    for column, found in versions.items():
        outside = [at for at, _ in found if at <= horizon and at not in view]
        if outside:
            yield column, max(outside)


def _add_masking(versions: Versions, views: Sequence[Extent], kept: set[tuple[Column, int]]) -> None:
    """Keep a view's newest version of a column while a lower one is kept, which it masks (K2)."""
    for column, found in versions.items():
        lowest = min((at for at, _ in found if (column, at) in kept), default=None)
        for view in views:
            newest = _newest(found, view)
            if newest is not None and lowest is not None and lowest < newest[0]:
                kept.add((column, newest[0]))


def _newest(found: Sequence[tuple[int, bytes]], view: Extent) -> tuple[int, bytes] | None:
    """Return the newest version of a column in a view."""
    return max((one for one in found if one[0] in view), default=None)


def _is_nothing(column: Column, newest: tuple[int, bytes], created: int) -> bool:
    """Return whether a cell shows the same as no cell, in the life of its node that began at ``created``.

    A property that was removed later in this life is part of the node's version (``NodeState.version``).
    """
    at, value = newest
    if column[0] == schema.CHILDREN:
        return value == schema.GONE
    return value == values.TOMBSTONE and at == created and column not in _OWN
