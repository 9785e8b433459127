"""Any live instance rolls back the work of dead and paused writers, wherever a writer or another recovery stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk import ConflictError, LeaseLostError, Outcome
from hbasemk.check import IntegrityCheck
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Put
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.failing import Died, FailingRepository, is_whole
from tests.support.runtime import open_instance
from tests.support.uncached import without_cache


class Place(FailingRepository):
    """A repository, and a writer whose store calls a test can intercept."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = self.instance
        self.writer.clock.next(0)

    def at_cells(self, do: Callable[[], object]) -> None:
        """Run a function once, after the writer's cells are written."""

        def after(call: Call) -> None:
            if (call.method, call.table) == ("write", schema.NODES):
                self.store.after = None
                do()

        self.store.after = after

    def die_at_cells(self, operations: Sequence[Operation]) -> int:
        """Let the writer die after its cells are written; return its revision."""

        def die() -> None:
            raise Died

        self.at_cells(die)
        with pytest.raises(Died):
            self.writer.commit_on(self.writer.head(), OperationList(operations), "")
        self.first.poll()
        (revision,) = self.first.journal.pending
        return revision

    def value(self) -> object:
        return self.open(50).reader.require(self.open(50).head(), "/a").properties["p"]

    def whole(self) -> None:
        one = self.open(60)
        one.maintain()
        is_whole(one)


NEW = [SetProperty("/a", "p", "new")]


def test_revision_of_a_writer_that_dies_before_its_roll_back_is_swept() -> None:
    place = Place()
    watcher = place.open(3)
    base = place.writer.head()
    place.first.commit(lambda _: OperationList([SetProperty("/a", "p", "won")]), "", retry_timeout=1, max_poll_age=0)

    def hang(call: Call) -> None:
        if (call.method, call.table) != ("delete", schema.NODES):
            return
        place.store.before = None
        # Its thread hangs in this call while its other thread renews the lease, longer than a watcher waits.
        for _ in range(8):
            place.world.advance(4)
            place.writer.lease.renew()
            watcher.poll()
            watcher.maintain()
        raise Died

    place.store.before = hang
    with pytest.raises(Died):
        place.writer.commit_on(base, OperationList(NEW), "")
    place.world.advance(16)
    for _ in range(5):
        watcher.poll()
        watcher.maintain()
        place.world.advance(4)
    watcher.commit(lambda _: OperationList([AddNode("/later", {})]), "", retry_timeout=1, max_poll_age=0)
    assert [str(problem) for problem in IntegrityCheck(watcher).run()] == []


def test_paused_writer_without_recovery_completes_its_commit() -> None:
    place = Place()
    place.at_cells(lambda: place.world.advance(60))
    revision = place.writer.commit_on(place.writer.head(), OperationList(NEW), "")
    assert place.writer.outcome(revision) is Outcome.COMMITTED
    assert place.value() == "new"
    # It renews its lease before the next id, and its id time continues.
    assert (
        place.writer.commit(
            lambda _: OperationList([SetProperty("/a", "p", "next")]), "", retry_timeout=1, max_poll_age=0
        )
        > revision
    )
    place.whole()


@pytest.mark.parametrize("took_over", [False, True])
def test_recovered_paused_writer_loses_and_continues_with_a_new_machine_id(took_over: bool) -> None:
    place = Place()

    def meanwhile() -> None:
        place.world.advance(60)
        fresh_instance = place.open(2 if took_over else 3)
        fresh_instance.poll()
        if took_over:
            assert revisions.machine_of(fresh_instance.clock.next(0)) == 2
        fresh_instance.maintain()
        fresh_instance.commit(
            lambda _: OperationList([SetProperty("/a", "p", "fresh_instance")]), "", retry_timeout=1, max_poll_age=0
        )

    place.at_cells(meanwhile)
    with pytest.raises(ConflictError):
        place.writer.commit_on(place.writer.head(), OperationList(NEW), "")
    assert place.value() == "fresh_instance"
    # If its lease was taken over, the next commit uses another machine id.
    revision = place.writer.commit(lambda _: OperationList(NEW), "", retry_timeout=1, max_poll_age=0)
    assert revisions.machine_of(revision) == (3 if took_over else 2)
    assert place.value() == "new"
    place.whole()


def test_revisions_of_a_former_holder_are_recovered_after_a_takeover() -> None:
    place = Place()
    place.die_at_cells(NEW)
    place.world.advance(16)
    fresh_instance = place.open(2)
    revision = fresh_instance.clock.next(0)
    assert revisions.machine_of(revision) == 2
    assert fresh_instance.lease.start > revisions.ms_of(min(place.first.journal.pending))
    fresh_instance.poll()
    fresh_instance.maintain()
    fresh_instance.poll()
    assert not fresh_instance.journal.pending
    place.whole()


def test_two_holders_with_one_mac_recover_each_other_and_share_no_id() -> None:
    place = Place()
    issued: set[int] = set()
    count = 0
    instances = [place.open(7) for _ in range(3)]
    for turn in range(30):
        one = instances[turn % 3]
        if turn % 7 == 6:
            instances[turn % 3] = one = place.open(7)
        try:
            issued.add(
                one.commit(
                    lambda _, turn=turn: OperationList([SetProperty("/a", "p", turn)]),
                    "",
                    retry_timeout=9,
                    max_poll_age=0,
                )
            )  # type: ignore[misc]
            count += 1
        except LeaseLostError:
            continue
        place.world.advance((0.01, 9.0, 16.0, 1.0)[turn % 4])
    assert len(issued) == count >= 20
    place.whole()


def test_concurrent_recovery_is_safe_at_every_step() -> None:
    calls = 1
    number = 0
    while number < calls:
        place = Place()
        revision = place.die_at_cells([*NEW, AddNode("/a/new", {})])
        place.world.advance(16)
        store = FaultyStore(place.inner)
        one = open_instance(store, place.world, mac=4, seed=4)
        others = [place.open(5), place.open(6)]
        count = 0

        def meanwhile(_: Call, number: int = number, others: list[Instance] = others) -> None:
            nonlocal count
            count += 1
            if count - 1 == number:
                for other in others:
                    other.poll()
                    other.maintain()
                    other.recovery.advance()

        store.before = meanwhile
        one.maintain()
        one.recovery.advance()
        store.before = None
        calls = count
        for instance in (one, *others):
            instance.poll()
            assert not instance.journal.pending
            assert instance.outcome(revision) is Outcome.ABORTED
            assert instance.reader.require(instance.head(), "/a").properties["p"] == "old"
        place.whole()
        number += 1
    assert calls >= 5
    print(f"{calls} points at which two others recovered meanwhile")


def late_cells(place: Place) -> tuple[int, Sequence[Put]]:
    """Let a writer die while a gateway delays its cells; return its revision and the cells."""
    operations = [*NEW, AddNode("/a/zombie", {})]
    cells = place.die_with_held_cells(
        lambda: place.writer.commit_on(place.writer.head(), OperationList(operations), "")
    )
    place.first.poll()
    (revision,) = place.first.journal.pending
    return revision, cells


@pytest.mark.parametrize("arrive", ["before the sweep", "after the sweep", "after the watermark", "after compaction"])
def test_late_cells_of_a_paused_writer_stay_invisible(arrive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hbasemk.kernel.journal import known_revisions

    monkeypatch.setattr(known_revisions, "KEPT", 2)
    place = Place()
    revision, cells = late_cells(place)
    old = place.open(3)
    snapshots = [(old, old.head())]

    def arrives(when: str) -> None:
        if when == arrive:
            place.inner.write(schema.NODES, cells)

    arrives("before the sweep")
    place.world.advance(16)
    old.maintain()
    arrives("after the sweep")
    for number in range(10):
        snapshots.append((place.first, place.first.head()))
        place.first.commit(
            lambda _, number=number: OperationList([AddNode(f"/x{number}", {})]), "", retry_timeout=1, max_poll_age=0
        )  # type: ignore[misc]
        place.world.advance(2)
    place.first.poll()
    moved = place.first.recovery.advance()
    assert moved is not None
    assert revision in moved.hidden
    assert revision < moved.revision
    arrives("after the watermark")
    for one in (old, place.first):
        one.poll()
        one.recovery.advance()
        assert not one.journal.knows(revision)
        assert one.journal.floor > revision
    arrives("after compaction")
    fresh = place.open(8)
    assert fresh.journal.floor > revision
    for one, snapshot in (*snapshots, (old, old.head()), (place.first, place.first.head()), (fresh, fresh.head())):
        assert not one.journal.sees(snapshot, revision)
        with without_cache(one):
            assert one.reader.require(snapshot, "/a").properties["p"] == "old"
            assert one.reader.node(snapshot, "/a/zombie") is None
            assert "zombie" not in one.reader.children(snapshot, "/a")
    # They do not conflict with later changes of the same node either.
    fresh.commit_on(
        fresh.head(), OperationList([AddNode("/a/zombie", {"real": True}), SetProperty("/a", "p", "after")]), ""
    )
    assert fresh.reader.require(fresh.head(), "/a/zombie").properties == {"real": True}
    place.whole()


def test_watermark_stops_at_a_pending_revision() -> None:
    place = Place()
    committed: list[int] = []

    def meanwhile() -> None:
        others = [place.open(mac) for mac in (4, 5)]
        for turn in range(12):
            other = others[turn % 2]
            committed.append(
                other.commit(
                    lambda _, turn=turn: OperationList([AddNode(f"/x{turn}", {})]), "", retry_timeout=1, max_poll_age=0
                )
            )  # type: ignore[misc]
            place.world.advance(0.7)
            for one in (*others, place.first):
                one.poll()
                one.maintain()
                place.writer.lease.renew()
                moved = one.recovery.advance()
                pending = min(one.journal.pending)
                assert moved is None or moved.revision < pending
                # An instance that opens now sees it neither as visible nor as final.
                begun = place.open(9)
                assert begun.journal.floor < pending
                assert not begun.journal.sees(begun.head(), pending)

    place.at_cells(meanwhile)
    mine = place.writer.commit_on(place.writer.head(), OperationList(NEW), "")
    assert mine < committed[0]
    place.world.advance(10)
    for mac in (4, 5):
        one = place.open(mac)
        # It knows only the time of the last commits, and its own age.
        place.world.advance(6)
        one.poll()
        one.recovery.advance()
        assert one.journal.sees(one.head(), mine)
    assert place.open(9).journal.floor >= committed[-1]
    assert place.value() == "new"
    place.whole()


def test_the_watermark_is_a_committed_revision() -> None:
    place = Place()
    base = place.writer.head()
    committed = [
        place.writer.commit(
            lambda _, n=n: OperationList([SetProperty("/a", "p", n)]), "", retry_timeout=1, max_poll_age=0
        )
        for n in range(3)
    ]  # type: ignore[misc]
    for _ in range(2):
        with pytest.raises(ConflictError):
            place.writer.commit_on(base, OperationList([SetProperty("/a", "p", "late")]), "")
    # The lease of the other instance is over.
    place.world.advance(20)
    place.writer.poll()
    place.writer.recovery.advance()
    new = place.open(7)
    assert new.journal.floor == committed[-1]
    assert new.head().revision == committed[-1]
    assert new.outcome(new.head().revision) is Outcome.COMMITTED
    assert place.first.at(new.head().revision).revision == committed[-1]
    place.whole()


def test_the_leases_of_all_pending_revisions_are_read_in_one_call() -> None:
    place = Place()
    counted = CountingStore(place.inner)
    watcher = open_instance(counted, place.world, mac=20)
    base = watcher.head()

    def die(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Died

    for mac in range(10, 15):
        store = FaultyStore(place.inner)
        writer = open_instance(store, place.world, mac=mac)
        store.after = die
        with pytest.raises(Died):
            writer.commit_on(base, OperationList([AddNode(f"/x{mac}", {})]), "")
    watcher.poll()
    pending = sorted(watcher.journal.pending)
    assert len(pending) == 5

    # Measures the clock of the store.
    watcher.lease.time()
    counted.take()
    assert watcher.recovery.recover() == []
    assert counted.take() == {("read", schema.CLUSTER): 1}

    place.world.advance(20)
    assert watcher.recovery.recover() == pending
    watcher.poll()
    place.whole()
