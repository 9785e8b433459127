"""A walk that is kept shows what its snapshot contains, in a bounded part of the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hbasemk import Repository, Snapshot, Transaction
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.kept_walks import KeptWalks
from hbasemk.repository import instance_of
from tests.support.repositories import Instances
from tests.support.uncached import without_cache

TREE = ("/t", "/t/a", "/t/a/b", "/t/c")


def make(repo: Repository) -> None:
    with repo.transaction() as tx:
        for path in TREE:
            tx.add(path, {"n": 0})
        tx.add("/u")


def found(snapshot: Snapshot, top: str = "/t") -> dict[str, dict[str, object]]:
    return {node.path: dict(node) for node in snapshot.walk(top)}


def read(repo: Repository, snapshot: Snapshot, top: str = "/t") -> dict[str, dict[str, object]]:
    with without_cache(instance_of(repo)):
        return found(snapshot, top)


def keep(repo: Repository, top: str = "/t") -> None:
    """Walk until the walk is kept: the first walk fills the cache."""
    for _ in range(2):
        found(repo.head, top)
    assert kept(repo, top)


def kept(repo: Repository, top: str = "/t") -> bool:
    instance = instance_of(repo)
    return instance.cache.walks.get(instance.head(), top) is not None


CHANGES: dict[str, Callable[[Transaction], object]] = {
    "set the top": lambda tx: tx.set("/t", "n", 1),
    "set a deep node": lambda tx: tx.set("/t/a/b", "n", 1),
    "add a child": lambda tx: tx.add("/t/d", {"n": 5}),
    "add a deep child": lambda tx: tx.add("/t/a/b/e"),
    "remove a subtree": lambda tx: tx.remove("/t/a"),
    "move a subtree out": lambda tx: tx.move("/t/a", "/u/a"),
    "move a subtree within": lambda tx: tx.move("/t/a", "/t/c/a"),
    "copy a subtree": lambda tx: tx.copy("/t/a", "/t/x"),
    "replace the top": lambda tx: (tx.remove("/t"), tx.add("/t", {"n": 9})),
    "adjust": lambda tx: tx.adjust("/t/c", "n", 2),
}


@pytest.mark.parametrize("by", ["itself", "another process"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_below_ends_a_kept_walk(opened: Instances, by: str, change: Callable[[Transaction], object]) -> None:
    one, two = opened(), opened()
    make(one)
    two.refresh()
    keep(two)
    before, shown = two.head, found(two.head)
    (two if by == "itself" else one).run(change)
    two.refresh()
    assert not kept(two)
    assert read(two, before) == shown
    assert found(before) == shown
    for _ in range(4):
        assert found(two.head) == read(two, two.head) != shown


def test_a_change_elsewhere_leaves_a_kept_walk(opened: Instances) -> None:
    repo = opened()
    make(repo)
    keep(repo)
    repo.run(lambda tx: tx.set("/u", "n", 1))
    assert kept(repo)
    assert found(repo.head) == read(repo, repo.head)


def test_a_kept_walk_makes_no_call_and_counts_as_hits(opened: Instances) -> None:
    repo = opened()
    make(repo)
    keep(repo)
    instance = instance_of(repo)
    before = instance.cache_statistics
    assert 0 < instance.cache.walks.size < before.bytes
    assert sorted(found(repo.head)) == sorted(TREE)
    # A lookup finds the top, and each node below counts as one.
    assert instance.cache_statistics == before._replace(hits=before.hits + len(TREE))


def test_other_snapshots_and_other_depths_use_no_kept_walk(opened: Instances) -> None:
    repo = opened()
    make(repo)
    old = repo.head
    repo.run(lambda tx: tx.set("/t/c", "n", 1))
    keep(repo)
    assert found(old)["/t/c"] == {"n": 0}
    assert [node.path for node in repo.head.walk("/t", depth=1)] == ["/t", "/t/a", "/t/c"]
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/t/c", "n", 2))
    for _ in range(3):
        assert found(branch.head)["/t/c"] == {"n": 2}
        assert found(repo.head)["/t/c"] == {"n": 1}
    checkpoint = repo.checkpoint(60)
    repo.run(lambda tx: tx.set("/t/c", "n", 3))
    keep(repo)
    assert found(repo.at(checkpoint.revision))["/t/c"] == {"n": 1}
    assert found(repo.head)["/t/c"] == {"n": 3}


def test_a_walk_that_ends_early_or_that_a_commit_meets_is_not_kept(opened: Instances) -> None:
    repo = opened()
    make(repo)  # the cache now has all nodes
    for _ in range(3):
        next(iter(repo.head.walk("/t")))
    assert not kept(repo)
    walk = repo.head.walk("/t")
    next(walk)
    next(walk)
    repo.run(lambda tx: tx.set("/t/c", "n", 1))
    assert {node.path: node["n"] for node in walk}["/t/c"] == 0
    assert not kept(repo)
    assert found(repo.head)["/t/c"] == {"n": 1}


def test_a_small_cache_keeps_no_walk(opened: Instances) -> None:
    repo = opened(cache_bytes=0)
    make(repo)
    for _ in range(3):
        found(repo.head)
    assert not kept(repo)


def _walk(path: str) -> list[list[NodeState]]:
    return [[NodeState(f"{path}/x", 1, 1, {}, {})]]


def _at(position: int, **more: object) -> View:
    return View(1000 + position, position, 1000 + position, **more)  # type: ignore[arg-type]


def test_kept_walks_have_a_bounded_size() -> None:
    walks = KeptWalks(threading.RLock(), 100, 0)
    for number in range(5):
        walks.keep(_at(0), f"/{number}", _walk(f"/{number}"), 40)
        assert walks.size == 40 * min(number + 1, 2)
    assert [walks.get(_at(0), f"/{number}") is not None for number in range(5)] == [False, False, False, True, True]
    walks.keep(_at(0), "/4", _walk("/4"), 60)
    assert walks.size == 100
    walks.keep(_at(0), "/large", _walk("/large"), 101)
    assert walks.get(_at(0), "/large") is None
    assert walks.size == 100
    walks.forget(1)
    assert (walks.get(_at(1), "/4"), walks.size) == (None, 0)


def test_only_walks_at_the_head_are_kept_and_only_views_that_contain_them_use_them() -> None:
    walks = KeptWalks(threading.RLock(), 100, 0)
    walks.arrived([Arrival(1001, 1, [RowChange("/other", CHANGED, ["n"])])])
    for view in (_at(0), _at(2, own=frozenset({7})), _at(2, extent=Extent.of(0, []))):
        walks.keep(view, "/a", _walk("/a"), 10)
        assert walks.size == 0
    walks.keep(_at(1), "/a", _walk("/a"), 10)
    assert walks.get(_at(0), "/a") is None
    assert walks.get(_at(2, own=frozenset({7})), "/a") is None
    assert walks.get(_at(2, extent=Extent.of(0, [])), "/a") is None
    walks.arrived([Arrival(1002, 2, [RowChange("/b/c", CHANGED, ["n"])])])
    assert walks.get(_at(2), "/a") is not None
    walks.arrived([Arrival(1003, 3, [RowChange("/a/x/y", CHANGED, ["n"])])])
    assert walks.get(_at(3), "/a") is None
    assert walks.size == 0
