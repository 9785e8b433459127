"""Cells of rows that have the same columns, as most new nodes of a load have.

The columns and their sizes are kept once for all these rows. So the kernel and a store need not look at each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final, TypeAlias, Union, overload

NewCellFields: TypeAlias = tuple[bytes, bytes, bytes, Union[int, None]]  # noqa: UP007 - evaluated at run time on 3.10
"""The fields of a NewCell. A plain tuple of them takes less time to create, and Python does not visit it for garbage."""


class Columns:
    """Different columns of one family: ``size`` is the length of all qualifiers in bytes, ``longest`` that of the longest."""

    __slots__ = ("family", "longest", "qualifiers", "size")

    def __init__(self, family: bytes, qualifiers: Sequence[bytes]) -> None:
        self.family: Final = family
        self.qualifiers: Final = tuple(qualifiers)
        self.size: Final = sum(map(len, qualifiers))
        self.longest: Final = max(map(len, qualifiers))


class AlikeCells(Sequence[NewCellFields]):
    """Cells of one row without timestamps of their own: ``values`` in the order of ``columns``.

    No other put of the same call may write into that row: a store may write such rows in any order. ``size`` is the length of
    all qualifiers and values in bytes. Nobody may change the values.
    """

    __slots__ = ("columns", "size", "values")

    def __init__(self, columns: Columns, values: tuple[bytes, ...]) -> None:
        self.columns = columns
        self.values = values
        # Faster than a sum.
        size = columns.size
        for value in values:
            size += len(value)
        self.size = size

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.values)

    def __iter__(self) -> Iterator[NewCellFields]:
        """Yield the fields of each cell."""
        columns = self.columns
        return zip(repeat(columns.family), columns.qualifiers, self.values, repeat(None))

    @overload
    def __getitem__(self, index: int) -> NewCellFields: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[NewCellFields, ...]: ...

    def __getitem__(self, index: int | slice) -> NewCellFields | tuple[NewCellFields, ...]:
        """Return the fields of one cell or of several."""
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        """Return whether both have equal cells in the same order."""
        return isinstance(other, AlikeCells) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of the cells."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the fields of each cell."""
        return repr(tuple(self))

    def fit(self, longest_key: int, longest_value: int) -> bool:
        """Return True if it is certain that no qualifier and no value exceeds these lengths in bytes."""
        return self.size <= longest_value and self.columns.longest <= longest_key


def size_of_new(cells: Sequence[NewCellFields]) -> int:
    """Return the length of the qualifiers and values of cells to write, in bytes."""
    if type(cells) is AlikeCells:
        return cells.size
    # Faster than a sum over a generator.
    size = 0
    for _, qualifier, value, _ in cells:
        size += len(qualifier) + len(value)
    return size
