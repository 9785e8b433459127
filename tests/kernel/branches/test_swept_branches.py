"""Sweeps abandon branches without commits, and delete the cells of a branch only an hour after its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from hbasemk.errors import BranchError, FormatError, NodeNotFoundError, UnknownRevisionError
from hbasemk.format import revisions, schema
from hbasemk.kernel.branches.branch_revisions import BranchRevisions
from hbasemk.kernel.branches.cache import TRUST_SECONDS, BranchCache
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, WrappedStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, commit
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import problems

pytestmark = BOTH_ORDERS

T = TypeVar("T")


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    return store_in_memory(world.clock, ordered=ordered)


CHANGED = ("branch", True, False)


def seen(reader: Instance, at: int) -> tuple[object, bool, bool]:
    """Return what a reader sees at the branch of :func:`changed_branch`: a property, and whether each of two nodes exists."""
    view = reader.at(at)
    exist = [reader.node(view, path) is not None for path in ("/new", "/gone")]
    return reader.require(view, "/n").properties["x"], exist[0], exist[1]


def changed_branch(mine: Instance) -> tuple[int, int]:
    """Create a branch that has set, added and removed something; return its first and its newest revision."""
    commit(mine, AddNode("/n", {"x": "trunk"}), AddNode("/gone", {}))
    root = mine.branches.begin(mine.head())
    changes = [SetProperty("/n", "x", "branch"), RemoveNode("/gone"), AddNode("/new", {})]
    return root, commit_on_branch(mine, root, changes)


def test_snapshots_of_a_branch_that_a_sweep_abandons_stay_readable_for_an_hour(
    store: MemoryStore, world: World
) -> None:
    """Readers that took the snapshot while the branch was open do not notice its end."""
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(24 * HOUR - 0.5)
    reader, sweeper = open_instance(store, world, mac=2), open_instance(store, world, mac=3)
    assert reader.branches.require_head(at)
    world.advance(1)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]
    with pytest.raises(BranchError, match="abandoned"):
        reader.branches.require_head(at)
    for seconds in (1, 4, HOUR - 60):
        world.advance(seconds)
        assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == []
        assert seen(reader, at) == CHANGED
    world.advance(60)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]
    with pytest.raises(UnknownRevisionError):
        open_instance(store, world, mac=5).at(at)
    assert problems(sweeper) == []


def test_a_branch_that_is_merged_after_a_day_stays_readable_for_an_hour(store: MemoryStore, world: World) -> None:
    mine, sweeper = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    root, at = changed_branch(mine)
    world.advance(24 * HOUR - 1)
    mine.branches.merge(at, "")
    world.advance(HOUR - 60)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == []
    assert seen(sweeper, at) == CHANGED
    world.advance(120)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]


def test_the_hourly_work_abandons_a_branch_and_deletes_it_an_hour_later(store: MemoryStore, world: World) -> None:
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(24 * HOUR)
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/other", {}))

    def an_hour_later() -> bool:
        """Let the hourly work run, and return whether it has deleted the branch."""
        for _ in range(int(HOUR / 5) + 1):
            world.advance(5)
            other.maintain()
        return root not in other.branches._heads._all_unswept()[1]

    assert not an_hour_later()
    assert other.open_branches() == []
    assert seen(open_instance(store, world, mac=3), at) == CHANGED
    assert an_hour_later()
    assert problems(other) == []


@pytest.mark.parametrize("retention_ms", [0, 60_000])
def test_a_sweep_with_a_shorter_retention_waits_as_long_after_the_end(
    store: MemoryStore, world: World, retention_ms: int
) -> None:
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(retention_ms / 1000 + 1)
    other = open_instance(store, world, mac=2)
    if retention_ms:
        assert other.branches.sweep(retention_ms) == [root]
        assert other.branches.sweep(retention_ms) == []
        assert other.open_branches() == []
        assert seen(other, at) == CHANGED
        world.advance(retention_ms / 1000 + 1)
    assert other.branches.sweep(retention_ms) == [root]
    assert problems(other) == []


def ended(mine: Instance, how: str) -> int:
    """Create a branch and end it; return its newest revision."""
    _, at = changed_branch(mine)
    if how == "merged":
        mine.branches.merge(at, "")
    elif how == "rebased":
        commit(mine, SetProperty("/n", "y", "trunk"))
        rebase(mine.branches, at, mine.head(), "")
    elif how == "abandoned":
        mine.branches.abandon(at)
    return at


@pytest.mark.parametrize("how", ["merged", "rebased", "abandoned", "swept"])
@pytest.mark.parametrize("is_fresh", [False, True], ids=["read before", "first read"])
def test_a_snapshot_of_a_branch_that_is_deleted_is_an_error_not_the_state_of_trunk(
    store: MemoryStore, world: World, how: str, is_fresh: bool
) -> None:
    at = ended(open_instance(store, world, mac=1), how)
    reader, sweeper = open_instance(store, world, mac=2), open_instance(store, world, mac=3)
    view = reader.at(at)
    if not is_fresh:
        assert reader.node(view, "/new")
    for seconds in (HOUR - 10, 9.5):
        world.advance(seconds)
        sweeper.branches.sweep(None)
        assert seen(reader, at) == CHANGED
        assert reader.node(view, "/gone") is None
    world.advance(1)
    swept = sweeper.branches.sweep(0 if how == "swept" else None)
    assert revisions.is_branch(at)
    assert len(swept) == 1
    for read in (
        lambda: reader.node(view, "/other"),
        lambda: reader.nodes(view, ["/gone", "/missing"]),
        lambda: reader.children(view, "/"),
        lambda: reader.status(view, ["/missing"]),
        lambda: list(reader.levels(view, "/")),
    ):
        if how == "swept":
            # It was open a second ago, and this sweep has not waited.
            world.advance(TRUST_SECONDS)
        with pytest.raises(UnknownRevisionError, match="its branch has ended") as caught:
            read()
        assert caught.value.revision == revisions.to_text(at)
    for instance in (reader, open_instance(store, world, mac=4)):
        with pytest.raises(UnknownRevisionError, match="or its branch has ended and its data has been deleted"):
            instance.at(at)


@pytest.mark.parametrize("how", ["open", "merged", "rebased", "abandoned"])
def test_readers_look_for_the_end_of_a_branch_every_few_seconds(store: MemoryStore, world: World, how: str) -> None:
    """Of an ended branch they look after each read."""
    at = ended(open_instance(store, world, mac=1), how)
    counted = CountingStore(store)
    reader = open_instance(counted, world, mac=2)
    view = reader.at(at)
    counted.take()
    for number in range(4):
        for one in range(3):
            assert reader.node(view, f"/missing/{number}/{one}") is None
        every = 3 if how != "open" else 1 if number else 0
        looks = {("read", "journal"): every} if every else {}
        assert counted.take() == {("read", "nodes"): 3, **looks}
        world.advance(TRUST_SECONDS + 0.1)
        reader.poll()
        counted.take()


@pytest.mark.damages("what a branch revision touched cannot be read")
def test_nothing_that_a_damaged_revision_shows_is_deleted(store: MemoryStore, world: World) -> None:
    mine, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    _, at = changed_branch(mine)
    newest = commit_on_branch(mine, at, [SetProperty("/n", "y", 1)])
    mine.branches.abandon(newest)
    view = other.at(newest)
    damaged = NewCell(schema.DATA, schema.CHANGES, b"\x01[[")
    store.write(schema.JOURNAL, [Put(schema.revision_key(newest), [damaged])])
    world.advance(HOUR + 1)
    with pytest.raises(FormatError, match=revisions.to_text(newest)):
        other.branches.sweep(BRANCH_RETENTION_MS)
    assert other.require(view, "/n").properties == {"x": "branch", "y": 1}
    assert other.node(view, "/gone") is None


def test_the_process_that_made_a_branch_still_learns_how_it_ended_after_a_late_read(
    store: MemoryStore, world: World
) -> None:
    mine, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    _, at = changed_branch(mine)
    view = mine.at(at)
    other.branches.abandon(at)
    world.advance(HOUR + 1)
    other.branches.sweep(BRANCH_RETENTION_MS)
    with pytest.raises(UnknownRevisionError, match="its branch has ended"):
        mine.node(view, "/n")
    for call in (lambda: mine.branches.merge(at, ""), lambda: mine.branches.abandon(at)):
        with pytest.raises(BranchError, match="abandoned"):
            call()


def test_a_process_that_pauses_after_its_commit_to_a_branch_checks_that_the_branch_is_there(
    store: MemoryStore, world: World
) -> None:
    """Meanwhile the branch has been merged and deleted by another one."""
    faulty = FaultyStore(store)
    mine, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    root, at = changed_branch(mine)
    committed: list[int] = []

    def pause(_: Call) -> None:
        head = other.branches._heads.read(root)
        if head is not None and head.newest not in (None, at):
            faulty.after = None
            committed.append(head.newest)
            other.poll()
            other.branches.merge(head.newest, "")
            world.advance(HOUR + 1)
            other.branches.sweep(BRANCH_RETENTION_MS)

    faulty.after = pause
    assert [commit_on_branch(mine, at, [SetProperty("/n", "x", "newer")])] == committed
    with pytest.raises(UnknownRevisionError):
        mine.at(committed[0])


@pytest.mark.parametrize("seconds", [6, 600])
def test_a_sweep_with_a_shorter_time_shows_no_reader_the_state_of_trunk(
    store: MemoryStore, world: World, seconds: float
) -> None:
    at = ended(open_instance(store, world, mac=1), "abandoned")
    reader, sweeper = open_instance(store, world, mac=2), open_instance(store, world, mac=3)
    view = reader.at(at)
    world.advance(seconds + 1)
    assert reader.node(view, "/new")
    assert sweeper.branches.sweep(int(seconds * 1000))
    with pytest.raises(UnknownRevisionError):
        reader.node(view, "/new")


READS: dict[str, Callable[[Instance, View], object]] = {
    "node": lambda reader, view: reader.require(view, "/n").encoded,
    "absent node": lambda reader, view: reader.node(view, "/gone"),
    "nodes": lambda reader, view: [one is not None for one in reader.nodes(view, ["/new", "/gone"]).values()],
    "children": lambda reader, view: reader.children(view, "/"),
    "count": lambda reader, view: reader.child_count(view, reader.require(view, "/")),
    "status": lambda reader, view: reader.status(view, ["/gone"]),
    "levels": lambda reader, view: [[node.path for node in level] for level in reader.levels(view, "/")],
    "hash": lambda reader, view: reader.subtree_hashes(view, reader.require(view, "/"), []),
}


class SweptStore(WrappedStore):
    """Lets another process sweep before one of the calls."""

    sweep: Callable[[], object] | None = None
    calls = 0
    at = 0

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Count the call, and sweep before it."""
        self.calls += 1
        if self.calls == self.at and self.sweep is not None:
            self.sweep()
        return do()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("how", ["merged", "abandoned"])
def test_a_read_during_the_deletion_of_a_branch_is_right_or_an_error(ordered: bool, how: str, read: str) -> None:
    """The sweep comes before each call of the read in turn, and after the last one."""
    refused = at = 0
    while at < 100:
        at += 1
        world = World()
        store = store_in_memory(world.clock, ordered=ordered)
        newest = ended(open_instance(store, world, mac=1), how)
        swept = SweptStore(store)
        reader, sweeper = open_instance(swept, world, mac=2), open_instance(store, world, mac=3)
        expected = READS[read](open_instance(store, world, mac=4), sweeper.at(newest))
        view = reader.at(newest)
        world.advance(HOUR + 1)
        sweeper.poll()
        swept.sweep, swept.calls, swept.at = partial(sweeper.branches.sweep, None), 0, at
        try:
            found = READS[read](reader, view)
        except UnknownRevisionError:
            refused += 1
            assert swept.calls >= at
        else:
            assert found == expected, f"with a sweep before call {at}"
        if swept.calls < at:
            break
    assert refused
    assert at < 100


def branches_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchRevisions, "require_readable", lambda *_: None)


def ended_branches_trusted(patch: pytest.MonkeyPatch) -> None:
    record = BranchCache.record_open
    patch.setattr(
        BranchRevisions, "_record_head", lambda self, revision, _, began: record(self._cache, revision, began)
    )


def flag_of_the_revision_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchRevisions, "_is_unswept", lambda *_: True)


@pytest.mark.parametrize("mutant", [branches_not_checked, ended_branches_trusted, flag_of_the_revision_not_read])
def test_a_broken_check_of_branches_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, NodeNotFoundError, pytest.fail.Exception)):
        for how in ("merged", "abandoned"):
            test_a_read_during_the_deletion_of_a_branch_is_right_or_an_error(ordered, how, "node")
        world = World()
        test_a_snapshot_of_a_branch_that_is_deleted_is_an_error_not_the_state_of_trunk(
            store_in_memory(world.clock, ordered=ordered), world, "abandoned", is_fresh=True
        )
