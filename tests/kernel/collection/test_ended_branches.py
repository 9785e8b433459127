"""Collectors delete rows of ended branches, and late cells of aborted revisions, once the horizon has passed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck, Repair
from hbasemk.check import problem as kinds
from hbasemk.errors import (
    BranchError,
    CommitUnknownError,
    HbasemkError,
    LeaseLostError,
    RevisionCollectedError,
    UnknownRevisionError,
)
from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.collection import passed_rows
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.commit.operations import AddNode, Adjust, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, CheckAndWrite, Decision, Get, NewCell, Put, Row, Scan
from hbasemk.store.memory import MemoryStore
from tests.support import collection_mutants
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree


def branch_rows(store: MemoryStore) -> list[int]:
    rows = store.scan(schema.JOURNAL, Scan(None, None, 1000))
    ids = [int.from_bytes(row.key, "big") for row in rows if len(row.key) == 8 and row.key[0] < 0x80]
    return [one for one in ids if revisions.is_branch(one) and one != schema.NOTICE]


def private_cells(store: MemoryStore) -> int:
    rows = store.scan(schema.NODES, Scan(None, None, 1000, versions=ALL_VERSIONS))
    return sum(revisions.is_branch(cell.timestamp) for row in rows for cell in row.cells)


ENDS: dict[str, Callable[[Instance, int], Any]] = {
    "merged": lambda one, at: one.merge_branch(at, ""),
    "abandoned": lambda one, at: one.abandon_branch(at),
    "rebased": lambda one, at: one.abandon_branch(one.rebase_branch(at, one.head(), "")),
}


@BOTH_ORDERS
@pytest.mark.parametrize("end", ENDS)
def test_an_ended_branch_is_deleted_with_its_rows_and_cells(store: MemoryStore, world: World, end: str) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    at = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", 1)])
    at = commit_on_branch(one, at, [AddNode("/b", {})])
    commit(one, AddNode("/x", {}))
    ENDS[end](one, at)
    before = tree(one)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    world.advance(2 * HOUR)
    count = len(branch_rows(store))
    assert count >= 3
    deleted = 0
    for path in ("/y", "/z"):
        # The horizon is a trunk revision, so it may pass the rows only with the next one.
        commit(one, AddNode(path, {}))
        estimated = Collector(one).estimate(RETENTION_MS).cells["rows of ended branches"]
        assert Collector(one).run(RETENTION_MS).cells["rows of ended branches"] == estimated
        deleted += estimated
        world.advance(2 * HOUR)
    assert deleted == count
    assert (branch_rows(store), private_cells(store)) == ([], 0)
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh).items() >= before.items()
    with pytest.raises(UnknownRevisionError):
        fresh.branch(at)
    for instance in (one, fresh):
        with pytest.raises(RevisionCollectedError, match="no longer recorded"):
            instance.outcome(at)
    assert not list(IntegrityCheck(fresh).run())


def collected_branch(one: Instance, store: MemoryStore, world: World, at: int) -> None:
    """End a branch and collect everything of it."""
    one.abandon_branch(at)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    commit(one, AddNode("/later", {}))
    world.advance(2 * HOUR)
    commit(one, AddNode("/latest", {}))
    one.maintain()
    assert Collector(one).run(RETENTION_MS).cells["rows of ended branches"]
    assert at not in branch_rows(store)


@BOTH_ORDERS
def test_an_open_branch_keeps_its_rows(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    kept = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", 1)])
    ended = one.begin_branch(one.head())
    one.abandon_branch(ended)
    for number in range(3):
        world.advance(2 * HOUR)
        one.sweep_branches(None)
        commit(one, AddNode(f"/x{number}", {}))
        Collector(one).run(RETENTION_MS)
    assert kept in branch_rows(store)
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh, fresh.branch(kept).view) == {"/": {}, "/a": {"p": 1}}
    assert fresh.outcome(kept) is Outcome.COMMITTED
    assert fresh.merge_branch(kept, "")
    assert not list(IntegrityCheck(fresh).run())


@BOTH_ORDERS
@pytest.mark.parametrize("call", ["commit", "commit in steps", "merge", "reset"])
def test_a_process_that_slept_until_its_branch_was_collected_changes_nothing(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    first = one.begin_branch(one.head())
    at = commit_on_branch(one, first, [Adjust("/a", "p", 1)])
    check_and_write, write_if, slept = one.store.check_and_write, one.store.write_if, list[bool]()
    claim = one.store.check_and_write_then_read

    def sleep() -> None:
        if not slept:
            slept.append(True)
            other.poll()
            collected_branch(other, store, world, at)

    def sleep_first(table: str, column: Any, *arguments: Any, **options: Any) -> bool:
        if column == schema.BRANCH_HEAD:
            sleep()
        return check_and_write(table, column, *arguments, **options)

    def sleep_before_a_claim(check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        sleep()
        return claim(check, table, get)

    def sleep_before_a_merge(*arguments: Any, **options: Any) -> int | None:
        decisions = [one for one in arguments if isinstance(one, Decision)]
        if any(one.with_puts or one.column == schema.BRANCH_HEAD for one in decisions):
            sleep()
        return write_if(*arguments, **options)

    monkeypatch.setattr(one.store, "check_and_write", sleep_first)
    monkeypatch.setattr(one.store, "check_and_write_then_read", sleep_before_a_claim)
    monkeypatch.setattr(one.store, "write_if", sleep_before_a_merge)
    if call == "commit in steps":
        monkeypatch.setattr(one.branches._transactions, "fits", lambda *_: False)
    acts: dict[str, Callable[[], Any]] = {
        "commit": lambda: commit_on_branch(one, at, [SetProperty("/a", "q", 1)]),
        "commit in steps": lambda: commit_on_branch(one, at, [SetProperty("/a", "q", 1)]),
        # In steps, its claim finds no row, so it writes one; then it finds no head there.
        "merge": lambda: one.merge_branch(at, ""),
        "reset": lambda: one.reset_branch(at, first),
    }
    with pytest.raises(HbasemkError) as raised:
        acts[call]()
    assert slept
    expected = {
        # A transaction has written nothing.
        "commit": BranchError if store.supports_transactions else CommitUnknownError,
        "commit in steps": CommitUnknownError,
        "merge": (RevisionCollectedError, LeaseLostError) if store.supports_transactions else BranchError,
        # Where the store does not order all writes, a reset commits a new revision.
        "reset": BranchError if store.supports_transactions else CommitUnknownError,
    }
    assert isinstance(raised.value, expected[call])
    assert private_cells(store) == 0
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh) == {"/": {}, "/a": {"p": 0}, "/later": {}, "/latest": {}}
    # What it wrote to rows that were gone is no damage, and a run that looks at everything deletes it.
    assert {one.severity for one in IntegrityCheck(fresh).run()} <= {kinds.LEFTOVER}
    passed_rows.collect(Run(fresh, fresh.journal.fence.refresh(), Counter(), True, lambda _: None, full=True))
    assert not list(IntegrityCheck(fresh).run())


@BOTH_ORDERS
def test_the_check_names_the_command_that_deletes_late_cells_of_a_deleted_branch(
    store: MemoryStore, world: World
) -> None:
    """It said that --repair can repair them, which changed nothing."""
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    at = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", 1)])
    collected_branch(one, store, world, at)
    # The marker of a deleted cell would hide a second one of the same column.
    store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*schema.property_column("q"), b"\x01", at)])])

    (found,) = IntegrityCheck(one).run()

    assert (found.kind, found.severity, found.repairable) == (kinds.NO_ROW, kinds.LEFTOVER, False)
    assert "hbasemk collect --full" in found.detail
    assert Repair(one).repair(found) is None
    Collector(one).run(RETENTION_MS, full=True)
    assert not list(IntegrityCheck(one).run())


@BOTH_ORDERS
def test_a_claim_on_a_deleted_branch_is_refused(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    at = commit_on_branch(one, one.begin_branch(one.head()), [Adjust("/a", "p", 1)])
    root = one.branch(at).root
    collected_branch(one, store, world, at)
    with pytest.raises(BranchError, match="has ended"):
        one.branches._claims.take(root, one.head().revision, at)
    assert branch_rows(store) == []


@pytest.mark.parametrize("ordered", [False], ids=["unordered"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_branch_whose_creation_arrives_again_cannot_be_used(
    store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    create, created = one.store.check_and_write_then_read, []

    def record(check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        created.append(check)
        return create(check, table, get)

    monkeypatch.setattr(one.store, "check_and_write_then_read", record)
    root = one.begin_branch(one.head())
    monkeypatch.undo()
    at = commit_on_branch(one, root, [Adjust("/a", "p", 1)])
    collected_branch(one, store, world, at)
    before = tree(one)
    if compacted:
        store.compact()
    assert store.check_and_write(*created[-1])
    assert branch_rows(store) == ([root] if compacted else [])
    fresh = open_instance(store, world, mac=9)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: tree(fresh, fresh.branch(root).view),
        lambda: commit_on_branch(fresh, root, [SetProperty("/a", "q", 1)]),
        lambda: one.merge_branch(at, ""),
        lambda: one.reset_branch(at, root),
    )
    for use in uses:
        with pytest.raises((RevisionCollectedError, UnknownRevisionError, BranchError)):
            use()
    assert tree(fresh) == tree(one) == before
    # It does not hold the horizon back.
    passed = fresh.journal.fence.refresh()
    world.advance(2 * HOUR)
    commit(fresh, AddNode("/more", {}))
    world.advance(2 * HOUR)
    commit(fresh, AddNode("/most", {}))
    Collector(fresh).run(RETENTION_MS)
    assert fresh.journal.fence.horizon > passed
    assert {one.severity for one in IntegrityCheck(fresh).run()} <= {kinds.LEFTOVER}
    # A sweep by age, as of `hbasemk recover --branches`, and a run that looks at everything remove it.
    fresh.sweep_branches(0)
    Collector(fresh).run(RETENTION_MS, full=True)
    assert branch_rows(store) == []


def test_late_cells_of_a_revision_swept_in_doubt_are_deleted(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    aborted = one.clock.next(one.journal.highest_seen)
    commit(other, AddNode("/b", {}))
    other.outcomes.abort_missing(aborted)
    late = [NewCell(schema.DATA, b"\x01p", b"\x01", aborted)]
    row = Put(schema.revision_key(aborted), _declared())
    store.write(schema.JOURNAL, [row])
    other.outcomes.recover(aborted)
    commit(other, AddNode("/c", {}))
    other.recovery.advance()
    store.write(schema.NODES, [Put(paths.key("/a"), late)])
    world.advance(2 * HOUR)
    commit(other, AddNode("/d", {}))
    assert Collector(other).estimate(RETENTION_MS).cells["cells of aborted revisions"] == 1
    assert Collector(other).run(RETENTION_MS).cells["cells of aborted revisions"] == 1
    rows = store.scan(schema.NODES, Scan(None, None, 1000, versions=ALL_VERSIONS))
    assert aborted not in {cell.timestamp for found in rows for cell in found.cells}
    assert not list(IntegrityCheck(other).run())


def test_late_cells_of_an_ended_branch_are_deleted_before_its_rows(store: MemoryStore, world: World) -> None:
    # Found by a random schedule: a process paused before its second write, and died while it rolled back. HBase hides what is
    # written after the deletion of the same version, so this store orders all writes.
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    at = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", 1)])
    world.advance(2 * HOUR)
    other.sweep_branches(0)
    assert private_cells(store) == 0
    store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*schema.property_column("p"), b"\x01", at)])])
    commit(other, AddNode("/later", {}))
    world.advance(2 * HOUR)
    commit(other, AddNode("/latest", {}))
    assert Collector(other).run(RETENTION_MS).cells["cells of aborted revisions"] == 1
    assert (branch_rows(store), private_cells(store)) == ([], 0)
    assert not list(IntegrityCheck(other).run())


def _declared() -> list[NewCell]:
    return changes.encode([RowChange("/a", changes.CHANGED, ("p",))])


@BOTH_ORDERS
@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (
            collection_mutants.outcomes_without_a_row,
            test_a_process_that_slept_until_its_branch_was_collected_changes_nothing,
            (None, "commit in steps"),
        ),
        (collection_mutants.claims_on_missing_rows, test_a_claim_on_a_deleted_branch_is_refused, ()),
        (collection_mutants.rows_of_open_branches_go, test_an_open_branch_keeps_its_rows, ()),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant,
    test: Callable[..., None],
    arguments: tuple[Any, ...],
    ordered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    must_fail(mutant, test, arguments, monkeypatch, ordered=ordered)


def test_late_cells_of_branches_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    test = test_late_cells_of_an_ended_branch_are_deleted_before_its_rows
    must_fail(collection_mutants.late_cells_stay, test, (), monkeypatch)
