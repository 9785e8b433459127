"""Checkpoints: revisions that stay readable for a time, told in the settings row so that every collector knows them.

Who makes one removes those that are long over, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.retry import again
from hbasemk.store.abc import Cell, CellVersion, Delete, Get, NewCell, Put

PREFIX: Final = b"checkpoint:"
LONG_OVER_MS: Final = 3_600_000
"""So long after its end a checkpoint is removed, not before: it was promised by a clock that may be a little wrong."""


def keep(instance: Instance, which: int, until_ms: int) -> None:
    """Keep a revision readable until a time (ms since 1970), or longer if it was to be kept longer already."""
    column = (schema.DATA, PREFIX + schema.revision_key(which))
    put = Put(schema.SETTINGS_ROW, [NewCell(*column, until_ms.to_bytes(8, "big"))])
    while True:
        cells = _cells(instance)
        found = next((cell.value for cell in cells if cell.qualifier == column[1]), None)
        if found is not None and int.from_bytes(found, "big") >= until_ms:
            break
        # Somebody else may promise more at the same time; after a lost reply the next look finds what was written.
        if again(
            instance.runtime,
            lambda found=found: instance.store.check_and_write(schema.CLUSTER, column, found, put),  # type: ignore[misc]
        ):
            break
    instance.outcomes.quietly(lambda: _remove(instance, cells))


def all_of(instance: Instance) -> dict[int, int]:
    """Every checkpoint with the time until which it is kept, some that are over included. One round trip."""
    return {_which(cell): int.from_bytes(cell.value, "big") for cell in _cells(instance)}


def _cells(instance: Instance) -> list[Cell]:
    get = Get(schema.SETTINGS_ROW, families=(schema.DATA,))
    row = again(instance.runtime, lambda: instance.store.read(schema.CLUSTER, [get]))[0]
    return [cell for cell in row.cells if cell.qualifier.startswith(PREFIX)]


def _which(cell: Cell) -> int:
    return int.from_bytes(cell.qualifier[len(PREFIX) :], "big")


def _remove(instance: Instance, cells: Sequence[Cell]) -> None:
    """Remove those that are over; exactly the cells that were read, so that what was promised since stays."""
    perhaps = max(instance.runtime.now_ms(), instance.lease.server.at_most(instance.runtime.monotonic()))
    if not _over(cells, perhaps):
        return
    over = _over(cells, instance.lease.time() + instance.settings.epoch_ms)
    if over:
        deletes = [Delete(schema.SETTINGS_ROW, over)]
        again(instance.runtime, lambda: instance.store.delete(schema.CLUSTER, deletes))


def _over(cells: Sequence[Cell], now: float) -> list[CellVersion]:
    return [
        CellVersion(cell.family, cell.qualifier, cell.timestamp)
        for cell in cells
        if int.from_bytes(cell.value, "big") + LONG_OVER_MS < now
    ]
