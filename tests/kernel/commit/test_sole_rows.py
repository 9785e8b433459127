"""Commits of a process that alone writes a row, on a store that does not order all writes (decision 62)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check.context import CheckContext
from hbasemk.errors import CommitUnknownError, ConflictError, InvalidChangeError, StoreNotAppliedError
from hbasemk.format import paths, schema
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import time_travel
from hbasemk.kernel.commit import sole_rows
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, RemoveNode, SetProperty
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.commit.writing import Writing
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import ALL_VERSIONS, Get, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.failing import Died
from tests.support.runtime import World, open_instance
from tests.support.simulation.mutants import sole_rows as sole_mutants
from tests.support.sole_writers import STAGES, Gateway, become_sole_writer, commit, known_rows, last_value, opened

ALONE = Counter({("check_and_write", schema.CLUSTER): 1, ("check_and_write", schema.NODES): 1})
"""The calls of a commit of a sole writer, without the creation of its journal row."""


class Pair:
    """A sole writer of /a behind a gateway, and another instance that has read its commits."""

    def __init__(self, world: World) -> None:
        self.gateway = Gateway(MemoryStore(world.clock), schema.JOURNAL)
        self.instance, _, _ = opened(world, self.gateway)
        self.other = open_instance(self.gateway.inner, world, mac=2)
        become_sole_writer(self.instance)
        self.other.poll()

    def at_the_decision(self, act: Callable[[], object]) -> None:
        """Call ``act`` before the next creation of a journal row."""

        def decide(request: Callable[[], bool]) -> bool:
            act()
            return request()

        self.gateway.decide = decide


def test_a_sole_writer_makes_three_calls(world: World) -> None:
    instance, counted, _ = opened(world)
    become_sole_writer(instance)
    counted.take()
    for number in range(5):
        revision = commit(instance, SetProperty("/a", "x", number))
        assert counted.take() == ALONE + Counter({("check_and_write", schema.JOURNAL): 1})
        assert last_value(counted) == schema.shared_mark(revision)
        counted.take()
    assert instance.require(instance.head(), "/a").properties == {"x": 4}


def test_each_row_has_its_own_stage(world: World) -> None:
    instance, counted, _ = opened(world)
    become_sole_writer(instance)
    become_sole_writer(instance, "/b")
    for path in ("/a", "/b"):
        counted.take()
        commit(instance, SetProperty(path, "x", 1))
        assert counted.take()["check_and_write", schema.NODES] == 1


def test_a_process_takes_over_a_node_that_another_one_has_just_written(world: World) -> None:
    earlier, _, shared = opened(world)
    become_sole_writer(earlier)
    counted = CountingStore(shared)
    instance = open_instance(counted, world, mac=2)
    become_sole_writer(instance)
    counted.take()
    commit(instance, SetProperty("/a", "x", 7))
    assert counted.take()["check_and_write", schema.NODES] == 1


def test_a_store_that_orders_all_writes_has_no_marks(world: World) -> None:
    instance, counted, _ = opened(world, transactions=True)
    for number in range(6):
        commit(instance, SetProperty("/a", "x", number))
        assert last_value(counted) == schema.TOUCHED


@pytest.mark.parametrize(
    "make",
    [
        lambda number: [Adjust("/a", "n", number)],
        lambda number: [SetProperty("/a", "x", number), SetProperty("/b", "x", number)],
        lambda number: [AddNode(f"/a/{number}", {}), AddNode(f"/a/{number}/b", {})],
        lambda number: [RemoveNode(f"/a/{number - 1}")] if number % 2 == 0 else [AddNode(f"/a/{number}", {"x": 1})],
    ],
    ids=["an adjust", "two nodes", "two nodes below", "removals"],
)
def test_other_commits_make_no_marks(make: Callable[[int], list[Operation]], world: World) -> None:
    instance, counted, _ = opened(world)
    for number in range(1, 8):
        commit(instance, *make(number))
        assert last_value(counted) == schema.TOUCHED


@pytest.mark.parametrize("added_alone", [True, False])
def test_a_sole_writer_gives_no_property_the_name_of_a_child(world: World, added_alone: bool) -> None:
    instance, _, _ = opened(world)
    if not added_alone:
        commit(instance, AddNode("/a/child", {}))
    become_sole_writer(instance)
    if added_alone:
        commit(instance, AddNode("/a/child", {}))
    with pytest.raises(InvalidChangeError, match="cannot be both a property and a child"):
        commit(instance, SetProperty("/a", "child", 1))
    assert list(IntegrityCheck(instance).run()) == []


def test_a_sole_writer_reads_back_whether_the_name_of_a_new_property_is_free(world: World) -> None:
    instance, counted, _ = opened(world)
    become_sole_writer(instance)
    counted.take()
    revision = commit(instance, SetProperty("/a", "new", 1))
    assert counted.take()["check_and_write", schema.NODES] == 0
    # It marks the row again, so the next commit compares the mark.
    assert last_value(counted) == schema.mark(revision)
    for change in (SetProperty("/a", "new", 2), SetProperty("/a", "new", None)):
        counted.take()
        commit(instance, change)
        assert counted.take()["check_and_write", schema.NODES] == 1


def test_a_row_that_another_process_has_written_takes_the_usual_steps(world: World) -> None:
    instance, counted, shared = opened(world)
    other = open_instance(shared, world, mac=2)
    become_sole_writer(instance)
    commit(other, SetProperty("/a", "y", 1))
    counted.take()
    # This instance has not polled: the compare-and-set fails.
    commit(instance, SetProperty("/a", "x", 7))
    calls = counted.take()
    assert (calls["check_and_write", schema.NODES], calls["read", schema.NODES]) == (1, 1)
    instance.poll()
    assert instance.require(instance.head(), "/a").properties == {"x": 7, "y": 1}
    # It does not mark the row again before it has found that it is alone.
    commit(instance, SetProperty("/a", "x", 8))
    assert last_value(counted) == schema.TOUCHED


def test_a_row_with_another_writer_is_marked_only_after_a_look(world: World) -> None:
    instance, counted, shared = opened(world)
    other = open_instance(shared, world, mac=2)
    become_sole_writer(instance)
    commit(other, SetProperty("/a", "y", 1))
    world.advance(0.01)
    for number, stage in enumerate((Stage.LOOK, Stage.MARK, Stage.ALONE, Stage.ALONE)):
        # The compare-and-set of the first one fails.
        revision = commit(instance, SetProperty("/a", "x", number))
        instance.poll()
        assert known_rows(instance)[paths.key("/a")][:2] == (revision, stage)
        assert schema.is_mark(last_value(counted)) == (stage is Stage.ALONE)


def test_a_conflict_with_a_sole_writer_is_found(world: World) -> None:
    pair = Pair(world)
    instance, other = pair.instance, pair.other
    old = other.head()
    assert old.revision == instance.head().revision
    commit(instance, SetProperty("/a", "x", 7))
    with pytest.raises(ConflictError, match="property 'x' of '?/a"):
        other.commit_on(old, OperationList([SetProperty("/a", "x", 8)]), "")


def test_a_commit_below_a_mark_begins_again_with_a_higher_id(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, _, shared = opened(world)
    other = open_instance(shared, world, mac=2)
    become_sole_writer(instance)
    other.poll()
    view = other.head()
    tried: list[int] = []
    original = Writing.write

    def write(self: Writing, draft: object, *rest: object) -> object:
        tried.append(draft.revision)  # type: ignore[attr-defined]
        if len(tried) == 1:
            # After the id was made, and before the cells are written.
            monkeypatch.setattr(Writing, "write", original)
            world.advance(0.01)
            commit(instance, SetProperty("/a", "x", 7))
            monkeypatch.setattr(Writing, "write", write)
        return original(self, draft, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Writing, "write", write)
    revision = other.commit_on(view, OperationList([SetProperty("/a", "y", 8)]), "")
    first, second = tried
    assert first < int.from_bytes(last_mark(shared)[1:], "big") < second == revision
    assert other.outcomes.of(first) is Outcome.ABORTED
    other.poll()
    assert other.require(other.head(), "/a").properties == {"x": 7, "y": 8}


def last_mark(store: Store) -> bytes:
    get = Get(paths.key("/a"), columns=(schema.LAST_REVISION,), versions=1000)
    return next(cell.value for cell in store.read(schema.NODES, [get])[0].cells if schema.is_mark(cell.value))


def test_a_large_commit_below_a_mark_begins_again_before_it_writes_its_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStore, "batch_rows", 5)
    instance, _, shared = opened(world)
    counted = CountingStore(shared)
    other = open_instance(counted, world, mac=2)
    become_sole_writer(instance)
    other.poll()
    view = other.head()
    begun: list[int] = []

    def begins(revision: int) -> None:
        begun.append(revision)
        if len(begun) == 1:
            world.advance(0.01)
            commit(instance, SetProperty("/a", "x", 7))

    source = OperationList([AddNode(f"/a/{number}", {}) for number in range(20)])
    counted.take()
    other.commit_on(view, source, "", begins)
    assert len(begun) == 2
    # One call with the row of /a for each id, and five with the 21 rows.
    assert counted.take()["write", schema.NODES] == 2 + 5
    other.poll()
    assert other.reader.children(other.head(), "/a", None, None) == sorted(map(str, range(20)))


def test_a_process_waits_longer_after_each_look_that_finds_another_writer(world: World) -> None:
    shared = MemoryStore(world.clock)
    instance, counted, _ = opened(world, shared)
    gateway = Gateway(shared, schema.JOURNAL)
    other = open_instance(gateway, world, mac=2)
    commit(instance, SetProperty("/a", "x", -1))
    waits: list[int] = []
    for number in range(4):
        known = known_rows(instance)[paths.key("/a")]
        while known.waits:
            commit(instance, SetProperty("/a", "x", f"{number}, {known.waits}"))
            known = known_rows(instance)[paths.key("/a")]

        def beside(request: Callable[[], bool], number: int = number) -> bool:
            # The other process has written its cells. This commit looks for other writers of the row.
            commit(instance, SetProperty("/a", "x", number))
            return request()

        def create(request: Callable[[], bool]) -> bool:
            gateway.decide = beside
            return request()

        gateway.decide = create
        other.poll()
        commit(other, SetProperty("/a", "y", number))
        waits.append(known_rows(instance)[paths.key("/a")].waits)
        assert last_value(counted) == schema.TOUCHED
    assert waits == [1, 2, 4, 8]


def test_only_so_many_rows_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole_rows, "MOST_ROWS", 2)
    instance, _, _ = opened(world)
    commit(instance, AddNode("/c", {"x": 0}))
    for path in ("/a", "/b", "/c"):
        commit(instance, SetProperty(path, "x", 1))
    assert list(known_rows(instance)) == [paths.key("/b"), paths.key("/c")]


def test_threads_keep_the_bound_of_the_remembered_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole_rows, "MOST_ROWS", 4)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        rows = SoleRows(batch_rows=1000)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(_record_many, rows), range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(rows._rows) <= 4


def _record_many(rows: SoleRows, thread: int) -> None:
    for number in range(20_000):
        draft = Draft(View(1, 0, 1), OperationList([]), "", revision=number, sole_row=b"%d/%d" % (thread, number))
        rows.record(draft)


def test_a_log_without_room_takes_the_usual_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, counted, _ = opened(world)
    become_sole_writer(instance)
    monkeypatch.setattr(schema, "INTENTS", ())
    counted.take()
    commit(instance, SetProperty("/a", "x", 7))
    assert counted.take()["check_and_write", schema.NODES] == 0
    assert instance.require(instance.head(), "/a").properties == {"x": 7}


class Undecided(Pair):
    """A sole writer that dies after it has written its cells."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.decided = self.instance.head().revision
        world.advance(0.01)

        def die() -> None:
            raise Died

        self.at_the_decision(die)
        with pytest.raises(Died):
            commit(self.instance, SetProperty("/a", "x", 7))
        (self.revision,) = self.instance.outcomes.deferred
        self.store = self.gateway.inner

    def has_cells(self) -> bool:
        """Return whether the store has cells of the revision."""
        (row,) = self.store.read(schema.NODES, [Get(paths.key("/a"), since=self.revision, versions=ALL_VERSIONS)])
        return self.revision in {cell.timestamp for cell in row.cells}


def test_a_revision_without_a_row_is_pending_and_no_damage(world: World) -> None:
    left = Undecided(world)
    other = left.other
    other.poll()
    assert other.journal.pending == {left.revision}
    assert list(IntegrityCheck(other).run()) == []
    assert other.require(other.head(), "/a").properties == {"x": -STAGES}


def test_a_check_beside_the_end_of_a_revision_finds_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    left = Undecided(world)
    other = left.other
    original = CheckContext.is_announced_with_changes
    asked: list[bool] = []

    def is_announced(self: CheckContext, revision: int) -> bool:
        # The revision ends, and its writer uses the column of its log for another one.
        left.instance.outcomes.resolve_pending()
        become_sole_writer(left.instance)
        commit(left.instance, SetProperty("/a", "x", 8))
        asked.append(original(self, revision))
        return asked[-1]

    monkeypatch.setattr(CheckContext, "is_announced_with_changes", is_announced)
    problems = list(IntegrityCheck(other).run())
    assert (asked, problems) == ([False], [])


def test_a_dead_sole_writers_cells_are_found_and_deleted(world: World) -> None:
    left = Undecided(world)
    assert left.has_cells()
    other = left.other
    world.advance(60)
    (problem,) = IntegrityCheck(other).run()
    assert problem.kind == "pending revision of a dead writer"
    other.poll()
    other.maintain()
    assert list(IntegrityCheck(other).run()) == []
    assert not left.has_cells()
    assert other.outcomes.of(left.revision) is Outcome.ABORTED


def test_cells_would_stay_if_the_aborted_row_did_not_list_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    left = Undecided(world)
    other = left.other
    with monkeypatch.context() as patch:
        sole_mutants.aborted_rows_without_the_changes_of_the_log(patch)
        world.advance(60)
        other.poll()
        other.maintain()
    assert other.outcomes.of(left.revision) is Outcome.ABORTED
    assert left.has_cells()
    other.outcomes.delete_cells(left.revision, [RowChange("/a", CHANGED, ["x"])])


def test_a_rival_aborts_an_undecided_sole_writer_and_keeps_its_changes(world: World) -> None:
    left = Undecided(world)
    other = left.other
    commit(other, SetProperty("/a", "x", 8))
    row = other.outcomes._row(left.revision)
    assert (row.outcome, [change.path for change in row.changes]) == (Outcome.ABORTED, ["/a"])


def test_a_snapshot_by_time_ends_below_a_revision_without_a_row(world: World) -> None:
    left = Undecided(world)
    other = left.other
    world.advance(1)
    later = commit(other, SetProperty("/b", "x", 9))
    assert later > left.revision
    world.advance(1)
    view = time_travel.view_before(other, world.clock())
    assert view.revision <= left.decided


def test_a_decision_that_arrives_during_the_abort_is_a_commit(world: World) -> None:
    pair = Pair(world)
    gateway, instance = pair.gateway, pair.instance
    held: list[Callable[[], bool]] = []
    looked = False

    def hold(request: Callable[[], bool]) -> bool:
        held.append(request)
        raise KeyboardInterrupt

    def arrive(call: Call) -> None:
        # The request that was held arrives between the look at the row and the creation of an aborted one.
        nonlocal looked
        if looked and held:
            assert held.pop()()
        looked = looked or (call.method, call.table) == ("read", schema.JOURNAL)

    gateway.decide = hold
    with pytest.raises(KeyboardInterrupt):
        commit(instance, SetProperty("/a", "x", 7))
    gateway.before = arrive
    instance.outcomes.resolve_pending()
    gateway.before = lambda _: None
    assert not held
    instance.poll()
    assert instance.require(instance.head(), "/a").properties == {"x": 7}
    assert list(IntegrityCheck(instance).run()) == []


def test_an_answer_to_a_repeated_creation_that_cannot_be_read_leaves_the_outcome_unknown(world: World) -> None:
    pair = Pair(world)
    gateway, instance = pair.gateway, pair.instance

    def twice(request: Callable[[], bool]) -> bool:
        # The store's own client sends it twice; the answer to the second request is "exists".
        assert request()
        gateway.before = out_of_reach
        return request()

    def out_of_reach(call: Call) -> None:
        if call.table == schema.JOURNAL:
            raise StoreNotAppliedError("refused")

    gateway.decide = twice
    with pytest.raises(CommitUnknownError):
        commit(instance, SetProperty("/a", "x", 7))
    gateway.before = lambda _: None
    instance.outcomes.resolve_pending()
    instance.poll()
    assert instance.require(instance.head(), "/a").properties == {"x": 7}


def test_a_commit_that_changes_nothing_aborts_no_sole_writer(world: World) -> None:
    pair = Pair(world)

    def repeat() -> None:
        with pytest.raises(ConflictError):
            pair.other.commit_on(pair.other.head(), OperationList([SetProperty("/a", "x", -STAGES)]), "")

    pair.at_the_decision(repeat)
    revision = commit(pair.instance, SetProperty("/a", "x", 7))
    assert pair.instance.statistics.conflicts == 0
    assert pair.instance.outcomes.of(revision) is Outcome.COMMITTED


def test_a_sole_writer_that_was_aborted_takes_the_usual_steps(world: World) -> None:
    pair = Pair(world)
    pair.at_the_decision(lambda: commit(pair.other, SetProperty("/a", "x", 8)))
    commit(pair.instance, SetProperty("/a", "x", 9))
    assert pair.instance.statistics.conflicts == 1
    assert last_value(pair.gateway) == schema.TOUCHED
    assert pair.instance.require(pair.instance.head(), "/a").properties == {"x": 9}


@pytest.mark.parametrize("ahead_ms", [0, 100, 2000])
def test_a_writer_whose_clock_is_behind_is_not_starved(world: World, ahead_ms: int) -> None:
    shared = MemoryStore(world.clock)
    slow, fast = FaultyStore(shared), FaultyStore(shared)
    one = open_instance(fast, world, mac=1, skew_ms=ahead_ms)
    commit(one, AddNode("/a", {"x": 0}))
    other = open_instance(slow, world, mac=2)
    become_sole_writer(one)
    number = 0

    def beside(_: Call) -> None:
        # Before each call of the other process, the sole writer commits again.
        nonlocal number
        number += 1
        world.advance(0.002)
        commit(one, SetProperty("/a", "x", number))

    slow.before = beside
    before = other.statistics.too_slow
    other.poll()
    commit(other, SetProperty("/a", "y", 1))
    slow.before = lambda _: None
    assert other.statistics.too_slow - before <= 4
    one.poll()
    assert one.require(one.head(), "/a").properties == {"x": number, "y": 1}
