"""``diff`` with a depth: what it shows, and what that costs."""

from __future__ import annotations

import pytest

from hbasemk import MicroKernel, jsop
from hbasemk.format import revisions
from hbasemk.kernel import diff as kernel_diff
from hbasemk.microkernel.jsop_diff import operations_of
from hbasemk.repository import instance_of
from hbasemk.testing.wrapped import CountingStore
from tests.support.microkernel import Cluster, random_change
from tests.support.repositories import Instances
from tests.support.seeds import random_of_test


def test_an_added_subtree_is_cut_at_the_depth(mk: Cluster) -> None:
    first = mk.commit("/", '+"a":{"l":1,"x":{"l":2,"y":{}}}')
    second = mk.commit("/", '>"a":"b"')
    assert mk.diff(first, second, "/b", 0) == '+"/b":{"l":1}'
    assert mk.diff(first, second, "/b", 1) == '+"/b":{"l":1,"x":{"l":2}}'
    assert mk.diff(first, second, "/b", 2) == mk.diff(first, second, "/b", -1) == '+"/b":{"l":1,"x":{"l":2,"y":{}}}'
    assert mk.diff(first, second, "/", 0) == '-"/a"\n+"/b":{"l":1}'
    assert mk.diff(first, second, "/", 2) == '-"/a"\n+"/b":{"l":1,"x":{"l":2}}'


def test_a_subtree_that_was_changed_and_changed_back_below_the_depth_is_not_shown(mk: Cluster) -> None:
    first = mk.commit("/", '+"a":{"b":{"c":{"p":1}}} +"d":{"b":{"c":{"p":1}}}')
    mk.commit("/", '^"a/b/c/p":2 ^"d/b/c/p":2 +"a/b/n":{"o":{}}')
    second = mk.commit("/", '^"a/b/c/p":1 -"a/b/n"')
    assert mk.diff(first, second, "/", 0) == mk.diff(second, first, "/", 0) == '^"/d":{}'


def test_a_removed_node_that_came_back_is_compared_below_the_depth(mk: Cluster) -> None:
    first = mk.commit("/", '+"a":{"b":{"c":{"p":1}}}')
    mk.commit("/", '-"a"')
    same = mk.commit("/", '+"a":{"b":{"c":{"p":1}}}')
    other = mk.commit("/", '^"a/b/c/p":2')
    for depth in range(4):
        assert mk.diff(first, same, "/", depth) == ""
    assert mk.diff(first, other, "/", 1) == '^"/a/b":{}'


def test_a_hidden_node_does_not_represent_a_subtree_in_which_others_differ(mk: Cluster) -> None:
    first = mk.commit("/", '+"a":{"x":{"y":{}}}')
    with mk.next.repository.transaction() as tx:
        # The Python API does not reserve the name. Its path sorts before that of the other node.
        tx.add("/a/x/:id")
        tx.set("/a/x/y", "p", 1)
    second = mk.get_head_revision()
    assert mk.diff(first, second, "/", 0) == '^"/a":{}'


def test_a_subtree_in_which_only_reserved_properties_differ_is_not_shown(mk: Cluster) -> None:
    first = mk.commit("/", '+"a":{"b":{"c":{}}} +"d":{"b":{"c":{}}}')
    with mk.next.repository.transaction() as tx:
        tx.set("/a/b/c", ":id", 1)
        # The first of the two does not show, and must not represent the second one.
        tx.set("/d/b", ":hash", "x")
        tx.set("/d/b/c", "p", 1)
    second = mk.get_head_revision()
    assert [mk.diff(first, second, "/a", depth) for depth in (-1, 0, 1, 2)] == [""] * 4
    assert mk.diff(first, second, "/", 0) == '^"/d":{}'


def test_a_diff_with_a_depth_equals_the_whole_diff_cut_at_that_depth(opened: Instances) -> None:
    chance = random_of_test()
    kernel = MicroKernel(opened())
    instance = instance_of(kernel.repository)
    added = '{"p":1,"x":{"q":2,"y":{"z":{}}}}'
    ids = [kernel.get_head_revision(), *(random_change(chance, kernel, number, added) for number in range(40))]
    for _ in range(60):
        first, second = (instance.at(revisions.from_text(chance.choice(ids))) for _ in range(2))
        tops = ["/", *(node.path for node in kernel.repository.at(f"{second.revision:016x}").walk())]
        top, depth = chance.choice(tops), chance.randrange(5)
        whole = jsop.write(operations_of(kernel_diff.diff(instance, first, second, top), top, depth))
        cut = jsop.write(operations_of(kernel_diff.diff(instance, first, second, top, depth), top, depth))
        assert cut == whole, (first.revision, second.revision, top, depth)


@pytest.mark.no_cover
@pytest.mark.parametrize("change", ["added", "removed", "changed"])
def test_the_cost_of_a_diff_with_a_depth_depends_on_what_it_shows(opened: Instances, change: str) -> None:
    store = CountingStore(opened.new_store())
    kernel = MicroKernel(opened(store, cache_bytes=0))
    empty = kernel.get_head_revision()
    kernel.repository.run(
        lambda tx: [tx.add("/a"), tx.add("/a/b"), *(tx.add(f"/a/b/{number}", {"v": 0}) for number in range(2000))]
    )
    full = kernel.get_head_revision()
    kernel.repository.run(lambda tx: [tx.set(f"/a/b/{number}", "v", 1) for number in range(2000)])
    first, second, expected = {
        "added": (empty, full, '+"/a":{}'),
        "removed": (full, empty, '-"/a"'),
        "changed": (full, kernel.get_head_revision(), '^"/a/b":{}'),
    }[change]
    store.traffic()
    store.take()
    assert kernel.diff(first, second, "/", 0 if change == "added" else 1) == expected
    calls = store.take()
    assert sum(calls.values()) <= 5, calls
    assert store.traffic("journal").rows_read <= 6
