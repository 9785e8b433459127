"""The replacement of a lease that cannot be read, for repair.

The ids that the lost lease covered are unknown. The new lease ends later than the lost one can, so the next holder issues no
id twice. It has no holder, so it expires, and other instances recover what its writer left.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import journal_row, revisions, schema, writer_log
from hbasemk.format.lease_record import LeaseRecord, record_of
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Get, NewCell, Put, Scan

HOLDER: Final = "unknown: a repair replaced a damaged lease (format {})"
NOBODY: Final = bytes(16)
"""The nonce of a lease that no process holds; all other nonces are random."""


def replace(store: RetryingStore, settings: Settings, lease: Lease, machine: int) -> LeaseRecord | None:
    """Replace the lease of a machine id if it cannot be read; return the new one, or None if it can be read.

    ``lease`` measures the store's clock. Raises FormatError if the log of the machine id is damaged as well. If the writer still
    lives, its next renewal finds the new lease, and it claims another machine id.
    """
    row = store.read(schema.CLUSTER, [Get(schema.machine_key(machine), columns=(schema.LEASE,))])[0]
    try:
        record_of(row)
    except FormatError:
        # An empty value counts as absent.
        expected = row.cells[0].value or None
    else:
        return None
    skew = settings.max_clock_skew_ms
    latest = max(lease.time() + skew, *map(revisions.ms_of, _highest_ids(store, machine)))
    new = LeaseRecord(0, latest + settings.lease_ms + skew, NOBODY, HOLDER.format(settings.format))
    put = Put(row.key, [NewCell(*schema.LEASE, new.encode())])
    return new if store.check_and_write(schema.CLUSTER, schema.LEASE, expected, put) else None


def _highest_ids(store: RetryingStore, machine: int) -> tuple[int, int]:
    """Return the highest id in the journal, and the bound of the machine id's log.

    A correct lease ends at most a lease time, and the clock skew, after these and the store's time; the check tests the same.
    """
    scan = Scan(None, None, 1, reverse=True, columns=(schema.COMMITTED,))
    newest = next(journal_row.decode(store.scan(schema.JOURNAL, scan)), None)
    log = store.read(schema.CLUSTER, [Get(schema.log_key(machine), columns=(schema.LOG,))])[0]
    return 0 if newest is None else newest.revision, writer_log.decode(log).bound
