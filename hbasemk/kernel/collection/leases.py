"""Leases that ended so long ago that nothing depends on them.

The next holder of a machine id begins where the lease before ended, so that no id is issued twice. A lease whose ids are all
below the horizon may be deleted: a claim that finds no lease begins above the horizon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema
from hbasemk.format.lease_record import record_of
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import CellVersion, DeleteBelow, Scan, scan_all

KIND: Final = "leases"
LOGS: Final = "logs"
ROWS: Final = 1000


def old_leases(store: RetryingStore, horizon: int) -> Iterator[DeleteBelow]:
    """Yield all versions of the leases that ended below the horizon. The integrity check reports unreadable ones.

    A range: HBase may keep earlier versions of the cell, which the deletion of the newest one alone would show again.
    """
    scan = Scan(None, None, ROWS, columns=(schema.LEASE,))
    for row in scan_all(store, schema.CLUSTER, scan):
        try:
            record = record_of(row)
        except FormatError:
            continue
        if record is not None and record.end <= revisions.ms_of(horizon):
            yield DeleteBelow(row.key, [CellVersion(*schema.LEASE, cell.timestamp + 1) for cell in row.cells])


def old_logs(store: RetryingStore, horizon: int) -> Iterator[DeleteBelow]:
    """Yield the logs of the writers whose last ids are below the horizon; none if the store orders all writes.

    Without the name of its holder, nobody can write such a log any more. The next holder's cells are above the horizon.
    """
    if store.supports_transactions:
        return
    columns = (schema.LOG, schema.RECENT_COMMITS, schema.LOG_HOLDER, *schema.INTENTS)
    scan = Scan(schema.LOGS_HEAD, schema.LOGS_END, ROWS, columns=columns)
    for row in scan_all(store, schema.CLUSTER, scan):
        if schema.log_machine(row.key) is not None and all(cell.timestamp < horizon for cell in row.cells):
            yield DeleteBelow(row.key, [CellVersion(*cell[:2], horizon) for cell in row.cells])
