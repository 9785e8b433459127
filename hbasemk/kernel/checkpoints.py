"""Checkpoints: revisions that stay readable for a time, listed in the settings row for every collector.

Creating a checkpoint also removes checkpoints that expired long ago, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Cell, CellVersion, Delete, Get, NewCell, Put

PREFIX: Final = b"checkpoint:"
REMOVE_AFTER_MS: Final = 3_600_000
"""How long after its expiry a checkpoint is removed; the clock that set its expiry may be slightly wrong."""


def keep_for(instance: Instance, revision: int, lifetime_ms: int) -> None:
    """Keep a revision readable for at least so many ms from now."""
    keep(instance, revision, instance.runtime.now_ms() + lifetime_ms)


def keep(instance: Instance, revision: int, until_ms: int) -> None:
    """Keep a revision readable until a time (ms since 1970), or longer if an existing checkpoint does so."""
    column = (schema.DATA, PREFIX + schema.revision_key(revision))
    put = Put(schema.SETTINGS_ROW, [NewCell(*column, until_ms.to_bytes(8, "big"))])
    while True:
        cells = _cells(instance)
        found = next((cell.value for cell in cells if cell.qualifier == column[1]), None)
        if found is not None and int.from_bytes(found, "big") >= until_ms:
            break
        # Another process may set a later time concurrently. After a lost reply, the next read finds what was written.
        if instance.store.check_and_write(schema.CLUSTER, column, found, put):
            break
    instance.outcomes.quietly(lambda: _remove(instance, cells))


def all_of(instance: Instance) -> dict[int, int]:
    """Return every checkpoint and its expiry (ms since 1970), including some expired ones. One round trip."""
    return {_revision_of(cell): int.from_bytes(cell.value, "big") for cell in _cells(instance)}


def _cells(instance: Instance) -> list[Cell]:
    get = Get(schema.SETTINGS_ROW, families=(schema.DATA,))
    row = instance.store.read(schema.CLUSTER, [get])[0]
    return [cell for cell in row.cells if cell.qualifier.startswith(PREFIX)]


def _revision_of(cell: Cell) -> int:
    return int.from_bytes(cell.qualifier[len(PREFIX) :], "big")


def _remove(instance: Instance, cells: Sequence[Cell]) -> None:
    """Remove expired checkpoints: exactly the cells that were read, so that later extensions stay."""
    latest_now = max(instance.runtime.now_ms(), instance.lease.server.at_most(instance.runtime.monotonic()))
    if not _expired(cells, latest_now):
        return
    expired = _expired(cells, instance.lease.time() + instance.settings.epoch_ms)
    if expired:
        instance.store.delete(schema.CLUSTER, [Delete(schema.SETTINGS_ROW, expired)])


def _expired(cells: Sequence[Cell], now: float) -> list[CellVersion]:
    return [
        CellVersion(cell.family, cell.qualifier, cell.timestamp)
        for cell in cells
        if int.from_bytes(cell.value, "big") + REMOVE_AFTER_MS < now
    ]
