"""A cached list of children stays right when revisions add and remove children, without a store call.

``HBASEMK_TEST_SEED`` sets the seed of the random parts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from hbasemk import Repository, Snapshot, Transaction
from hbasemk.kernel.reading import changed_lists
from hbasemk.kernel.reading.changed_lists import ChangedLists
from hbasemk.kernel.reading.memory_sizes import size_of_names
from hbasemk.repository import instance_of
from hbasemk.testing.wrapped import CountingStore
from tests.support.folding import fold
from tests.support.repositories import Instances
from tests.support.uncached import without_cache

SEED = int(os.environ.get("HBASEMK_TEST_SEED", "1"))


def uncached(repo: Repository, snapshot: Snapshot, path: str) -> list[str]:
    with without_cache(instance_of(repo)):
        return snapshot.children(path)


CHANGES: dict[str, Callable[[Transaction], object]] = {
    "add a first child": lambda tx: tx.add("/w/0"),
    "add a last child": lambda tx: tx.add("/w/\U0001f600"),
    "add between": lambda tx: tx.add("/w/c"),
    "add several": lambda tx: [tx.add(f"/w/{name}") for name in "zxcy"],
    "remove": lambda tx: tx.remove("/w/b"),
    "remove and add": lambda tx: (tx.remove("/w/b"), tx.add("/w/a1")),
    "replace a child": lambda tx: (tx.remove("/w/b"), tx.add("/w/b", {"n": 1})),
    "move out": lambda tx: tx.move("/w/d", "/d"),
    "move within": lambda tx: tx.move("/w/d", "/w/a0"),
    "copy": lambda tx: tx.copy("/w/b", "/w/copy"),
    "remove all": lambda tx: [tx.remove(f"/w/{name}") for name in "bd"],
}


@pytest.mark.parametrize("by", ["itself", "another process"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_list_is_right_after_a_change_without_a_call(
    opened: Instances, by: str, change: Callable[[Transaction], object]
) -> None:
    counting = CountingStore(opened.new_store())
    one, two = opened(), opened(counting)
    one.run(lambda tx: (tx.add("/w"), tx.add("/w/b"), tx.add("/w/d")))
    before = two.refresh()
    assert before.children("/w") == ["b", "d"]
    (two if by == "itself" else one).run(change)
    head = two.refresh()
    counting.take()
    names = head.children("/w")
    assert head.children("/w", limit=1) == names[:1]
    # Whether a node without children exists is another question.
    assert not names or counting.take() == {}
    assert names == uncached(two, head, "/w")
    assert before.children("/w") == ["b", "d"]
    assert head.children("/w") == names


@pytest.mark.parametrize("is_replaced", [False, True], ids=["new", "replaced"])
def test_an_own_new_subtree_is_read_without_a_call(opened: Instances, is_replaced: bool) -> None:
    counting = CountingStore(opened.new_store())
    repo = opened(counting)
    if is_replaced:
        repo.run(lambda tx: [tx.add(path) for path in ("/w", "/w/a", "/w/old", "/w/old/x")])
        assert len(list(repo.head.walk("/w"))) == 4
    added = ["/w", "/w/b", "/w/a", "/w/a/2", "/w/a/1", "/w/c"]
    repo.run(lambda tx: ([tx.remove("/w")] if is_replaced else [], [tx.add(path, {"n": 1}) for path in added]))
    counting.take()
    head = repo.head
    assert [node.path for node in head.walk("/w")] == ["/w", "/w/a", "/w/b", "/w/c", "/w/a/1", "/w/a/2"]
    assert head.children("/w") == ["a", "b", "c"]
    assert head.children("/w/a/1") == []
    repo.run(lambda tx: (tx.add("/w/b/3"), tx.add("/w/b/3/deep"), tx.remove("/w/a/2")))
    counting.take()
    head = repo.head
    assert [node.path for node in head.walk("/w")][4:] == ["/w/a/1", "/w/b/3", "/w/b/3/deep"]
    assert head.children("/w/a") == ["1"]
    assert counting.take() == {}
    for path in ("/w", "/w/a", "/w/b", "/w/b/3", "/w/b/3/deep"):
        assert head.children(path) == uncached(repo, head, path)


def test_a_fold_keeps_the_list(opened: Instances) -> None:
    counting = CountingStore(opened.new_store())
    repo = opened(counting)
    repo.run(lambda tx: (tx.add("/w", {"n": 0}), tx.add("/w/a")))
    repo.run(lambda tx: tx.adjust("/w", "n", 1))
    assert repo.head.children("/w") == ["a"]
    assert fold(instance_of(repo), "/w", "n")
    counting.take()
    assert repo.head.children("/w") == ["a"]
    assert counting.take() == {}


def test_a_list_of_a_node_that_was_replaced_is_read_again(opened: Instances) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: [tx.add(path) for path in ("/w", "/w/a", "/w/b")])
    assert two.refresh().children("/w") == ["a", "b"]
    one.run(lambda tx: tx.add("/w/c"))
    one.run(lambda tx: (tx.remove("/w"), tx.add("/w"), tx.add("/w/d")))
    assert two.refresh().children("/w") == ["d"]
    one.run(lambda tx: tx.remove("/w"))
    one.run(lambda tx: tx.add("/w"))
    assert two.refresh().children("/w") == []


def test_a_held_snapshot_shows_the_list_of_its_revision(opened: Instances) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: tx.add("/w"))
    held = []
    for number in range(5):
        one.run(lambda tx, number=number: tx.add(f"/w/{number}"))
        held.append(two.refresh())
        if number % 2:
            assert len(two.head.children("/w")) == number + 1
    for _ in range(2):
        assert [len(snapshot.children("/w")) for snapshot in held] == [1, 2, 3, 4, 5]
    branch = two.branch()
    branch.run(lambda tx: tx.add("/w/branch"))
    one.run(lambda tx: tx.add("/w/trunk"))
    assert two.refresh().children("/w") == ["0", "1", "2", "3", "4", "trunk"]
    assert branch.head.children("/w") == ["0", "1", "2", "3", "4", "branch"]


@pytest.mark.parametrize("seed", range(4))
def test_lists_are_right_after_random_changes_of_two_processes(opened: Instances, seed: int) -> None:
    print(f"repeat with HBASEMK_TEST_SEED={SEED}")
    chance = random.Random(f"{SEED} {seed}")
    repos = opened(), opened()
    folders = ["/p", "/q", "/p/s"]
    repos[0].run(lambda tx: [tx.add(path) for path in folders])
    held: list[tuple[Repository, Snapshot, str, list[str]]] = []
    for _ in range(120):
        repo = chance.choice(repos)
        folder, name = chance.choice(folders), f"{chance.randrange(12):02}"
        path = f"{folder}/{name}"
        there = path in repo.refresh()
        kind = chance.random()

        def change(tx: Transaction, path: str = path, there: bool = there, kind: float = kind) -> None:
            if not there:
                tx.add(path, {"n": 1})
            elif kind < 0.5:
                tx.remove(path)
            elif kind < 0.6:
                tx.remove(path)
                tx.add(path)
            else:
                tx.set(path, "n", kind)

        repo.run(change)
        reader = chance.choice(repos)
        snapshot = reader.refresh()
        folder = chance.choice(folders)
        names = snapshot.children(folder)
        assert names == uncached(reader, snapshot, folder)
        held = [*held[-10:], (reader, snapshot, folder, names)]
        reader, snapshot, folder, names = chance.choice(held)
        assert snapshot.children(folder) == names


def test_changed_lists_agree_with_a_model() -> None:
    print(f"repeat with HBASEMK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    lists = ChangedLists(1 << 20)
    position = 0
    for _ in range(200):
        model = set(chance.sample("abcdefghij\uffff\U00010000", chance.randint(1, 8)))
        lists.keep("/w", position, sorted(model), size_of_names(sorted(model)))
        for _ in range(chance.randint(1, 6)):
            position += chance.randint(1, 3)
            added, removed = (chance.sample("abcdefghijkl", chance.randrange(3)) for _ in range(2))
            added = [name for name in added if name not in removed]
            lists.change("/w", position, added, removed)
            model = model.difference(removed).union(added)
        assert "/w" in lists
        taken, names, size = lists.take("/w")
        assert (taken, names) == (position, sorted(model))
        assert not names or size == size_of_names(names)
        assert lists.size == 0
        assert "/w" not in lists


def test_the_lists_that_were_kept_first_make_room() -> None:
    lists = ChangedLists(10_000)
    for number in range(5):
        lists.keep(f"/{number}", -1, ["a"], 2500)
        lists.change(f"/{number}", number, ["b"], [])
    assert [f"/{number}" in lists for number in range(5)] == [False, False, True, True, True]
    size = lists.size
    assert 9000 < size <= 10_000
    lists.keep("/3", -1, ["a"], 10_000)  # with what surrounds the names, larger than all lists together may be
    assert [f"/{number}" in lists for number in range(5)] == [False, False, True, False, True]
    lists.drop("/2")
    assert lists.size == size / 3
    lists.clear()
    assert lists.size == 0
    assert "/4" not in lists


def test_changed_names_need_room_too() -> None:
    lists = ChangedLists(10_000)
    lists.keep("/v", -1, ["a"], 100)
    lists.keep("/w", -1, ["a"], 100)
    size = lists.size
    lists.change("/w", 1, ["b"], [])
    grown = lists.size - size
    assert grown > 100
    lists.change("/w", 2, [], ["b"])
    assert lists.size == size + grown
    lists.change("/w", 3, [f"name {number}" for number in range(52)], [])
    assert "/v" not in lists
    assert "/w" in lists
    lists.change("/w", 4, [f"other {number}" for number in range(60)], [])
    assert "/w" not in lists
    assert lists.size == 0


def test_a_list_with_many_changes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_lists, "MOST_CHANGED", 4)
    lists = ChangedLists(10_000)
    lists.keep("/w", -1, ["a"], 100)
    lists.change("/w", 1, "bcd", "a")
    lists.change("/w", 2, "bcd", "a")
    assert "/w" in lists
    lists.change("/w", 3, "e", [])
    assert "/w" not in lists
    assert lists.size == 0


def test_changed_lists_count_as_bytes_of_the_cache(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: [tx.add(path) for path in ("/w", "/w/a")])
    repo.head.children("/w")
    before = repo.cache_statistics.bytes
    repo.run(lambda tx: tx.add("/w/b"))
    assert instance_of(repo).cache._changed.size > 0
    assert repo.cache_statistics.bytes > before
    repo.head.children("/w")
    assert instance_of(repo).cache._changed.size == 0
