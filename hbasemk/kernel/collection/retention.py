"""The retention: for how long old revisions stay readable. A setting of the repository that may change at any time."""

from __future__ import annotations

from typing import Final

from hbasemk.errors import InvalidValueError
from hbasemk.format import schema
from hbasemk.format.limits import shown
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import FOREVER, LONGEST_MS
from hbasemk.store.abc import Cell, Get, NewCell, Put

SHORTEST_MS: Final = 60_000
_RETENTION: Final = Get(schema.SETTINGS_ROW, columns=(schema.RETENTION,))


def read(instance: Instance) -> int | None:
    """Return the retention in ms; None: without limit, so that nothing is collected. One round trip."""
    (row,) = instance.store.read(schema.CLUSTER, [_RETENTION])
    return decode(row.cells[0].value if row.cells else None)


def decode(data: bytes | None) -> int | None:
    """Parse the cell; a repository of an older version has none. Raises FormatError if it is damaged."""
    if data is None or data == FOREVER:
        return None
    try:
        found = int(data)
        # int also takes spaces, signs and underscores.
        if not data.isdigit() or not SHORTEST_MS <= found <= LONGEST_MS:
            raise ValueError("out of range")
    except ValueError as error:
        raise schema.damaged(
            f"the retention must be a number of ms from {SHORTEST_MS}, or {FOREVER.decode()}, got {shown(data)}",
            schema.CLUSTER,
            schema.SETTINGS_ROW,
            schema.RETENTION,
        ) from error
    return found


def check(retention_ms: int | None) -> None:
    """Raise InvalidValueError unless a repository can have this retention; None: without limit."""
    if retention_ms is not None and not SHORTEST_MS <= retention_ms <= LONGEST_MS:
        raise InvalidValueError(
            f"the retention must be from {SHORTEST_MS // 1000} to {LONGEST_MS // 1000} seconds, or forever, got "
            f"{retention_ms / 1000:.15g} s; nothing was changed"
        )


def write(instance: Instance, retention_ms: int | None) -> None:
    """Change the retention; None: without limit. Collectors use it from their next run on. Three round trips.

    Raises InvalidValueError for a retention that is not possible.
    """
    check(retention_ms)
    data = FOREVER if retention_ms is None else str(retention_ms).encode()
    is_written = False
    # A success does not suffice: the comparison is of values, so newer cells with the compared value may hide this one.
    while True:
        (row,) = instance.store.read(schema.CLUSTER, [_RETENTION])
        before = row.cells[0] if row.cells else None
        if is_written and before is not None and before.value == data:
            return
        cell = NewCell(*schema.RETENTION, data, None if before is None else _later(before, data))
        expected = None if before is None else before.value
        instance.store.check_and_write(schema.CLUSTER, schema.RETENTION, expected, Put(schema.SETTINGS_ROW, [cell]))
        is_written = True


def _later(before: Cell, data: bytes) -> int:
    """Return the timestamp of a cell that replaces ``before``. It depends on no clock.

    So a request that arrives late is hidden by the cells that came after the one that it was to replace. The second step is
    for a cell with the same value: that one does not make the comparison of such a request fail.
    """
    return before.timestamp + (2 if before.value == data else 1)
