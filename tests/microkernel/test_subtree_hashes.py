"""``:hash`` is kept at the head: it costs what has changed, and never shows another state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import MicroKernel, RevisionCollectedError, Transaction
from hbasemk.kernel.instance import BYTES_PER_HASH
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading import child_groups
from hbasemk.kernel.reading.child_groups import ChildGroups
from hbasemk.kernel.reading.subtree_hashes import SubtreeHashes
from hbasemk.repository import instance_of
from hbasemk.testing.wrapped import CountingStore
from tests.support.microkernel import collect_after, random_change
from tests.support.repositories import Instances
from tests.support.seeds import random_of_test

CHOSEN = '{"properties":[":hash"]}'


def shown(kernel: MicroKernel, revision: str | None = None, depth: int = 9, path: str = "/") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(kernel.get_nodes(path, revision, depth, 0, -1, CHOSEN)))
    return found


def _compare(opened: Instances) -> None:
    chance = random_of_test()
    kernels = [MicroKernel(opened()), MicroKernel(opened(cache_bytes=chance.choice((5_000, 20_000))))]
    for number in range(60):
        random_change(chance, chance.choice(kernels), number)
        for kernel in kernels:
            if chance.random() < 0.6:
                kernel.repository.refresh()
            revision = kernel.get_head_revision()
            depth = chance.choice((0, 1, 2, 9))
            fresh = MicroKernel(opened(cache_bytes=0))
            # The same snapshot, not only the same id: another instance may have seen more below it.
            if fresh.get_head_revision() == revision:
                assert shown(kernel, None, depth) == shown(fresh, None, depth)
            fresh.repository.close()


@pytest.mark.parametrize("wide", [2, child_groups.WIDE])
def test_the_hashes_equal_those_of_an_instance_that_keeps_none(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr(child_groups, "WIDE", wide)
    _compare(opened)


def _only_the_touched_ones(self: SubtreeHashes, touched: Any) -> None:
    for path in touched:
        self._kept.pop(path, None)


@pytest.mark.parametrize(
    ("name", "broken"), [("_drop", _only_the_touched_ones), ("_drop", lambda *_: None)], ids=["ancestors", "all"]
)
def test_hashes_that_are_kept_too_long_are_found(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., None]
) -> None:
    monkeypatch.setattr(SubtreeHashes, name, broken)
    with pytest.raises(AssertionError):
        for _ in range(5):
            _compare(opened)


def test_groups_that_are_kept_too_long_are_found(opened: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_groups, "WIDE", 2)
    monkeypatch.setattr(ChildGroups, "touch", lambda *_: None)
    with pytest.raises(AssertionError):
        for _ in range(5):
            _compare(opened)


def test_a_child_that_takes_the_place_of_another_one_changes_the_hash(opened: Instances) -> None:
    kernel = MicroKernel(opened())
    kernel.repository.run(lambda tx: [tx.add("/a"), *(tx.add(f"/a/{number}") for number in range(300))])
    for name in ("5", "50", "250"):
        before = shown(kernel, depth=0, path="/a")
        kernel.commit("", f'-"/a/{name}" +"/a/other{name}":{{}}')
        changed = shown(kernel, depth=0, path="/a")
        assert changed != before
        assert changed == shown(MicroKernel(opened(cache_bytes=0)), depth=0, path="/a")


@pytest.mark.parametrize("count", [255, 256, 257, 1000])
def test_the_hash_of_a_wide_node_depends_on_its_children_only(opened: Instances, count: int) -> None:
    """Whatever came before: children in another order, one more, and other properties."""
    kernel = MicroKernel(opened())
    names = [f"{number}" for number in range(count)]

    def grow(top: str, order: list[str]) -> Callable[[Transaction], object]:
        return lambda tx: [tx.add(top), *(tx.add(f"{top}/{name}", {"v": name}) for name in order)]

    kernel.repository.run(grow("/a", names))
    kernel.repository.run(grow("/b", [*names[::-1], "more"]))
    wanted = shown(kernel, depth=0, path="/a")[":hash"]
    assert shown(kernel, depth=0, path="/b")[":hash"] != wanted
    for change in ('^"/b/7/v":"x"', '-"/b/more"', '+"/b/9/below":{}', '^"/b/7/v":"7"'):
        kernel.commit("", change)
        assert shown(kernel, depth=0, path="/b")[":hash"] != wanted
    kernel.commit("", '-"/b/9/below"')
    assert shown(kernel, depth=0, path="/b")[":hash"] == wanted
    fresh = MicroKernel(opened(cache_bytes=0))
    assert shown(fresh, depth=0, path="/b")[":hash"] == wanted


def test_a_group_is_visited_again_even_if_no_hash_of_a_node_is_kept(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_groups, "WIDE", 2)
    kernel, other = MicroKernel(opened(cache_bytes=2 * BYTES_PER_HASH)), MicroKernel(opened())
    other.repository.run(lambda tx: [tx.add(f"/{number}") for number in range(7)])
    kernel.repository.refresh()
    shown(kernel, depth=0)
    hashes = instance_of(kernel.repository)._hashes
    kept = [path for path in hashes._kept if path != "/"]
    assert len(kept) == 1
    other.commit("", "".join(f'^"{path}/v":1' for path in kept))
    kernel.repository.refresh()
    assert not hashes._kept
    (groups,) = hashes._groups.values()
    known = [f"/{number}" for number in range(7) if str(number) not in groups.unknown()]
    assert known
    other.commit("", f'^"{known[0]}/v":1')
    kernel.repository.refresh()
    assert shown(kernel, depth=0) == shown(other, depth=0)


def test_groups_of_children_are_bounded_in_bytes(opened: Instances) -> None:
    kernel = MicroKernel(opened(cache_bytes=100 * BYTES_PER_HASH))
    hashes = instance_of(kernel.repository)._hashes
    for name, kept in (("a", 1), ("b" * 100, 0)):
        kernel.repository.run(lambda tx, name=name: [tx.add(f"/{name}{number}") for number in range(300)])
        shown(kernel, depth=0)
        assert len(hashes._groups) == kept
        kernel.repository.run(lambda tx, name=name: [tx.remove(f"/{name}{number}") for number in range(300)])


def test_the_hash_of_a_wide_node_visits_the_children_of_one_group(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = MicroKernel(opened())
    kernel.repository.run(lambda tx: [tx.add("/a"), *(tx.add(f"/a/{number}") for number in range(10_000))])
    first = shown(kernel, depth=0, path="/a")
    visited: list[str] = []
    get = SubtreeHashes._get

    def count(self: SubtreeHashes, path: str, view: View) -> bytes | None:
        visited.append(path)
        return get(self, path, view)

    monkeypatch.setattr(SubtreeHashes, "_get", count)
    for change in ('^"/a/0/v":1', '^"/a/1000/v":1', '+"/a/more":{}', '-"/a/2000"', '-"/a/4000" +"/a/other":{}'):
        kernel.commit("", change)
        visited.clear()
        assert shown(kernel, depth=0, path="/a") != first
        # 128 groups of about 78 children each.
        assert len(visited) < (250 if "-" in change and "+" in change else 150)


def test_a_hash_of_an_old_revision_is_not_that_of_the_head(opened: Instances) -> None:
    kernel = MicroKernel(opened())
    kernel.commit("", '+"/a":{"p":1,"b":{}}')
    old, first = kernel.get_head_revision(), shown(kernel)
    kernel.commit("", '^"/a/p":2')
    second = shown(kernel)
    assert first[":hash"] != second[":hash"]
    assert first["a"]["b"] == second["a"]["b"]
    assert shown(kernel, old) == first
    assert shown(kernel) == second
    branch = kernel.commit("", '^"/a/b/p":1', kernel.branch())
    assert shown(kernel, branch)["a"]["b"] != second["a"]["b"]
    assert shown(kernel) == second


def test_the_hash_of_a_subtree_costs_what_has_changed(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    kernel, other = MicroKernel(opened(store)), MicroKernel(opened())
    kernel.repository.run(
        lambda tx: [tx.add("/a"), tx.add("/b"), *(tx.add(f"/{top}/{n}", {"v": n}) for top in "ab" for n in range(900))]
    )
    first = shown(kernel, depth=0)
    store.take()
    assert shown(kernel, depth=0) == first
    assert shown(kernel, depth=0, path="/a/7") != first
    assert store.take() == {}
    other.repository.refresh()
    other.commit("", '^"/b/7/v":-1')
    kernel.repository.refresh()
    store.take()
    store.traffic()
    assert shown(kernel, depth=0) != first
    assert sum(store.take().values()) <= 1
    assert store.traffic("journal").rows_read <= 1
    assert shown(kernel, depth=0, path="/a") == shown(other, depth=0, path="/a")


def test_the_hash_of_a_tree_that_the_cache_does_not_hold_costs_what_has_changed(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    kernel, other = MicroKernel(opened(store, cache_bytes=2_000_000)), MicroKernel(opened())
    other.repository.run(
        lambda tx: [tx.add("/a"), tx.add("/b"), *(tx.add(f"/{top}/{n}", {"v": n}) for top in "ab" for n in range(900))]
    )
    kernel.repository.refresh()
    shown(kernel, depth=0)
    other.commit("", "".join(f'^"/{top}/{n}/v":-1' for top in "ab" for n in range(5)))
    kernel.repository.refresh()
    store.take()
    store.traffic()
    changed = shown(kernel, depth=0)
    # The root, its two children and ten leaves: the node and its children.
    assert store.traffic().rows_read <= 26
    assert sum(store.take().values()) <= 6
    assert changed == shown(MicroKernel(opened(cache_bytes=0)), depth=0)


def test_a_hash_is_found_after_the_revision_that_showed_it_was_collected(
    writer_and_reader: tuple[MicroKernel, MicroKernel],
) -> None:
    """A client that kept a hash for longer than the retention lost it, though the subtree had not changed."""
    writer, kernel = writer_and_reader
    writer.commit("", '+"/a":{"p":1} +"/b":{"q":1,"c":{}} +"/d":{}')
    if kernel is not writer:
        kernel.repository.refresh()
    changed, unchanged, removed = (shown(kernel, None, 0, path)[":hash"] for path in ("/a", "/b", "/d"))
    collect_after(writer, '^"/a/p":2', '^"/a/p":3', '-"/d" +"/e":{}')
    if kernel is not writer:
        kernel.repository.refresh()
    assert json.loads(str(kernel.get_nodes(unchanged))) == {
        **{"q": 1, ":childNodeCount": 1},
        "c": {":childNodeCount": 0},
    }
    for value in (changed, removed):
        with pytest.raises(RevisionCollectedError):
            kernel.get_nodes(value)


def test_a_hash_that_a_branch_showed_last_is_found_after_the_branch_has_ended(opened: Instances) -> None:
    kernel = MicroKernel(opened())
    kernel.commit("", '+"/a":{"p":1} +"/b":{}')
    value = shown(kernel, None, 0, "/a")[":hash"]
    branch = kernel.commit("", '^"/b/x":1', kernel.branch())
    assert shown(kernel, branch, 0, "/a")[":hash"] == value
    repo = kernel.repository
    repo.resume_branch(branch).abandon()
    repo.sweep_branches(0)
    assert json.loads(str(kernel.get_nodes(value)))["p"] == 1
