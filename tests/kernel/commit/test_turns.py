"""Turns: the journal shows waiting writers, the longest waiting one goes first, and each wait is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

import hbasemk
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.commit.turns import LONGEST, TURN
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.contention import EVICT_FROM, EXPIRES_MS, Contention, _Machine
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore
from tests.support import taking_turns
from tests.support.runtime import World, open_instance

OWN = 7


def revision(machine: int, ms: int) -> int:
    return revisions.pack(ms, machine, 0)


def test_an_aborted_writer_waits_until_it_commits() -> None:
    seen = Contention()
    assert seen.waiting(OWN) == []
    seen.aborted(revision(1, 1000))
    seen.aborted(revision(2, 900))
    seen.aborted(revision(OWN, 800))
    seen.aborted(revision(1, 1100))
    # Each poll that rereads recent rows returns them again.
    seen.aborted(revision(1, 1000))
    assert seen.waiting(OWN) == [revision(2, 900), revision(1, 1000)]
    seen.committed([revision(2, 1200)])
    seen.aborted(revision(2, 900))
    assert seen.waiting(OWN) == [revision(1, 1000)]
    # Polls return the highest first.
    seen.aborted(revision(3, 1400))
    seen.committed([revision(3, 1300)])
    seen.aborted(revision(3, 1250))
    assert seen.waiting(OWN) == [revision(1, 1000), revision(3, 1400)]


def test_a_writer_without_attempts_is_no_longer_waiting() -> None:
    seen = Contention()
    seen.aborted(revision(1, 1000))
    seen.committed([revision(2, 1000 + EXPIRES_MS)])
    assert seen.waiting(OWN) == [revision(1, 1000)]
    seen.committed([revision(2, 1001 + EXPIRES_MS)])
    assert seen.waiting(OWN) == []


def test_the_number_of_remembered_writers_is_bounded() -> None:
    seen = Contention()
    for machine in range(5000):
        seen.aborted(revision(machine, 1000 + 10 * machine))
    assert len(seen._machines) <= 1000
    assert seen.waiting(OWN)[-1] == revision(4999, 1000 + 10 * 4999)


def test_a_commit_may_be_recorded_while_a_poll_evicts_writers() -> None:
    others = [revision(40_000, 20_000)]

    class Recorded(Contention):
        """Another thread records a commit while writers are evicted."""

        def _expired(self, known: _Machine) -> bool:
            if others:
                self._machines[40_000] = _Machine(others.pop())
            return super()._expired(known)

    seen = Recorded()
    for machine in range(EVICT_FROM + 1):
        seen.aborted(revision(machine, 1000 + 10 * machine))
    assert not others
    assert seen.waiting(OWN)[-1] == revision(EVICT_FROM, 1000 + 10 * EVICT_FROM)


class Pair:
    """Two instances; the second has lost a conflict on /a and waits."""

    def __init__(self, waits_for: str = "/a") -> None:
        self.world = World()
        self.shared = MemoryStore(self.world.clock)
        self.counted = CountingStore(self.shared)
        self.one = open_instance(self.counted, self.world, mac=1)
        self.one.commit(
            lambda _: OperationList([AddNode("/a", {"n": 0}), AddNode("/b", {"n": 0})]),
            "",
            retry_timeout=1,
            max_poll_age=0,
        )
        self.two = open_instance(self.shared, self.world, mac=2)
        base = self.two.head()
        self.commit(self.one, waits_for)
        with pytest.raises(hbasemk.ConflictError):
            self.two.commit_on(base, OperationList([Increment(waits_for, "n", 1)]), "")
        self.one.poll()

    def commit(self, instance: Instance, path: str, retry_timeout: float = 60) -> float:
        """Increment; return the seconds that it waited."""
        began = self.world.ms
        source = OperationList([Increment(path, "n", 1)])
        instance.commit(lambda _: source, "", retry_timeout=retry_timeout, max_poll_age=1000)
        return (self.world.ms - began) / 1000

    def keep_on(self, path: str, retry_timeout: float = 60) -> float:
        """Commit for longer than a turn; return the total seconds that it waited."""
        waited = self.commit(self.one, path)
        self.world.advance(TURN * 0.6)
        waited += self.commit(self.one, path)
        self.world.advance(TURN * 0.6)
        return waited + self.commit(self.one, path, retry_timeout)


def test_a_process_yields_once_to_waiting_ones_after_its_turn() -> None:
    pair = Pair()
    assert 0 < pair.keep_on("/a") <= 1.5 * LONGEST
    # It then has another turn.
    assert pair.commit(pair.one, "/a") == 0


def test_a_process_does_not_yield_to_writers_of_other_paths() -> None:
    pair = Pair(waits_for="/b")
    assert pair.keep_on("/a") == 0


def test_a_process_does_not_yield_to_an_ended_one() -> None:
    pair = Pair()
    pair.world.advance(EXPIRES_MS / 1000 + 1)
    pair.commit(pair.one, "/a")
    assert pair.keep_on("/a") == 0


def test_a_commit_waits_for_its_turn_until_its_deadline_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    store = MemoryStore(world.clock)
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    one.commit(lambda _: OperationList([AddNode("/a", {"n": 0})]), "", retry_timeout=9, max_poll_age=0)
    two.poll()
    one.commit(lambda _: OperationList([SetProperty("/a", "n", 1)]), "", retry_timeout=9, max_poll_age=0)
    # Many others wait, and attempts take long.
    monkeypatch.setattr(Contention, "waiting", lambda *_: list(range(1, 9)))
    two._committer._turns.record_attempt(2.0)
    began = world.ms
    two.commit(lambda _: OperationList([SetProperty("/a", "n", 2)]), "", retry_timeout=0.1, max_poll_age=60)
    assert world.ms - began <= 101


def test_a_process_yields_until_its_deadline_at_most() -> None:
    pair = Pair()
    for _ in range(20):
        pair.one._committer._turns.record_attempt(LONGEST)
    assert pair.keep_on("/a", 0.05) <= 0.051


def test_all_waits_for_time_slices_before_one_commit_end_at_its_deadline() -> None:
    world = World()

    class Slices(CountingStore):
        """A store in which a commit waits twice, each time as long as it may."""

        waits = 2

        def give_way(self, at_most: float) -> bool:
            self.waits -= 1
            world.advance(at_most)
            return self.waits >= 0

    instance = open_instance(Slices(MemoryStore(world.clock)), world)
    began = world.ms
    source = OperationList([AddNode("/a", {})])
    instance.commit(lambda _: source, "", retry_timeout=1, max_poll_age=0)
    assert world.ms - began < 1100


def test_commits_without_contention_make_no_additional_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    # Commits of a sole writer make fewer calls.
    monkeypatch.setattr(SoleRows, "choose", lambda *_: None)
    world = World()
    counted = CountingStore(MemoryStore(world.clock))
    one = open_instance(counted, world, mac=1)
    one.commit(lambda _: OperationList([AddNode("/a", {"n": 0})]), "", retry_timeout=1, max_poll_age=0)
    counted.take()
    one.commit(lambda _: OperationList([SetProperty("/a", "n", 1)]), "", retry_timeout=1, max_poll_age=1000)
    first = counted.take()
    for turn in range(10):
        world.advance(TURN / 3)
        one.commit(
            lambda _, turn=turn: OperationList([SetProperty("/a", "n", turn + 2)]),
            "",
            retry_timeout=1,
            max_poll_age=1000,
        )  # type: ignore[misc]
        assert counted.take() == first


def test_a_conflicting_commit_in_one_store_transaction_writes_no_cells() -> None:
    world = World()
    shared = MemoryStore(world.clock, transactions=True)
    counted = CountingStore(shared)
    one, two = open_instance(counted, world, mac=1), open_instance(shared, world, mac=2)
    one.commit(lambda _: OperationList([AddNode("/a", {"n": 0})]), "", retry_timeout=1, max_poll_age=0)
    base = one.head()
    two.poll()
    two.commit(lambda _: OperationList([Increment("/a", "n", 1)]), "", retry_timeout=1, max_poll_age=0)
    counted.calls.clear()
    with pytest.raises(hbasemk.ConflictError):
        one.commit_on(base, OperationList([Increment("/a", "n", 1)]), "")
    written = [call for call in counted.calls if call.table == schema.NODES and call.method in ("write", "delete")]
    assert written == []
    assert Call("write_if", schema.NODES, 1) in counted.calls


@pytest.mark.timeout(240)
def test_every_process_gets_its_share_of_one_property(tmp_path: Path) -> None:
    taking_turns.run(f"sqlite:///{tmp_path}/content.db")
