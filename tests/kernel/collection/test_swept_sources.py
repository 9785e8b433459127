"""Blobs stay if their references are copied from a branch that is swept while a collector reads the references."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from hbasemk.errors import LeaseLostError
from hbasemk.format import schema
from hbasemk.format.values import BlobRef
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection import blob_references, unused_blobs
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.checkpoint_cells import BLOB_HOLD, BLOB_HOLD_MS
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS, SWEEP_EVERY
from hbasemk.store.abc import Scan
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance

pytestmark = BOTH_ORDERS

CONTENT = b"content"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_references, "ROWS", 2)


@pytest.fixture
def one(store: MemoryStore, world: World) -> Instance:
    """The collector, in a repository in which something is collected."""
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/z", {"p": "base"}))
    commit(one, SetProperty("/z", "q", 1))
    world.advance(3 * HOUR)
    commit(one, SetProperty("/z", "q", 2))
    Collector(one).run(RETENTION_MS)
    assert one.journal.fence.horizon
    return one


@pytest.fixture
def other(one: Instance, store: MemoryStore, world: World) -> Instance:
    """The process that works on branches."""
    return open_instance(store, world, mac=2)


def branch_with(instance: Instance, ref: BlobRef, path: str = "/z") -> tuple[int, int]:
    """Create a branch with a reference; return its first and its newest revision."""
    root = instance.begin_branch(instance.head())
    return root, commit_on_branch(instance, root, [SetProperty(path, "p", ref)])


def uploaded(one: Instance) -> BlobRef:
    return BlobRef(one.blobs.write(io.BytesIO(CONTENT)))


def during_mark(
    patch: pytest.MonkeyPatch, one: Instance, act: Callable[[], object], *, each: bool = False
) -> list[int]:
    """Act after the first page of nodes that a mark reads; in ``each`` mark. Returns the list of the numbers of marks."""
    scan, marks = one.store.scan, []

    def read(table: str, page: Scan) -> Any:
        found = scan(table, page)
        if table == schema.NODES and page.versions == blob_references.VERSIONS and not page.start:
            marks.append(len(marks))
            assert b"z" not in b"".join(row.key for row in found)
            if each or len(marks) == 1:
                act()
        return found

    patch.setattr(one.store, "scan", read)
    return marks


def collect(one: Instance) -> Report:
    one.poll()
    return Collector(one).run(RETENTION_MS, blobs=True)


def sweep_that_dies(instance: Instance, at: int) -> None:
    """End a branch and delete the cells of its newest revision, as a sweep that dies before it marks the revision."""
    instance.abandon_branch(at)
    instance.outcomes.abort(at)
    instance.outcomes.delete_cells(at, instance.branches._heads.changes_of([at]))


SWEEPS: dict[str, Callable[[Instance, int], object]] = {
    "swept": lambda other, _: other.sweep_branches(0),
    "swept in part": sweep_that_dies,
    "ended before": lambda other, _: other.sweep_branches(0),
}


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_blob_stays_if_the_branch_with_its_only_reference_is_swept_during_the_mark(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch, sweep: str
) -> None:
    ref = uploaded(one)
    _, at = branch_with(other, ref)
    world.advance(23 * HOUR)
    if sweep == "ended before":
        other.abandon_branch(at)

    def copy() -> None:
        value = other.require(other.at(at), "/z").properties["p"]
        commit(other, SetProperty("/a", "p", value))
        SWEEPS[sweep](other, at)

    marks = during_mark(monkeypatch, one, copy)
    report = collect(one)
    assert report.blobs_done
    assert not report.cells["unused blobs"]
    assert len(marks) == 2
    assert other.require(other.head(), "/a").properties["p"] == ref
    assert other.blobs.read(ref.id) == CONTENT
    other.sweep_branches(0)


def test_no_blob_is_deleted_if_branches_are_swept_during_every_mark(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = uploaded(one)
    world.advance(20 * HOUR)
    branch = [other.begin_branch(other.head())]

    def sweep() -> None:
        other.sweep_branches(0)
        branch.append(other.begin_branch(other.head()))

    marks = during_mark(monkeypatch, one, sweep, each=True)
    report = collect(one)
    assert not report.blobs_done
    assert not report.cells["unused blobs"]
    assert len(marks) == unused_blobs.ATTEMPTS
    monkeypatch.undo()
    monkeypatch.setattr(blob_references, "ROWS", 2)
    assert other.blobs.read(unused.id) == CONTENT
    assert collect(one).cells["unused blobs"] == 1


def test_a_branch_that_begins_and_ends_during_a_mark_does_not_disturb_it(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(one)
    kept = BlobRef(one.blobs.write(io.BytesIO(b"kept")))
    _, at = branch_with(other, kept)
    world.advance(20 * HOUR)

    def copy_twice() -> None:
        """Copy a reference from a branch to a new one, and from there to trunk; sweep the new one."""
        value = other.require(other.at(at), "/z").properties["p"]
        assert isinstance(value, BlobRef)
        _, new = branch_with(other, value, "/")
        commit(other, SetProperty("/a", "p", other.require(other.at(new), "/").properties["p"]))
        other.abandon_branch(new)
        world.advance(1.1 * HOUR)
        assert other.branches.sweep(BRANCH_RETENTION_MS)

    marks = during_mark(monkeypatch, one, copy_twice)
    report = collect(one)
    assert (report.blobs_done, report.cells["unused blobs"], len(marks)) == (True, 1, 1)
    assert other.blobs.read(kept.id) == b"kept"


def test_a_commit_to_a_branch_that_fails_during_a_mark_does_not_disturb_it(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(one)
    root, at = branch_with(other, BlobRef(one.blobs.write(io.BytesIO(b"kept"))))
    # Its writer has written the row and the cells, and dies before it moves the head.
    left = commit_on_branch(other, at, [SetProperty("/a", "p", 1)])
    assert other.branches._heads.move(root, schema.revision_key(left), schema.revision_key(at))
    world.advance(20 * HOUR)
    marks = during_mark(monkeypatch, one, lambda: other.outcomes.recover(left))
    report = collect(one)
    assert is_aborted(other, left)
    assert (report.blobs_done, report.cells["unused blobs"], len(marks)) == (True, 1, 1)


def is_aborted(instance: Instance, revision: int) -> bool:
    return not unused_blobs._unswept(instance, [revision])


def test_a_source_is_noticed_that_is_swept_while_branches_are_listed(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is on a branch that begins behind the position of the first scan of rows, and that is swept during the mark."""
    ref = uploaded(one)
    _, at = branch_with(other, ref)
    world.advance(20 * HOUR)
    copies: list[int] = []
    sparse_rows = unused_blobs.sparse_rows

    def copy_first(*arguments: Any) -> list[Any]:
        found = list(sparse_rows(*arguments))
        if not copies:
            value = other.require(other.at(at), "/z").properties["p"]
            assert isinstance(value, BlobRef)
            copies.append(branch_with(other, value)[1])
            end(at)
        return found

    def copy() -> None:
        commit(other, SetProperty("/a", "p", other.require(other.at(copies[0]), "/z").properties["p"]))
        end(copies[0])

    def end(revision: int) -> None:
        other.abandon_branch(revision)
        world.advance(1.1 * HOUR)
        assert other.branches.sweep(BRANCH_RETENTION_MS)

    monkeypatch.setattr(unused_blobs, "sparse_rows", copy_first)
    marks = during_mark(monkeypatch, one, copy)
    report = collect(one)
    assert len(marks) == 2
    assert not report.cells["unused blobs"]
    assert other.blobs.read(ref.id) == CONTENT


def hourly(instance: Instance, world: World) -> None:
    """Let the next hourly work of an instance take place."""
    world.advance(SWEEP_EVERY + 1)
    with suppress(LeaseLostError):
        # Nobody has renewed the lease in this hour, so another process may have it now.
        instance.maintain()
    commit(instance, SetProperty("/z", "r", world.ms))
    instance.maintain()


def is_swept(instance: Instance, root: int) -> bool:
    return root not in instance.branches._heads._all_unswept()[1]


def test_the_hourly_work_deletes_no_branch_during_a_mark(
    one: Instance, other: Instance, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(one)
    ended, at = branch_with(other, BlobRef(one.blobs.write(io.BytesIO(b"on a branch"))))
    other.abandon_branch(at)
    old = other.begin_branch(other.head())
    world.advance(3 * HOUR)
    during: list[bool] = []

    def work() -> None:
        for _ in range(3):
            hourly(other, world)
        during.append(is_swept(other, ended))

    marks = during_mark(monkeypatch, one, work)
    report = collect(one)
    assert during == [False]
    assert (report.blobs_done, report.cells["unused blobs"], len(marks)) == (True, 1, 1)
    hourly(other, world)
    assert is_swept(other, ended)
    assert not is_swept(other, old)


def test_the_hourly_work_abandons_branches_during_a_mark(one: Instance, other: Instance, world: World) -> None:
    root = other.begin_branch(other.head())
    world.advance(24 * HOUR)
    assert unused_blobs._hold(one, one.journal.fence.horizon)
    hourly(other, world)
    assert other.open_branches() == []
    hourly(other, world)
    assert not is_swept(other, root)


def test_the_checkpoint_of_a_collector_that_died_holds_branches_for_six_hours(
    one: Instance, other: Instance, world: World
) -> None:
    root = other.begin_branch(other.head())
    other.abandon_branch(root)
    assert unused_blobs._hold(one, one.journal.fence.horizon)
    for _ in range(BLOB_HOLD_MS // 3_600_000 - 1):
        hourly(other, world)
        assert not is_swept(other, root)
    hourly(other, world)
    assert is_swept(other, root)


def test_a_checkpoint_of_a_user_with_the_same_message_holds_no_branch(
    one: Instance, other: Instance, world: World
) -> None:
    root = other.begin_branch(other.head())
    other.abandon_branch(root)
    checkpoints.keep_head(one, 30 * BLOB_HOLD_MS, BLOB_HOLD)
    hourly(other, world)
    assert is_swept(other, root)
