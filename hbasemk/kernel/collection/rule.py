"""Which versions of one row no readable view needs.

The readable views are "all of trunk up to the horizon" and every later one: branches and checkpoints keep the horizon at or
below their views. Only trunk versions up to the horizon are considered. The rule treats a row, or some of its columns
together with ``deleted``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hbasemk.format import schema, values
from hbasemk.store.abc import CellVersion, Column

Versions = Mapping[Column, Sequence[tuple[int, bytes]]]
"""The trunk versions of some columns of a row, in any order: timestamp and value."""

_OWN: Final = (schema.DELETED, schema.LAST_REVISION)


def collectable(versions: Versions, horizon: int) -> list[CellVersion]:
    """Return the versions up to the horizon that no readable view needs.

    ``versions`` contain ``deleted``, all of its versions. A node that is deleted at the horizon keeps the mark of its deletion,
    which distinguishes it from one that never existed.
    """
    kept = set(_needed(versions, horizon))
    return [
        CellVersion(*column, at)
        for column, found in versions.items()
        for at, _ in sorted(found)
        if at <= horizon and (column, at) not in kept
    ]


def _needed(versions: Versions, horizon: int) -> Iterator[tuple[Column, int]]:
    """Yield what the view at the horizon shows of the row; of a node that is deleted there, the mark of the deletion."""
    life = _newest(versions.get(schema.DELETED, ()), horizon)
    if life is None:
        return
    created, value = life
    yield schema.DELETED, created
    if value != schema.ALIVE:
        return
    for column, found in versions.items():
        newest = _newest(found, horizon)
        if newest is not None and newest[0] >= created and not _is_nothing(column, newest, created):
            yield column, newest[0]


def _newest(found: Sequence[tuple[int, bytes]], horizon: int) -> tuple[int, bytes] | None:
    """Return the newest version of a column up to the horizon."""
    return max((one for one in found if one[0] <= horizon), default=None)


def _is_nothing(column: Column, newest: tuple[int, bytes], created: int) -> bool:
    """Return whether a cell shows the same as no cell, in the life of its node that began at ``created``.

    A property that was removed later in this life is part of the node's version (``NodeState.version``); a slot that a fold has
    emptied is not.
    """
    at, value = newest
    if column[0] == schema.CHILDREN:
        return value == schema.GONE
    return value == values.TOMBSTONE and (at == created or schema.is_slot(column)) and column not in _OWN
