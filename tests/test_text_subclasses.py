"""Texts of a subclass of str, such as the members of an enum, mean the same as plain ones everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hbasemk import MicroKernel, Repository
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import Checked, tree


class Odd(str):
    """A text that shows another one, and adds others, as members of an enum and safe texts of templates do."""

    def __str__(self) -> str:
        return f"Odd.{super().__str__()}"

    def __format__(self, _: str) -> str:
        return "Odd"

    def __add__(self, other: str) -> str:
        return f"Odd{other}"

    def __radd__(self, other: str) -> str:
        return f"{other}Odd"


def plain(text: str) -> str:
    return text


def types_in(found: Any) -> set[type]:
    """Return the types of all texts in nested lists, tuples and mappings."""
    if isinstance(found, str):
        return {type(found)}
    parts = [*found, *found.values()] if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else []
    return set().union(*map(types_in, parts))


def changed(repo: Repository, text: Callable[[str], str]) -> list[Any]:
    """Call each method that takes a path or a name; return what it returns, and what the tree then is."""
    t = text

    def change(tx: Any) -> list[Any]:
        tx.add(t("/a"), {t("x"): t("one"), t("y"): [t("two")]})
        for path in ("/a/b", "/a/b/c", "/a/b/c/d", "/e", "/e/f"):
            tx.add(t(path))
        tx.set(t("/a/b"), t("n"), t("value"))
        tx.update(t("/a/b"), {t("m"): 1, t("k"): None})
        tx.increment(t("/a"), t("i"), 2)
        tx.adjust(t("/a"), t("j"), 3)
        tx.unset(t("/a"), t("y"))
        tx.expect(t("/nothing"), None)
        tx.copy(t("/a"), t("/copy"))
        tx.move(t("/a/b"), t("/e/moved"))
        tx.remove(t("/e/f"))
        return [
            tx.exists(t("/a")),
            t("/a") in tx,
            tx.get(t("/a"), t("x")),
            tx[t("/a"), t("x")],
            tx.properties(t("/e/moved")),
            tx.children(t("/e"), after=t("a")),
            tx.load([t("/a"), t("/copy")]),
            tx.subtree(t("/copy")),
        ]

    found: list[Any] = [repo.run(change, t("a message"))]
    repo.run(lambda tx: tx.remove(t("/e/moved")))
    head = repo.head
    found += [
        head[t("/copy")].path,
        [node.path for node in head.walk(t("/copy"))],
        dict(head[t("/copy")]),
        head[t("/copy")].child(t("b")).path,
        t("/copy/b") in head,
        head.get(t("/copy/b")).path,  # type: ignore[union-attr]
        list(head.nodes([t("/copy"), t("/e/moved")])),
        list(head.status([t("/copy"), t("/e/moved")])),
        head.children(t("/copy"), after=t("a")),
        head.child_count(t("/copy")),
        [[change.path for change in entry.changes] for entry in repo.log(t("/copy"))],
        [change.path for change in repo.diff(repo.at(list(repo.log())[-1].revision), path=t("/copy"))],
    ]
    return [*found, tree(repo)]


def test_every_method_takes_them_as_plain_texts(checked: Checked) -> None:
    found = []
    for text in (plain, Odd):
        with Repository(checked(MemoryStore()), poll_interval=0) as repo:
            found.append(changed(repo, text))
    assert found[1] == found[0]
    assert types_in(found) == {str}


def test_a_read_leaves_no_odd_text_in_the_cache(real_store: MemoryStore) -> None:
    with Repository(real_store, owns_store=False, poll_interval=0) as first:
        first.run(lambda tx: (tx.add("/a"), tx.add("/a/b")))
    with Repository(real_store, poll_interval=0) as repo:
        assert repo.head[Odd("/a")].children == ["b"]
        assert Odd("/a/b") in repo.head
        assert repo.head["/a"].child("b").path == "/a/b"
        repo.run(lambda tx: tx.remove("/a"))


def test_a_removal_removes_the_nodes_below(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        repo.run(lambda tx: (tx.add("/a"), tx.add("/a/b")))
        # From now on the cache has them.
        assert len(list(repo.head.walk())) == 3
        repo.run(lambda tx: tx.remove(Odd("/a")))
        assert [node.path for node in repo.head.walk()] == ["/"]


def test_a_rebase_marks_the_conflict_at_the_plain_path(real_store: MemoryStore) -> None:
    with Repository(real_store, owns_store=False, poll_interval=0) as first:
        first.run(lambda tx: tx.add("/a"))
    with Repository(real_store, poll_interval=0) as repo:
        branch = repo.branch()
        branch.run(lambda tx: tx.set(Odd("/a"), "x", 1))
        repo.run(lambda tx: tx.set("/a", "x", 2))
        branch.rebase()
        assert [node.path for node in branch.head.walk("/a")] == [
            "/a",
            "/a/:conflict",
            "/a/:conflict/addExistingProperty",
        ]


def test_a_watch_returns_the_changes_below_the_path(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        repo.run(lambda tx: (tx.add("/a"), tx.add("/b")))
        watch = repo.watch(Odd("/a"), timeout=0)
        repo.run(lambda tx: tx.add("/a/b"))
        repo.run(lambda tx: tx.add("/b/c"))
        assert [[change.path for change in entry.changes] for entry in watch] == [["/a", "/a/b"]]


def test_the_microkernel_takes_them_as_plain_texts(checked: Checked) -> None:
    found = []
    for text in (plain, Odd):
        with Repository(checked(MemoryStore()), poll_interval=0) as repo:
            kernel = MicroKernel(repo)
            kernel.commit(text("/"), text('+"a": {"b": {"c": {}}} +"d": {}'), None, text("a message"))
            head = kernel.commit(text("/a"), text('>"b": "/d/b"'), None, None)
            found.append(
                [
                    kernel.get_nodes(text("/"), text(head), 9),
                    kernel.node_exists(text("/d/b/c")),
                    kernel.get_child_node_count(text("/d/b")),
                    [sorted(json.loads(kernel.get_nodes(text("/d"), None, 0)))],
                    kernel.diff(None, None, text("/d")),
                ]
            )
            kernel.commit(text("/"), text('-"d"'), None, None)
    assert found[1] == found[0]
    assert types_in(found) == {str}
