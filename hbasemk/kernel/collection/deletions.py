"""How a collector deletes what it found in a row: by ranges of versions, and version by version where a range holds others.

A store keeps one mark for a range, and one for each exact version. So ranges cost less where many versions go.
"""

from __future__ import annotations

from collections.abc import Collection

from hbasemk.store.abc import Cell, CellVersion, Column, Delete, DeleteBelow, Row


def split(row: Row, gone: Collection[CellVersion]) -> tuple[list[Delete], list[DeleteBelow]]:
    """Return the deletes of these versions, exact ones and ranges.

    ``row`` has all versions of each of its columns, up to some revision.
    """
    columns: dict[Column, list[Cell]] = {}
    for cell in row.cells:
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
        [DeleteBelow(row.key, ranges)] if ranges else [],
    )
