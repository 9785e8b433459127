"""Two MicroKernels and a simple model, driven by the same random operations, give the same answers."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import ConflictError, HbasemkError, MicroKernel, jsop
from hbasemk.store.abc import Store
from tests.support import microkernel_model as simple
from tests.support.microkernel_model import Conflict, Line, Model, Refused, Tree
from tests.support.proof import SHARES
from tests.support.repositories import Instances

STEPS = {"memory": 10_000, "sqlite": 2_000, "hbase": 300}
LIFE = 400
"""Steps on one repository; then a new one begins, so that the model keeps few trees."""


def shown(tree: Tree) -> dict[str, Any]:
    """Return a tree of the model as ``get_nodes`` returns it."""
    return {
        path: {key: json.loads(jsop.write_value(value)) for key, value in kept.items()}
        for path, (_, kept) in tree.items()
    }


def flat(path: str, found: dict[str, Any], into: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes of ``get_nodes`` by path."""
    into[path] = {
        key: value for key, value in found.items() if not isinstance(value, dict) and key != ":childNodeCount"
    }
    children = {key: value for key, value in found.items() if isinstance(value, dict)}
    assert found[":childNodeCount"] == len(children)
    for key, value in children.items():
        flat(path.rstrip("/") + "/" + key, value, into)
    return into


class Walk:
    """One repository under random operations."""

    def __init__(self, chance: random.Random, kernels: list[MicroKernel], opened: Instances) -> None:
        self.chance = chance
        self.opened = opened
        self.kernels = kernels
        self.model = Model(kernels[0].get_head_revision())
        self.lines: list[Line] = []
        self.counts: dict[str, int] = {}

    @property
    def kernel(self) -> MicroKernel:
        kernel = self.chance.choice(self.kernels)
        kernel.repository.refresh()
        return kernel

    def path(self, tree: Tree, *, new: bool = False) -> str:
        """Return a path that mostly exists or, with ``new``, one that is mostly free."""
        there = sorted(tree)
        if new or self.chance.random() < 0.15:
            above = self.chance.choice([one for one in there if one.count("/") < 4])
            return above.rstrip("/") + "/" + self.chance.choice("abcd")
        return self.chance.choice(there)

    def operations(self, tree: Tree) -> list[jsop.Operation]:
        """A few random operations on a tree."""
        operations: list[jsop.Operation] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            kind = self.chance.choice(("add", "add", "add", "set", "set", "unset", "remove", "move", "copy"))
            if kind == "add":
                node = jsop.parse_node(
                    self.chance.choice(("{}", '{"p":1}', '{"q":"x","c":{}}', '{"c":{"d":{"p":1.0}}}'))
                )
                operations.append(jsop.AddNode(self.path(tree, new=True), node))
            elif kind in ("set", "unset"):
                value = (
                    None
                    if kind == "unset"
                    else jsop.parse_value(self.chance.choice(("1", "2", "1.50", '"t"', "[1,2]", "true")))
                )
                operations.append(jsop.SetProperty(self.path(tree), self.chance.choice("pqr"), value))
            elif kind == "remove":
                operations.append(jsop.Remove(self.path(tree)))
            else:
                source, target = self.path(tree), self.path(tree, new=True)
                operations.append(jsop.Move(source, target) if kind == "move" else jsop.Copy(source, target))
            try:
                tree = simple.apply(tree, operations[-1:])
            except Refused:
                break
        return operations if len(tree) < 60 else [jsop.Remove(self.chance.choice(sorted(tree)[1:]))]

    def step(self) -> None:
        """One random operation on both."""
        kind = self.chance.choices(
            ("commit", "older", "branch", "on branch", "merge", "rebase", "reset", "read", "diff", "bad", "restart"),
            (20, 12, 3, 12, 4, 3, 2, 16, 8, 2, 0.5),
        )[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, kind.replace(" ", "_"))()

    # --- trunk -------------------------------------------------------------------------------------------

    def commit(self) -> None:
        self._commit(len(self.model.ids) - 1, explicit=self.chance.random() < 0.3)

    def older(self) -> None:
        self._commit(self.chance.randrange(max(0, len(self.model.ids) - 8), len(self.model.ids)), explicit=True)

    def _commit(self, base: int, *, explicit: bool) -> None:
        operations = self.operations(self.model.trees[base])
        kernel, base_revision = self.kernel, self.model.ids[base] if explicit else None
        try:
            plan = self.model.plan(operations, base)
        except Conflict:
            with pytest.raises(ConflictError):
                kernel.commit("", jsop.write(operations), base_revision)
            self.counts["conflict"] = self.counts.get("conflict", 0) + 1
            return
        except Refused:
            with pytest.raises(HbasemkError):
                kernel.commit("", jsop.write(operations), base_revision)
            self.counts["refused"] = self.counts.get("refused", 0) + 1
            return
        revision = kernel.commit("", jsop.write(operations), base_revision)
        if plan is None:
            assert revision == self.model.ids[-1]
        else:
            assert revision not in self.model.ids
            self.model.add(revision, plan[1])

    def bad(self) -> None:
        for call in (
            lambda: self.kernel.commit("", '+"/a":{', None),
            lambda: self.kernel.commit("", '+"/a":{}', "ffff"),
            lambda: self.kernel.get_nodes("/", "00000000000000f0"),
            lambda: self.kernel.merge(self.model.ids[-1]),
        ):
            with pytest.raises(HbasemkError):
                call()

    def restart(self) -> None:
        """Replace one process by a new one: only the store carries over."""
        number = self.chance.randrange(len(self.kernels))
        self.kernels[number].repository.close()
        self.kernels[number] = MicroKernel(self.opened())

    # --- branches ----------------------------------------------------------------------------------------

    def branch(self) -> None:
        base = self.chance.randrange(max(0, len(self.model.ids) - 4), len(self.model.ids))
        revision = self.kernel.branch(self.model.ids[base])
        self.lines.append(Line(base, [self.model.trees[base]], [revision], [set()]))

    def on_branch(self) -> None:
        if not self.lines:
            return
        line = self.chance.choice(self.lines)
        operations = self.operations(line.trees[-1])
        touched: set[simple.Column] = set()
        try:
            tree = simple.apply(line.trees[-1], operations, touched)
        except Refused:
            with pytest.raises(HbasemkError):
                self.kernel.commit("", jsop.write(operations), line.ids[-1])
            return
        revision = self.kernel.commit("", jsop.write(operations), line.ids[-1])
        if not simple.same(line.trees[-1], tree):
            line.trees.append(tree)
            line.ids.append(revision)
            line.wrote.append({column for column in touched if column[0] == "p"})
        assert revision == line.ids[-1]

    def merge(self) -> None:
        if not self.lines:
            return
        line = self.chance.choice(self.lines)
        change = line.effect(self.model.trees[line.base])
        if simple.same(self.model.trees[line.base], line.trees[-1]):
            assert self.kernel.merge(line.ids[-1]) == self.model.ids[-1]
            return
        if self.model.conflicts(change, line.base):
            with pytest.raises(ConflictError):
                self.kernel.merge(line.ids[-1])
            line.was_tried = True
            self.counts["conflict"] = self.counts.get("conflict", 0) + 1
            return
        self.model.add(self.kernel.merge(line.ids[-1]), change)
        self.lines.remove(line)

    def rebase(self) -> None:
        if not self.lines:
            return
        line = self.chance.choice(self.lines)
        change = line.effect(self.model.trees[line.base])
        revision = self.kernel.rebase(line.ids[-1])
        if line.base == len(self.model.ids) - 1:
            assert revision == line.ids[-1]
            return
        found = flat("/", json.loads(self.kernel.get_nodes("/", revision, 99) or ""), {})
        if not self.model.conflicts(change, line.base):
            line.base = len(self.model.ids) - 1
            line.trees, line.ids = [simple.put_on(self.model.trees[-1], change)], [revision]
            line.wrote = [set().union(*line.wrote)]
            assert found == shown(line.trees[-1])
            return
        # With conflicts: outside the markers, every node comes from the branch or from trunk.
        self.lines.remove(line)
        trunk, branch = shown(self.model.trees[-1]), shown(line.trees[-1])
        for path, kept in found.items():
            if "/:conflict" not in path:
                assert path == "/" or path.rpartition("/")[0] in {"", *found}
                for key, value in kept.items():
                    assert value in (trunk.get(path, {}).get(key), branch.get(path, {}).get(key))

    def reset(self) -> None:
        if not self.lines:
            return
        line = self.chance.choice(self.lines)
        at, last = self.chance.randrange(len(line.ids)), len(line.ids) - 1
        revision = self.kernel.reset(line.ids[-1], line.ids[at])
        returns = revision == line.ids[at]
        assert returns or line.was_tried or (at < last and not self.kernel.repository.store.supports_transactions)
        del line.ids[at + 1 :], line.trees[at + 1 :], line.wrote[at + 1 :]
        if revision != line.ids[at]:
            line.ids.append(revision)
            line.trees.append(line.trees[-1])
            line.wrote.append(set())

    # --- reading -----------------------------------------------------------------------------------------

    def _any(self) -> tuple[str, Tree]:
        if self.lines and self.chance.random() < 0.4:
            line = self.chance.choice(self.lines)
            at = self.chance.randrange(len(line.ids))
            return line.ids[at], line.trees[at]
        at = self.chance.randrange(len(self.model.ids))
        return self.model.ids[at], self.model.trees[at]

    def read(self) -> None:
        revision, tree = self._any()
        kernel = self.kernel
        text = kernel.get_nodes("/", revision, 99)
        assert flat("/", json.loads(text or ""), {}) == shown(tree)
        path = self.path(tree)
        assert kernel.node_exists(path, revision) == (path in tree)
        if path in tree:
            children = sum(1 for one in tree if one != "/" and simple.parent(one) == path)
            assert kernel.get_child_node_count(path, revision) == children
        assert kernel.get_head_revision() == self.model.ids[-1]

    def diff(self) -> None:
        (one, before), (other, after) = self._any(), self._any()
        operations = jsop.parse(self.kernel.diff(one, other))
        assert shown(simple.apply(before, operations)) == shown(after)


@pytest.mark.parametrize("share", SHARES)
def test_random_operations_agree_with_the_model(
    request: pytest.FixtureRequest, opened: Instances, new_store: Callable[[], Store], share: float
) -> None:
    kind = request.node.callspec.params["new_store"]
    steps = int(os.environ.get("HBASEMK_TEST_STEPS", STEPS[kind] * share))
    seed = int(os.environ.get("HBASEMK_TEST_SEED", "20261121"))
    print(f"repeat with HBASEMK_TEST_SEED={seed} HBASEMK_TEST_STEPS={steps}")
    chance = random.Random(seed)
    counts: dict[str, int] = {}
    kernels = [MicroKernel(opened()) for _ in range(2)]
    for begin in range(0, steps, LIFE):
        if begin:
            # Empty the tree and start again on the same repository.
            kernel = kernels[0]
            kernel.repository.refresh()
            names = [*json.loads(kernel.get_nodes("/", None, 0) or "")]
            kernel.commit("", "".join(f'-"/{one}"' for one in names if one != ":childNodeCount"))
        for kernel in kernels:
            kernel.repository.refresh()
        walk = Walk(chance, kernels, opened)
        for number in range(min(LIFE, steps - begin)):
            try:
                walk.step()
            except BaseException:
                print(f"step {begin + number}")
                raise
        for key, value in walk.counts.items():
            counts[key] = counts.get(key, 0) + value
    print(counts)
    assert steps < 200 or counts["conflict"] > steps / 100
    assert counts["merge"] > steps / 100
