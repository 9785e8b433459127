"""Periodic work goes on after a failure of the store, and beside damage."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from hbasemk import Repository
from hbasemk.check import IntegrityCheck, Repair
from hbasemk.check import problem as kinds
from hbasemk.errors import FormatError, LeaseLostError, StoreNotAppliedError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import settings
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.ids import leases
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import recovery
from hbasemk.kernel.periodic_work import RECOVER_EVERY, SWEEP_AGAIN, SWEEP_EVERY
from hbasemk.kernel.rollback import replace_damaged_lease
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get, NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.slow_scans import SlowScans

LATER = 3 * SWEEP_EVERY
"""Seconds after which an hourly sweep is due, and an ended branch is swept."""

MANY = 50


@pytest.fixture
def store(world: World) -> MemoryStore:
    # A commit goes step by step.
    return MemoryStore(world.clock, transactions=True, batch_rows=1)


class Killed(BaseException):
    """The process of the writer ends."""


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


def dead_writer(store: Store, world: World, mac: int) -> int:
    """Let a writer die after it has written cells, and return its pending revision."""
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world, mac=mac)

    def die(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Killed

    faulty.after = die
    with pytest.raises(Killed):
        add(instance, f"/{mac}")
    instance.poll()
    return max(instance.journal.pending)


def is_swept(store: Store, revision: int) -> bool:
    return bool(store.read(schema.JOURNAL, [Get(schema.revision_key(revision), columns=(schema.SWEPT,))])[0].cells)


def damage(store: Store, revision: int) -> None:
    cell = NewCell(schema.DATA, schema.CHANGES, b"\x01[[")
    store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [cell])])


def ended_branch(instance: Instance) -> int:
    branch = instance.begin_branch(instance.head())
    instance.abandon_branch(branch)
    return branch


def failing(method: str, table: str) -> Callable[[Call], None]:
    def fail(call: Call) -> None:
        if (call.method, call.table) == (method, table):
            raise StoreNotAppliedError("the disk is full")

    return fail


@pytest.mark.damages("undecodable changes")
def test_damage_of_a_dead_writers_revision_stops_only_that_one(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    damaged, other = (dead_writer(store, world, mac) for mac in (2, 3))
    damage(store, damaged)
    branch = ended_branch(one)
    world.advance(LATER)
    one.poll()
    with pytest.raises(FormatError, match="of a dead writer cannot be rolled back"):
        one.maintain()
    assert is_swept(store, other)
    assert is_swept(store, branch)
    assert not is_swept(store, damaged)


@pytest.mark.damages("wrong lease")
@pytest.mark.parametrize("ordered", [True, False])
def test_a_damaged_lease_stops_only_the_recovery_of_its_writer(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered, batch_rows=1)
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    damaged, other = (dead_writer(store, world, mac) for mac in (2, 3))
    machine = revisions.machine_of(damaged)
    damage_lease(store, machine)
    one.poll()
    world.advance(LATER)
    reason = f"the revisions of machine id {machine:04x} cannot be rolled back: the lease b'short' is damaged"
    with pytest.raises(FormatError, match=reason):
        one.recovery.recover()
    assert is_swept(store, other)
    assert not is_swept(store, damaged)
    with pytest.raises(FormatError, match=reason):
        one.maintain()


@pytest.mark.damages("wrong lease")
@pytest.mark.parametrize("ordered", [True, False])
def test_damage_of_the_own_lease_stops_no_other_work(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered, batch_rows=1)
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    other = dead_writer(store, world, 2)
    damage_lease(store, one.lease.machine)
    world.advance(LATER)
    one.poll()
    with pytest.raises(FormatError, match="the lease b'short' is damaged"):
        one.maintain()
    assert is_swept(store, other)


@pytest.mark.damages("wrong flags")
@pytest.mark.parametrize("ordered", [True, False])
def test_damage_of_a_deferred_revision_stops_only_its_roll_back(world: World, ordered: bool) -> None:
    store = FaultyStore(MemoryStore(world.clock, transactions=ordered, batch_rows=1))
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    branch = one.begin_branch(one.head())
    damaged = deferred_revision(one, store, "/b")
    store.write(schema.JOURNAL, [Put(schema.revision_key(damaged), [NewCell(*schema.COMMITTED, b"x")])])
    other = deferred_revision(one, store, "/c")
    add(one, "/d")
    assert one.outcomes.deferred == [damaged]
    assert one.outcome(other) is Outcome.ABORTED
    with pytest.raises(FormatError, match="must be yes or no"):
        one.outcome(damaged)
    one.commit_on_branch(branch, OperationList([AddNode("/e", {})]), "")
    with pytest.raises(FormatError, match="of this process cannot be rolled back"):
        one.maintain()
    machine, end = one.lease.machine, one.lease.end
    one.close()
    lease = leases.lease_of(one.store, machine)
    assert lease is not None
    assert lease.end < end


def deferred_revision(instance: Instance, store: FaultyStore, path: str) -> int:
    """Interrupt a commit after it has written cells; return its revision."""

    def interrupt(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Killed

    store.after = interrupt
    with pytest.raises(Killed):
        add(instance, path)
    store.after = None
    return max(instance.outcomes.deferred)


def damage_lease(store: Store, machine: int) -> None:
    store.write(schema.CLUSTER, [Put(schema.machine_key(machine), [NewCell(*schema.LEASE, b"short")])])


def lease_of_dead_writer_damaged(store: Store, world: World, mac: int) -> int:
    """Let a writer die, and return its machine id, whose lease cannot be read."""
    machine = revisions.machine_of(dead_writer(store, world, mac))
    damage_lease(store, machine)
    return machine


def watermark(instance: Instance) -> int:
    return settings.read_watermark(instance.store).revision


@pytest.mark.damages("wrong lease")
@pytest.mark.parametrize("ordered", [True, False])
def test_the_watermark_rises_up_to_the_damage(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered, batch_rows=1)
    one = open_instance(store, world, mac=1)
    before = add(one, "/a")
    machine = lease_of_dead_writer_damaged(store, world, 2)
    other = revisions.machine_of(dead_writer(store, world, 3))
    after = add(one, "/b")
    assert one.outcomes.abort_other(min(one.journal.pending)) is Outcome.ABORTED
    world.advance(LATER)
    one.poll()
    with pytest.raises(FormatError, match=f"machine id {machine:04x}|the watermark cannot rise further: the lease"):
        one.recovery.advance()
    assert before == watermark(one) < after
    if not ordered:
        # The log of the other dead writer holds nothing back any more.
        assert not one.journal.read_logs()[other].is_open


@pytest.mark.parametrize("ordered", [True, False])
def test_the_watermark_passes_a_dead_writer_whose_lease_was_repaired(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered, batch_rows=1)
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    lease_of_dead_writer_damaged(store, world, 2)
    after = add(one, "/b")
    repair = Repair(one)
    done = [repair.repair(found) for found in IntegrityCheck(one).run() if found.kind == kinds.LEASE]
    assert done == ["replaced it by a lease that expires soon; any instance then recovers the revisions of its writer"]
    world.advance(60)
    for _ in range(3):
        one.poll()
        one.maintain()
        one.poll()
        one.recovery.advance()
    assert watermark(one) >= after


def test_a_lease_that_replaces_a_damaged_one_covers_all_ids_of_its_writer(world: World) -> None:
    store = MemoryStore(world.clock, transactions=False, batch_rows=1)
    lost = open_instance(store, world, mac=2)
    add(lost, "/a")
    machine, end = lost.lease.machine, lost.lease.end
    store.write(schema.CLUSTER, [Put(schema.machine_key(machine), [NewCell(*schema.LEASE, b"short")])])
    one = open_instance(store, world, mac=1)
    assert replace_damaged_lease(one, machine)
    assert not replace_damaged_lease(one, machine)
    lease = leases.lease_of(one.store, machine)
    assert lease is not None
    assert lease.end > end
    # The writer lives. It learns that it has lost the machine id.
    with pytest.raises(LeaseLostError):
        lost.lease.renew()
    add(lost, "/b")
    assert lost.lease.machine != machine


@pytest.mark.damages("undecodable changes")
def test_damage_of_a_branch_stops_no_other_hourly_work(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    damage(store, ended_branch(one))
    done: list[str] = []
    monkeypatch.setattr(one.checkpoint_cells, "remove_expired", lambda: done.append("checkpoints"))
    monkeypatch.setattr(one.recovery, "recover_late", lambda _: done.append("late rows"))
    world.advance(LATER)
    with pytest.raises(FormatError):
        one.maintain()
    assert done == ["checkpoints", "late rows"]
    # What is damaged stays so, hence the next attempt comes in an hour.
    world.advance(SWEEP_AGAIN + 1)
    one.maintain()
    assert len(done) == 2
    world.advance(SWEEP_EVERY)
    with pytest.raises(FormatError):
        one.maintain()
    assert len(done) == 4


def test_hourly_work_is_repeated_soon_after_a_failure_of_the_store(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    one = open_instance(faulty, world, mac=1)
    add(one, "/a")
    branch = ended_branch(one)
    world.advance(LATER)
    faulty.before = failing("scan", schema.JOURNAL)
    with pytest.raises(StoreNotAppliedError):
        one.maintain()
    faulty.before = None
    one.maintain()
    assert not is_swept(store, branch)
    world.advance(SWEEP_AGAIN + 1)
    one.maintain()
    assert is_swept(store, branch)


def test_damage_that_maintenance_meets_does_not_slow_polls(caplog: pytest.LogCaptureFixture) -> None:
    met = threading.Event()
    calls: list[None] = []

    def maintain() -> None:
        calls.append(None)
        met.set()
        raise FormatError("a row is damaged")

    store = MemoryStore()
    with Repository(store, poll_interval=0.01) as one, Repository(store, create=False) as other:
        instance = instance_of(one)
        instance.maintain = maintain  # type: ignore[method-assign]
        assert met.wait(60)
        for number in range(MANY):
            other.run(lambda tx, number=number: tx.add(f"/{number}"))  # type: ignore[misc]
            last = other.head.revision
            assert instance.wait_for(lambda last=last: one.head.revision == last, 60)  # type: ignore[misc]
    # The thread polled for each revision, and did not maintain each time.
    assert len(calls) < MANY
    assert [record.message for record in caplog.records] == [
        f"background work on {store.location} failed; retrying: a row is damaged"
    ]


def test_the_leases_of_pending_revisions_are_read_once_a_second(store: MemoryStore, world: World) -> None:
    counting = CountingStore(store)
    other = open_instance(counting, world, mac=1)
    revision = dead_writer(store, world, 2)
    other.poll()
    other.maintain()
    counting.take()
    for _ in range(4):
        world.advance(RECOVER_EVERY / 5)
        other.maintain()
        assert ("read", schema.CLUSTER) not in counting.take()
    world.advance(RECOVER_EVERY / 5)
    other.maintain()
    assert counting.take()["read", schema.CLUSTER] == 1
    # By then the lease of the dead writer has expired.
    world.advance(40)
    other.maintain()
    assert other.outcomes.of(revision) is Outcome.ABORTED
    assert is_swept(store, revision)
    assert list(IntegrityCheck(other).run()) == []


def test_recovery_is_repeated_at_once_after_a_failure_of_the_store(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    one = open_instance(faulty, world, mac=1)
    revision = dead_writer(store, world, 2)
    world.advance(LATER)
    one.poll()
    faulty.before = failing("read", schema.CLUSTER)
    with pytest.raises(StoreNotAppliedError):
        one.maintain()
    faulty.before = None
    one.maintain()
    assert is_swept(store, revision)


@pytest.mark.damages("undecodable changes")
def test_each_maintenance_reports_damage_that_keeps_a_dead_writers_revision(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, mac=1)
    damage(store, dead_writer(store, world, 2))
    world.advance(LATER)
    one.poll()
    # A success would end a series of failures in the log of background work.
    for _ in range(3):
        with pytest.raises(FormatError, match="of a dead writer cannot be rolled back"):
            one.maintain()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_process_polls_and_keeps_its_lease_during_hourly_work(
    world: World, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """Most calls read the rows of an hour, or 60 rows, and take two seconds; a lease lasts ten."""
    monkeypatch.setattr(recovery, "ADVANCE_BATCH", 60)
    store = SlowScans(MemoryStore(world.clock, transactions=ordered), world, seconds=0)
    one = open_instance(store, world, mac=1)
    for number in range(400):
        world.advance(60)
        add(one, f"/{number}")
    polled: list[float] = []
    poll = one.journal.poll

    def record() -> list[int]:
        polled.append(world.ms)
        return poll()

    monkeypatch.setattr(one.journal, "poll", record)
    one.recovery.advance()
    store.visited.clear()
    store.seconds = 1 / 30
    one.maintain()
    # Two calls follow each other if one ends a scan and the other one begins the next.
    longest = 2 * max(rows or 0 for rows in store.visited) * store.seconds
    assert len(polled) >= 5
    assert max(later - earlier for earlier, later in itertools.pairwise(polled)) <= longest * 1000 + 1
    assert one.lease.end > one.lease.time()
