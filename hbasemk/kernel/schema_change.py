"""A change of the application's schema number, after which no process commits that does not accept the new number.

A process reads the number in the settings before it writes a renewal of its lease, and after it has written a claim. So
a process has accepted the new number if it renewed its lease twice after the number was set: it read the number between
the two. A process that does not accept it lets its lease expire. The writer waits until one of the two is true of each
lease that was live when the number was set. Then it aborts what processes with expired leases left pending.

A process that was paused before its first write of a commit leaves nothing pending. In a store with transactions, this write
reads the number itself. In other stores, the writer closes the logs of all processes with expired leases, so such a process
cannot announce its revision. A renewal that was on its way meanwhile may extend an expired lease; then the writer waits again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from hbasemk.errors import ClosedError, HbasemkError, SchemaVersionError
from hbasemk.format import schema
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel import schema_version
from hbasemk.kernel.ids.leases import all_leases, lease_of, leases_of
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
    """Replace the number by compare-and-set, and wait until all processes know it.

    If a process is killed after one renewal, this waits until its lease is over: at most four thirds of the lease, and the skew.
    On HBase the wait begins again for each lease that was renewed late.

    It waits also if the number is ``new`` already: an earlier call may have ended before its wait did.
    Raises SchemaVersionError if the number is not ``expected``, and FormatError for a lease that cannot be read; then nothing was
    written. An error of the wait says that the number is set.
    """
    with _prefixed("the schema number was not changed, because not all processes could be waited for"):
        all_leases(instance.store)
    _replace(instance, new, expected)
    unknown = "it is not known whether all other processes know it"
    with _prefixed(f"the schema number is {new} now, but {unknown}; set it again, with expected={new}"):
        _wait_for_all(instance, new)


@contextmanager
def _prefixed(effect: str) -> Iterator[None]:
    """Say in an error of the block what it means for the number."""
    try:
        yield
    except HbasemkError as error:
        error.message = f"{effect}: {error.message}"
        raise


def _wait_for_all(instance: Instance, new: int) -> None:
    """Wait until all processes know the number, and none that does not accept it has left anything pending."""
    if instance.store.supports_transactions:
        # A process with an earlier version of the library reads the number only if something was written since its poll.
        notices.write(instance.store, instance.runtime)
    waiting = all_leases(instance.store)
    lease = instance.lease
    if lease.held and (instance.store.supports_transactions or schema_version.accepts(lease.accepted, new)):
        waiting.pop(lease.machine, None)
    while True:
        ended = _wait_for(instance, waiting)
        # A process that paused before it announced a revision cannot announce it afterwards.
        instance.recovery.close_logs()
        instance.poll()
        instance.recovery.recover()
        waiting = _renewed_late(instance, ended)
        if not waiting:
            return


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
            f"the repository at {store.location} has the schema number {found}, and {expected} was expected: another process may "
            f"have changed it. The number {new} was not written.",
            found=found,
            expected=expected,
        )


def _wait_for(instance: Instance, leases: Mapping[int, LeaseRecord]) -> dict[int, LeaseRecord]:
    """Wait until the holder of each lease has read the number, or the lease is over; return the leases that are over."""
    lease = instance.lease
    waiting = {machine: (record, 0) for machine, record in leases.items()}
    ended: dict[int, LeaseRecord] = {}
    while True:
        for machine, (before, renewals) in list(waiting.items()):
            record = lease_of(instance.store, machine)
            # A release shortens the lease, and reads nothing before.
            renewals += record is not None and record.end > before.end
            # A new holder has claimed the machine id, and read the new number after that.
            is_other = record is None or record.nonce != before.nonce
            if record is None or is_other or renewals >= RENEWALS:
                del waiting[machine]
            elif lease.has_ended(machine, record):
                ended[machine] = record
                del waiting[machine]
            else:
                waiting[machine] = record, renewals
        if not waiting:
            return ended
        if instance.runtime.closed:
            raise ClosedError("the repository was closed while set_schema_version waited for other processes")
        with suppress(SchemaVersionError):
            # This process need not accept the number that it sets. Then its lease is not renewed, and ends.
            lease.keep()
        instance.runtime.sleep(LOOK_EVERY)


def _renewed_late(instance: Instance, ended: Mapping[int, LeaseRecord]) -> dict[int, LeaseRecord]:
    """Return which of the leases that were over have been extended by the same holder since. One round trip for each 1000.

    The holder may have read the number before it was set, and may have gone on with a log that was left open, or with a
    pending revision that was not recovered. In a store with transactions this does not matter: each of them reads the number.
    """
    if instance.store.supports_transactions:
        return {}
    found = leases_of(instance.store, list(ended))
    return {
        machine: record
        for machine, record in found.items()
        if record is not None and record != ended[machine] and record.nonce == ended[machine].nonce
    }
