"""Damage of the ``cluster`` table."""

from __future__ import annotations

from hbasemk.check import problem as kinds
from hbasemk.format import changes, paths, recent_commits, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.reading.child_count import Memo
from tests.support.corruptions.case import Where, case, text
from tests.support.tables import Tables


@case(kinds.SETTINGS, alone=True)
def settings_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.SETTINGS, b"{", None))
    return "settings", ""


@case(kinds.WATERMARK, alone=True)
def a_watermark_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, b"123", None))
    return "settings", ""


@case(kinds.WATERMARK, alone=True)
def a_watermark_at_a_revision_that_does_not_exist(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.stranger()
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, schema.revision_key(revision), None))
    return "", text(revision)


@case(kinds.SETTINGS, alone=True)
def an_arrival_number_that_no_store_has(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.ARRIVAL, b"\xff" * 8, None))
    return "settings", ""


@case(kinds.SETTINGS)
def a_retention_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.RETENTION, b"a week", None))
    return "settings", ""


@case(kinds.SETTINGS)
def a_progress_of_the_collection_of_journal_rows_that_is_no_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.COLLECTED_ROWS, b"\xff" * 8, None))
    return "settings", ""


@case(kinds.SETTINGS)
def a_progress_of_the_deletion_of_journal_rows_that_is_no_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.DELETED_ROWS, b"1", None))
    return "settings", ""


@case(kinds.CHECKPOINT)
def a_checkpoint_of_no_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, ((schema.DATA, b"checkpoint:xy"), bytes(8), None))
    return "settings", ""


@case(kinds.CHECKPOINT)
def a_checkpoint_without_its_time(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    column = (schema.DATA, b"checkpoint:" + schema.revision_key(revision))
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (column, b"soon", None))
    return "settings", text(revision)


@case(kinds.LEASE, repaired=True)
def a_lease_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.machine_key(0xF001), (schema.LEASE, b"short", None))
    return "machine f001", ""


@case(kinds.LEASE)
def a_lease_that_ends_before_it_begins(tables: Tables, path: str) -> Where:
    lease = LeaseRecord(2000, 1000, bytes(16), "somebody")
    tables.put(schema.CLUSTER, schema.machine_key(0xF002), (schema.LEASE, lease.encode(), None))
    return "machine f002", ""


@case(kinds.LEASE)
def a_lease_until_the_far_future(tables: Tables, path: str) -> Where:
    now = tables.now_ms() - tables.instance.settings.epoch_ms
    lease = LeaseRecord(now, now + 3_600_000, bytes(16), "somebody")
    tables.put(schema.CLUSTER, schema.machine_key(0xF003), (schema.LEASE, lease.encode(), None))
    return "machine f003", ""


@case(kinds.LOG)
def a_log_that_cannot_be_read(tables: Tables, path: str) -> Where:
    # No poll reads it, because its bound is below the watermark.
    tables.put(schema.CLUSTER, schema.log_key(0xF004), (schema.LOG, b"short", 1))
    return "machine f004", ""


@case(kinds.LOG)
def last_commits_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(
        schema.CLUSTER, schema.log_key(0xF005), (schema.LOG, bytes(8), 1), (schema.RECENT_COMMITS, b"\x00short", 1)
    )
    return "machine f005", ""


@case(kinds.LOG)
def a_commit_that_only_a_log_shows(tables: Tables, path: str) -> Where:
    # No poll reads it, because the bound of the log is below the watermark.
    revision = tables.stranger()
    shown = recent_commits.encode(revision, changes.encode([RowChange(path, changes.CHANGED)])[0].value)
    tables.put(schema.CLUSTER, schema.log_key(0xF006), (schema.LOG, bytes(8), 1), (schema.RECENT_COMMITS, shown, 1))
    return "machine f006", text(revision)


@case(kinds.LOG)
def a_copy_of_the_watermark_above_it(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.put(schema.CLUSTER, schema.LOGS_HEAD, (schema.WATERMARK, schema.revision_key(revision), revision))
    return "log", text(revision)


@case(kinds.COUNT, repaired=True)
def a_memo_of_another_number_of_children(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}), AddNode(f"{path}/x", {}), AddNode(f"{path}/y", {}))
    memo = Memo(revision, 3, Extent(revision))
    tables.put(schema.CLUSTER, schema.child_count_key(paths.key(path)), (schema.CHILD_COUNT, memo.encode(), None))
    return path, text(revision)


@case(kinds.COUNT, repaired=True)
def a_memo_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    tables.put(schema.CLUSTER, schema.child_count_key(paths.key(path)), (schema.CHILD_COUNT, b"many", None))
    return path, ""
