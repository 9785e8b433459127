"""The cells of each revision that the check has found in ``nodes``, as one number for each revision.

The number of a set of cells is the exclusive or of their hashes of 64 bits. If it is that of the cells that the revision
declares, all of them exist, with the declared flags, and the check need not read them a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Final

from hbasemk.format import changes, schema
from hbasemk.format.changes import RowChange
from hbasemk.store.abc import Column

REMEMBERED: Final = 200_000
"""The number of revisions that have a number; the check compares the cells of others one by one."""


def hash_of(path: str, column: Column) -> int:
    """Return the hash of a cell of one revision."""
    return hash((path, column))


def with_flag(hashed: int, column: Column, value: bytes) -> int:
    """Return the hash of a cell together with its value, if the revision declares that value."""
    if column[0] == schema.CHILDREN:
        return hashed if value == schema.PRESENT else hash((hashed, value))
    if column == schema.DELETED:
        return hashed if value == schema.ALIVE else hash((hashed, value))
    return hashed


def number_of(declared: Sequence[RowChange], hashes: Sequence[int]) -> int:
    """Return the number of the cells that a revision declares; ``hashes`` are those of its columns."""
    number = reduce(xor, hashes, 0)
    for change in declared:
        if change.kind == changes.REMOVED:
            number ^= _instead(change.path, schema.DELETED, schema.DEAD)
        for name in change.children_removed:
            number ^= _instead(change.path, schema.child_column(name), schema.GONE)
    return number


def _instead(path: str, column: Column, value: bytes) -> int:
    """Return what replaces the hash of a cell by that with this value."""
    hashed = hash_of(path, column)
    return hashed ^ with_flag(hashed, column, value)


class FoundCells:
    """The numbers of the found cells."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def add(self, numbers: Mapping[int, int]) -> None:
        """Add cells, given as a number for each revision. Each cell may be added once only."""
        known = self._numbers
        for revision, number in numbers.items():
            if revision in known:
                known[revision] ^= number
            elif len(known) < REMEMBERED:
                known[revision] = number

    def are(self, revision: int, number: int | None) -> bool:
        """Return whether the found cells of a revision have this number."""
        return number is not None and self._numbers.get(revision) == number
