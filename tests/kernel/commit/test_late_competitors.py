"""Competitors that come too late: another process has written above the mark that they compare (decision 64)."""

from __future__ import annotations

import pytest

from hbasemk.errors import ConflictError, StoreUnknownError
from hbasemk.format import paths, schema, values
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.competitors import Competitors
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import Gateway, Request, become_sole_writer, commit, last_value

N = schema.property_column("n")


def versions(three: Competitors, path: str) -> set[int]:
    """Return the versions of all cells of a node."""
    (row,) = three.store.read(schema.NODES, [Get(paths.key(path), versions=100)])
    return {cell.timestamp for cell in row.cells}


def test_a_commit_that_adds_a_node_leaves_no_cell_of_it(three: Competitors) -> None:
    """Its two compare-and-sets may end differently: the row of the added node is new, and the mark of the parent is not there."""
    become_sole_writer(three.one, name="p")
    three.third.poll()

    def write_between(request: Request) -> bool:
        is_new = request()
        commit(three.third, SetProperty("/a", "n", 5))
        return is_new

    three.gateway.decide = write_between
    begun: list[int] = []
    three.increment(three.one, Increment("/a", "n", 1), AddNode("/a/k", {}), begun=begun)
    lost, won = begun
    assert three.row(lost).outcome is Outcome.ABORTED
    assert versions(three, "/a/k") == {won}
    three.check(6)


def test_a_branch_is_no_rival(three: Competitors) -> None:
    """A commit to a branch writes the row above all marks, and stays pending until the merge."""
    three.increment(three.other)
    branch = three.third.begin_branch(three.third.head())
    revision = commit_on_branch(three.third, branch, [SetProperty("/a", "n", 7)])
    began = three.world.clock()
    for _ in range(4):
        three.increment(three.one)
    assert three.one.statistics.conflicts == 0
    assert three.world.clock() - began < 1000
    assert three.third.outcomes.of(revision) is Outcome.PENDING
    assert three.third.require(three.third.at(revision), "/a").properties["n"] == 7
    three.check(5)


def test_a_pending_commit_that_does_not_conflict_is_no_rival(three: Competitors) -> None:
    three.increment(three.other)
    store = FaultyStore(three.store)
    writer = open_instance(store, three.world, mac=4)
    taken: list[float] = []

    def before_the_decision(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL) and len(versions(three, "/a")) == 3:
            store.before = lambda _: None
            began = three.world.clock()
            three.increment(three.one)
            taken.append(three.world.clock() - began)

    store.before = before_the_decision
    commit(writer, SetProperty("/a", "p", 2))
    assert three.one.statistics.conflicts == 0
    assert [one < 100 for one in taken] == [True]
    three.check(2)


@pytest.mark.parametrize("is_maker", [False, True])
def test_cells_of_an_aborted_revision_above_the_mark_cost_no_attempt(three: Competitors, is_maker: bool) -> None:
    for _ in range(2):
        revision = three.increment(three.other)
    late = revision + 1
    row = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.YES)]
    row.append(NewCell(*schema.SWEPT, schema.SWEPT_IN_DOUBT))
    three.store.write(schema.JOURNAL, [Put(schema.revision_key(late), row)])
    cells = [NewCell(*schema.LAST_REVISION, schema.shared_mark(late)), NewCell(*N, values.encode(9))]
    three.store.write(schema.NODES, [Put(paths.key("/a"), cells, late)])
    instance = three.other if is_maker else three.one
    won = three.increment(instance)
    assert instance.statistics.conflicts == 0
    assert three.row(won).committed
    gone = [CellVersion(*column, late) for column in (schema.LAST_REVISION, N)]
    three.store.delete(schema.NODES, [Delete(paths.key("/a"), gone)])
    three.store.delete_rows(schema.JOURNAL, [schema.revision_key(late)])
    three.check(3)


@pytest.mark.parametrize("is_maker", [False, True])
def test_a_late_mark_in_place_of_a_shared_one_costs_no_attempt(three: Competitors, is_maker: bool) -> None:
    """A gateway may apply a request of which the reply was lost after the process has shared its mark."""
    for _ in range(2):
        revision = three.increment(three.other)
    instance = three.other if is_maker else three.one
    instance.poll()
    instance.require(instance.head(), "/a")
    late = NewCell(*schema.LAST_REVISION, schema.mark(revision))
    three.store.write(schema.NODES, [Put(paths.key("/a"), [late], revision)])
    three.increment(instance)
    assert instance.statistics.conflicts == 0
    three.check(3)


def test_a_late_copy_of_the_compare_and_set_stays_hidden(world: World) -> None:
    """HBase's client may send it twice. The first copy may come last, when the rival has been rolled back."""
    three = Competitors(world, MarkingStore(world.clock))
    three.increment(three.other)
    copies: list[Request] = []
    rival = three.other.head().revision + 1

    def keep_the_first(request: Request) -> bool:
        copies.append(request)
        row = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.NO)]
        three.store.write(schema.JOURNAL, [Put(schema.revision_key(rival), row)])
        cells = [NewCell(*schema.LAST_REVISION, schema.TOUCHED), NewCell(*N, values.encode(9))]
        three.store.write(schema.NODES, [Put(paths.key("/a"), cells, rival)])
        return request()

    three.gateway.decide = keep_the_first
    with pytest.raises(ConflictError):
        three.increment(three.one, timeout=0)
    gone = [CellVersion(*column, rival) for column in (schema.LAST_REVISION, N)]
    three.store.delete(schema.NODES, [Delete(paths.key("/a"), gone)])
    three.store.delete_rows(schema.JOURNAL, [schema.revision_key(rival)])
    before = versions(three, "/a")
    assert copies[0]()
    assert versions(three, "/a") == before
    three.check(1)


@pytest.mark.parametrize("method", ["delete", "check_and_write"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "lost"])
def test_a_competitor_that_cannot_give_up_rolls_back(three: Competitors, method: str, is_lost: bool) -> None:
    three.increment(three.other)

    def fail(call: Call) -> None:
        if (call.method, call.table) in ((method, schema.JOURNAL), (method, schema.NODES)):
            three.gateway.after = three.gateway.before = lambda _: None
            raise StoreUnknownError("the gateway is gone")

    three.let_overtake(lambda: setattr(three.gateway, "after" if is_lost else "before", fail))
    begun: list[int] = []
    three.increment(three.one, begun=begun)
    lost, won = begun
    assert (three.row(lost).outcome, three.row(lost).swept) == (Outcome.ABORTED, schema.SWEPT_CLEAN)
    assert three.row(won).committed
    three.check(3)


def test_a_competitor_that_was_recovered_rolls_back(three: Competitors) -> None:
    """It slept after its compare-and-set, and another process has created its row as aborted, and has died then."""
    three.increment(three.other)
    begun: list[int] = []

    three.let_overtake(lambda: three.third.outcomes.abort_missing(begun[0]))
    three.increment(three.one, begun=begun)
    assert three.row(begun[0]).swept == schema.SWEPT_CLEAN
    three.check(3)


def test_a_competitor_that_was_aborted_without_a_row_takes_the_usual_steps(three: Competitors) -> None:
    """Then it has a row, and the lower id wins."""
    three.increment(three.other)
    gateway = Gateway(three.store, schema.JOURNAL)
    instance = open_instance(gateway, three.world, mac=4)
    begun: list[int] = []

    def abort(request: Request) -> bool:
        three.third.outcomes.abort_missing(begun[0])
        return request()

    gateway.decide = abort
    won = three.increment(instance, begun=begun)
    assert begun[-1] == won != begun[0]
    assert last_value(three.store) == schema.TOUCHED
    three.check(2)


def test_the_error_names_the_property_that_both_have_changed(three: Competitors) -> None:
    three.increment(three.other)
    three.let_overtake()
    with pytest.raises(ConflictError, match="'n'"):
        three.increment(three.one, SetProperty("/a", "p", 1), Increment("/a", "n", 1), timeout=0)
    three.check(2)
