"""The valid columns and values of cells in ``nodes``, regardless of their revisions."""

from __future__ import annotations

from functools import lru_cache

from hbasemk.check import problem as kinds
from hbasemk.errors import FormatError, InvalidPathError
from hbasemk.format import adjusted, exact, paths, schema, values
from hbasemk.store.abc import Cell


def describe(cell: Cell) -> str:
    """Return a description of a cell's column."""
    try:
        return schema.describe((cell.family, cell.qualifier))
    except FormatError:
        return f"column {cell.qualifier[:60]!r}"


@lru_cache(maxsize=256)
def is_name(qualifier: bytes) -> bool:
    """Return whether these bytes are a valid name of a child or property."""
    try:
        paths.check_name(paths.decode(qualifier))
    except (FormatError, InvalidPathError):
        return False
    return True


def wrong_value(cell: Cell) -> tuple[str, str] | None:
    """Return the kind and the reason if a cell is invalid by itself, else None."""
    if cell.qualifier[:1] == b"\x01" and cell.family != schema.CHILDREN:
        return _wrong_property(cell)
    column = (cell.family, cell.qualifier)
    if cell.family == schema.CHILDREN:
        if not is_name(cell.qualifier):
            return kinds.COLUMN, "no child can have this name"
        expected: tuple[bytes, ...] = (schema.PRESENT, schema.GONE)
    elif column == schema.DELETED:
        expected = (schema.ALIVE, schema.DEAD)
    elif column == schema.LAST_REVISION:
        expected = (schema.TOUCHED, schema.mark(cell.timestamp), schema.shared_mark(cell.timestamp))
    elif schema.is_slot(column):
        if not is_name(cell.qualifier[schema.SLOT_HEAD :]):
            return kinds.COLUMN, "no property can have this name"
        try:
            if cell.value != values.TOMBSTONE:
                exact.decode(cell.value)
        except FormatError as error:
            return kinds.VALUE, str(error)
        return None
    else:
        return kinds.COLUMN, f"nodes have no column {cell.qualifier[:60]!r}"
    return None if cell.value in expected else (kinds.VALUE, f"it is {cell.value[:40]!r}")


def _wrong_property(cell: Cell) -> tuple[str, str] | None:
    if not is_name(cell.qualifier[1:]):
        return kinds.COLUMN, "no property can have this name"
    value = cell.value
    if value == values.TOMBSTONE:
        return None
    try:
        values.decode(adjusted.decode_base(value).plain or values.TOMBSTONE if adjusted.is_relative(value) else value)
    except FormatError as error:
        return kinds.VALUE, str(error)
    return None


def blobs_of(data: bytes) -> list[str]:
    """Return the ids of the blobs to which a stored value refers; none if it cannot be decoded."""
    try:
        return values.blobs_of(data)
    except FormatError:
        return []
