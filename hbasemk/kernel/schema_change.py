"""A change of the application's schema number, after which no process commits that does not accept the new number.

A process reads the number in the settings before it writes a renewal of its lease, and after it has written a claim. So
a process has accepted the new number if it renewed its lease twice after the number was set: it read the number between
the two. A process that does not accept it lets its lease expire. The writer waits until one of the two is true of each
lease that was live when the number was set. Then it aborts what processes with expired leases left pending. A transaction of
a process that was paused leaves nothing pending; it reads the number itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from hbasemk.errors import ClosedError, SchemaVersionError
from hbasemk.format import schema
from hbasemk.kernel import schema_version
from hbasemk.kernel.ids.leases import all_leases, lease_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import notices
from hbasemk.store.abc import NewCell, Put

LOOK_EVERY: Final = 0.1
"""Seconds between two reads of the leases."""
RENEWALS: Final = 2


def current(instance: Instance) -> int:
    """Return the number in the store. One round trip."""
    return schema_version.read(instance.store)


def change(instance: Instance, new: int, expected: int) -> None:
    """Replace the number by compare-and-set, and wait until all processes know it, for at most a lease and the skew.

    It waits also if the number is ``new`` already: an earlier call may have ended before its wait did.
    Raises SchemaVersionError if the number is not ``expected``; then nothing was written.
    """
    _replace(instance, new, expected)
    if instance.store.supports_transactions:
        # From here on, each transaction of a process that names numbers reads the new one.
        notices.write(instance.store, instance.runtime)
    _wait_for_others(instance)
    instance.poll()
    instance.recovery.recover()


def _replace(instance: Instance, new: int, expected: int) -> None:
    store = instance.store
    data = schema_version.encode(new, instance.runtime.random.getrandbits(128).to_bytes(16, "big"))
    before = schema_version.stored(store)
    found = 0 if before is None else schema_version.decode(before)
    if found == expected == new:
        return
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SCHEMA_VERSION, data)])
    if found == expected and store.check_and_write(schema.CLUSTER, schema.SCHEMA_VERSION, before, put):
        return
    now = schema_version.stored(store)
    # After a lost reply, the second attempt finds the cell that the first one wrote.
    if now != data:
        found = 0 if now is None else schema_version.decode(now)
        raise SchemaVersionError(
            f"the repository at {store.location} has the schema number {found}, and {expected} was expected: another process "
            f"has changed it. The number {new} was not written.",
            found=found,
            expected=expected,
        )


def _wait_for_others(instance: Instance) -> None:
    lease = instance.lease
    waiting = {machine: (record, 0) for machine, record in all_leases(instance.store).items()}
    if lease.held:
        waiting.pop(lease.machine, None)
    while True:
        for machine, (before, renewals) in list(waiting.items()):
            record = lease_of(instance.store, machine)
            renewals += record != before
            # A new holder has claimed the machine id, and read the new number after that.
            is_other = record is None or record.nonce != before.nonce
            if record is None or is_other or renewals >= RENEWALS or lease.has_ended(machine, record):
                del waiting[machine]
            else:
                waiting[machine] = record, renewals
        if not waiting:
            return
        if instance.runtime.closed:
            raise ClosedError(
                "the repository was closed while set_schema_version waited for other processes; the number has been set"
            )
        with suppress(SchemaVersionError):
            # This process need not accept the number that it sets. Then only its lease is not renewed.
            lease.keep()
        instance.runtime.sleep(LOOK_EVERY)
