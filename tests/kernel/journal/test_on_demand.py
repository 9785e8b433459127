"""A repository without a background thread runs maintenance inside calls."""

from __future__ import annotations

import threading
import time

import pytest

from hbasemk import Repository, Settings, StoreNotAppliedError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import periodic_work
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.journal import known_revisions
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances

SHORT = Settings(max_clock_skew_ms=300, lease_ms=1000)
EVERY = 20


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_work, "ADVANCE_AFTER", EVERY)
    monkeypatch.setattr(known_revisions, "KEPT", EVERY)


def commits(repo: Repository, count: int, *, alone: bool = False) -> None:
    for number in range(count):
        if alone:
            with repo.transaction(base=repo.head) as tx:
                tx.set("/", "n", number)
        else:
            repo.run(lambda tx, number=number: tx.set("/", "n", number))
        # The watermark follows the clock.
        time.sleep(0.002)


def watermark(repo: Repository) -> Watermark:
    row = repo.store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,))])[0]
    return Watermark.decode(row.cells[0].value)


@pytest.mark.no_cover
@pytest.mark.parametrize("alone", [True, False])
def test_the_watermark_moves_and_the_journal_stays_short(opened: Instances, alone: bool) -> None:
    writer = opened(settings=SHORT)
    reader = opened()
    before = watermark(writer).revision
    most = 0
    for _ in range(30):
        commits(writer, EVERY, alone=alone)
        if alone:
            # An instance that only commits on its present head never polls the progress of others.
            writer.refresh()
        reader.refresh()
        most = max(most, *(len(instance_of(repo).journal._sequence.ids) for repo in (writer, reader)))
    assert watermark(writer).revision > before
    assert len(instance_of(writer).journal) >= 30 * EVERY
    assert len(instance_of(reader).journal) >= 30 * EVERY
    assert most < 20 * EVERY


def test_revision_of_a_dead_writer_is_recovered(opened: Instances) -> None:
    repo = opened(settings=SHORT)
    repo.run(lambda tx: tx.add("/a"))
    dead = opened()
    kernel = instance_of(dead)
    revision = kernel.announcements.next(kernel.head().upper, [])
    draft = Draft(kernel.head(), OperationList(()), "never ended", revision=revision, nonce=b"a" * 16)
    kernel._committer.attempts._preparation.create(draft)
    deadline = time.monotonic() + 60
    while repo.outcome(revisions.to_text(revision)) is Outcome.PENDING and time.monotonic() < deadline:
        commits(repo, EVERY)
    assert instance_of(repo).outcomes.of(revision) is Outcome.ABORTED


def test_commit_succeeds_though_maintenance_fails(real_store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(real_store)

    def refuse(call: Call) -> None:
        if (call.method, call.table) == ("read", schema.CLUSTER):
            raise StoreNotAppliedError("the cluster table is away")

    # The machine may stall, but no renewal of the lease becomes due: it would read that table for a commit.
    with Repository(store, poll_interval=0, settings=Settings(lease_ms=3_600_000)) as repo:
        repo.run(lambda tx: tx.set("/", "n", -1))
        store.before = refuse
        commits(repo, 3 * EVERY)
        assert repo.head["/"]["n"] == 3 * EVERY - 1
        store.before = None
        commits(repo, EVERY)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "the cluster table is away" in messages[0]
    assert "available again" in messages[1]


def test_calls_run_no_maintenance_if_a_background_thread_polls(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=3600, settings=SHORT) as repo:
        before = watermark(repo).revision
        commits(repo, 10 * EVERY)
        assert watermark(repo).revision == before
        assert "hbasemk-poll" in [thread.name for thread in threading.enumerate()]
