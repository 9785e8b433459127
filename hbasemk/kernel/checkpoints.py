"""Checkpoints: revisions that stay readable for a time, told in the settings row so that every collector knows them."""

from __future__ import annotations

from typing import Final

from hbasemk.kernel import schema
from hbasemk.kernel.calls import again
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get, NewCell, Put

PREFIX: Final = b"checkpoint:"


def keep(instance: Instance, which: int, until_ms: int) -> None:
    """Keep a revision readable until a time (ms since 1970), or longer if it was to be kept longer already."""
    column = (schema.DATA, PREFIX + schema.revision_key(which))
    found = all_of(instance).get(which, 0)
    cell = NewCell(*column, max(found, until_ms).to_bytes(8, "big"))
    again(instance.runtime, lambda: instance.store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [cell])]))


def all_of(instance: Instance) -> dict[int, int]:
    """Every checkpoint with the time until which it is kept, those that are over included. One round trip."""
    get = Get(schema.SETTINGS_ROW, families=(schema.DATA,))
    row = again(instance.runtime, lambda: instance.store.read(schema.CLUSTER, [get]))[0]
    return {
        int.from_bytes(cell.qualifier[len(PREFIX) :], "big"): int.from_bytes(cell.value, "big")
        for cell in row.cells
        if cell.qualifier.startswith(PREFIX)
    }
