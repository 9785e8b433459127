"""Log entries, journals and watches explain the trees of a random history that several instances make."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from hbasemk import ConflictError, HbasemkError, LogEntry, MicroKernel, Snapshot, Transaction, jsop
from hbasemk.kernel import feed
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances, instances
from tests.support.seeds import random_of_test
from tests.support.transaction_model import is_within

Node: TypeAlias = tuple[str, dict[str, Any]]
"""The revision that created a node, and its properties."""
Tree: TypeAlias = dict[str, Node]
STEPS: Final = 120
KINDS: Final = ("add", "add", "add", "set", "set", "unset", "remove", "again", "move", "copy", "adjust", "increment")


def _copy(snapshot: Snapshot) -> Tree:
    return {node.path: (node.created, dict(node)) for node in snapshot.walk()}


def _children(tree: Tree, path: str) -> dict[str, str]:
    """Return the revisions that created the children of a node, by name."""
    return {
        one.rpartition("/")[2]: tree[one][0] for one in tree if one != "/" and (one.rpartition("/")[0] or "/") == path
    }


def _changed(before: Tree, after: Tree) -> dict[str, tuple[str, set[str]]]:
    """Return the kind of change of each node that differs, with the names of the changed properties of a changed one."""
    found: dict[str, tuple[str, set[str]]] = {}
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if new is None:
            found[path] = "removed", set()
        elif old is None or old[0] != new[0]:
            found[path] = "added", set()
        else:
            names = {one for one in old[1].keys() | new[1].keys() if repr(old[1].get(one)) != repr(new[1].get(one))}
            if names or _children(before, path) != _children(after, path):
                found[path] = "changed", names
    return found


def _apply(tree: Tree, text: str) -> dict[str, dict[str, Any]]:
    """Apply JSOP of a journal to a tree; return properties by path, as JSON."""
    found = {path: {name: json.dumps(value) for name, value in kept.items()} for path, (_, kept) in tree.items()}
    for one in jsop.parse(text):
        if isinstance(one, jsop.Remove):
            found = {path: kept for path, kept in found.items() if not is_within(path, one.path)}
        elif isinstance(one, jsop.AddNode):
            for path, node in one.node.walk(one.path):
                found[path] = {name: jsop.write_value(value) for name, value in node.properties.items()}
        else:
            assert isinstance(one, jsop.SetProperty)
            found[one.path].pop(one.name, None)
            if one.value is not None:
                found[one.path][one.name] = jsop.write_value(one.value)
    return found


class History:
    """A random history. ``entries`` and ``trees`` hold its revisions in the order in which the last instance sees them."""

    def __init__(self, chance: random.Random, opened: Instances) -> None:
        self.chance = chance
        self.stores = [FaultyStore(opened.new_store()) for _ in range(3)]
        self.repositories = [opened(store) for store in self.stores]
        self.observer = self.repositories[-1]
        self.watch = self.observer.watch("/", 0, since=self.observer.head)
        self.entries: list[LogEntry] = []
        self.trees = [_copy(self.observer.head)]

    def record(self) -> None:
        """Copy the tree of each new revision."""
        for entry in self.watch:
            self.entries.append(entry)
            self.trees.append(_copy(self.observer.at(entry.revision)))
        self.watch = self.observer.watch("/", 0, since=self.watch.resume_token)

    def commit(self, which: int) -> None:
        """Commit a random transaction or branch; sometimes another instance commits before one of its calls."""
        repository = self.repositories[which]
        base = repository.head if self.chance.random() < 0.3 else repository.refresh()
        left = self.chance.choice((0, 1, 2, 3, 1000))

        def before(_: Call) -> None:
            nonlocal left
            left -= 1
            if left == 0 and which:
                self.commit(which - 1)

        self.stores[which].before = before
        with suppress(HbasemkError):
            if self.chance.random() < 0.2:
                branch = repository.branch(base=base)
                for _ in range(2):
                    branch.run(self._change)
                try:
                    branch.merge()
                except ConflictError:
                    branch.rebase()
                    branch.merge()
            else:
                with repository.transaction(base=base) as tx:
                    self._change(tx)
        self.stores[which].before = None

    def _change(self, tx: Transaction) -> None:
        """Take some random operations that are valid on what the transaction shows."""
        for kind in self.chance.choices(KINDS, k=self.chance.choice((1, 1, 2, 3))):
            paths = [path for path, _ in tx.subtree("/")]
            path = self.chance.choice(paths)
            new = f"{self.chance.choice(paths).rstrip('/')}/{self.chance.choice('abc')}"
            name, value = self.chance.choice("pq"), self.chance.choice((0, 1, 2, "x"))
            if kind == "set":
                tx.set(path, name, value)
            elif kind == "unset":
                tx.unset(path, name)
            elif kind in ("adjust", "increment"):
                # Not one property with both: together they may write the value that it had.
                getattr(tx, kind)(path, kind, self.chance.choice((1, 2)))
            elif path != "/" and (kind in ("remove", "again") or len(paths) > 40):
                tx.remove(path)
                if kind == "again":
                    tx.add(path, {name: value})
            elif kind == "add" and new not in paths:
                tx.add(new, {name: value})
            elif kind in ("move", "copy") and path != "/" and new not in paths and not is_within(new, path):
                getattr(tx, kind)(path, new)


class Chain:
    """A watch that moves between instances as a token."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.begin = len(history.entries)
        self.path = history.chance.choice(("/", "/a", "/b", "/a/b"))
        self.token = history.observer.watch(self.path, 0, since=history.observer.head).resume_token
        self.revisions: list[str] = []

    def take(self, most: int) -> None:
        """Take at most so many entries in a random instance."""
        repository = self.history.chance.choice(self.history.repositories)
        with repository.watch(self.path, 0, since=self.token) as watch:
            self.revisions += [entry.revision for entry in islice(watch, most)]
            self.token = watch.resume_token


def _check_entry(before: Tree, after: Tree, entry: LogEntry, *, exact: bool) -> None:
    expected = _changed(before, after)
    found = {one.path: one for one in entry.changes}
    assert len(found) == len(entry.changes)
    assert expected.keys() == found.keys() if exact else expected.keys() <= found.keys()
    for path, (kind, names) in expected.items():
        written = {*found[path].properties, *(name for name, *_ in found[path].adjusted)}
        assert found[path].kind == kind
        assert kind != "changed" or (names == written if exact else names <= written)


def _check_journal(history: History) -> None:
    """Compare a part of the MicroKernel's journal with the trees."""
    first, last = sorted(history.chance.choices(range(len(history.entries)), k=2))
    kernel = MicroKernel(history.observer)
    entries = history.entries[first : last + 1]
    found = json.loads(kernel.get_journal(entries[0].revision, entries[-1].revision))
    assert [one["id"] for one in found] == [entry.revision for entry in entries]
    for number, one in enumerate(found, start=first):
        assert _apply(history.trees[number], one["changes"]) == _apply(history.trees[number + 1], "")


@pytest.fixture(params=["memory", "unordered", "sqlite"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Returns a function that opens handles on one new store; ``unordered`` works as HBase."""
    if request.param == "sqlite":
        return lambda: SqliteStore(str(tmp_path / "content.db"), durable=False)
    shared = MemoryStore(transactions=request.param == "memory", parallel=request.param == "unordered")
    return lambda: copy.copy(shared)


def test_entries_journals_and_watches_explain_the_trees(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random_of_test()
    monkeypatch.setattr(feed, "BATCH", chance.choice((1, 2, 200)))
    with instances(new_store) as opened:
        _check(History(chance, opened))


def _check(history: History) -> None:
    chance = history.chance
    exact = history.observer.store.supports_transactions
    chains: list[Chain] = []
    for _ in range(STEPS):
        seen = len(history.entries)
        history.commit(chance.randrange(3))
        history.record()
        for number in range(seen, len(history.entries)):
            _check_entry(history.trees[number], history.trees[number + 1], history.entries[number], exact=exact)
        if len(chains) < 8 and chance.random() < 0.2:
            chains.append(Chain(history))
        for chain in chains:
            if chance.random() < 0.3:
                chain.take(chance.choice((1, 2, 100)))
        if history.entries and chance.random() < 0.3:
            _check_journal(history)
    assert len(history.entries) > STEPS / 3
    for chain in chains:
        chain.take(1000)
        expected = [one.revision for one in history.entries[chain.begin :] if one.touches(chain.path)]
        assert sorted(chain.revisions) == sorted(expected)
        if exact:
            assert chain.revisions == expected
