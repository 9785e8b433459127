"""A commit on the newest head reads nothing back if nothing has been written since, and reads in every other case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.errors import ConflictError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit import new_row
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.mutants import arrivals


@pytest.fixture
def store(ordered_store: Store) -> Store:
    return ordered_store


@pytest.fixture
def counted(store: Store) -> CountingStore:
    return CountingStore(store)


def commit(instance: Instance, *operations: Operation, retry_timeout: float = 5) -> int:
    """Commit on the present head, without a poll."""
    return instance.commit(
        lambda _: OperationList(list(operations)), "", retry_timeout=retry_timeout, max_poll_age=1000
    )


def prepared(store: Store, world: World) -> Instance:
    """Return an instance that has added a node and knows its children and properties."""
    instance = open_instance(store, world, mac=1)
    commit(instance, AddNode("/a", {"p": 0}), AddNode("/a/child", {}), AddNode("/b", {"p": 0}))
    return instance


def rows_read_back(counted: CountingStore, call: Callable[[], object]) -> int:
    """Return the number of rows that the transaction of a commit reads. A read of a new node finds no row."""
    counted.take()
    counted.traffic()
    call()
    assert counted.take()["write_if", schema.NODES] == 1
    return counted.traffic().rows_read


@pytest.mark.parametrize(
    "operation", [SetProperty("/a", "p", 1), AddNode("/a/more", {"p": 1})], ids=["set a property", "add a node"]
)
def test_without_a_write_in_between_nothing_is_read(counted: CountingStore, world: World, operation: Operation) -> None:
    instance = prepared(counted, world)
    assert rows_read_back(counted, lambda: commit(instance, operation)) == 0


def test_a_new_property_is_compared_with_the_names_of_children(counted: CountingStore, world: World) -> None:
    instance = prepared(counted, world)
    assert rows_read_back(counted, lambda: commit(instance, SetProperty("/a", "new", 1))) > 0


def test_a_commit_of_another_process_is_found(counted: CountingStore, store: Store, world: World) -> None:
    instance, other = prepared(counted, world), open_instance(store, world, mac=2)
    commit(other, SetProperty("/b", "p", 1))
    assert rows_read_back(counted, lambda: commit(instance, SetProperty("/a", "p", 1))) > 0
    commit(other, SetProperty("/a", "p", 2))
    with pytest.raises(ConflictError):
        commit(instance, SetProperty("/a", "p", 3), retry_timeout=0)


def test_a_commit_on_an_older_snapshot_finds_what_this_instance_has_seen(store: Store, world: World) -> None:
    instance = prepared(store, world)
    old = instance.head()
    commit(instance, SetProperty("/a", "p", 1))
    with pytest.raises(ConflictError):
        instance.commit_on(old, OperationList([SetProperty("/a", "p", 2)]), "")


class StepByStep(FaultyStore):
    """A store that lets commits of several rows go step by step."""

    batch_rows = 1


def conflict_with_a_pending_revision(store: Store, world: World) -> ConflictError | None:
    """Let a commit meet one that has written and read back, but not decided; return its error, or None if both commit."""
    faulty = StepByStep(store)
    slow, quick = prepared(faulty, world), open_instance(store, world, mac=2)
    caught: list[ConflictError | None] = []

    def before(call: Call) -> None:
        if (call.method, call.table, call.rows) != ("write_if", schema.JOURNAL, 0):
            return
        quick.poll()
        if not quick.journal.pending:
            return
        # The next call decides the slow commit.
        faulty.before = None
        try:
            commit(quick, SetProperty("/a", "p", 2), retry_timeout=0)
            caught.append(None)
        except ConflictError as error:
            caught.append(error)

    faulty.before = before
    revision = commit(slow, SetProperty("/a", "p", 1), SetProperty("/b", "p", 1))
    (found,) = caught
    assert found is None or found.other == revisions.to_text(revision)
    assert revision in quick.poll()
    return found


def test_a_revision_that_is_pending_is_found(store: Store, world: World) -> None:
    assert conflict_with_a_pending_revision(store, world) is not None


@pytest.mark.damages("two commits to one property")
def test_a_mutant_that_ignores_pending_revisions_is_found(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random schedules did not find it in some thousands.
    arrivals.no_read_back_beside_pending_revisions(monkeypatch)
    assert conflict_with_a_pending_revision(store, world) is None


@pytest.mark.damages("the far id belongs to no lease")
def test_an_id_that_is_too_low_is_refused(store: Store, world: World) -> None:
    instance, fast = prepared(store, world), open_instance(store, world, mac=2)
    attempts = instance._committer.attempts
    draft = Draft(instance.head(), OperationList([SetProperty("/a", "p", 1)]), "")
    plan = attempts._preparation.prepare(draft)
    assert attempts._one_transaction._unchanged_since(draft.revision, draft.view, plan) is not None
    # Another process aborts a revision far ahead, and a thread of this process polls.
    far = Draft(
        fast.head(), draft.source, "", revision=draft.revision + revisions.pack(3_600_000, 0, 0), nonce=b"n" * 16
    )
    store.write(schema.JOURNAL, [new_row.put(far, Outcome.ABORTED)])
    instance.poll()
    assert instance.journal.highest_seen == far.revision
    assert instance.head() == draft.view
    assert attempts._one_transaction._unchanged_since(draft.revision, draft.view, plan) is None
