"""Results of a commit while the store refuses, hangs, loses replies or is unusable: the table in docs/protocol.md.

An outage begins at each call of a commit. It ends immediately in one case, and never in the other.
Time is simulated, so nothing here waits.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

import pytest

from hbasemk import (
    BranchError,
    CommitUnknownError,
    ConflictError,
    HbasemkError,
    Outcome,
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    StoreUnusableError,
)
from hbasemk.format import schema
from hbasemk.kernel import retry
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, Operation, RemoveNode, SetProperty
from hbasemk.kernel.retry import AT_LEAST, LONGEST_WAIT, TimeLimit, run_with_retries
from hbasemk.maintenance import InlineMaintenance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.failing import FailingRepository
from tests.support.runtime import TestRuntime, World, open_instance
from tests.support.simulation.schedules import StoreFeatures

RETRY_TIMEOUT = 5.0
HANG = 3.0
OPERATIONS: dict[str, list[Operation]] = {
    "set": [SetProperty("/a", "p", "new")],
    "increment": [Increment("/a", "n", 1)],
    "add": [AddNode("/a/new", {"x": 1})],
    "remove": [RemoveNode("/a")],
}
WAYS = ["refused", "lost on its way", "reply lost", "hangs", "unusable"]
STORES: dict[str, StoreFeatures] = {
    "one by one": {"transactions": False, "parallel": False, "batch_rows": 1000},
    "in parallel": {"transactions": False, "parallel": True, "batch_rows": 1000},
    "at one moment": {"transactions": True, "parallel": False, "batch_rows": 1000},
    "in order, one by one": {"transactions": True, "parallel": False, "batch_rows": 1},
}


class Outage:
    """A store that fails from one of its calls on, for a number of simulated seconds."""

    def __init__(self, world: World, store: FaultyStore, how: str, number: int, seconds: float) -> None:
        self.world, self.how, self.number, self.seconds = world, how, number, seconds
        self.calls: list[Call] = []
        self.began: float | None = None
        self.first: Call | None = None
        store.before, store.after = self.before, self.after

    @property
    def away(self) -> bool:
        return self.began is not None and self.world.ms < self.began + self.seconds * 1000

    def before(self, call: Call) -> None:
        self.calls.append(call)
        if self.began is None and len(self.calls) > self.number:
            self.began, self.first = self.world.ms, call
            if self.how == "reply lost":
                return
        if self.away or (self.first is call and self.how != "reply lost"):
            self.fail(call)

    def after(self, call: Call) -> None:
        if self.first is call and self.how == "reply lost":
            self.first = None
            raise StoreUnknownError(f"the reply to {call.method} was lost")

    def fail(self, call: Call) -> None:
        self.first = None
        if self.how == "refused":
            raise StoreNotAppliedError(f"{call.method} was refused")
        if self.how == "unusable":
            raise StoreUnusableError(f"{call.method} is not allowed")
        if self.how == "hangs":
            self.world.advance(HANG)
        said = f"{call.method} got no answer"
        raise StoreUnknownError(f"{said}; it may have been applied or not", cause=said)


class Place(FailingRepository):
    """A repository with an instance that has no lease yet."""

    def commit(self, operations: list[Operation], retry_timeout: float = RETRY_TIMEOUT) -> int:
        return self.instance.commit(
            lambda _: OperationList(operations), "", retry_timeout=retry_timeout, max_poll_age=-1
        )


def expected(kind: str, store: str) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]], list[Call]]:
    """The tree before and after, and the calls of the commit."""
    place = Place(**STORES[store])
    before = place.tree(open_instance(place.inner, place.world, mac=9))
    outage = Outage(place.world, place.store, "refused", 10_000, 0)
    place.commit(OPERATIONS[kind])
    return before, place.check(), outage.calls


def decision_of(calls: list[Call]) -> int:
    """The number of the call that decides the commit."""
    decides = [n for n, call in enumerate(calls) if call.method in ("write_if", "check_and_write")]
    return decides[-1]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_outage_shorter_than_the_retry_timeout_raises_no_error(kind: str, store: str, how: str) -> None:
    before, after, calls = expected(kind, store)
    for number in range(len(calls)):
        place = Place(**STORES[store])
        outage = Outage(place.world, place.store, how, number, 3.0)
        what = f"call {number}, {calls[number]}"
        if how == "unusable":
            with pytest.raises(StoreUnusableError):
                place.commit(OPERATIONS[kind], retry_timeout=60)
            assert place.check() == before, what
        else:
            revision = place.commit(OPERATIONS[kind], retry_timeout=60)
            assert outage.began is not None
            assert place.instance.outcome(revision) is Outcome.COMMITTED
            assert place.check() == after, what


@pytest.mark.no_cover
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_error_states_the_outcome_if_the_store_stays_away(kind: str, store: str, how: str) -> None:
    before, after, calls = expected(kind, store)
    decision = decision_of(calls)
    for number in range(len(calls)):
        place = Place(**STORES[store])
        Outage(place.world, place.store, how, number, 1e9)
        what = f"call {number}, {calls[number]}"
        with pytest.raises(HbasemkError) as caught:
            place.commit(OPERATIONS[kind])
        error = caught.value
        applied = False
        if number == decision and how in ("lost on its way", "reply lost", "hangs"):
            assert type(error) is CommitUnknownError, what
            place.heal()
            applied = how == "reply lost"
            outcome = place.instance.outcome(int(error.revision, 16))
            assert outcome is (Outcome.COMMITTED if applied else Outcome.ABORTED)
        elif how == "unusable":
            assert type(error) is StoreUnusableError, what
        else:
            assert type(error) is StoreNotAppliedError, what
            assert "nothing was committed" in str(error)
            assert "may have been applied" not in str(error)
        place.heal()
        # The same instance continues immediately.
        place.commit([SetProperty("/", "later", True)])
        assert place.instance.outcomes.deferred == []
        found = place.check()
        found["/"].pop("later")
        assert found == (after if applied else before), what


@pytest.mark.parametrize("how", ["refused", "lost on its way", "hangs"])
@pytest.mark.parametrize("store", STORES)
def test_losing_commit_raises_conflict_though_roll_back_fails(store: str, how: str) -> None:
    place = Place(**STORES[store])
    base = place.instance.head()
    place.instance.clock.next(0)
    open_instance(place.inner, place.world, mac=4).commit(
        lambda _: OperationList([SetProperty("/a", "p", "winner")]), "", retry_timeout=1, max_poll_age=0
    )
    aborts: list[Call] = []

    def before(call: Call) -> None:
        # The first compare-and-set creates the row; a second one aborts it.
        if call.method in ("check_and_write", "write_if") and call.table == schema.JOURNAL:
            aborts.append(call)
        if len(aborts) > 1:
            if how == "hangs":
                place.world.advance(HANG)
            raise StoreNotAppliedError("away") if how == "refused" else StoreUnknownError("no answer")

    place.store.before = before
    with pytest.raises(ConflictError):
        place.instance.commit_on(base, OperationList([*OPERATIONS["set"], SetProperty("/a/b", "p", "new")]), "")
    if store == "at one moment":
        # The transaction was not applied, so there is nothing to roll back.
        assert aborts == []
        assert place.instance.outcomes.deferred == []
        return
    assert len(aborts) > 1
    assert len(place.instance.outcomes.deferred) == 1
    place.heal()
    place.instance.maintain()
    assert place.instance.outcomes.deferred == []
    assert place.check()["/a"]["p"] == "winner"


@pytest.mark.parametrize("seconds", [3.0, 1e9], ids=["for a while", "for good"])
@pytest.mark.parametrize("how", ["refused", "lost on its way", "reply lost", "hangs"])
def test_branch_commit_error_states_the_outcome(how: str, seconds: float) -> None:
    def begin() -> tuple[Place, int]:
        place = Place()
        place.instance = open_instance(
            place.store, place.world, mac=2, retry_timeout=60.0 if seconds < 60 else RETRY_TIMEOUT
        )
        return place, place.instance.branches.begin(place.instance.head())

    place, root = begin()
    outage = Outage(place.world, place.store, how, 10_000, 0)
    place.instance.branches.commit(root, OperationList([SetProperty("/a", "p", "new")]), "")
    decision = decision_of(outage.calls)
    for number in range(len(outage.calls)):
        place, root = begin()
        Outage(place.world, place.store, how, number, seconds)
        what = f"call {number}, {outage.calls[number]}"
        try:
            revision = place.instance.branches.commit(root, OperationList([SetProperty("/a", "p", "new")]), "")
            assert seconds < 60, what
        except CommitUnknownError as error:
            assert (number, how) == (decision, how), what
            assert how != "refused"
            revision = int(error.revision, 16)
            place.heal()
            assert place.instance.outcome(revision) is (Outcome.COMMITTED if how == "reply lost" else Outcome.ABORTED)
            continue
        except StoreNotAppliedError as error:
            assert seconds > 60, what
            assert "nothing was committed" in str(error)
            place.heal()
            revision = place.instance.branches.commit(root, OperationList([SetProperty("/a", "p", "new")]), "")
        place.heal()
        assert place.instance.reader.require(place.instance.at(revision), "/a").properties["p"] == "new", what


def test_the_merge_of_a_moved_branch_stays_committed_although_the_head_cannot_be_read() -> None:
    place = Place()
    other = open_instance(place.inner, place.world, mac=5)
    root = place.instance.branches.begin(place.instance.head())
    revision = place.instance.branches.commit(root, OperationList([SetProperty("/a", "p", "mine")]), "")
    heads: list[Call] = []
    original = place.store.check_and_write

    def moved_first(table: str, column: Any, expected: Any, put: Any, *, durable: bool = True) -> bool:
        if column == schema.BRANCH_HEAD:
            heads.append(Call("check_and_write", table, 1))
            other.branches.commit(revision, OperationList([SetProperty("/a", "p", "others")]), "")
            applied = original(table, column, expected, put, durable=durable)
            place.store.before = lambda call: reads(call)
            return applied
        return original(table, column, expected, put, durable=durable)

    def reads(call: Call) -> None:
        heads.append(call)
        if len(heads) > 2:
            raise StoreNotAppliedError("away")

    place.store.check_and_write = moved_first  # type: ignore[method-assign]
    with pytest.raises(BranchError, match=r"is merged into trunk as .*, but meanwhile its branch has moved on"):
        place.instance.branches.merge(revision, "")
    assert place.check()["/a"]["p"] == "mine"


def test_reads_are_retried_up_to_the_retry_timeout() -> None:
    place = Place()
    place.instance = open_instance(place.store, place.world, mac=2, retry_timeout=20.0)
    outage = Outage(place.world, place.store, "refused", 0, 15.0)
    assert place.tree(place.instance)["/a"]["p"] == "old"
    # Waits grow up to a second: neither a flood of calls nor a long wait after the store is back.
    assert 10 < len(outage.calls) < 60
    assert place.world.ms - (outage.began or 0.0) < (15 + 2 * LONGEST_WAIT) * 1000
    began = place.world.ms
    Outage(place.world, place.store, "refused", 0, 1e9)
    with pytest.raises(StoreNotAppliedError):
        place.instance.poll()
    assert 20_000 <= place.world.ms - began < 22_000


def test_calls_inside_calls_do_not_multiply_attempts() -> None:
    # Reading a branch snapshot polls and reads rows, and a poll reads changes: each call is retried.
    place = Place()
    place.instance = open_instance(place.store, place.world, mac=2, retry_timeout=RETRY_TIMEOUT)
    place.instance.clock.next(0)
    began = place.world.ms
    outage = Outage(place.world, place.store, "refused", 0, 1e9)
    with pytest.raises(StoreNotAppliedError):
        place.commit(OPERATIONS["set"])
    assert place.world.ms - began <= (RETRY_TIMEOUT + 20 * AT_LEAST) * 1000
    assert len(outage.calls) < 60


def test_background_maintenance_does_not_wait_for_an_outage() -> None:
    place = Place()
    place.instance = open_instance(place.store, place.world, mac=2, retry_timeout=3600.0)
    place.commit(OPERATIONS["set"])
    place.world.advance(8)
    assert place.instance.lease.due()
    outage = Outage(place.world, place.store, "refused", 0, 1e9)
    began = place.world.ms
    InlineMaintenance(place.instance)()
    assert outage.calls
    assert place.world.ms - began < 1000
    place.heal()


@pytest.mark.parametrize("retry_timeout", [0.0, 3600.0])
def test_close_ends_a_call_that_waits_for_an_outage(retry_timeout: float) -> None:
    store = FaultyStore(MemoryStore())
    repo = Repository(store, poll_interval=0, retry_timeout=retry_timeout)
    called = threading.Event()

    def away(call: Call) -> None:
        called.set()
        raise StoreNotAppliedError("away")

    ended: list[BaseException] = []

    def work() -> None:
        try:
            repo.run(lambda tx: tx.add("/a"))
        except HbasemkError as error:
            ended.append(error)

    store.before = away
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert called.wait(60)
    repo.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_an_interrupt_before_the_reset_of_a_time_limit_shortens_no_later_call() -> None:
    world = World()
    runtime = TestRuntime(world, retry_timeout=60.0)

    def interrupted() -> None:
        # Like Ctrl-C between two instructions of the method itself: the rest of it does not run.
        retry._limit.set(ref(retry._Limit(retry.AT_LEAST)))
        retry._attempt.set(ref(retry._Attempt()))

    interrupted()
    until = world.ms + 5_000

    def away() -> str:
        if world.ms < until:
            raise StoreNotAppliedError("away")
        return "done"

    assert retry.run_with_retries(runtime, away) == "done"


class Outages:
    """A store that refuses its calls during some periods, in simulated seconds from now; each other call takes a while."""

    CALL = 0.1

    def __init__(self, world: World, *periods: tuple[float, float]) -> None:
        self.world, self.periods, self.began = world, periods, world.ms
        self.refused: list[int] = []

    def __call__(self, _: Call | None = None) -> None:
        now = (self.world.ms - self.began) / 1000
        for number, (begin, end) in enumerate(self.periods):
            if begin <= now < end:
                self.refused.append(number)
                raise StoreNotAppliedError("the gateway is down")
        self.world.advance(self.CALL)


@pytest.mark.parametrize("first", [0.0, 0.5])
def test_a_long_commit_survives_several_outages_shorter_than_the_retry_timeout(first: float) -> None:
    # The first outage begins at the creation of the journal row, which is not retried by itself, or later.
    place = Place(batch_rows=1)
    instance = open_instance(place.store, place.world, mac=2, retry_timeout=2.0)
    outages = Outages(place.world, (first, first + 1.0), (6.0, 7.5), (9.0, 10.5))
    view = instance.head()
    instance.clock.next(0)
    place.store.before = outages
    revision = instance.commit_on(view, OperationList([AddNode(f"/{number}", {}) for number in range(60)]), "")
    assert set(outages.refused) == {0, 1, 2}
    place.heal()
    assert instance.outcome(revision) is Outcome.COMMITTED
    assert len(place.check()) == 64


def test_a_time_limit_with_an_end_is_not_extended_by_success() -> None:
    world = World()
    runtime = TestRuntime(world, retry_timeout=60.0)
    outages = Outages(world, (0.5, 1.0), (4.0, 5.0))
    began = world.ms
    with pytest.raises(StoreNotAppliedError), TimeLimit(runtime, 2.0), TimeLimit(runtime):
        for _ in range(100):
            run_with_retries(runtime, outages)
    assert set(outages.refused) == {0, 1}
    assert world.ms - began < (4.0 + 2 * AT_LEAST) * 1000


def test_an_operation_that_has_given_up_gets_no_more_time_though_a_call_succeeds() -> None:
    # A roll-back after an outage of one region: some of its calls succeed, after a lost connection.
    world = World()
    runtime = TestRuntime(world, retry_timeout=5.0)
    with TimeLimit(runtime):
        with pytest.raises(StoreNotAppliedError):
            run_with_retries(runtime, Outages(world, (0, 1e9)))
        assert world.ms >= 5_000
        hiccup = Outages(world, (0, AT_LEAST / 2))
        run_with_retries(runtime, hiccup)
        assert hiccup.refused
        began = world.ms
        with pytest.raises(StoreNotAppliedError):
            run_with_retries(runtime, Outages(world, (0, 1e9)))
    assert world.ms - began < 2 * AT_LEAST * 1000


def test_a_commit_ends_although_calls_succeed_between_those_that_fail() -> None:
    place = Place(batch_rows=1)
    instance = open_instance(place.store, place.world, mac=2, retry_timeout=RETRY_TIMEOUT)
    instance.clock.next(0)
    began = place.world.ms
    calls: list[Call] = []

    def before(call: Call) -> None:
        calls.append(call)
        if call.method == "write" and call.table == schema.NODES:
            raise StoreNotAppliedError("the region is away")

    place.store.before = before
    with pytest.raises(StoreNotAppliedError, match="nothing was committed"):
        instance.commit_on(instance.head(), OperationList(OPERATIONS["set"]), "")
    assert {call.table for call in calls} > {schema.NODES}
    assert place.world.ms - began <= (RETRY_TIMEOUT + 20 * AT_LEAST) * 1000
    place.heal()
    assert place.check()["/a"]["p"] == "old"


def test_a_commit_ends_although_only_calls_that_are_made_once_fail() -> None:
    place = Place()
    instance = open_instance(place.store, place.world, mac=2, retry_timeout=RETRY_TIMEOUT)
    instance.clock.next(0)
    began = place.world.ms
    creations: list[Call] = []

    def before(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.JOURNAL and len(creations) < 1000:
            creations.append(call)
            if len(creations) % 2:
                raise StoreNotAppliedError("every other call is refused")

    place.store.before = before
    with pytest.raises(StoreNotAppliedError, match="nothing was committed"):
        instance.commit_on(instance.head(), OperationList(OPERATIONS["set"]), "")
    assert place.world.ms - began <= (RETRY_TIMEOUT + 20 * AT_LEAST) * 1000
    place.heal()
    assert place.check()["/a"]["p"] == "old"
