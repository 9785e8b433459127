"""Processes that commit in series to one file take turns: time slices, and who waits for them."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hbasemk import Repository
from hbasemk.store.abc import Table
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore, ofd_locks, series
from hbasemk.store.sqlite.file_locks import SLICES_FIRST
from hbasemk.store.sqlite.series import GAP, LEAD, LENGTH, Series
from hbasemk.store.sqlite.time_slices import QUEUE, SLICE, TimeSlice, TimeSlices
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import problems
from tests.support.sqlite import ONE, flag

pytestmark = pytest.mark.skipif(ofd_locks._set_lock is None, reason="needs locks of open file descriptions")

NOW = 1000 * SLICE + SLICE / 4
Open = Callable[[], int]


@pytest.fixture
def open_file(path: Path) -> Iterator[Open]:
    """Yield a function that opens the file as another process does: with locks of its own."""
    path.touch()
    descriptors: list[int] = []

    def open_file() -> int:
        descriptors.append(os.open(path, os.O_RDWR))
        return descriptors[-1]

    yield open_file
    for descriptor in descriptors:
        os.close(descriptor)


def number(one: TimeSlice | None) -> int:
    """Return the number of a slice after the one of :data:`NOW`."""
    assert one is not None
    assert one.ends - one.begins == pytest.approx(SLICE)
    return round((one.begins - (NOW - SLICE / 4)) / SLICE)


# --- slices ----------------------------------------------------------------------------------------------------


def test_processes_queue_in_the_order_in_which_they_come(open_file: Open) -> None:
    processes = [(TimeSlices(7), open_file()) for _ in range(4)]
    assert [number(slices.take(file, NOW)) for slices, file in processes] == [0, 1, 2, 3]
    # Each keeps its slice until it ends, and then takes the next one that is free.
    assert [number(slices.take(file, NOW + SLICE / 2)) for slices, file in processes] == [0, 1, 2, 3]
    assert [number(slices.take(file, NOW + SLICE)) for slices, file in processes] == [4, 1, 2, 3]
    assert [number(slices.take(file, NOW + 3 * SLICE)) for slices, file in processes] == [4, 5, 6, 3]


def test_a_lone_process_takes_each_slice_when_it_comes(open_file: Open) -> None:
    slices, file = TimeSlices(7), open_file()
    assert [number(slices.take(file, NOW + later * SLICE)) for later in (0, 1, 5)] == [0, 1, 5]


def test_a_process_that_ends_leaves_its_slice(path: Path, open_file: Open) -> None:
    gone = os.open(path, os.O_RDWR)
    TimeSlices(7).take(gone, NOW)
    os.close(gone)
    assert number(TimeSlices(7).take(open_file(), NOW)) == 0


def test_a_process_holds_one_slice_at_a_time(open_file: Open) -> None:
    slices, file = TimeSlices(7), open_file()
    slices.take(file, NOW)
    slices.take(file, NOW + 2 * SLICE)
    # Another one whose clock goes wrong finds the past slice free.
    assert number(TimeSlices(7).take(open_file(), NOW)) == 0


def test_a_full_queue_makes_nobody_wait(open_file: Open) -> None:
    for _ in range(QUEUE):
        assert TimeSlices(7).take(open_file(), NOW) is not None
    slices, file = TimeSlices(7), open_file()
    assert slices.take(file, NOW) is None
    assert number(slices.take(file, NOW + SLICE)) == QUEUE


def test_a_forgotten_slice_is_taken_anew(open_file: Open) -> None:
    slices, file = TimeSlices(7), open_file()
    slices.take(file, NOW)
    ofd_locks.unlock(file)
    TimeSlices(7).take(open_file(), NOW)
    slices.forget()
    assert number(slices.take(file, NOW)) == 1


def test_slices_leave_nothing_in_memory(open_file: Open) -> None:
    slices, file = TimeSlices(7), open_file()
    for later in range(1000):
        slices.take(file, NOW + later * SLICE)
    assert ofd_locks._request.cache_info().currsize <= 100


# --- series ----------------------------------------------------------------------------------------------------


class Clock:
    """The time that :class:`Series` sees, and how others use the file."""

    def __init__(self) -> None:
        self.now = NOW
        self.slept: list[float] = []
        self.mine: TimeSlice | None = TimeSlice(NOW, NOW + SLICE)
        self.counter: int | None = 0
        self.others_commit = True
        self.looks = 0
        self.series = Series()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds

    def look(self, now: float) -> tuple[TimeSlice | None, int | None]:
        assert now == self.now
        self.looks += 1
        if self.others_commit and self.counter is not None:
            self.counter += 1
        return self.mine, self.counter

    def gives_way(self, written: float | None = None, at_most: float = 10.0) -> bool:
        return self.series.give_way(self.now if written is None else written, at_most, self.look)

    def begin_series(self) -> None:
        looks = self.looks
        for _ in range(LENGTH - 1):
            assert not self.gives_way()
        assert self.looks == looks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the time in the place of the real one."""
    clock = Clock()
    monkeypatch.setattr(series, "time", clock)
    return clock


def test_a_series_waits_for_its_slice_in_two_steps(clock: Clock) -> None:
    clock.begin_series()
    clock.mine = TimeSlice(NOW + 0.1, NOW + 0.1 + SLICE)
    assert clock.gives_way()
    assert clock.now == pytest.approx(NOW + 0.1 - LEAD)
    assert clock.gives_way(written=NOW)
    assert clock.now == pytest.approx(NOW + 0.1)
    assert not clock.gives_way(written=NOW)
    # The series goes on, although the process has not written for so long. Nothing is looked at before its slice ends.
    looks = clock.looks
    clock.now += GAP / 2
    assert not clock.gives_way(written=clock.now - GAP / 2)
    assert clock.looks == looks
    clock.now, clock.mine = NOW + 0.1 + SLICE, TimeSlice(NOW + 0.2, NOW + 0.2 + SLICE)
    assert clock.gives_way()


def test_a_slice_that_has_begun_needs_no_wait(clock: Clock) -> None:
    clock.begin_series()
    assert not clock.gives_way()
    assert clock.looks == 1
    assert not clock.slept


def test_a_process_that_pauses_between_commits_is_in_no_series(clock: Clock) -> None:
    clock.mine = TimeSlice(NOW + 0.1, NOW + 0.2)
    for _ in range(10):
        for _ in range(LENGTH - 1):
            assert not clock.gives_way()
        assert not clock.gives_way(written=clock.now - GAP)
    assert not clock.looks


def test_nobody_waits_for_a_file_that_nobody_writes_to(clock: Clock) -> None:
    clock.begin_series()
    clock.mine = TimeSlice(NOW + 1, NOW + 1 + SLICE)
    clock.others_commit = False
    assert clock.gives_way()
    assert len(clock.slept) == 1
    assert not clock.gives_way(written=NOW)
    clock.begin_series()
    assert not clock.gives_way(), "the process goes on until the end of its slice"


def test_without_a_counter_the_wait_is_complete(clock: Clock) -> None:
    clock.begin_series()
    clock.mine, clock.counter = TimeSlice(NOW + 0.1, NOW + 0.1 + SLICE), None
    assert clock.gives_way()
    assert clock.now == pytest.approx(NOW + 0.1 - LEAD)


def test_a_process_without_a_slice_does_not_wait(clock: Clock) -> None:
    clock.begin_series()
    clock.mine = None
    assert not clock.gives_way()
    assert not clock.slept


def test_a_wait_is_bounded(clock: Clock) -> None:
    clock.begin_series()
    clock.mine = TimeSlice(NOW + 1, NOW + 1 + SLICE)
    assert clock.gives_way(at_most=0.03)
    assert clock.now == pytest.approx(NOW + 0.03)
    assert not clock.gives_way(written=NOW, at_most=0.0)


# --- the store -------------------------------------------------------------------------------------------------


def write_series(store: SqliteStore) -> list[bool]:
    """Write several times in a row, and return what each call of ``give_way`` returned."""
    waited = []
    for _ in range(LENGTH + 2):
        waited.append(store.give_way(10))
        store.write(ONE.name, [flag(b"row")], durable=False)
    return waited


def test_a_lone_writer_never_waits(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "GAP", 60.0)
    assert not any(write_series(store))


def test_a_series_waits_for_the_slices_of_other_processes(
    store: SqliteStore, open_file: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "GAP", float("inf"))
    store.write(ONE.name, [flag(b"row")])
    other, present = open_file(), int(NOW / SLICE)
    assert ofd_locks.lock(other, fcntl.F_WRLCK, SLICES_FIRST + present, QUEUE)
    # The queue is full, so nobody waits.
    assert not any(write_series(store))
    assert not clock.slept
    ofd_locks.unlock(other)
    assert ofd_locks.lock(other, fcntl.F_WRLCK, SLICES_FIRST + present, QUEUE // 2)
    assert any(write_series(store))
    assert clock.slept


def test_only_a_store_that_locks_its_file_has_slices(
    path: Path, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ofd_locks, "_set_lock", None)
    monkeypatch.setattr(series, "GAP", 60.0)
    with closing(SqliteStore(str(path))) as store:
        store.create_tables([Table("one", (b"d",), 1)])
        assert not any(write_series(store))
    assert not MemoryStore().give_way(10)


def _take_in_child(path: str, pipe: Connection) -> None:
    with closing(SqliteStore(path)) as store:
        store.read(ONE.name, [])
        pipe.send(store._connections.reading(lambda one: one.guard.locks.time_slice(NOW)))


def test_a_forked_child_has_no_slice_of_its_parent(store: SqliteStore, path: Path) -> None:
    def take() -> TimeSlice | None:
        return store._connections.reading(lambda one: one.guard.locks.time_slice(NOW))

    assert number(take()) == 0
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_take_in_child, args=(str(path), there))
    child.start()
    try:
        assert here.poll(60)
        # A fork closes the parent's connections, and with them its locks.
        assert number(here.recv()) == 0
    finally:
        child.join(60)
    assert number(take()) == 0


# --- commits ---------------------------------------------------------------------------------------------------


class Waiting(CountingStore):
    """A store that makes each commit wait, while another process commits."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.meanwhile: list[Callable[[], object]] = []
        self.allowed: list[float] = []

    def give_way(self, at_most: float) -> bool:
        self.allowed.append(at_most)
        if not self.meanwhile:
            return False
        self.meanwhile.pop()()
        return True


def increment(repo: Repository) -> None:
    """Increment a number by a transaction with a block."""
    with repo.transaction() as tx:
        tx.increment("/", "n", 1)


@pytest.mark.parametrize("commit", [increment, lambda repo: repo.run(lambda tx: tx.increment("/", "n", 1))])
def test_a_commit_that_has_waited_is_based_on_what_came_meanwhile(commit: Callable[[Repository], None]) -> None:
    shared = MemoryStore()
    waiting = Waiting(shared)
    with Repository(waiting) as one, Repository(shared) as two:
        one.run(lambda tx: tx.set("/", "n", 0))
        for _ in range(2):
            waiting.meanwhile.append(lambda: two.run(lambda tx: tx.increment("/", "n", 1)))
        before = one.statistics.conflicts
        commit(one)
        assert one.head["/"]["n"] == 3
        assert one.statistics.conflicts == before
        assert not waiting.meanwhile
        assert len(waiting.allowed) >= 3
        one.run(lambda tx: tx.increment("/", "n", 1), retry_timeout=5)
        assert 0 <= waiting.allowed[-1] <= 5
        assert problems(one) == []
