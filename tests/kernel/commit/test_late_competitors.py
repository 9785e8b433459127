"""Competitors that come too late: another process has written above the mark that they compare (decision 64)."""

from __future__ import annotations

import pytest

from hbasemk.errors import ConflictError
from hbasemk.format import paths, schema, values
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.competitors import Competitors, Request
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import become_sole_writer, commit

N = schema.property_column("n")


@pytest.fixture
def three(world: World) -> Competitors:
    return Competitors(world)


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
def test_cells_of_an_aborted_revision_above_the_mark_cost_one_attempt(three: Competitors, is_maker: bool) -> None:
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
    assert instance.statistics.conflicts == 1
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


def test_a_competitor_that_gives_up_deletes_cells_that_may_come(three: Competitors) -> None:
    """HBase's client may send a compare-and-set twice, and the first copy may come last. The marker of the deletion hides it."""
    three.increment(three.other)

    def come_late(request: Request) -> bool:
        three.increment(three.other)
        return request()

    three.gateway.decide = come_late
    deleted: list[str] = []
    three.gateway.before = lambda call: deleted.append(call.table) if call.method == "delete" else None
    three.increment(three.one)
    assert deleted == [schema.NODES]
    three.check(3)


def test_the_error_names_the_property_that_both_have_changed(three: Competitors) -> None:
    three.increment(three.other)

    def come_late(request: Request) -> bool:
        three.increment(three.other)
        return request()

    three.gateway.decide = come_late
    with pytest.raises(ConflictError, match="'n'"):
        three.increment(three.one, SetProperty("/a", "p", 1), Increment("/a", "n", 1), timeout=0)
    three.check(2)
