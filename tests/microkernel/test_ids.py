"""``:id`` changes only with the subtree: a client keeps what it has read, and asks only for what has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hbasemk import MicroKernel, RevisionCollectedError
from hbasemk.check import IntegrityCheck
from hbasemk.kernel.reading import last_changes
from hbasemk.kernel.reading.last_changes import LastChanges
from hbasemk.repository import instance_of
from hbasemk.testing.wrapped import CountingStore
from tests.support.microkernel import Cluster, collect_after, random_change
from tests.support.repositories import Instances
from tests.support.seeds import random_of_test

CHOSEN = '{"properties":["*",":id"]}'


def shown(kernel: MicroKernel, path: str = "/", revision: str | None = None, depth: int = 9) -> dict[str, Any]:
    text = kernel.get_nodes(path, revision, depth, 0, -1, CHOSEN)
    assert text is not None, path
    found: dict[str, Any] = json.loads(text)
    return found


def ids(found: dict[str, Any], path: str = "/") -> dict[str, str]:
    """Return the ids of a tree's nodes by path."""
    result = {path: found[":id"]}
    for name, child in found.items():
        if isinstance(child, dict):
            result.update(ids(child, path.rstrip("/") + "/" + name))
    return result


def without_ids(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: without_ids(value) if isinstance(value, dict) else value for name, value in found.items() if name != ":id"
    }


def below(found: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split("/")[1:] if path != "/" else ():
        found = found[name]
    return found


def test_an_id_stays_until_a_commit_touches_the_subtree(mk: Cluster) -> None:
    kernel, other = mk.kernels[0], mk.kernels[-1]
    kernel.commit("", '+"/a":{"b":{"c":{"p":1}},"d":{}} +"/e":{"f":{}}')
    before = ids(shown(kernel))
    other.repository.refresh()
    other.commit("", '^"/a/b/c/p":2')
    kernel.repository.refresh()
    after = ids(shown(kernel))
    assert {path for path in before if before[path] != after[path]} == {"/", "/a", "/a/b", "/a/b/c"}
    kernel.commit("", '-"/a/d" +"/e/f/g":{}')
    last = ids(shown(kernel))
    assert {path for path in last if last[path] != after.get(path)} == {"/", "/a", "/e", "/e/f", "/e/f/g"}
    assert shown(kernel, last["/a/b"]) == shown(kernel, "/a/b")
    assert without_ids(shown(kernel, before["/a"])) == {
        **{":childNodeCount": 2, "d": {":childNodeCount": 0}},
        "b": {":childNodeCount": 1, "c": {"p": 1, ":childNodeCount": 0}},
    }


def test_ids_cost_no_call(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    kernel, other = MicroKernel(opened(store)), MicroKernel(opened())
    kernel.commit("", '+"/a":{"b":{"p":1}} +"/c":{}')
    before = shown(kernel, "/a/b", depth=0)[":id"]
    other.repository.refresh()
    other.commit("", '^"/c/x":1')
    kernel.repository.refresh()
    store.take()
    assert shown(kernel, "/a/b", depth=0)[":id"] == before
    assert shown(kernel, before, depth=0)[":id"] == before
    assert store.take() == {}


def _compare(opened: Instances, first: int = 0) -> None:
    """Make 40 random changes; the nodes that they add are numbered from ``first``."""
    chance = random_of_test()
    kernels = [MicroKernel(opened()), MicroKernel(opened(cache_bytes=chance.choice((0, 5_000, 20_000))))]
    known: dict[str, dict[str, Any]] = {}
    for number in range(first, first + 40):
        random_change(chance, chance.choice(kernels), number)
        for kernel in kernels:
            if chance.random() < 0.6:
                kernel.repository.refresh()
            head = kernel.get_head_revision()
            branch = kernel.commit("", f'+"/branch{number}":{{}}', kernel.branch()) if number % 8 == 7 else head
            for revision in (head, branch):
                tree = shown(kernel, "/", revision)
                for path, name in ids(tree).items():
                    subtree = without_ids(below(tree, path))
                    assert known.setdefault(name, subtree) == subtree, name
    for name, subtree in chance.sample(list(known.items()), 10):
        for kernel in kernels:
            kernel.repository.refresh()
            assert without_ids(shown(kernel, name)) == subtree


def test_equal_ids_have_equal_subtrees_and_are_found_by_them(opened: Instances) -> None:
    _compare(opened)


def _only_the_touched_ones(self: LastChanges, change: Any, touched: Iterable[str]) -> None:
    self._touched.update(dict.fromkeys(touched, change))


def _keep_the_begin(self: LastChanges) -> None:
    self._touched = {}


@pytest.mark.parametrize(
    ("name", "broken"),
    [("_record", _only_the_touched_ones), ("_record", lambda *_: None), ("_start_again", _keep_the_begin)],
    ids=["ancestors", "all", "begin"],
)
def test_ids_that_are_kept_too_long_are_found(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., None]
) -> None:
    monkeypatch.setattr(last_changes.LastChanges, name, broken)
    with pytest.raises(AssertionError):
        for turn in range(20):
            _compare(opened, 40 * turn)


def test_an_id_whose_revision_was_collected_is_refused_unless_its_subtree_is_unchanged(
    writer_and_reader: tuple[MicroKernel, MicroKernel],
) -> None:
    writer, kernel = writer_and_reader
    writer.commit("", '+"/a":{"p":1} +"/b":{"q":1}')
    changed, unchanged = (shown(writer, path, depth=0)[":id"] for path in ("/a", "/b"))
    collect_after(writer, '^"/a/p":2', '^"/a/p":3', '+"/c":{}')
    if kernel is not writer:
        kernel.repository.refresh()
    with pytest.raises(RevisionCollectedError) as raised:
        shown(kernel, changed, depth=0)
    assert raised.value.oldest in str(raised.value)
    assert shown(kernel, shown(kernel, "/a", depth=0)[":id"], depth=0)["p"] == 3
    if kernel is writer:
        assert shown(kernel, unchanged, depth=0)["q"] == 1
    assert [str(problem) for problem in IntegrityCheck(instance_of(writer.repository)).run()] == []
