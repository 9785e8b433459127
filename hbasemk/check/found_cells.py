"""The cells of each revision that the check has found in ``nodes``, as one number for each revision.

The number of a set of cells is the exclusive or of their hashes of 64 bits. If it is that of the cells that the revision
declares, all of them exist, with the declared flags, and the check need not read them a second time. Hashes are the same in
all processes, so those of the workers of one check can be combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from hashlib import blake2b
from operator import xor
from typing import Final

from hbasemk.format import changes, paths, schema
from hbasemk.format.changes import RowChange
from hbasemk.store.abc import Column

REMEMBERED: Final = 200_000
"""The number of revisions that have a number; the check compares the cells of others one by one."""


def hash_of_path(path: str) -> int:
    """Return the hash of a path."""
    return _hash_of_bytes(paths.encode(path))


def hash_of(hashed_path: int, column: Column) -> int:
    """Return the hash of a cell of one revision; ``hashed_path`` is that of :func:`hash_of_path`."""
    # Hashes of numbers are the same in all processes, hashes of bytes are not.
    return hash((hashed_path, _hash_of_column(column)))


def hash_of_added(number: int) -> int:
    """Return the hash of an added node; ``number`` is that of its cells. It differs from the hash of a single cell."""
    return hash((number, 1))


def with_flag(hashed: int, column: Column, value: bytes) -> int:
    """Return the hash of a cell together with its value, if the revision declares that value."""
    if column[0] == schema.CHILDREN:
        return hashed if value == schema.PRESENT else hash((hashed, _hash_of_bytes(value)))
    if column == schema.DELETED:
        return hashed if value == schema.ALIVE else hash((hashed, _hash_of_bytes(value)))
    return hashed


@lru_cache(maxsize=1000)
def _hash_of_column(column: Column) -> int:
    family, qualifier = column
    return _hash_of_bytes(family + b"\0" + qualifier)


def _hash_of_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def hashes_of(change: RowChange) -> list[int]:
    """Return the hashes of the cells that a revision declares for one row."""
    hashed_path = hash_of_path(change.path)
    return [hash_of(hashed_path, column) for column in change.columns()]


def declared_node(change: RowChange, hashes: Sequence[int]) -> int | None:
    """Return the hash of the node that a revision adds, from its cells without those of children; ``hashes`` are all of them.

    None if the revision does not add the node, or adjusts it as well.
    """
    if change.kind != changes.ADDED or change.adjusted:
        return None
    # The columns of children come last.
    own = hashes[: len(hashes) - len(change.children_added) - len(change.children_removed)]
    return hash_of_added(reduce(xor, own, 0))


def number_of(declared: Sequence[RowChange], hashes: Sequence[int]) -> int:
    """Return the number of the cells that a revision declares; ``hashes`` are those of its columns."""
    number = reduce(xor, hashes, 0)
    for change in declared:
        if change.kind != changes.REMOVED and not change.children_removed:
            continue
        hashed_path = hash_of_path(change.path)
        if change.kind == changes.REMOVED:
            number ^= _instead(hashed_path, schema.DELETED, schema.DEAD)
        for name in change.children_removed:
            number ^= _instead(hashed_path, schema.child_column(name), schema.GONE)
    return number


def _instead(hashed_path: int, column: Column, value: bytes) -> int:
    """Return what replaces the hash of a cell by that with this value."""
    hashed = hash_of(hashed_path, column)
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

    def take(self) -> dict[int, int]:
        """Return all numbers, and forget them."""
        numbers, self._numbers = self._numbers, {}
        return numbers
