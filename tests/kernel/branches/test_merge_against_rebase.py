"""A merge, and a rebase with a merge, of random histories have the same result.

Each history is made twice. A direct merge compares versions, and a rebase compares values (``docs/protocol.md``, section 7).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

from hbasemk import (
    Branch,
    BranchError,
    ConflictError,
    InvalidChangeError,
    NodeExistsError,
    NodeNotFoundError,
    Repository,
    Transaction,
)
from hbasemk.snapshot import Snapshot
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import problems
from tests.support.seeds import random_of_test

CASES: Final = 60
PATHS: Final = ("/a", "/a", "/b", "/a/c", "/a/c", "/a/d", "/b/c")
NAMES: Final = ("n", "n", "t", "c", "z")
KINDS: Final = (
    *("set", "set", "set", "text", "same", "unset", "adjust", "adjust", "increment"),
    *("add", "add", "remove", "replace", "move", "copy"),
)
ADJUSTED: Final = {"changeDeletedProperty", "changeChangedProperty", "addExistingProperty"}
"""The markers of an adjust of what is no longer a number."""

Tree = dict[str, dict[str, Any]]


class Operation(NamedTuple):
    """One operation; its text repeats it."""

    text: str
    apply: Callable[[Transaction], object]


def set_again(tx: Transaction, path: str, name: str) -> None:
    """Set a property to the value it has, or remove it again."""
    value = tx.get(path, name)
    if value is None:
        tx.unset(path, name)
    else:
        tx.set(path, name, value)


def random_operation(chance: random.Random, paths: list[str], names: list[str]) -> Operation:
    kind, path, name = chance.choice(KINDS), chance.choice(paths), chance.choice(names)
    new = chance.choice([*paths, *(f"{one}/{name}" for one in paths)])
    amount, content = chance.choice((-10, 0, 10, 0.25)), chance.choice(({}, {"n": 1}, {"t": "x"}))
    number, text = chance.choice((1, 2, 2.5, True)), chance.choice("xy")
    return {
        "set": Operation(f"set {path} {name} {number!r}", lambda tx: tx.set(path, name, number)),
        "text": Operation(f"set {path} {name} {text!r}", lambda tx: tx.set(path, name, text)),
        "same": Operation(f"same {path} {name}", lambda tx: set_again(tx, path, name)),
        "unset": Operation(f"unset {path} {name}", lambda tx: tx.unset(path, name)),
        "adjust": Operation(f"adjust {path} {name} {amount}", lambda tx: tx.adjust(path, name, amount)),
        "increment": Operation(f"increment {path} {name} {amount}", lambda tx: tx.increment(path, name, amount)),
        "add": Operation(f"add {new} {content}", lambda tx: tx.add(new, content)),
        "remove": Operation(f"remove {path}", lambda tx: tx.remove(path)),
        "replace": Operation(f"replace {path} {content}", lambda tx: (tx.remove(path), tx.add(path, content))),
        "move": Operation(f"move {path} {new}", lambda tx: tx.move(path, new)),
        "copy": Operation(f"copy {path} {new}", lambda tx: tx.copy(path, new)),
    }[kind]


def tree(snapshot: Snapshot) -> Tree:
    return {node.path: dict(node) for node in snapshot.walk()}


class History:
    """A random history: commits to trunk and to a branch, and rebases whose markers are removed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        paths, names = chance.sample(PATHS, 2), chance.sample(NAMES, 2)
        self.transactions = chance.random() < 0.5
        kinds = [*chance.choice(("T", "TT")), "begin"]
        kinds += [chance.choice("BBBTTTR") for _ in range(chance.randint(2, 8))]
        self.steps: list[tuple[str, list[Operation]]] = []
        for kind in kinds:
            many = chance.choice((1, 1, 1, 2)) if kind in "BT" else 0
            self.steps.append((kind, [random_operation(chance, paths, names) for _ in range(many)]))

    def __str__(self) -> str:
        return "\n".join(f"{kind}: {[one.text for one in operations]}" for kind, operations in self.steps)

    def run(self) -> tuple[Repository, Branch, Tree]:
        """Return the repository, the branch, and the tree of trunk on which the branch is based."""
        repo = Repository(MemoryStore(transactions=self.transactions), poll_interval=0)
        repo.run(lambda tx: (tx.add("/a", {"n": 1, "t": "x"}), tx.add("/b", {"n": 2.5}), tx.add("/a/c", {"n": 1})))
        repo.adjust("/a", "n", 5)
        branch = repo.branch()
        base = tree(repo.head)
        for kind, operations in self.steps:
            if kind in "BT":
                run = branch.run if kind == "B" else repo.run
                # A commit that is not possible is left out, in each run of the history.
                try:
                    run(lambda tx, operations=operations: [one.apply(tx) for one in operations])
                except (InvalidChangeError, NodeExistsError, NodeNotFoundError):
                    continue
            elif kind == "begin":
                branch, base = repo.branch(), tree(repo.refresh())
            else:
                remove_markers(branch, branch.rebase())
                base = tree(repo.refresh())
        return repo, branch, base

    def adjusts(self, on: str) -> set[tuple[str, str]]:
        """Return the paths and names of the properties that a side adjusts."""
        texts = [one.text.split() for kind, operations in self.steps if kind in on for one in operations]
        return {("/a", "n"), *((words[1], words[2]) for words in texts if words[0] == "adjust")}


def remove_markers(branch: Branch, markers: list[str]) -> None:
    for marker in markers:
        branch.run(lambda tx, marker=marker: tx.remove(marker))


class Outcome(NamedTuple):
    """The trees before and after; ``merged`` is None if the direct merge conflicts."""

    base: Tree
    mine: Tree
    theirs: Tree
    merged: Tree | None
    rebased: Tree
    markers: list[str]


def outcome_of(history: History) -> Outcome:
    """Run a history with a direct merge, and with a rebase before the merge; check what always holds."""
    repo, branch, base = history.run()
    with repo:
        mine, theirs, merged = tree(branch.head), tree(repo.refresh()), None
        try:
            branch.merge()
            merged = tree(repo.refresh())
        except ConflictError:
            assert tree(repo.refresh()) == theirs
        assert problems(repo) == []
    repo, branch, _ = history.run()
    with repo:
        markers = branch.rebase()
        rebased = tree(branch.head)
        assert branch.rebase() == markers
        assert tree(branch.head) == rebased
        if markers:
            with pytest.raises(BranchError, match="conflict markers"):
                branch.merge()
            remove_markers(branch, markers)
        branch.merge()
        assert tree(repo.refresh()) == {path: kept for path, kept in rebased.items() if "/:conflict" not in path}
        assert problems(repo) == []
    return Outcome(base, mine, theirs, merged, rebased, markers)


def keys_of(*trees: Tree) -> Iterator[tuple[str, str | None]]:
    """Yield all paths, and all properties with their path."""
    for path in dict.fromkeys(path for one in trees for path in one):
        yield path, None
        yield from dict.fromkeys((path, name) for one in trees for name in one.get(path, ()))


def value(of: Tree, path: str, name: str | None) -> str | None:
    """Return what a tree has there, so that equal values of different types differ."""
    return None if path not in of else "" if name is None else repr(of[path][name]) if name in of[path] else None


def require_three_way(outcome: Outcome, found: Tree, adjusted: set[str]) -> None:
    """Require that each place has the value of the side that changed it, and that no two sides changed it differently."""
    for path, name in keys_of(outcome.base, outcome.mine, outcome.theirs, found):
        if name in adjusted or (name is not None and path not in found):
            continue
        base, mine, theirs = (value(one, path, name) for one in outcome[:3])
        expected = theirs if mine == base else mine
        assert theirs in (base, expected), f"both sides changed {path} {name}"
        assert value(found, path, name) == expected, (path, name)


def require_markers(outcome: Outcome, adjusted: set[str]) -> None:
    """Require that trunk wins where both sides changed the same, and that the branch's side is in a marker."""
    properties: set[tuple[str, str | None]] = set()
    nodes: set[str] = set()
    for path, kept in outcome.rebased.items():
        owner, _, place = path.partition("/:conflict/")
        if "/" in place:
            nodes.add(f"{owner}/{place.partition('/')[2]}")
        elif place:
            properties.update((owner or "/", name) for name in kept)
    for path, name in keys_of(outcome.base, outcome.mine, outcome.theirs):
        base, mine, theirs = (value(one, path, name) for one in outcome[:3])
        after = value(outcome.rebased, path, name)
        if name not in adjusted and mine != after and mine != base:
            assert after == theirs, (path, name)
            has_place = path in nodes if name is None else path in nodes or (path, name) in properties
            assert has_place, f"the change of {path} {name} is lost"
        elif name not in adjusted and mine == base and (path in outcome.mine or name is None):
            assert after == theirs, (path, name)


def require_only_adjusts(outcome: Outcome, adjusts: set[tuple[str, str]]) -> None:
    """Require that all markers are those of adjusts of what trunk has unset, or set to another type."""
    for path, kept in outcome.rebased.items():
        owner, _, kind = path.partition("/:conflict/")
        if kind:
            assert kind in ADJUSTED
            assert {(owner or "/", name) for name in kept} <= adjusts


def compare(history: History) -> None:
    """Compare a direct merge of a history with a rebase and a merge."""
    outcome = outcome_of(history)
    adjusted = {name for _, name in history.adjusts("BT")}
    if outcome.merged is not None:
        require_three_way(outcome, outcome.merged, adjusted)
    if outcome.markers:
        require_markers(outcome, adjusted)
        if outcome.merged is not None:
            require_only_adjusts(outcome, history.adjusts("B"))
    else:
        require_three_way(outcome, outcome.rebased, adjusted)
        assert outcome.merged in (None, outcome.rebased)


def test_a_rebase_and_a_merge_agree_with_a_direct_merge() -> None:
    chance = random_of_test()
    for _ in range(CASES):
        history = History(chance.randrange(1 << 32))
        try:
            compare(history)
        except Exception:
            print(history)
            raise
