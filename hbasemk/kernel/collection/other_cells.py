"""What a run deletes besides the cells of nodes that the journal names."""

from __future__ import annotations

from hbasemk.format import schema
from hbasemk.kernel.collection import journal_rows, leases, memos, passed_rows
from hbasemk.kernel.collection.run import Run


def collect(run: Run, batches: int | None = None) -> bool:
    """Delete what nothing needs any more. The windows of the journal are done.

    ``batches``: read at most so many batches of journal rows in each of two passes. Returns whether nothing is left to do.
    """
    store, horizon = run.instance.store, run.horizon
    if not passed_rows.collect(run, batches) or not journal_rows.collect(run, batches):
        return False
    run.delete(memos.KIND, schema.CLUSTER, memos.old_memos(store, horizon))
    # Before the leases: a log without its holder's name stays closed.
    run.delete_below(leases.LOGS, schema.CLUSTER, leases.old_logs(store, horizon))
    run.delete_below(leases.KIND, schema.CLUSTER, leases.old_leases(store, horizon))
    return True
