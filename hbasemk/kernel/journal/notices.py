"""The notice by which polls learn that something beside the revisions has changed."""

from __future__ import annotations

from hbasemk.format import schema
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import NewCell, Put


def write(store: RetryingStore, runtime: Runtime) -> None:
    """Make every instance read the checkpoints again after its next poll. One round trip.

    In a store that orders all writes, this is a write to the journal. So a transaction that skips its check if nothing was
    written since its view checks again.
    """
    value = runtime.random.getrandbits(64).to_bytes(8, "big")
    if store.supports_transactions:
        store.write(schema.JOURNAL, [Put(schema.NOTICE_FIRST, [NewCell(*schema.SWEPT, value)])])
    else:
        store.write(schema.CLUSTER, [Put(schema.LOGS_TAIL, [NewCell(*schema.CHECKPOINTS_NOTICE, value)])])
