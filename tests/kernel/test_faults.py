"""Failing stores: outcomes are reported, unfinished commits are resolved, no acknowledged commit is lost.

Every store call of a commit fails in three ways. The last one also ends the process, as far as a test can do this: its
instance is never used again.
"""

from __future__ import annotations

import itertools

import pytest

from hbasemk import (
    CommitUnknownError,
    ConflictError,
    InvalidRevisionError,
    Outcome,
    Repository,
    StoreError,
    StoreNotAppliedError,
    StoreUnknownError,
)
from hbasemk.check import IntegrityCheck
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.repository import instance_of
from hbasemk.store.abc import Column, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.failing import Died, FailingRepository
from tests.support.runtime import open_instance

COMMITS: dict[str, list[Operation]] = {
    "set": [SetProperty("/a", "p", "new")],
    "unset": [SetProperty("/a", "p", None)],
    "increment": [Increment("/a", "n", 1)],
    "add": [AddNode("/a/new", {"x": 1})],
    "add many": [AddNode(f"/a/new{number}", {"x": 1}) for number in range(10)],
    "remove leaf": [RemoveNode("/a/b/c")],
    "remove subtree": [RemoveNode("/a")],
    "move": [MoveNode("/a/b", "/moved")],
    "copy": [CopyNode("/a", "/copied")],
    "add again": [RemoveNode("/a/b"), AddNode("/a/b", {"again": True})],
}


class Place(FailingRepository):
    """A repository in which the commits of one instance fail."""

    def __init__(self, transactions: bool = False, batch_rows: int = 1000) -> None:
        super().__init__(transactions=transactions, batch_rows=batch_rows)
        # Claim the lease first, so that only the commit's own calls are counted.
        self.instance.clock.next(0)

    def commit(self, operations: list[Operation]) -> int:
        return self.instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def before_and_after(
    operations: list[Operation], transactions: bool = False, batch_rows: int = 1000
) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]], int]:
    place = Place(transactions, batch_rows)
    before = place.tree(place.instance)
    calls = itertools.count()
    place.store.before = lambda call: next(calls)
    place.commit(operations)
    place.heal()
    return before, place.check(), next(calls)


def fail_at(place: Place, number: int, how: str) -> None:
    """Let the store fail at its call with this number: before it, after it, or permanently after it."""
    calls = itertools.count()

    def before(call: Call) -> None:
        if how == "not applied" and next(calls) == number:
            raise StoreNotAppliedError(f"{call.method} was refused on purpose")

    def after(call: Call) -> None:
        if how != "not applied" and next(calls) == number:
            raise lost_reply(call) if how == "reply lost" else Died

    place.store.before, place.store.after = before, after


@pytest.mark.no_cover
@pytest.mark.parametrize("how", ["not applied", "reply lost", "died"])
@pytest.mark.parametrize(
    ("transactions", "batch_rows"),
    [(False, 1000), (True, 1000), (True, 1)],
    ids=["one by one", "at one moment", "in order, one by one"],
)
@pytest.mark.parametrize("kind", COMMITS)
def test_any_call_of_a_commit_may_fail(kind: str, transactions: bool, batch_rows: int, how: str) -> None:
    operations = COMMITS[kind]
    before, after, calls = before_and_after(operations, transactions, batch_rows)
    assert before != after
    assert calls >= (1 if transactions else 4)
    for number in range(calls):
        place = Place(transactions, batch_rows)
        fail_at(place, number, how)
        acknowledged = False
        try:
            place.commit(operations)
            acknowledged = True
        except StoreError as error:
            assert type(error) in {StoreNotAppliedError, StoreUnknownError}
        except Died:
            assert how == "died"
        place.heal()
        found = place.check()
        assert found in (before, after), f"{kind}, call {number}"
        if acknowledged:
            assert found == after, f"{kind}, call {number}: acknowledged and lost"


@pytest.mark.parametrize("kind", COMMITS)
def test_a_commit_is_all_or_nothing_if_the_store_fails_permanently_at_any_call(kind: str) -> None:
    operations = COMMITS[kind]
    before, after, calls = before_and_after(operations)
    for number in range(calls):
        place = Place()
        count = itertools.count()

        def gone(call: Call, number: int = number, count: itertools.count[int] = count) -> None:
            if next(count) >= number:
                raise StoreNotAppliedError("the store is away")

        place.store.before = gone
        with pytest.raises((StoreNotAppliedError, CommitUnknownError)) as caught:
            place.commit(operations)
        place.heal()
        if isinstance(caught.value, CommitUnknownError):
            assert place.instance.outcome(int(caught.value.revision, 16)) in {Outcome.COMMITTED, Outcome.ABORTED}
        # The next commit of the same instance ends the deferred revision immediately.
        place.commit([SetProperty("/", "later", True)])
        assert place.instance.outcomes.deferred == []
        found = place.check()
        found["/"].pop("later")
        assert found in (before, after)


def test_unknown_outcome_is_reported_and_later_resolved() -> None:
    place = Place()
    decided = False

    def after(call: Call) -> None:
        nonlocal decided
        if decided or (call.method == "check_and_write" and call.table == schema.JOURNAL and wrote):
            decided = True
            raise lost_reply(call)

    def before(call: Call) -> None:
        nonlocal wrote
        if decided:
            raise StoreNotAppliedError("the store is away")
        wrote = wrote or call.method == "write"

    wrote = False
    place.store.before, place.store.after = before, after
    with pytest.raises(CommitUnknownError, match="outcome") as caught:
        place.commit(COMMITS["set"])
    revision = int(caught.value.revision, 16)
    with pytest.raises(StoreNotAppliedError):
        place.instance.outcome(revision)
    place.heal()
    assert place.instance.outcome(revision) is Outcome.COMMITTED
    assert place.tree(place.instance)["/a"]["p"] == "new"
    assert place.check()["/a"]["p"] == "new"


def test_outcome_of_an_abandoned_commit_stays_aborted() -> None:
    place = Place()

    def before(call: Call) -> None:
        if call.method == "write" and call.table == schema.NODES:
            away.append(call)
        if away:
            raise StoreUnknownError("the store is away")

    away: list[Call] = []
    place.store.before = before
    # No decision was sent, so the revision cannot be committed.
    with pytest.raises(StoreNotAppliedError, match="nothing was committed"):
        place.commit(COMMITS["set"])
    (revision,) = place.instance.outcomes.deferred
    place.heal()
    assert place.instance.outcome(revision) is Outcome.ABORTED
    assert place.check()["/a"]["p"] == "old"


def test_a_paused_writer_that_wakes_up_after_its_recovery_loses() -> None:
    place = Place()
    recovered: list[int] = []

    def pause(call: Call) -> None:
        # After the cells are written and before the read-back: sleep past the lease while another instance recovers.
        if call == Call("write", schema.NODES, 1):
            place.heal()
            place.world.advance(60)
            fresh_instance = open_instance(place.inner, place.world, mac=9)
            fresh_instance.clock.next(0)
            recovered.extend(fresh_instance.recovery.recover())

    place.store.after = pause
    with pytest.raises(ConflictError):
        place.instance.commit_on(place.instance.head(), OperationList(COMMITS["set"]), "")
    assert len(recovered) == 1
    assert place.check()["/a"]["p"] == "old"


def test_late_cells_of_a_recovered_writer_stay_invisible_below_the_watermark() -> None:
    place = Place()
    cells = place.die_with_held_cells(lambda: place.commit(COMMITS["set"]))
    # Another instance recovers it, and the watermark passes it.
    place.world.advance(30)
    other = open_instance(place.inner, place.world, mac=8)
    other.clock.next(0)
    other.maintain()
    other.commit(lambda _: OperationList([AddNode("/later", {})]), "", retry_timeout=1, max_poll_age=0)
    other.poll()
    place.world.advance(10)
    other.poll()
    moved = other.recovery.advance()
    assert moved is not None
    assert moved.hidden
    # Only now the paused gateway delivers its request.
    place.inner.write(schema.NODES, cells)
    fresh = open_instance(place.inner, place.world, mac=10)
    assert fresh.journal.floor >= max(moved.hidden)
    assert place.tree(fresh)["/a"]["p"] == "old"
    # They do not conflict with a later change of the same column either.
    fresh.commit(lambda _: OperationList([SetProperty("/a", "p", "after")]), "", retry_timeout=5, max_poll_age=0)
    assert place.tree(fresh)["/a"]["p"] == "after"
    place.check()


@pytest.mark.parametrize("kind", COMMITS)
def test_duplicated_compare_and_sets_do_no_harm(kind: str) -> None:
    place = Place()
    original = place.store.check_and_write

    def twice(table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True) -> bool:
        # Like HBase's own client after a lost reply: the caller gets the second answer.
        original(table, column, expected, put, durable=durable)
        return original(table, column, expected, put, durable=durable)

    place.store.check_and_write = twice  # type: ignore[method-assign]
    place.commit(COMMITS[kind])
    place.heal()
    assert place.check() == before_and_after(COMMITS[kind])[1]


def test_used_id_is_rejected_and_its_revision_stays() -> None:
    place = Place()
    revision = place.commit(COMMITS["set"])
    announcements = place.instance.announcements
    announcements.next = lambda *_: revision  # type: ignore[method-assign]
    # The id was announced before.
    announcements.announce = lambda revision: None  # type: ignore[method-assign]
    with pytest.raises(InvalidRevisionError, match="same id"):
        place.commit(COMMITS["increment"])
    assert place.check()["/a"] == {"p": "new", "n": 0}


def test_a_loser_that_died_before_its_roll_back_is_swept_without_an_operator() -> None:
    place = Place()

    def die(call: Call) -> None:
        if call == Call("delete", schema.NODES, 1):
            raise Died

    base = place.instance.head()
    winner = open_instance(place.inner, place.world, mac=4)
    winner.commit(lambda _: OperationList([SetProperty("/a", "p", "winner")]), "", retry_timeout=1, max_poll_age=0)
    place.store.before = die
    with pytest.raises(Died):
        place.instance.commit_on(base, OperationList(COMMITS["set"]), "")
    winner.poll()
    assert [str(problem) for problem in IntegrityCheck(winner).run()] != []
    place.world.advance(16)
    winner.maintain()
    assert [str(problem) for problem in IntegrityCheck(winner).run()] == []
    assert place.check()["/a"]["p"] == "winner"


def test_a_commit_in_one_store_transaction_with_a_lost_reply_is_applied_once_even_if_others_build_on_it() -> None:
    shared = MemoryStore(transactions=True)
    store = FaultyStore(shared)
    one = Repository(store, poll_interval=0, owns_store=False)
    one.run(lambda tx: tx.add("/a", {"count": 0}))
    other = Repository(shared, poll_interval=0, owns_store=False)

    def after(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES):
            store.after = None
            other.run(lambda tx: tx.increment("/a", "count", 1))
            raise lost_reply(call)

    store.after = after
    one.run(lambda tx: tx.increment("/a", "count", 1))
    assert one.refresh()["/a"]["count"] == 2
    assert one.statistics.committed == 2
    assert [str(problem) for problem in IntegrityCheck(instance_of(other)).run()] == []
    one.close()
    other.close()
