"""Collection of old revisions on a real HBase, where deletes leave markers."""

from __future__ import annotations

import time

import pytest

from hbasemk import BlobNotFoundError, BranchError, RevisionCollectedError, Settings, UnknownRevisionError, connect
from hbasemk.format import paths, revisions, schema
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.collection import journal_rows, unused_blobs
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.progress import Progress
from hbasemk.kernel.ids.leases import lease_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import checkpoint_cells
from hbasemk.repository import instance_of
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Scan
from tests.support.collecting import set_grace
from tests.support.hbase import HBase
from tests.support.repositories import Checked

SETTINGS = Settings(lease_ms=2_000, max_clock_skew_ms=200)
ROOMY = Settings(lease_ms=10_000, max_clock_skew_ms=1_000)
"""For tests that begin no new lease: a busy machine delays measurements of the clock."""
RETRY_TIMEOUT = 60.0
USED, LOST = b"used" * 300_000, b"lost" * 300_000
"""Contents of two chunks."""


def decide_all(instance: Instance) -> None:
    """Move the watermark to the newest revision."""
    deadline = time.monotonic() + RETRY_TIMEOUT
    last = instance.head().revision
    while instance.journal.verified < last and time.monotonic() < deadline:
        # Until its lease is over, a process that has ended may hold the watermark back.
        instance.announcements.renew(last)
        instance.poll()
        instance.recovery.advance()
        time.sleep(0.1)


def collect(instance: Instance) -> dict[str, int]:
    """Collect up to the newest revision."""
    decide_all(instance)
    return dict(Collector(instance).run(1).cells)


def versions(instance: Instance, path: str) -> int:
    (row,) = instance.store.read(schema.NODES, [Get(paths.key(path), versions=ALL_VERSIONS)])
    return len(row.cells)


@pytest.mark.integration
def test_old_revisions_are_deleted_and_readable_ones_stay(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=SETTINGS) as one, connect(url, poll_interval=0) as other:
        assert one.retention == 7 * 24 * 3600
        one.run(
            lambda tx: (tx.add("/a", {"p": 0}), tx.add("/gone"), *(tx.add(f"/gone/{n}", {"n": n}) for n in range(20)))
        )
        old = other.refresh()
        for number in range(30):
            one.run(lambda tx, number=number: tx.set("/a", "p", number))
        one.run(lambda tx: tx.remove("/gone"))
        # The floor of a branch is the watermark.
        decide_all(instance_of(one))
        kept = one.head
        branch = one.branch(base=kept)
        one.run(lambda tx: tx.set("/a", "p", "new"))
        one.run(lambda tx: tx.add("/gone", {"again": True}))
        found = collect(instance_of(one))
        # 30 superseded versions of the property and of lastRevision, and of lastRevision of the root.
        assert found["superseded versions"] > 60
        assert found["cells of deleted nodes"] > 60
        assert one.oldest is not None
        assert revisions.from_text(one.oldest) <= revisions.from_text(kept.revision)
        # The branch keeps one more version of the property and of lastRevision.
        assert versions(instance_of(one), "/a") == 5
        with pytest.raises(RevisionCollectedError):
            list(old.walk("/gone"))
        assert kept["/a"]["p"] == 29
        with connect(url, poll_interval=0) as fresh:
            assert fresh.head["/a"]["p"] == "new"
            assert dict(fresh.head["/gone"]) == {"again": True}
            assert fresh.head.children("/gone") == []
            assert fresh.resume_branch(branch.revision).head["/a"]["p"] == 29
        branch.abandon()
        one.run(lambda tx: (tx.set("/a", "p", "newest"), tx.add("/gone/0", {"n": 0})))
        assert other.refresh()["/gone/0"]["n"] == 0


@pytest.mark.integration
def test_a_run_over_all_rows_finds_what_an_earlier_run_has_missed(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=ROOMY) as one:
        instance = instance_of(one)
        one.run(lambda tx: (tx.add("/a", {"p": 0}), tx.add("/gone"), tx.add("/gone/b", {"n": 1})))
        for number in range(5):
            one.run(lambda tx, number=number: tx.set("/a", "p", number))
        one.run(lambda tx: tx.remove("/gone"))
        # The floor of a branch is the watermark.
        decide_all(instance)
        branch = one.branch()
        branch.run(lambda tx: tx.set("/a", "q", "private"))
        one.run(lambda tx: tx.set("/a", "p", "last"))
        decide_all(instance)
        # An earlier run has lost its deletes, and a process that slept has written a private cell late.
        done = Collector(instance).estimate(1).horizon
        instance.store.write(
            schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.COLLECTED, Progress(done, done).encode())])]
        )
        lost = (done - (1 << 24)) | revisions.BRANCH_BIT
        instance.store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(schema.DATA, b"\x01r", b"\x01", lost)])])
        assert not Collector(instance).run(1).cells["superseded versions"]
        estimated = Collector(instance).estimate(1, full=True).cells
        found = Collector(instance).run(1, full=True).cells
        assert found == estimated
        assert (found["superseded versions"] > 10, found["cells of deleted nodes"] > 3) == (True, True)
        assert found["cells of ended branches"] == 1
        # A run deletes the journal rows that an earlier run has used.
        assert not Collector(instance).run(1, full=True).cells.keys() - {journal_rows.KIND}
        assert not Collector(instance).run(1, full=True).cells
        assert dict(branch.head["/a"]) == {"p": 4, "q": "private"}
        branch.merge()
        with connect(url, poll_interval=0) as fresh:
            assert dict(fresh.head["/a"]) == {"p": "last", "q": "private"}
            one.run(lambda tx: tx.add("/gone", {"again": True}))
            assert fresh.refresh().children("/gone") == []


@pytest.mark.integration
def test_journal_rows_are_deleted_and_a_sleeper_begins_again(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=ROOMY) as one, connect(url, poll_interval=0) as sleeper:
        instance = instance_of(one)
        one.run(lambda tx: tx.add("/a", {"p": -1}))
        old = sleeper.refresh()
        watch = sleeper.watch(since=old)
        written = []
        for number in range(30):
            one.run(lambda tx, number=number: tx.set("/a", "p", number))
            written.append(one.head.revision)
        one.run(lambda tx: (tx.remove("/a"), tx.add("/b", {"p": 30})))
        for number in range(3):
            collect(instance)
            one.run(lambda tx, number=number: tx.set("/b", "q", number))
        assert collect(instance)[journal_rows.KIND] > 0
        rows = instance.store.scan(schema.JOURNAL, Scan(None, None, 1000, columns=(schema.COMMITTED,)))
        kept = {int.from_bytes(row.key[:8], "big") for row in rows}
        assert not kept & {revisions.from_text(revision) for revision in written}
        assert one.oldest is not None
        assert min(kept) <= revisions.from_text(one.oldest) in kept
        # It has read none of the deleted rows.
        head = sleeper.refresh()
        assert head.revision == one.refresh().revision
        assert dict(head["/b"]) == {"p": 30, "q": 2}
        assert "/a" not in head
        with pytest.raises(RevisionCollectedError):
            next(watch)
        with pytest.raises(RevisionCollectedError):
            old["/a"]
        with pytest.raises(RevisionCollectedError):
            one.outcome(written[0])
        sleeper.run(lambda tx: tx.set("/b", "p", 31))
        with connect(url, poll_interval=0) as fresh:
            assert fresh.head["/b"]["p"] == one.refresh()["/b"]["p"] == 31
            assert [entry.revision for entry in fresh.log()][-1] == fresh.oldest


@pytest.mark.integration
def test_rows_of_ended_branches_are_deleted(hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=ROOMY) as one, connect(url, poll_interval=0) as other:
        instance = instance_of(one)
        one.run(lambda tx: tx.add("/a", {"p": 0}))
        decide_all(instance)
        branch, slept = one.branch(), other.branch()
        branch.run(lambda tx: tx.set("/a", "q", 1))
        slept.run(lambda tx: tx.set("/a", "r", 1))
        branch.merge()
        instance.sweep_branches(0)
        kept = one.branch()
        for number in range(3):
            one.run(lambda tx, number=number: tx.set("/a", "p", number))
            decide_all(instance)
        # The open branch holds the horizon below its own rows, above those of the others.
        assert dict(Collector(instance).run(1).cells).get("rows of ended branches", 0) in (0, 4)
        kept.abandon()
        instance.sweep_branches(0)
        one.run(lambda tx: tx.set("/a", "p", "last"))
        decide_all(instance)
        one.run(lambda tx: tx.set("/a", "p", "very last"))
        collect(instance)
        collect(instance)
        assert instance.store.scan(schema.JOURNAL, Scan(None, None, 1000, columns=(schema.BRANCH,))) == []
        for revision in (branch.revision, slept.revision):
            with pytest.raises(RevisionCollectedError):
                one.outcome(revision)
        # Its head, its claim and the row of its first revision are gone.
        with pytest.raises((BranchError, RevisionCollectedError, UnknownRevisionError)):
            slept.run(lambda tx: tx.set("/a", "r", 2))
        with pytest.raises((BranchError, RevisionCollectedError, UnknownRevisionError)):
            slept.merge()
        assert dict(other.refresh()["/a"]) == {"p": "very last", "q": 1}


@pytest.mark.integration
def test_unused_blobs_are_deleted_and_their_contents_can_be_written_again(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    for module in (kernel_blobs, unused_blobs):
        monkeypatch.setattr(module, "RENEW_MS", 0)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=ROOMY) as one, connect(url, poll_interval=0) as other:
        instance = instance_of(one)
        kept, lost = one.blobs.write(USED), one.blobs.write(LOST)
        one.run(lambda tx: tx.add("/a", {"p": kept}))
        collect(instance)

        def sweep() -> int:
            # Until the last use of the blob is certainly older than the retention, by each clock.
            time.sleep(2 * ROOMY.max_clock_skew_ms / 1000 + 0.2)
            decide_all(instance)
            return Collector(instance).run(1, blobs=True).cells["unused blobs"]

        assert sweep() == 1
        for round_ in range(2):
            with pytest.raises(BlobNotFoundError):
                other.blobs.read(lost)
            # The markers of the sweep do not hide what is written again.
            assert other.blobs.write(LOST) == lost
            assert one.blobs.read(lost) == LOST
            other.run(lambda tx: tx.set("/a", "q", lost))
            one.refresh()
            assert sweep() == 0
            assert one.blobs.read(lost) == LOST
            other.run(lambda tx, round_=round_: tx.set("/a", "q", round_))
            one.refresh()
            one.run(lambda tx, round_=round_: tx.set("/a", "r", round_))
            assert sweep() == 1
        assert Collector(instance).run(1, full=True).cells["chunks of unfinished uploads"] == 0
        assert one.blobs.read(kept) == USED


@pytest.mark.integration
def test_earlier_versions_of_a_removed_checkpoint_do_not_appear_again(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=ROOMY) as one:
        made = one.checkpoint(60)
        made.extend(120)
        made.release()
        monkeypatch.setattr(checkpoint_cells, "REMOVE_AFTER_MS", -3_600_000)
        cells = instance_of(one).checkpoint_cells
        assert list(cells.all_lists())
        cells.remove_expired()
        assert not list(cells.all_lists())
        assert one.checkpoints() == []


@pytest.mark.integration
def test_ended_leases_are_deleted_and_their_ids_are_not_issued_again(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_grace(monkeypatch, 0.4, trust=0.2)
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0, settings=SETTINGS) as one:
        one.run(lambda tx: tx.add("/a", {"p": 0}))
        with connect(url, poll_interval=0) as other:
            # Renewals leave earlier versions of the lease.
            for number in range(3):
                other.run(lambda tx, number=number: tx.set("/a", "p", number))
                instance_of(other).lease.renew()
            machine = instance_of(other).lease.machine
        deadline = time.monotonic() + RETRY_TIMEOUT
        while lease_of(instance_of(one).store, machine) is not None and time.monotonic() < deadline:
            one.run(lambda tx: tx.set("/a", "p", time.monotonic_ns()))
            collect(instance_of(one))
        assert lease_of(instance_of(one).store, machine) is None
        # Otherwise the next instance may find the lease of the first one expired, and claim its machine id.
        instance_of(one).lease.renew()
        with connect(url, poll_interval=0) as again:
            again.run(lambda tx: tx.set("/a", "p", "again"))
            lease = instance_of(again).lease
            assert lease.machine == machine
            assert lease.start > revisions.ms_of(instance_of(one).horizon)
            assert one.refresh()["/a"]["p"] == "again"
