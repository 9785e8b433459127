"""In a store that orders all writes, all instances see all revisions in the order in which the store decided them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.periodic_work import ADVANCE_AFTER
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.abc import Get, NewCell, Put, Scan, Store, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, WrappedStore
from tests.support.runtime import World, open_instance

MINUTES = 600_000
T = TypeVar("T")


@pytest.fixture
def store(ordered_store: Store) -> Store:
    return ordered_store


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {"n": 0})]), "", retry_timeout=5, max_poll_age=0)


def order(instance: Instance) -> list[int]:
    instance.poll()
    return list(instance.journal)


def test_a_lower_id_that_commits_later_comes_later_everywhere(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    slow, quick, third = (open_instance(one, world, mac=mac) for mac, one in enumerate((faulty, store, store), 1))
    add(slow, "/a")
    between: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES) and not between:
            # The slow commit has its id and its journal row.
            third.poll()
            between.append(add(quick, "/b"))

    faulty.before = before
    late = slow.commit(lambda _: OperationList([SetProperty("/a", "p", 1)]), "", retry_timeout=5, max_poll_age=0)
    assert late < between[0]
    orders = [order(one)[-2:] for one in (slow, quick, third, open_instance(store, world, mac=4))]
    assert orders == [[between[0], late]] * 4
    assert [one.at(between[0]).revision for one in (slow, quick, third)] == [between[0]] * 3
    for one in (slow, quick, third):
        node = one.reader.require(one.at(between[0]), "/a")
        assert "p" not in node.properties


class Late(WrappedStore):
    """Holds the first request that commits, refuses its repetition, and applies it before the next request."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests = 0
        self.held: Callable[[], object] = lambda: None
        self.applied: Callable[[], object] = lambda: None

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Make all other calls."""
        return do()

    def write_if(
        self, table: str, puts: Sequence[Put], gets: Sequence[Get], judge: Any, *more: Any, **named: Any
    ) -> Any:
        self.requests += 1
        if self.requests == 1:
            self.held = partial(self.inner.write_if, table, puts, gets, judge, *more, **named)
            raise StoreUnknownError("the reply was lost")
        if self.requests == 2:
            return self.inner.write_if(table, puts, gets, lambda rows: judge(rows) and False, *more, **named)
        if self.requests == 3:
            assert self.held() is not None
            self.applied()
        return self.inner.write_if(table, puts, gets, judge, *more, **named)


def test_a_request_that_arrives_late_decides_only_once(store: Store, world: World) -> None:
    late = Late(store)
    one, two = open_instance(late, world, mac=1), open_instance(store, world, mac=2)
    add(two, "/a")
    one.clock.next(0)
    late.requests = 0
    late.applied = lambda: add(two, "/b")
    # Without a poll first: the store would not ask for a judgement if it had no write that the view lacks.
    revision = one.commit(lambda _: OperationList([AddNode("/c", {})]), "", retry_timeout=5, max_poll_age=math.inf)
    assert late.requests > 3
    orders = [order(instance) for instance in (one, two, open_instance(store, world, mac=3))]
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][-2] == revision


def commit_that_waits_to_join(store: Store, world: World) -> tuple[Instance, FaultyStore, int]:
    """Return an instance, its store, in which each poll fails, and the revision of its commit, which has not joined."""
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    add(one, "/a")

    def fail(call: Call) -> None:
        if call.method == "arrivals":
            raise StoreNotAppliedError("the store is away")

    return one, faulty, commit_and_fail_behind_it(one, faulty, two, fail)


def commit_and_fail_behind_it(one: Instance, faulty: FaultyStore, two: Instance, fail: Callable[[Call], None]) -> int:
    """Commit, while another instance commits just before; from the decision on, ``fail`` gets each call before the store."""
    decided: list[bool] = []

    def before(call: Call) -> None:
        if call.method == "write_if":
            add(two, "/between")
        if decided:
            fail(call)

    def after(call: Call) -> None:
        if call.method == "write_if":
            decided.append(True)

    faulty.before, faulty.after = before, after
    revision = add(one, "/b")
    assert decided
    return revision


@pytest.mark.parametrize("later", ["head", "commit"])
def test_an_own_commit_is_visible_after_the_store_failed_behind_it(store: Store, world: World, later: str) -> None:
    one, faulty, revision = commit_that_waits_to_join(store, world)
    assert not one.journal.knows(revision)
    with pytest.raises(StoreNotAppliedError):
        one.head()
    faulty.before = faulty.after = None
    one.max_poll_age = math.inf
    if later == "commit":
        one.commit(lambda _: OperationList([AddNode("/b/c", {})]), "", retry_timeout=5)
    assert one.require(one.head(), "/b").properties["n"] == 0
    assert one.journal.knows(revision)
    assert not one.journal.lacks_own_commit


def test_an_own_commit_that_joined_in_an_interrupted_poll_no_longer_waits_to_join(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it seemed to wait, each later commit would poll."""
    one, faulty, revision = commit_that_waits_to_join(store, world)
    faulty.before = faulty.after = None
    extend = RevisionSequence.extend

    def interrupted(self: RevisionSequence, joining: Sequence[int]) -> None:
        extend(self, joining)
        if revision in joining:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RevisionSequence, "extend", interrupted)
        one.poll()
    assert one.journal.lacks_own_commit
    assert one.require(one.head(), "/b").properties["n"] == 0
    assert not one.journal.lacks_own_commit


def test_a_commit_whose_store_is_closed_behind_it_has_succeeded(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    add(one, "/a")

    def fail(_: Call) -> None:
        raise ClosedError("the store is closed")

    revision = commit_and_fail_behind_it(one, faulty, two, fail)
    two.poll()
    assert two.journal.knows(revision)
    faulty.before = faulty.after = None


def test_a_store_may_have_both_transactions_and_parallel_calls(world: World) -> None:
    counting = CountingStore(MemoryStore(world.clock, transactions=True, parallel=True))
    one = open_instance(counting, world)
    add(one, "/a")
    counting.take()
    add(one, "/b")
    assert counting.take()["write_if", schema.NODES] == 1
    assert one.journal.pending == frozenset()


@pytest.mark.parametrize("skew_ms", [-MINUTES, MINUTES])
def test_no_clock_keeps_a_commit_from_others(tmp_path: Path, world: World, skew_ms: int) -> None:
    shift = [skew_ms]
    path = str(tmp_path / "content.db")

    def opened(mac: int, shift: list[int]) -> Instance:
        return open_instance(SqliteStore(path, clock=lambda: world.clock() + shift[0]), world, mac=mac)

    one, two = opened(1, [0]), opened(2, shift)
    expected: list[int] = []
    for number in range(8):
        # The clock steps while the instance holds its lease, too.
        shift[0] = two.runtime.skew_ms = skew_ms if number < 4 else -skew_ms  # type: ignore[attr-defined]
        expected.append(add((one, two)[number % 2], f"/{number}"))
        assert order((two, one)[number % 2])[-1] == expected[-1]
    assert order(one)[-8:] == order(two)[-8:] == expected
    assert order(opened(3, [0]))[-8:] == expected


@pytest.mark.damages("a row of the journal is deleted, and its arrival number stays")
def test_an_id_far_below_the_highest_is_replaced_before_its_row_exists(store: Store, world: World) -> None:
    one = open_instance(store, world, mac=1)
    add(one, "/a")
    base = one.head()
    ahead = revisions.pack(revisions.ms_of(base.revision) + MINUTES, 7, 0)
    row = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.YES), NewCell(*schema.SWEPT, b"clean")]
    store.write(schema.JOURNAL, [Put(schema.revision_key(ahead), row)])
    revision = one.commit_on(base, OperationList([AddNode("/b", {})]), "")
    assert revision > ahead
    assert one.statistics.too_slow == 1
    store.delete_rows(schema.JOURNAL, [schema.revision_key(ahead)])


def test_an_id_that_the_watermark_has_passed_is_replaced_before_its_row_exists(store: Store, world: World) -> None:
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    add(one, "/a")
    two.poll()
    base = two.head()
    # The ids of the first instance are 2 s ahead.
    one.clock.observe(revisions.pack(revisions.ms_of(base.revision) + 2000, 7, 0))
    ahead = add(one, "/b")
    watermark = one.recovery.advance()
    assert watermark is not None
    assert watermark.revision == ahead
    rows = len(list(scan_all(store, schema.JOURNAL, Scan(None, None, 100))))
    assert two.commit_on(base, OperationList([AddNode("/c", {})]), "") > ahead
    assert two.statistics.too_slow == 1
    assert len(list(scan_all(store, schema.JOURNAL, Scan(None, None, 100)))) == rows + 1


def test_the_watermark_reaches_the_last_revision_while_nobody_commits(store: Store, world: World) -> None:
    one = open_instance(store, world, mac=1)
    last = [add(one, f"/{number}") for number in range(3)][-1]
    watermark = one.recovery.advance()
    assert watermark is not None
    assert watermark.revision == last
    counting = CountingStore(store)
    two = open_instance(counting, world, mac=2)
    two.poll()
    assert list(two.journal) == []
    assert two.head().revision == last


def test_the_watermark_does_not_pass_a_row_that_arrives_meanwhile(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one = open_instance(faulty, world)
    first = add(one, "/a")
    add(one, "/b")
    row = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.NO)]

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.CLUSTER):
            store.write(schema.JOURNAL, [Put(schema.revision_key(first - 1), row)])

    faulty.before = before
    assert one.recovery.advance() is None
    store.delete_rows(schema.JOURNAL, [schema.revision_key(first - 1)])


@pytest.mark.no_cover
def test_periodic_work_reads_each_revision_a_few_times_while_others_commit(store: Store, world: World) -> None:
    # Each attempt to move the watermark to the last revision read all rows above it, and failed.
    faulty = FaultyStore(store)
    counting = CountingStore(faulty)
    one, other = open_instance(counting, world, mac=1), open_instance(store, world, mac=2)
    paths = map("/{}".format, itertools.count())

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.CLUSTER):
            add(other, next(paths))

    faulty.before = before
    for _ in range(20):
        for _ in range(ADVANCE_AFTER // 2):
            add(other, next(paths))
            world.advance(0.002)
        one.poll()
        counting.traffic()
        one.maintain()
        assert counting.traffic().rows_read <= 2 * ADVANCE_AFTER
    faulty.before = None
    one.poll()
    for _ in range(2):
        one.maintain()
    # Nobody has committed in between.
    assert read_watermark(store).revision == other.head().revision


def test_the_watermark_stays_below_the_bound_if_it_need_not_reach_the_end(store: Store, world: World) -> None:
    counting = CountingStore(store)
    one = open_instance(counting, world, mac=1)
    last = [add(one, f"/{number}") for number in range(3)][-1]
    counting.traffic()
    assert one.recovery.advance(to_end=False) is None
    assert counting.traffic().rows_read == 1
    world.advance(60)
    assert add(one, "/later") > last
    watermark = one.recovery.advance(to_end=False)
    assert watermark is not None
    assert watermark.revision == last


@pytest.mark.damages("a row of the journal is deleted, and its arrival number stays")
def test_a_damaged_key_stops_no_commit(store: Store, world: World) -> None:
    one = open_instance(store, world)
    add(one, "/a")
    damaged = b"\xffdamaged"
    store.write(schema.JOURNAL, [Put(damaged, [NewCell(*schema.COMMITTED, schema.YES)])])
    add(one, "/b")
    store.delete_rows(schema.JOURNAL, [damaged])


def test_a_decision_whose_reply_was_lost_arrives_once(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    add(one, "/a")
    lost: list[Call] = []

    def after(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES) and not lost:
            lost.append(call)
            two.poll()
            add(two, "/other")
            raise StoreUnknownError("the reply was lost")

    faulty.after = after
    revision = one.commit(lambda _: OperationList([SetProperty("/a", "p", 1)]), "", retry_timeout=5, max_poll_age=0)
    assert lost
    last = order(two)[-2:]
    assert last[0] == revision
    assert order(one)[-2:] == order(open_instance(store, world, mac=3))[-2:] == last


def test_a_commit_whose_replies_are_all_lost_joins_at_the_next_poll(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    add(one, "/a")

    def after(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES):
            raise StoreUnknownError("the reply was lost")

    faulty.after = after
    revision = one.commit_on(one.head(), OperationList([SetProperty("/a", "p", 1)]), "")
    assert order(two)[-1] == order(one)[-1] == revision


def test_a_commit_reads_nothing_back_while_it_is_alone(store: Store, world: World) -> None:
    counting = CountingStore(store)
    one = open_instance(counting, world)
    add(one, "/a")
    counting.take()
    one.commit_on(one.head(), OperationList([SetProperty("/a", "p", 1)]), "")
    assert counting.take() == {("write_if", schema.NODES): 1}


def test_another_thread_may_drop_positions_during_a_poll(store: Store, world: World) -> None:
    one, two = open_instance(store, world), open_instance(store, world, mac=2)
    for number in range(3):
        add(two, f"/{number}")
    one.poll()
    poller = one.journal.poller
    assert isinstance(poller, ArrivalPoller)
    made = add(two, "/later")

    class Shared(dict[int, int]):
        """What another thread drops while this one reads."""

        def items(self) -> Any:
            for item in super().items():
                yield item
                poller.read(one.journal._sequence, lambda *_: {})

    poller._before = Shared(poller._before)
    poller.forget(0)
    before = poller.number_before(made - 1)
    one.poll()
    assert poller.number_before(made - 1) == before < poller.cursor
    assert one.journal.knows(made)


def test_a_poll_reads_only_what_is_new(store: Store, world: World) -> None:
    counting = CountingStore(store)
    writer, reader = open_instance(store, world, mac=1), open_instance(counting, world, mac=2)
    for number in range(50):
        add(writer, f"/{number}")
    reader.poll()
    counting.take()
    counting.traffic()
    reader.poll()
    assert counting.take() == {("arrivals", schema.JOURNAL): 1}
    assert counting.traffic().rows_read == 0
    add(writer, "/new")
    counting.traffic()
    reader.poll()
    assert counting.take() == {("arrivals", schema.JOURNAL): 1}
    assert counting.traffic().rows_read == 1
