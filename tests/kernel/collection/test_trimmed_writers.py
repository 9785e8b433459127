"""Writers that need a deleted row of the journal, and requests that arrive after its deletion, do no harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import problem as kinds
from hbasemk.errors import CommitUnknownError, RevisionCollectedError
from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.one_transaction import OneTransaction
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import NewCell, Put, Store
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support import collection_mutants
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.trimming import commit_once, recorded, row_of, trim, versions


@pytest.fixture
def store(trimmed_store: Store) -> Store:
    return trimmed_store


# --- writers that slept --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_one", [True, False], ids=["one transaction", "step by step"])
def test_a_writer_whose_decision_was_trimmed_does_not_guess(
    store: Store, world: World, in_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    if not in_one:
        monkeypatch.setattr(OneTransaction, "fits", lambda *_: False)
    begun: list[int] = []

    def sleep_after(call: Call) -> None:
        decides = call.method == "write_if" or (call.method == "check_and_write" and call.table == schema.JOURNAL)
        whole = in_one and store.supports_transactions
        if begun and decides and (whole or JournalRow(row_of(store, begun[-1])).committed):
            faulty.after = None
            other.poll()
            trim(other, world)
            raise lost_reply(call)

    faulty.after = sleep_after
    with pytest.raises(CommitUnknownError) as raised:
        commit_once(one, SetProperty("/a", "p", 1), begun)
    assert raised.value.revision == revisions.to_text(begun[-1])
    assert len(begun) == 1
    # It keeps no work for later, and the commit stays.
    one.outcomes.resolve_pending()
    assert not one.outcomes.deferred
    with pytest.raises(RevisionCollectedError):
        one.outcome(begun[-1])
    one.poll()
    assert tree(one) == tree(other) == tree(open_instance(store, world, mac=3))
    assert tree(one)["/a"] == {"p": 1}


def test_a_writer_that_was_aborted_while_it_slept_leaves_nothing(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    monkeypatch.setattr(OneTransaction, "fits", lambda *_: False)
    begun: list[int] = []

    def sleep_before(call: Call) -> None:
        if call.method == "write" and call.table == schema.NODES:
            faulty.before = None
            other.poll()
            world.advance(60)
            other.maintain()
            other.recovery.advance()
            trim(other, world)
            assert begun[-1] not in recorded(store)

    faulty.before = sleep_before
    with pytest.raises(RevisionCollectedError):
        commit_once(one, SetProperty("/a", "p", 1), begun)
    # It had not asked for a decision, so its cells cannot be of a committed revision.
    assert begun[-1] not in versions(store, "/a", b"\x01p")
    assert not one.outcomes.deferred
    assert tree(one)["/a"] == {"p": 0}


def test_an_unresolved_revision_with_a_deleted_row_is_forgotten(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    revision = commit(one, AddNode("/a", {"p": 0}))
    one.outcomes.defer(revision, [RowChange("/a", changes.ADDED, ("p",))])
    trim(other, world)
    one.outcomes.resolve_pending()
    assert not one.outcomes.deferred
    assert tree(one)["/a"] == {"p": 0}
    with pytest.raises(RevisionCollectedError):
        one.outcomes.abort_missing(revision)
    assert revision not in recorded(store)


def test_a_commit_does_not_take_a_trimmed_conflict_for_a_revision_that_never_was(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    base = one.head()
    commit(other, SetProperty("/a", "p", 1))
    of_many, slept = one.outcomes.of_many, []

    def sleep_first(wanted: Sequence[int], **options: Any) -> Any:
        if not slept:
            slept.append(True)
            trim(other, world)
        return of_many(wanted, **options)

    monkeypatch.setattr(one.outcomes, "of_many", sleep_first)
    with pytest.raises(RevisionCollectedError):
        one.commit_on(base, OperationList([SetProperty("/a", "p", 2)]), "")
    assert slept
    assert tree(one)["/a"] == {"p": 1}


# --- requests that are repeated, and late cells ----------------------------------------------------------------


def test_a_row_that_a_repeated_request_creates_again_takes_no_cells_with_it(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    revision = commit(one, AddNode("/a", {"p": 0}))
    one.clock.release_lease()
    kept = row_of(store, revision)
    trim(other, world)
    before = tree(other)
    pending = [NewCell(*cell[:2], schema.NO if cell[:2] == schema.COMMITTED else cell.value) for cell in kept.cells]
    store.write(schema.JOURNAL, [Put(kept.key, pending)])
    fresh = open_instance(store, world, mac=3)
    for instance in (one, other, fresh):
        instance.poll()
        assert not instance.journal.pending
        instance.maintain()
        instance.recovery.recover_late()
        instance.outcomes.recover(revision)
        with pytest.raises(RevisionCollectedError):
            instance.outcomes.abort_own(revision, [RowChange("/a", changes.ADDED, ("p",))])
        assert tree(instance) == before
    assert {one.severity for one in IntegrityCheck(fresh).run()} <= {kinds.LEFTOVER}
    trim(other, world)
    assert revision not in recorded(store)
    assert tree(fresh)["/a"] == {"p": 0}


def aborted(one: Instance, other: Instance, store: Store, world: World) -> int:
    """Return a revision that another instance swept in doubt, and the watermark hides."""
    revision = one.clock.next(one.journal.highest_seen)
    commit(other, AddNode("/b", {}))
    other.outcomes.abort_missing(revision)
    store.write(
        schema.JOURNAL,
        [Put(schema.revision_key(revision), changes.encode([RowChange("/a", changes.CHANGED, ("p",))]))],
    )
    world.advance(60)
    other.outcomes.recover(revision)
    commit(other, AddNode("/c", {}))
    other.recovery.advance()
    return revision


@pytest.mark.parametrize("row_is_gone", [False, True], ids=["before its row goes", "after its row has gone"])
def test_late_cells_of_a_hidden_revision_are_deleted(store: Store, world: World, row_is_gone: bool) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    revision = aborted(one, other, store, world)
    late = Put(paths.key("/a"), [NewCell(schema.DATA, b"\x01p", b"\x01", revision)])
    world.advance(2 * HOUR)
    commit(other, AddNode("/d", {}))
    Collector(other).run(RETENTION_MS)
    assert revision in recorded(store)
    if row_is_gone:
        trim(other, world)
        store.write(schema.NODES, [late])
        if isinstance(store, MarkingStore):
            store.compact(reveal=True)
        fresh = open_instance(store, world, mac=3)
        assert tree(fresh)["/a"] == {"p": 0}
        assert not list(IntegrityCheck(fresh).run())
        assert Collector(other).estimate(RETENTION_MS, full=True).cells["cells of aborted revisions"] == 1
        Collector(other).run(RETENTION_MS, full=True)
    else:
        # The horizon has passed the revision already: the rows go with the late cells.
        store.write(schema.NODES, [late])
        trim(other, world)
    assert revision not in recorded(store)
    assert revision not in versions(store, "/a", b"\x01p")
    assert not list(IntegrityCheck(other).run())


# --- mutants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (
            collection_mutants.absent_rows_never_were,
            test_a_writer_whose_decision_was_trimmed_does_not_guess,
            (True, None),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_writer_whose_decision_was_trimmed_does_not_guess,
            (False, None),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_commit_does_not_take_a_trimmed_conflict_for_a_revision_that_never_was,
            (None,),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_row_that_a_repeated_request_creates_again_takes_no_cells_with_it,
            (),
        ),
        (collection_mutants.late_cells_of_gone_rows_stay, test_late_cells_of_a_hidden_revision_are_deleted, (True,)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, arguments, monkeypatch)


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        (test_a_writer_whose_decision_was_trimmed_does_not_guess, (False, None)),
        (test_a_commit_does_not_take_a_trimmed_conflict_for_a_revision_that_never_was, (None,)),
        (test_a_row_that_a_repeated_request_creates_again_takes_no_cells_with_it, ()),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_absent_rows_that_never_were_are_found_without_an_order_of_writes(
    test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(collection_mutants.absent_rows_never_were, test, arguments, monkeypatch, ordered=False)
