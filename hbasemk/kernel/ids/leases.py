"""Reads of the lease records of all processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.lease_record import LeaseRecord, record_of
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Get, Scan, scan_all

BATCH: Final = 1000


def lease_of(store: RetryingStore, machine: int) -> LeaseRecord | None:
    """Return the lease of a machine id, None if there is none; raise FormatError if it is damaged. One round trip."""
    return record_of(store.read(schema.CLUSTER, [Get(schema.machine_key(machine), columns=(schema.LEASE,))])[0])


def leases_of(
    store: RetryingStore, machines: Sequence[int], damage: Damage | None = None
) -> dict[int, LeaseRecord | None]:
    """Return the leases of some machine ids. One round trip for each batch; none for no machine ids.

    Raises FormatError if one is damaged. With ``damage``, keeps the error there and leaves this machine id out.
    """
    rows = store.read(schema.CLUSTER, [Get(schema.machine_key(one), columns=(schema.LEASE,)) for one in machines])
    if damage is None:
        return {machine: record_of(row) for machine, row in zip(machines, rows, strict=True)}
    found: dict[int, LeaseRecord | None] = {}
    for machine, row in zip(machines, rows, strict=True):
        with damage.kept(f"the revisions of machine id {machine:04x} cannot be rolled back"):
            found[machine] = record_of(row)
    return found


def all_leases(store: RetryingStore, damaged: set[int] | None = None) -> dict[int, LeaseRecord]:
    """Return all leases by machine id. One round trip for each 1000.

    Raises FormatError if one is damaged. With ``damaged``, adds its machine id there instead.
    """
    found: dict[int, LeaseRecord] = {}
    for row in scan_all(store, schema.CLUSTER, Scan(None, None, BATCH, columns=(schema.LEASE,))):
        machine = int.from_bytes(row.key, "big")
        try:
            record = record_of(row)
        except FormatError:
            if damaged is None:
                raise
            damaged.add(machine)
        else:
            if record is not None:
                found[machine] = record
    return found
