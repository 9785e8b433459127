"""Clocks that are minutes off, or jump: ids stay correct or ClockSkewError is raised; others lose no data."""

from __future__ import annotations

import contextlib

import pytest

from hbasemk import ClockSkewError, LeaseLostError, StoreUnknownError, UnknownRevisionError
from hbasemk.check import IntegrityCheck
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.format.lease_record import record_of
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.runtime import START_MS, World, open_instance

MINUTES = 600_000


class Died(BaseException):
    """The process died."""


def jump(instance: Instance, ms: int) -> None:
    instance.runtime.skew_ms = ms  # type: ignore[attr-defined]


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {"n": 0})]), "", retry_timeout=1, max_poll_age=0)


def count(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([Increment(path, "n", 1)]), "", retry_timeout=1, max_poll_age=0)


def die_after_cells(store: MemoryStore, world: World, mac: int) -> None:
    """Let a writer die between its cells and its decision."""
    faulty = FaultyStore(store)
    dying = open_instance(faulty, world, mac=mac)
    dying.clock.next(0)

    def after(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Died

    faulty.after = after
    with pytest.raises(Died):
        dying.commit(lambda _: OperationList([SetProperty("/a", "p", "left")]), "", retry_timeout=1, max_poll_age=0)


@pytest.mark.parametrize("skew", [MINUTES, 20_000])
def test_reader_with_a_clock_ahead_aborts_no_live_commit(store: MemoryStore, world: World, skew: int) -> None:
    writing = FaultyStore(store)
    writer = open_instance(writing, world, mac=1)
    add(writer, "/a")
    reader = open_instance(store, world, mac=2, skew_ms=skew)
    looked: list[int] = []

    def meanwhile(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            reader.poll()
            looked.extend(reader.journal.pending)
            reader.maintain()

    writing.after = meanwhile
    revision = writer.commit_on(writer.head(), OperationList([SetProperty("/a", "p", 1)]), "")
    assert looked == [revision]
    assert writer.outcome(revision) is Outcome.COMMITTED


@pytest.mark.parametrize("skew", [-MINUTES, -20_000, MINUTES])
def test_a_reader_with_a_wrong_clock_recovers_in_time(store: MemoryStore, world: World, skew: int) -> None:
    first = open_instance(store, world, mac=1)
    add(first, "/a")
    first.close()
    die_after_cells(store, world, mac=2)
    reader = open_instance(store, world, mac=3, skew_ms=skew)
    reader.poll()
    reader.maintain()
    assert len(reader.journal.pending) == 1
    world.advance(16)
    reader.maintain()
    reader.poll()
    assert not reader.journal.pending
    assert [str(problem) for problem in IntegrityCheck(reader).run()] == []


def test_reader_measures_the_clock_again_before_it_expires_a_lease(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    revision = add(writer, "/a")
    reader = open_instance(store, world, mac=2)
    assert not reader.lease.is_over(revision)
    # A monotonic clock that runs ahead by far more than the allowed drift.
    ahead = reader.runtime.monotonic() + 3600
    reader.runtime.monotonic = lambda: ahead  # type: ignore[method-assign]
    assert not reader.lease.is_over(revision)


def test_corrected_clock_commits_at_once(store: MemoryStore, world: World) -> None:
    good = open_instance(store, world, mac=1)
    add(good, "/a")
    bad = open_instance(store, world, mac=2, skew_ms=MINUTES)
    with pytest.raises(ClockSkewError, match="ahead"):
        add(bad, "/b")
    jump(bad, 0)
    revision = add(bad, "/b")
    assert abs(revisions.ms_of(revision) + revisions.DEFAULT_EPOCH_MS - START_MS) < 1000
    good.poll()
    assert good.reader.children(good.head(), "/") == ["a", "b"]


def test_clock_jump_ahead_is_reported_and_uses_up_no_id_time(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=1)
    add(instance, "/a")
    jump(instance, MINUTES)
    for _ in range(3):
        world.advance(4)
        instance.maintain()
        with pytest.raises(ClockSkewError, match="ahead"):
            count(instance, "/a")
    jump(instance, 0)
    revision = count(instance, "/a")
    assert abs(revisions.ms_of(revision) + revisions.DEFAULT_EPOCH_MS - world.ms) < 1000


def test_clock_jump_ahead_does_not_delay_recovery_by_others(store: MemoryStore, world: World) -> None:
    first = open_instance(store, world, mac=1)
    add(first, "/a")
    first.close()
    faulty = FaultyStore(store)
    dying = open_instance(faulty, world, mac=2)
    dying.clock.next(0)
    jump(dying, MINUTES)
    world.advance(4)
    dying.maintain()
    jump(dying, 0)

    def after(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Died

    faulty.after = after
    with pytest.raises(Died):
        count(dying, "/a")
    world.advance(16)
    fresh_instance = open_instance(store, world, mac=3)
    fresh_instance.poll()
    fresh_instance.maintain()
    fresh_instance.poll()
    assert not fresh_instance.journal.pending


def test_a_jump_back_in_the_middle_of_a_run_keeps_the_lease(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=7)
    add(instance, "/a")
    jump(instance, -MINUTES)
    for _ in range(10):
        world.advance(4)
        instance.maintain()
    other = open_instance(store, world, mac=7, seed=2)
    assert revisions.machine_of(other.clock.next(0)) == 8
    with pytest.raises(ClockSkewError, match="behind"):
        count(instance, "/a")
    jump(instance, 0)
    assert revisions.machine_of(count(instance, "/a")) == 7


def test_machine_that_slept_commits_without_a_clock_error(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=1)
    add(instance, "/a")
    # The monotonic clock of a machine that sleeps may stand still.
    slept = 8.0
    world.advance(slept)
    instance.runtime.monotonic = lambda: world.ms / 1000 - slept  # type: ignore[method-assign]
    count(instance, "/a")


def test_repository_created_with_a_clock_ahead_works_for_others(store: MemoryStore, world: World) -> None:
    bad = open_instance(store, world, mac=1, skew_ms=MINUTES)
    with pytest.raises(ClockSkewError):
        add(bad, "/bad")
    good = open_instance(store, world, mac=2)
    revision = add(good, "/a")
    assert abs(revisions.ms_of(revision) + revisions.DEFAULT_EPOCH_MS - world.ms) < 1000


@pytest.mark.parametrize("skew", [MINUTES, -MINUTES])
def test_wrong_clock_does_not_extend_a_lease(store: MemoryStore, world: World, skew: int) -> None:
    good = open_instance(store, world, mac=1)
    add(good, "/a")
    world.advance(20)
    bad = open_instance(store, world, mac=2, skew_ms=skew)
    with pytest.raises(ClockSkewError):
        count(bad, "/a")
    row = store.read(schema.CLUSTER, [Get(schema.machine_key(2), columns=(schema.LEASE,))])[0]
    record = record_of(row)
    now = world.ms - revisions.DEFAULT_EPOCH_MS
    assert record is None or record.end <= now + 10_000


def test_processes_ten_minutes_apart_lose_nothing(store: MemoryStore, world: World) -> None:
    instances = [open_instance(store, world, mac=mac, skew_ms=skew) for mac, skew in enumerate((0, MINUTES, -MINUTES))]
    add(instances[0], "/a")
    counted = refused = 0
    for turn in range(60):
        for instance in instances:
            instance.poll()
            instance.maintain()
            try:
                count(instance, "/a")
                counted += 1
            except ClockSkewError:
                refused += 1
        world.advance((0.1, 7.0, 1.0)[turn % 3])
    assert counted >= 60
    assert refused >= 60
    for instance in instances:
        instance.poll()
        assert instance.reader.require(instance.head(), "/a").properties["n"] == counted


def test_unacknowledged_renewal_keeps_the_lease(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world, mac=7)
    add(instance, "/a")

    def lose(call: Call) -> None:
        if call.method == "check_and_write":
            raise lost_reply(call)

    world.advance(4)
    faulty.after = lose
    # It cannot even read the row, so the outcome stays unknown.
    faulty.before = lambda call: lose(call) if faulty.after and call.method == "read" and record_is_new(store) else None
    with pytest.raises(StoreUnknownError):
        instance.maintain()
    faulty.before = faulty.after = None
    instance.maintain()
    assert not instance.lease.due()
    assert revisions.machine_of(count(instance, "/a")) == 7


def record_is_new(store: MemoryStore) -> bool:
    row = store.read(schema.CLUSTER, [Get(schema.machine_key(7), columns=(schema.LEASE,))])[0]
    record = record_of(row)
    return record is not None and record.end > START_MS + 12_000 - revisions.DEFAULT_EPOCH_MS


@pytest.mark.parametrize("polls", [True, False])
@pytest.mark.parametrize("holds", [True, False])
def test_store_clock_step_ahead_and_back_hides_no_commit(world: World, polls: bool, holds: bool) -> None:
    # One machine, one file: the wall clock is the store's clock, so correcting it sets both back.
    ahead = [0]
    store = MemoryStore(lambda: world.clock() + ahead[0])
    writer = open_instance(store, world, mac=1)
    watcher = open_instance(store, world, mac=2)
    everyone = [writer, watcher]

    def live(seconds: float) -> None:
        while seconds > 0:
            world.advance(2.0)
            seconds -= 2.0
            for one in everyone if polls else [writer]:
                one.poll()
                with contextlib.suppress(LeaseLostError):
                    # By the store's clock its lease was over, and another instance has closed its log.
                    one.maintain()

    def shift(ms: int) -> None:
        ahead[0] = ms
        for one in everyone:
            jump(one, ms)

    add(writer, "/a")
    if holds:
        watcher.clock.next(0)
    live(4)
    shift(MINUTES)
    live(4)
    last = count(writer, "/a")
    live(4)
    shift(0)
    live(4)
    # A clock that was wrong for a moment blocks no writer: ids continue ahead of the store's clock.
    revision = count(writer, "/a")
    assert revision > last
    # Immediately, or after a minute for an instance that does not commit.
    watcher.poll()
    live(70)
    watcher.poll()
    with contextlib.suppress(LeaseLostError):
        watcher.maintain()
    watcher.poll()
    assert watcher.journal.sees(watcher.head(), revision)
    assert watcher.reader.require(watcher.head(), "/a").properties["n"] == 2


@pytest.mark.parametrize("measured", [True, False])
def test_clock_a_day_ahead_abandons_no_branch(store: MemoryStore, world: World, measured: bool) -> None:
    good = open_instance(store, world, mac=1)
    add(good, "/a")
    branch = good.branches.begin(good.head())
    bad = open_instance(store, world, mac=2)
    if measured:
        add(bad, "/b")
    jump(bad, 25 * 3600 * 1000)
    assert bad.branches.sweep(24 * 3600 * 1000) == []
    branch = commit_on_branch(good, branch, [AddNode("/a/x", {})])
    # An instance with a clock behind sweeps in time.
    jump(bad, -25 * 3600 * 1000)
    world.advance(24 * 3600 + 10)
    assert len(bad.branches.sweep(24 * 3600 * 1000)) == 1
    assert bad.open_branches() == []
    world.advance(3600 + 10)
    assert len(bad.branches.sweep(24 * 3600 * 1000)) == 1
    with pytest.raises(UnknownRevisionError):
        open_instance(store, world, mac=3).branches.find(branch)


def test_a_process_that_pauses_after_it_has_made_an_id_makes_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = open_instance(MemoryStore(world.clock, transactions=False), world)
    made: list[int] = []
    original = instance.clock.next

    def slow_next(above: int, *, branch: bool = False) -> int:
        made.append(original(above, branch=branch))
        if len(made) == 1:
            world.advance(instance.settings.max_clock_skew_ms / 1000 + 1)
        return made[-1]

    monkeypatch.setattr(instance.clock, "next", slow_next)
    revision = instance.commit(lambda _: OperationList([AddNode("/a", {})]), "", retry_timeout=1, max_poll_age=0)
    assert len(made) == 2
    assert revision == made[1]
