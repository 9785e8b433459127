"""The number of round trips of polls, and of opening a repository."""

from __future__ import annotations

from pathlib import Path

from hbasemk import Repository
from hbasemk.format import schema, writer_log
from hbasemk.store.abc import Put
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.round_trips import ANNOUNCE, CREATE, POLL, READ, WRITE, Counted, fresh


def test_transaction_polls_once_unless_a_poll_is_recent(counted: Counted) -> None:
    with counted.repository.transaction() as tx:
        tx.set("/a", "p", 1)
    assert counted.store.take() == {POLL: 1, CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 1}
    background = Repository(counted.store, poll_interval=5, owns_store=False)
    counted.store.take()
    with background.transaction():
        pass
    assert counted.store.take() == {}
    background.close()


def test_an_idle_poll_is_one_call(counted: Counted) -> None:
    for _ in range(3):
        counted.repository.refresh()
        assert counted.store.take() == {POLL: 1}


def test_an_idle_poll_is_one_call_beside_many_writers(counted: Counted) -> None:
    logs = [Put(schema.log_key(machine), [writer_log.cell(1, (), 1)]) for machine in range(1, 1501)]
    counted.store.write(schema.CLUSTER, logs)
    counted.store.take()
    counted.repository.refresh()
    assert counted.store.take() == {POLL: 1}
    counted.store.delete_rows(schema.CLUSTER, [log.row for log in logs])


def test_poll_reads_the_changes_of_new_revisions(counted: Counted) -> None:
    other = fresh(counted)
    counted.repository.run(lambda tx: tx.set("/a", "p", 1))
    counted.repository.run(lambda tx: tx.set("/a", "p", 2))
    counted.store.take()
    other.refresh()
    # The second reading of the logs runs in parallel to the read of the rows.
    assert counted.store.take() == {POLL: 2, ("read", "journal"): 1}
    other.close()


def test_a_poll_reads_a_revision_that_was_pending_in_one_call(counted: Counted) -> None:
    faulty = FaultyStore(counted.store)
    other = Repository(faulty, create=False, poll_interval=0, owns_store=False)

    def before(call: Call) -> None:
        if (call.method, call.table) == WRITE:
            counted.repository.refresh()
            counted.store.take()

    faulty.before = before
    other.run(lambda tx: tx.set("/a", "p", 2))
    faulty.before = None
    counted.store.take()
    counted.repository.refresh()
    assert counted.store.take() == {POLL: 1, ("read", "journal"): 1}
    assert counted.repository.head["/a"]["p"] == 2
    other.close()


def test_opening_reads_settings_and_polls_once(counted: Counted, tmp_path: Path) -> None:
    other = Repository(counted.store, create=False, poll_interval=0, owns_store=False)
    calls = counted.store.take()
    # Something is new above the watermark, so the logs are read twice.
    assert calls[POLL] == 2
    assert calls["read", "cluster"] == 1
    other.close()
