"""Processes that compete over a property write it after the mark of the last writer (decision 64)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.format import schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.competitors import Competitors
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import Gateway, Request, become_sole_writer, commit, last_value, let_compete

ALONE = Counter({("check_and_write", table): 1 for table in (schema.CLUSTER, schema.NODES, schema.JOURNAL)})
"""The calls of a commit that finds the mark of the last writer."""
LOOK = Counter({("scan", schema.CLUSTER): 2, ("read", schema.JOURNAL): 1, ("read", schema.NODES): 1})
"""A poll that finds a commit, and the read of its node."""


def test_a_competitor_writes_after_the_mark_of_another_one(three: Competitors) -> None:
    revision = three.increment(three.other)
    assert last_value(three.store) == schema.shared_mark(revision)
    three.counted.take()
    revision = three.increment(three.one)
    assert three.counted.take() == ALONE + LOOK
    assert last_value(three.store) == schema.shared_mark(revision)
    three.increment(three.other)
    three.check(3)


def test_a_competitor_that_comes_late_writes_no_cells_and_tries_again(three: Competitors) -> None:
    three.increment(three.other)
    three.let_overtake()
    begun: list[int] = []
    three.counted.take()
    three.increment(three.one, begun=begun)
    lost, won = begun
    # The first attempt has written nothing in vain.
    assert ("write", schema.NODES) not in three.counted.take()
    row = three.row(lost)
    assert (row.outcome, row.swept) == (Outcome.ABORTED, schema.SWEPT_CLEAN)
    assert last_value(three.store) == schema.shared_mark(won)
    assert three.one.statistics.conflicts == 1
    three.check(3)


class Winner:
    """An instance that has written its cells after a mark, and is about to create its journal row."""

    def __init__(self, three: Competitors, meanwhile: Callable[[Request], object]) -> None:
        gateway = Gateway(three.store, schema.JOURNAL)
        instance = open_instance(gateway, three.world, mac=4)

        def create(request: Request) -> bool:
            answers: list[bool] = []

            def once() -> bool:
                if not answers:
                    answers.append(request())
                return answers[0]

            meanwhile(once)
            return once()

        gateway.decide = create
        self.revision = three.increment(instance)
        self.conflicts = instance.statistics.conflicts


def test_a_competitor_waits_for_the_row_of_the_winner(three: Competitors) -> None:
    three.increment(three.other)
    sleep = three.one.runtime.sleep

    def increment(request: Request) -> None:
        def sleep_and_create(seconds: float) -> None:
            request()
            sleep(seconds)

        three.one.runtime.sleep = sleep_and_create  # type: ignore[method-assign]
        three.increment(three.one)

    winner = Winner(three, increment)
    assert winner.conflicts == 0
    assert three.one.statistics.conflicts == 1
    three.check(3)


def test_a_competitor_aborts_a_winner_that_does_not_create_its_row(three: Competitors) -> None:
    three.increment(three.other)
    began = three.world.clock()
    winner = Winner(three, lambda _: three.increment(three.one))
    assert winner.conflicts == 1
    assert three.one.statistics.conflicts == 1
    assert three.world.clock() - began < 1000
    three.check(3)


def test_a_request_that_the_gateway_sends_twice_commits_once(three: Competitors) -> None:
    three.increment(three.other)

    def send_twice(request: Request) -> bool:
        assert request()
        return request()

    three.gateway.decide = send_twice
    revision = three.increment(three.one)
    assert three.row(revision).committed
    assert three.one.statistics.conflicts == 0
    three.check(2)


def test_a_request_that_the_gateway_sends_twice_beside_another_writer_commits_once(three: Competitors) -> None:
    three.increment(three.other)

    def send_twice(request: Request) -> bool:
        assert request()
        commit(three.third, SetProperty("/a", "p", 1))
        return request()

    three.gateway.decide = send_twice
    three.third.poll()
    revision = three.increment(three.one)
    assert three.row(revision).committed
    three.check(2)


def test_a_lost_reply_commits_once(three: Competitors) -> None:
    three.increment(three.other)

    def lose(request: Request) -> bool:
        assert request()
        raise StoreUnknownError("the reply was lost")

    three.gateway.decide = lose
    three.increment(three.one)
    three.check(2)


def test_a_competitor_with_a_lower_id_than_the_mark_of_a_rival_tries_once_more(three: Competitors) -> None:
    three.third.poll()
    commit(three.third, SetProperty("/a", "p", 1))
    three.before_its_cells(lambda: three.increment(three.other))
    begun: list[int] = []
    three.increment(three.one, begun=begun)
    assert len(begun) == 2
    assert (three.one.statistics.conflicts, three.one.statistics.too_slow) == (1, 0)
    three.check(2)


def test_a_competitor_with_a_lower_id_than_the_mark_of_another_writer_keeps_its_snapshot(three: Competitors) -> None:
    become_sole_writer(three.third, name="p")
    three.before_its_cells(lambda: commit(three.third, SetProperty("/a", "p", 1)))
    three.increment(three.one)
    assert (three.one.statistics.conflicts, three.one.statistics.too_slow) == (0, 1)
    three.check(1)


class Failed:
    """An instance whose increment has written its cells when its store fails; other instances abort its revisions."""

    def __init__(self, three: Competitors) -> None:
        self.three = three
        self.store = FaultyStore(three.store)
        self.instance = open_instance(self.store, three.world, mac=4)

    def __call__(self) -> None:
        begun: list[int] = []
        written = {("write", schema.NODES), ("check_and_write", schema.NODES)}

        def refuse(_: Call) -> None:
            raise StoreNotAppliedError("refused on purpose")

        def after(call: Call) -> None:
            if (call.method, call.table) in written:
                self.store.before = refuse

        self.store.after = after
        with pytest.raises(StoreNotAppliedError):
            self.three.increment(self.instance, timeout=0.1, begun=begun)
        assert begun
        for revision in begun:
            outcomes = self.three.third.outcomes
            outcome = outcomes.of(revision)
            aborted = outcomes.abort_missing(revision) if outcome is Outcome.ABSENT else outcomes.abort_other(revision)
            assert aborted is Outcome.ABORTED

    def recover(self) -> None:
        self.store.before = self.store.after = lambda _: None
        self.instance.outcomes.resolve_pending()


def test_an_aborted_rival_whose_mark_is_above_is_no_conflict(three: Competitors) -> None:
    three.third.poll()
    commit(three.third, SetProperty("/a", "p", 1))
    fail = Failed(three)
    three.before_its_cells(fail)
    three.increment(three.one, timeout=0)
    assert three.one.statistics.conflicts == 0
    fail.recover()
    three.check(1)


def test_an_aborted_rival_that_came_first_is_no_conflict(three: Competitors) -> None:
    three.increment(three.other)
    fail = Failed(three)
    fail.instance.poll()

    def decide(request: Request) -> bool:
        fail()
        return request()

    three.gateway.decide = decide
    three.increment(three.one, timeout=0)
    assert three.one.statistics.conflicts == 0
    fail.recover()
    three.check(2)


def test_a_commit_that_finds_other_writers_leaves_no_shared_mark(three: Competitors) -> None:
    pending = FaultyStore(three.store)
    writer = open_instance(pending, three.world, mac=4)
    commit(writer, SetProperty("/a", "p", 1))
    three.world.advance(0.01)

    def before_the_decision(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL) and writer.announcements._open:
            pending.before = lambda _: None
            three.third.poll()
            revision = three.increment(three.third)
            assert last_value(three.store) == schema.mark(revision)

    def after_the_read_back(call: Call) -> None:
        if (call.method, call.table) == ("read", schema.NODES):
            pending.after = lambda _: None
            pending.before = before_the_decision

    pending.after = after_the_read_back
    commit(writer, SetProperty("/a", "p", 2))
    assert pending.before is not before_the_decision
    three.check(1)


def test_competitors_do_not_compare_the_mark_of_a_sole_writer(three: Competitors) -> None:
    become_sole_writer(three.third, name="p")
    revision = three.third.head().revision
    assert last_value(three.store) == schema.mark(revision)
    three.counted.take()
    marked = three.increment(three.one)
    assert three.counted.take()["write", schema.NODES] == 2
    assert last_value(three.store) == schema.shared_mark(marked)
    three.check(1)


def test_a_lost_reply_to_the_shared_mark_is_a_doubt(three: Competitors) -> None:
    """A late shared mark of an aborted revision is a late cell: the collector must look for it."""
    become_sole_writer(three.third, name="p")
    written = 0
    begun: list[int] = []

    def lose_the_second(call: Call) -> None:
        nonlocal written
        if (call.method, call.table) != ("write", schema.NODES):
            return
        written += 1
        if written == 2:
            assert three.third.outcomes.abort_other(begun[0]) is Outcome.ABORTED
            raise StoreUnknownError("the reply was lost")

    three.gateway.after = lose_the_second
    three.increment(three.one, begun=begun)
    lost, won = begun
    assert (three.row(lost).swept, three.row(won).committed) == (schema.SWEPT_IN_DOUBT, True)
    three.check(1)


def test_a_commit_to_a_given_base_does_not_compete(three: Competitors) -> None:
    three.increment(three.other)
    three.one.poll()
    let_compete(three.one, "/a", "n")
    base = three.one.head()
    three.third.poll()
    commit(three.third, SetProperty("/a", "p", 1))
    # The other writer has changed another property.
    three.one.commit_on(base, OperationList([Increment("/a", "n", 1)]), "")
    three.check(2)


def test_other_commits_do_not_compete(three: Competitors) -> None:
    three.increment(three.other)
    three.one.poll()
    for operations in ([SetProperty("/a", "p", 1)], [Increment("/a", "n", 1), AddNode("/a/b", {})]):
        three.increment(three.other)
        three.one.poll()
        three.counted.take()
        three.increment(three.one, *operations)
        assert three.counted.take()["check_and_write", schema.NODES] == 0


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_node_shows_whether_it_has_a_shared_mark(three: Competitors, is_cached: bool) -> None:
    def has_shared_mark() -> bool:
        instance = three.other if is_cached else open_instance(three.store, three.world, mac=9)
        return instance.require(instance.head(), "/a").has_shared_mark

    three.other.poll()
    assert not has_shared_mark()
    three.increment(three.other)
    assert has_shared_mark()
    three.increment(three.other)
    assert has_shared_mark()
    three.third.poll()
    commit(three.third, SetProperty("/a", "p", 1))
    three.other.poll()
    assert not has_shared_mark()


def test_a_store_that_orders_all_writes_has_no_competitors(world: World) -> None:
    store = MemoryStore(world.clock, transactions=True)
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"n": 0}))
    let_compete(one, "/a", "n")
    commit(one, Increment("/a", "n", 1))
    assert last_value(store) == schema.TOUCHED
