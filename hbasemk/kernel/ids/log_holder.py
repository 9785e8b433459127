"""How the holder of a lease takes over the log of its machine id, in a store that does not order all writes.

Only the holder named in the log's row may write the log: each write compares the name. So no earlier holder can announce a
revision afterwards, whatever its clock shows. See ``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format import revisions, schema, writer_log
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.format.writer_log import Claims, WriterLog
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.settings import watermark_of
from hbasemk.store.abc import Get, NewCell, Put, Row

READ_TO_TAKE: Final = (schema.CLAIMS, schema.WATERMARK, schema.SETTINGS, schema.SCHEMA_VERSION)


class TakenLog(NamedTuple):
    """A log as its new holder found it. The holder's ids must be greater than ``above``.

    ``settings`` has the repository's settings and the application's schema number, read after the log names the holder.
    """

    found: WriterLog
    above: int
    settings: Row


def take(store: RetryingStore, machine: int, lease: LeaseRecord) -> TakenLog | None:
    """Take over a log; return None if a later holder has it. Three round trips; more if the watermark moves meanwhile.

    The counter of claims changes after the row names the new holder. So an instance that moves the watermark has either read
    the row, or its compare-and-set fails, or the watermark read here is the one that it moved.
    """
    key = schema.log_key(machine)
    # Each holder's lease starts later, so the name of a later one hides this one.
    at = revisions.pack(min(lease.start, revisions.MAX_MS), machine, 0)
    store.write(schema.CLUSTER, [Put(key, [NewCell(*schema.LOG_HOLDER, lease.nonce, at)])])
    while True:
        own = Get(key, columns=(schema.LOG, schema.LOG_HOLDER, *schema.INTENTS))
        settings, row = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=READ_TO_TAKE), own])
        found = writer_log.decode(row)
        if found.holder != lease.nonce:
            return None
        cells = {cell[:2]: cell for cell in settings.cells}
        claims = Claims.decode(cells.get(schema.CLAIMS))
        watermark = watermark_of(cells, store)
        above = max(claims.watermark, 0 if watermark is None else watermark.revision)
        put = Put(schema.SETTINGS_ROW, [claims.next(above)])
        if store.check_and_write(schema.CLUSTER, schema.CLAIMS, claims.encode(), put):
            return TakenLog(found, max(above, found.bound), settings)


def close(store: RetryingStore, machine: int, log: WriterLog) -> None:
    """Keep the holder of a log from announcing anything more, unless another one has it by now. One round trip."""
    closed = Put(schema.log_key(machine), [NewCell(*schema.LOG_HOLDER, schema.CLOSED, log.holder_at + 1)])
    store.check_and_write(schema.CLUSTER, schema.LOG_HOLDER, log.holder, closed)
