"""How a collector deletes what it found in a row: by ranges of versions, and version by version where a range holds others.

A store keeps one mark for a range, and one for each exact version. So ranges cost less where many versions are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from hbasemk.store.abc import Cell, CellVersion, Column, Delete, DeleteBelow, Row

FEW: Final = 2
"""Up to so many columns of ended lives get ranges of their own; more of them share one of their family."""


def ended_families(row: Row, gone: Collection[CellVersion], life: int) -> list[tuple[bytes, int]]:
    """Return the ranges of whole families that hold nothing but cells of lives that ended before the life ``life`` began.

    ``row`` has all versions of each family that occurs in it, up to some revision.
    """
    columns: dict[bytes, set[bytes]] = {}
    mixed: set[bytes] = set()
    for family, qualifier, at, _ in row.cells:
        if at < life:
            columns.setdefault(family, set()).add(qualifier)
            if CellVersion(family, qualifier, at) not in gone:
                mixed.add(family)
    return [(family, life) for family, names in columns.items() if len(names) > FEW and family not in mixed]


def split(
    row: Row, gone: Collection[CellVersion], families: Sequence[tuple[bytes, int]] = ()
) -> tuple[list[Delete], list[DeleteBelow]]:
    """Return the deletes of these versions, exact ones and ranges.

    ``row`` has all versions of each of its columns, up to some revision. ``families`` are ranges that are deleted as a whole.
    """
    whole = dict(families)
    columns: dict[Column, list[Cell]] = {}
    for cell in row.cells:
        if cell.timestamp >= whole.get(cell.family, 0):
            columns.setdefault(cell[:2], []).append(cell)
    exact: list[CellVersion] = []
    ranges: list[CellVersion] = []
    for column, cells in columns.items():
        # Oldest first: the versions before the first one that stays are one range.
        versions = [cell.timestamp for cell in reversed(cells)]
        is_gone = [CellVersion(*column, at) in gone for at in versions]
        first = next((number for number, one in enumerate(is_gone) if not one), len(versions))
        if first:
            ranges.append(CellVersion(*column, versions[first - 1] + 1))
        exact += [CellVersion(*column, at) for at, one in zip(versions[first:], is_gone[first:], strict=True) if one]
    return (
        [Delete(row.key, exact)] if exact else [],
        [DeleteBelow(row.key, ranges, families)] if ranges or families else [],
    )
