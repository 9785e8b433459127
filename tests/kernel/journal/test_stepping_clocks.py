"""Clocks that step, stand still or differ between servers lose no update, hide no commit and block no instance for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk import RevisionOverflowError
from hbasemk.check import IntegrityCheck
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance

MINUTES = 600_000
YEAR = 365 * 86_400_000


class Died(BaseException):
    """The process died."""


class Machine:
    """One machine with one SQLite file: its wall clock is the store's, and the clock of all its processes."""

    def __init__(self, path: Path, world: World) -> None:
        self.path = path
        self.world = world
        self.shift_ms = 0
        self.instances: list[Instance] = []

    def clock(self) -> int:
        return self.world.clock() + self.shift_ms

    def open(self, mac: int) -> Instance:
        store = SqliteStore(str(self.path), clock=self.clock)
        instance = open_instance(store, self.world, mac=mac)
        self.instances.append(instance)
        return instance

    def step(self, ms: int) -> None:
        """Set the machine's clock to true time plus so many ms."""
        self.shift_ms = ms
        for instance in self.instances:
            instance.runtime.skew_ms = ms  # type: ignore[attr-defined]


@pytest.fixture
def machine(tmp_path: Path, world: World) -> Machine:
    return Machine(tmp_path / "content.db", world)


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {"n": 0})]), "", retry_timeout=5, max_poll_age=0)


def count(instance: Instance, path: str = "/a", by: int = 1) -> int:
    return instance.commit(lambda _: OperationList([Increment(path, "n", by)]), "", retry_timeout=5, max_poll_age=0)


def counted(instance: Instance, path: str = "/a") -> object:
    instance.poll()
    return instance.reader.require(instance.head(), path).properties["n"]


@pytest.mark.parametrize("back_ms", [2_000, 3_000, 4_500, 30_000, MINUTES])
def test_a_wall_clock_that_steps_back_loses_no_update_and_hides_no_commit(machine: Machine, back_ms: int) -> None:
    first, second, reader = (machine.open(mac) for mac in (1, 2, 3))
    add(first, "/a")
    add(first, "/b")
    second.poll()
    count(second, "/b")
    for instance in machine.instances:
        machine.world.advance(5)
        instance.poll()
    machine.step(-back_ms)
    machine.world.advance(0.2)
    # Each increments on its present head without a poll, as a transaction with a base does.
    committed = [count(first)]
    assert counted(reader) == 1
    machine.world.advance(0.2)
    committed.append(count(second))
    assert counted(reader) == 2
    for number in range(6):
        committed.append(count((first, second)[number % 2]))
        machine.world.advance(0.05)
    for instance in machine.instances:
        assert counted(instance) == 8
        assert all(instance.journal.sees(instance.head(), one) for one in committed)


@pytest.mark.parametrize("back_ms", [2_000, 30_000])
def test_a_conflict_is_found_below_the_bound_of_polls(machine: Machine, back_ms: int) -> None:
    first, second = machine.open(1), machine.open(2)
    add(first, "/a")
    second.poll()
    machine.world.advance(5)
    second.poll()
    base = second.head()
    machine.step(-back_ms)
    other = machine.open(3)
    other.runtime.skew_ms = -back_ms  # type: ignore[attr-defined]
    count(other, by=5)
    # The second one's polls may look too high; its read-back does not depend on that.
    assert count(second, by=1)
    assert counted(second) == 6
    assert base.revision < second.head().revision


def test_clock_step_of_ten_minutes_ahead_and_back_blocks_no_instance(machine: Machine) -> None:
    first, second = machine.open(1), machine.open(2)
    add(first, "/a")
    machine.step(MINUTES)
    last = count(first)
    machine.step(0)
    for number in range(4):
        revision = count((second, first)[number % 2])
        assert revision > last
        last = revision
    machine.world.advance(4)
    first.maintain()
    second.maintain()
    assert counted(second) == 5
    assert counted(machine.open(3)) == 5


@pytest.mark.parametrize("past_ms", [1, 30 * YEAR, 1000 * YEAR])
def test_a_clock_past_the_last_id_blocks_no_instance_once_it_is_right(machine: Machine, past_ms: int) -> None:
    first, second, third = machine.open(1), machine.open(2), machine.open(3)
    add(first, "/a")
    second.poll()
    third.poll()
    machine.step(revisions.last_moment_ms(revisions.DEFAULT_EPOCH_MS) - machine.world.clock() + past_ms)
    # The first one has a lease, which it renews; the others have none.
    first.maintain()
    for instance in (first, second):
        with pytest.raises(RevisionOverflowError, match="a clock is wrong"):
            count(instance)
    third.maintain()
    machine.step(0)
    for instance in (first, second, third):
        assert abs(revisions.ms_of(count(instance)) + revisions.DEFAULT_EPOCH_MS - machine.world.ms) < 1000
    assert counted(machine.open(4)) == 3
    assert [str(problem) for problem in IntegrityCheck(third).run()] == []


def test_a_writer_that_died_while_its_clock_was_ahead_is_recovered_in_time(machine: Machine) -> None:
    first = machine.open(1)
    add(first, "/a")
    machine.step(MINUTES)
    faulty = FaultyStore(SqliteStore(str(machine.path), clock=machine.clock))
    dying = open_instance(faulty, machine.world, mac=2, skew_ms=MINUTES)

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES):
            raise Died

    faulty.before = before
    with pytest.raises(Died):
        count(dying)
    machine.step(0)
    for _ in range(6):
        machine.world.advance(4)
        first.poll()
        first.maintain()
    first.poll()
    assert not first.journal.pending
    assert counted(first) == 0


def test_a_machine_that_slept_while_it_created_a_journal_row_loses_nothing(world: World) -> None:
    store = FaultyStore(MemoryStore(world.clock, parallel=True))
    writer = open_instance(store, world, mac=1)
    other = open_instance(store.inner, world, mac=2)
    add(writer, "/a")
    other.poll()
    count(other)
    writer.poll()
    asleep = [0.0]
    slept: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL) and not slept:
            slept.append(1)
            # Neither the wall clock nor the monotonic clock of a paused virtual machine counts.
            asleep[0] = 4.0
            world.advance(4)
            writer.runtime.skew_ms = -4_000  # type: ignore[attr-defined]
            add(other, "/b")
            world.advance(1.5)
            other.poll()

    runtime = writer.runtime
    runtime.monotonic = lambda: world.ms / 1000 - asleep[0]  # type: ignore[method-assign]
    store.before = before
    count(writer)
    store.before = None
    assert slept
    assert counted(other) == 2
    count(other)
    assert counted(writer) == 3


@pytest.mark.parametrize("ahead_ms", [1_500, -1_500, 4_000])
def test_region_servers_with_different_clocks_lose_no_increment(world: World, ahead_ms: int) -> None:
    store = MemoryStore(world.clock, parallel=True, clocks={schema.JOURNAL: lambda: world.clock() + ahead_ms})
    writers = [open_instance(store, world, mac=mac) for mac in (1, 2, 3)]
    add(writers[0], "/a")
    for number in range(60):
        count(writers[number % 3])
        world.advance((0.01, 0.3, 1.2)[number % 3])
    assert [counted(one) for one in writers] == [60, 60, 60]
    # Each measures the clock of the journal's server at its first late row.
    assert sum(one.statistics.too_slow for one in writers) <= 3


def test_a_server_clock_that_steps_ahead_loses_no_increment(world: World) -> None:
    ahead = [0]
    store = MemoryStore(lambda: world.clock() + ahead[0], parallel=True)
    writers = [open_instance(store, world, mac=mac) for mac in (1, 2)]
    add(writers[0], "/a")
    for number in range(70):
        if number == 35:
            ahead[0] = 2_000
        count(writers[number % 2])
        world.advance(0.02)
    assert [counted(one) for one in writers] == [70, 70]


def test_a_revision_that_the_watermark_has_passed_cannot_commit(machine: Machine) -> None:
    first = machine.open(1)
    add(first, "/a")
    faulty = FaultyStore(SqliteStore(str(machine.path), clock=machine.clock))
    second = open_instance(faulty, machine.world, mac=2)
    passed: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES) and not passed:
            # The revision has an id, but no row yet.
            machine.world.advance(0.1)
            passed.append(add(first, "/c"))
            watermark = first.recovery.advance()
            assert watermark is not None
            assert watermark.revision == passed[0]

    faulty.before = before
    revision = second.commit(lambda _: OperationList([SetProperty("/a", "p", 1)]), "", retry_timeout=5, max_poll_age=0)
    assert second.statistics.too_slow == 1
    assert revision > passed[0]
    assert counted(first) == 0
    assert first.reader.require(first.head(), "/a").properties["p"] == 1
