"""Writers of one commit each, all states that their interleavings can reach, and the trees that they may leave."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.format import paths, revisions, values
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit import folds
from hbasemk.kernel.commit.change_source import ChangeSource, OperationList, ReadyChangeSet
from hbasemk.kernel.commit.operations import (
    AddNode,
    Adjust,
    CopyNode,
    Expect,
    Increment,
    MoveNode,
    Operation,
    RemoveNode,
    SetProperty,
)
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import Settings
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.exploration import Exploration
from hbasemk.testing.model import State
from hbasemk.testing.simulation import Actor, Simulator
from hbasemk.testing.stepped import SteppedSimulator
from hbasemk.transaction import Transaction, source_of
from tests.support.branches import commit_on_branch
from tests.support.simulation.remains import state_of
from tests.support.simulation.trees import Broken, check_tables, tree

FOREVER = 1e9
ENOUGH = 100
"""The number of final states of each pair that must suffice to find a mutant."""
Tree = dict[str, Any]


class Prepared(NamedTuple):
    """The initial state: the store, the base of commits on an old base, a branch's revision, the nodes' versions, and the
    revision of a branch that adjusts."""

    store: MemoryStore
    base: int
    branch: int
    versions: Mapping[str, str]
    adjusting: int


def prepare(parallel: bool = False, adjusts: bool = False) -> Prepared:
    """Create a small tree, a revision after its base, and two branches with one commit; perhaps adjust a property."""
    simulator = Simulator(0, parallel=parallel)
    instance = simulator.add("first", lambda _: None).open(wanted=Settings(max_clock_skew_ms=500, lease_ms=2000))

    def commit(*operations: Operation) -> int:
        return instance.commit(lambda _: OperationList(operations), "", retry_timeout=9, max_poll_age=0)

    base = commit(
        AddNode("/a", {"p": 0, "count": 0}),
        AddNode("/a/b", {"q": 0}),
        AddNode("/a/b/c", {}),
        AddNode("/a/leaf", {}),
        AddNode("/gone", {"old": 1}),
    )
    branch = instance.branches.begin(instance.at(base))

    branch = commit_on_branch(instance, branch, [SetProperty("/a", "p", "branch"), AddNode("/a/b/branch", {})])
    adjusting = instance.branches.begin(instance.at(base))
    adjusting = commit_on_branch(instance, adjusting, [Adjust("/a", "count", 256), Adjust("/a", "fresh", 256)])
    commit(RemoveNode("/gone"), SetProperty("/a/b", "q", 1))
    if adjusts:
        commit(Adjust("/a", "count", 128))
    nodes = instance.nodes(instance.head(), ["/a", "/a/b", "/a/leaf"])
    versions = {path: node.version for path, node in nodes.items() if node is not None}
    return Prepared(simulator.store, base, branch, versions, adjusting)


def on_head(*operations: Operation) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, _: Prepared) -> int:
        return instance.commit(lambda _: OperationList(operations), "", retry_timeout=FOREVER, max_poll_age=0)

    return commit


def on_old_base(*operations: Operation) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, prepared: Prepared) -> int:
        return instance.commit_on(instance.at(prepared.base), OperationList(operations), "")

    return commit


def expecting(path: str, *operations: Operation, on: Any = on_head) -> Callable[[Instance, Prepared], int]:
    """Commit operations that expect a node as it is in the initial state, or its absence."""

    def commit(instance: Instance, prepared: Prepared) -> int:
        done: int = on(Expect(path, prepared.versions.get(path)), *operations)(instance, prepared)
        return done

    return commit


def serializable(change: Callable[[Transaction], object]) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, _: Prepared) -> int:
        def make(snapshot: View) -> ChangeSource:
            tx = Transaction(instance, snapshot, "", "serializable")
            change(tx)
            return source_of(tx)

        return instance.commit(make, "", retry_timeout=FOREVER, max_poll_age=0)

    return commit


KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "set": on_head(SetProperty("/a", "p", "set")),
    "unset": on_head(SetProperty("/a", "p", None)),
    "increment": on_head(Increment("/a", "count", 1)),
    "add": on_head(AddNode("/a/b/new", {"n": 1})),
    "set its name": on_head(SetProperty("/a/b", "new", 1)),
    "remove leaf": on_head(RemoveNode("/a/leaf")),
    "remove subtree": on_head(RemoveNode("/a/b")),
    "move": on_head(MoveNode("/a/b", "/moved")),
    "copy": on_head(CopyNode("/a/b", "/copy")),
    "copy below": on_head(CopyNode("/a/leaf", "/a/b/new")),
    "re-add": on_head(AddNode("/gone", {"again": 1})),
    "remove and add": on_head(RemoveNode("/a/b"), AddNode("/a/b", {"again": 1})),
    "old base": on_old_base(SetProperty("/a/b", "r", 2), Increment("/a", "count", 10)),
    "old base below": on_old_base(AddNode("/a/b/c/old", {}), SetProperty("/a/leaf", "x", 1)),
    "merge": lambda instance, prepared: instance.branches.merge(prepared.branch, ""),
    # Each changes the property that the other sets to its present value.
    "set one, repeat other": on_head(SetProperty("/a", "p", "one"), SetProperty("/a/b", "q", 1)),
    "repeat one, set other": on_head(SetProperty("/a", "p", 0), SetProperty("/a/b", "q", "other")),
    "old base, repeated": on_old_base(Increment("/a", "count", 0), SetProperty("/a/leaf", "x", 1)),
    # Each changes the node that the other expects.
    "expect one, set other": expecting("/a", SetProperty("/a/leaf", "x", "expecting")),
    "expect other, set one": expecting("/a/leaf", SetProperty("/a", "p", "expecting")),
    "old base, expecting": expecting("/a", SetProperty("/a/leaf", "x", 3), on=on_old_base),
    # Each creates or changes what the other expects.
    "expect none, unset": expecting("/a/b/new", SetProperty("/a", "p", None)),
    "expect it, add": expecting("/a", AddNode("/a/b/new", {"n": 2})),
    # Each writes the property that the other reads.
    "serializable list": serializable(lambda tx: tx.set("/a", "children", len(tx.children("/a/b")))),
    "serializable add": serializable(lambda tx: tx.add("/a/b/new", {"n": tx.get("/a", "children") or 0})),
}


ADJUST_KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "adjust": on_head(Adjust("/a", "count", 4), Adjust("/a/b", "q", 0.5)),
    "adjust, on an old base": on_old_base(Adjust("/a", "count", 64), Adjust("/a", "fresh", 64)),
    "first adjust": on_head(Adjust("/a", "fresh", 8)),
    "set a number": on_head(SetProperty("/a", "count", 1000), SetProperty("/a", "fresh", 2000)),
    "set and adjust": on_head(SetProperty("/a", "count", 500), Adjust("/a", "count", 2), Adjust("/a", "fresh", 16)),
    "unset a number": on_head(SetProperty("/a", "count", None), SetProperty("/a", "fresh", None)),
    "set a text": on_head(SetProperty("/a", "count", "text")),
    "remove the node": on_head(RemoveNode("/a")),
    "remove and add the node": on_head(RemoveNode("/a"), AddNode("/a", {"count": 7})),
    "add a child of the name": on_head(AddNode("/a/fresh", {})),
    "move the node": on_head(MoveNode("/a", "/moved")),
    "copy the node": on_head(CopyNode("/a", "/copy")),
    "merge adjusts": lambda instance, prepared: instance.branches.merge(prepared.adjusting, ""),
    "fold": lambda instance, _: _fold(instance),
    "adjust, serializable": serializable(lambda tx: tx.adjust("/a", "count", 32)),
    "read it, serializable": serializable(lambda tx: tx.set("/a/b", "seen", tx.get("/a", "count"))),
}
"""What meets adjusts of /a: ``count`` has an adjust already, ``fresh`` does not exist."""
EXPECT_KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "expect the node": expecting("/a"),
    "expect the node, adjust it": expecting("/a", Adjust("/a", "count", 4096)),
    # Each changes the node that the other expects.
    "expect the node, set another": expecting("/a", SetProperty("/a/b", "seen", 1)),
    "expect another, adjust the node": expecting("/a/b", Adjust("/a", "count", 8192)),
    # Each creates or changes what the other expects.
    "expect the node, copy it": expecting("/a", CopyNode("/a", "/copy")),
    "expect no copy, adjust the node": expecting("/copy", Adjust("/a", "count", 16384)),
    "rebase and merge adjusts": lambda instance, prepared: instance.branches.merge(_rebase(instance, prepared), ""),
}
"""What meets adjusts of /a, too, most of it with expected versions."""


def _rebase(instance: Instance, prepared: Prepared) -> int:
    if not isinstance(instance, Stale):
        instance.poll()
    return rebase(instance.branches, prepared.adjusting, instance.head(), "")


def _fold(instance: Instance) -> int:
    def make(view: View) -> ChangeSource:
        state = instance.reader.node(view, "/a")
        found = None if state is None else state.property_of("count")
        if found is None or not isinstance(values.decode(found.value() or values.encode("")), int):
            return OperationList([])
        plan = folds.plan_of("/a", "count", found, sorted(found.totals))
        return OperationList([]) if plan is None else ReadyChangeSet(plan)

    return instance.commit(make, "", retry_timeout=FOREVER, max_poll_age=0)


ALL_KINDS = {**KINDS, **ADJUST_KINDS, **EXPECT_KINDS}
WAYS: dict[str, tuple[tuple[int, int], bool, bool]] = {
    "first is lower": ((0, 1), False, False),
    "second is lower": ((1, 0), False, False),
    "ids before reads as on HBase, rows backwards": ((0, 1), True, True),
}
"""The clocks of the two, which decide whose id is lower; whether the store has parallel calls, so that the journal row precedes
the reads of the commit; whether the rows of a batch are written from the last to the first."""


class Known:
    """What was read from stores with one content: whether the tables are in order, and trees.

    Without a cache, a tree depends on the content, the view, and the sequence of the reader's journal.
    """

    def __init__(self) -> None:
        self.is_checked = False
        self._trees: dict[Hashable, Tree] = {}

    def tree(self, instance: Instance, view: View) -> Tree:
        """Return the tree of a view."""
        key = view[:5], state_of(instance.journal._sequence)
        if key not in self._trees:
            self._trees[key] = tree(instance, view)
        return self._trees[key]


class Run:
    """Some writers in one interleaving, and the result of each."""

    def __init__(
        self, prepared: Prepared, kinds: Sequence[str], skews: Sequence[int], *, backwards: bool = False
    ) -> None:
        self.prepared = prepared
        self.kinds = kinds
        self.simulator = SteppedSimulator(backwards=backwards)
        self.simulator.store = prepared.store.clone(lambda: int(self.simulator.ms))
        self.simulator.ms += 5
        self.ended: list[int | HbasemkError | None] = [None] * len(kinds)
        self.instances: list[Instance] = []
        for number, (kind, skew) in enumerate(zip(kinds, skews, strict=True)):
            actor = self.simulator.add(f"{number} {kind}", self._work(number, ALL_KINDS[kind]), skew_ms=skew)
            instance = actor.open()
            instance.clock.next(0)
            self.instances.append(instance)
        # The poll of each open() must no longer count as recent.
        self.simulator.ms += 1

    def _work(self, number: int, commit: Callable[[Instance, Prepared], int]) -> Callable[[Actor], None]:
        def work(_: Actor) -> None:
            try:
                self.ended[number] = commit(self.instances[number], self.prepared)
            except HbasemkError as error:
                self.ended[number] = error

        return work

    def check(self, allowed: Callable[[tuple[int, ...]], list[Tree]], known: Known | None = None) -> None:
        """Raise Broken unless the tree equals that of an allowed order of the committed writers.

        ``known`` holds what was read from a store with the same content.
        """
        known = Known() if known is None else known
        for actor in self.simulator.actors:
            if actor.error is not None:
                raise Broken(f"{actor.name} ended with {actor.error!r}") from actor.error
        ended = {number: how for number, how in enumerate(self.ended) if isinstance(how, int)}
        if not ended:
            raise Broken(f"I10: nobody got through: {self.ended}")
        fresh_instance = self.simulator.add("fresh_instance", lambda _: None).open()
        if fresh_instance.journal.pending:
            raise Broken(f"pending: {fresh_instance.journal.pending}")
        if not known.is_checked:
            check_tables(fresh_instance)
            known.is_checked = True
        final = known.tree(fresh_instance, fresh_instance.head())
        if final not in allowed(tuple(ended)):
            raise Broken(f"I4: {[self.kinds[number] for number in ended]} committed, and the tree is {final}")
        own = {number for number, one in ended.items() if self._is_own(number, one)}
        for instance in (*self.instances, fresh_instance):
            instance.poll()
            if known.tree(instance, instance.head()) != final:
                raise Broken("I11: two instances that have seen the same read different trees")
            for number, one in ended.items():
                if not instance.journal.knows(one):
                    raise Broken(f"I3, I7: {self.kinds[number]} committed and is not seen")
                if number not in own and instance is not self.instances[number]:
                    continue
                after = instance.at(one)
                seen = {other for other in own if instance.journal.sees(after, ended[other])}
                sees = tuple(sorted(seen | {number}))
                if known.tree(instance, after) not in allowed(sees):
                    raise Broken(f"I6: the tree after {self.kinds[number]} shows {sees} and is none of theirs")

    def remains(self, number: int) -> Hashable:
        """Return what :meth:`check` looks at in a writer that has ended: its result, and what it knows of the journal."""
        instance = self.instances[number]
        # The counter of the store's changes counts those of the other writers, too, and saves only polls.
        known = state_of(instance.journal, instance.checkpoint_cells, but="_change_counter")
        return repr(self.ended[number]), repr(self.simulator.actors[number].error), known

    def _is_own(self, number: int, one: int) -> bool:
        """Return whether a writer created the revision that it returned. A commit without effect returns its head revision. In
        another instance, with another order, that head may lack the change that made the commit a no-op.
        """
        return revisions.machine_of(one) == self.instances[number].lease.machine


class Allowed:
    """The trees that the writers may produce: in any serial order or, where allowed, on one base."""

    def __init__(self, prepared: Prepared, kinds: Sequence[str]) -> None:
        self.prepared = prepared
        self.kinds = kinds
        self._known: dict[frozenset[int], list[Tree]] = {}

    def __call__(self, numbers: tuple[int, ...]) -> list[Tree]:
        writers = frozenset(numbers)
        if writers not in self._known:
            found: list[Tree] = []
            for order in itertools.permutations(sorted(writers)):
                # ``stale``: how many of them, counted from the end, do not see the earlier ones.
                found += [one for stale in range(len(order)) if (one := self._after(order, stale)) is not None]
            self._known[writers] = found + self._with_other_copies(writers, found)
        return self._known[writers]

    def _with_other_copies(self, writers: frozenset[int], found: list[Tree]) -> list[Tree]:
        """Return the trees in which a copy shows another choice of the other writers.

        A copy reads its source in its snapshot, and the commit does not depend on that. So it may show a change of a node
        and not an earlier one that expected the node before that change.
        """
        others = [number for number in writers if self.kinds[number] != "copy the node"]
        if len(others) == len(writers) or not any(self.kinds[number].startswith("expect") for number in others):
            return []
        first = self._after((), 0)
        sources = [] if first is None else [first]
        for count in range(1, len(others) + 1):
            for some in itertools.combinations(others, count):
                sources += self(some)
        return [_with_copy(one, source) for one in found for source in sources if "/a" in source]

    def _after(self, order: Sequence[int], stale: int) -> Tree | None:
        simulator = Simulator(0)
        simulator.store = self.prepared.store.clone(lambda: int(simulator.ms))
        simulator.ms += 5
        opened = [simulator.add("one", lambda _: None).open() for _ in order]
        for at, (number, instance) in enumerate(zip(order, opened, strict=True)):
            if at < len(order) - stale:
                instance.poll()
            simulator.ms += 1
            before = instance.statistics.conflicts
            try:
                ALL_KINDS[self.kinds[number]](Stale(instance) if at >= len(order) - stale else instance, self.prepared)  # type: ignore[arg-type]
            except HbasemkError:
                return None
            if instance.statistics.conflicts != before:
                return None
        fresh_instance = simulator.add("fresh_instance", lambda _: None).open()
        return tree(fresh_instance, fresh_instance.head())


def _with_copy(of: Tree, source: Tree) -> Tree:
    """Return a tree with /copy as /a is in another one."""
    rest = {path: node for path, node in of.items() if not paths.is_at_or_below(path, "/copy")}
    return rest | {
        paths.rebase(path, "/a", "/copy"): node for path, node in source.items() if paths.is_at_or_below(path, "/a")
    }


class Stale:
    """An instance that commits on its present head, without a poll."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def commit(self, make: Any, message: str, **_: Any) -> int:
        return self._instance.commit_on(self._instance.head(), make(self._instance.head()), message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)


class Explored:
    """The final states that some writers can reach, and the number of runs that found them.

    What :meth:`Run.check` finds in one writer depends on what remains of the writer, on the content of the store, and on the
    results of all writers. So a final state is checked only if, for some writer, no checked one is the same in this.
    """

    def __init__(
        self,
        prepared: Prepared,
        kinds: Sequence[str],
        skews: Sequence[int],
        preemptions: int | None = None,
        *,
        backwards: bool = False,
    ) -> None:
        self._runs: list[Run] = []
        self._results: dict[tuple[int, int], int | None] = {}
        self._checked: set[tuple[object, ...]] = set()
        self._known: defaultdict[int, Known] = defaultdict(Known)
        self.checks = 0

        def start() -> SteppedSimulator:
            self._runs[:] = [Run(prepared, kinds, skews, backwards=backwards)]
            return self._runs[0].simulator

        self._exploration = Exploration(
            start, preemptions, lambda _, number: self._runs[0].remains(number), self._is_checked
        )

    def __iter__(self) -> Iterator[Run]:
        for _ in self._exploration:
            yield self._runs[0]

    def check(self, allowed: Allowed) -> None:
        """Fail the test if a final state is not allowed."""
        for run in self:
            end = self._exploration.end
            assert end is not None
            try:
                run.check(allowed, self._known[end.content])
            except Broken as error:
                pytest.fail("\n".join([str(error), *run.simulator.trace]))
            self.checks += 1
            for writer, (answers, result) in enumerate(zip(end.answers, run.ended, strict=True)):
                self._results[writer, answers] = result if isinstance(result, int) else None
            self._checked.update(self._parts(end))

    def _parts(self, end: State) -> list[tuple[object, ...]]:
        """Return for each writer what the check of a final state depends on."""
        results = tuple(self._results[one] for one in enumerate(end.answers))
        return [(*one, end.content, results) for one in enumerate(end.answers)]

    def _is_checked(self, end: State) -> bool:
        return self._results.keys() >= set(enumerate(end.answers)) and self._checked.issuperset(self._parts(end))

    def __str__(self) -> str:
        explored = self._exploration
        return (
            f"{explored.steps} steps to {explored.states} states, {explored.ends} of them ends, {self.checks} checked, "
            f"found by {explored.runs} runs"
        )


@functools.cache
def prepared_for(parallel: bool, adjusts: bool) -> Prepared:
    """Return the initial state; runs clone it."""
    return prepare(parallel, adjusts)


def explore(kinds: tuple[str, str], way: str, *, adjusts: bool = False) -> Explored:
    """Check all interleavings of two writers."""
    skews, as_on_hbase, backwards = WAYS[way]
    prepared = prepared_for(as_on_hbase, adjusts)
    explored = Explored(prepared, kinds, skews, backwards=backwards)
    explored.check(Allowed(prepared, kinds))
    return explored


def must_be_found_beside(
    mutant: Callable[[pytest.MonkeyPatch], None],
    kinds: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    adjusts: bool = False,
) -> None:
    """Explore two writers with a mutant until a tree is left that none of the kernel's orders leaves; fail if none is."""
    prepared = prepare(adjusts=adjusts)
    allowed = Allowed(prepared, kinds)
    for order in ((0,), (1,), (0, 1)):
        allowed(order)
    mutant(monkeypatch)
    for run in itertools.islice(Explored(prepared, kinds, (0, 1)), ENOUGH):
        try:
            run.check(allowed)
        except Broken as error:
            print(f"{mutant.__name__} was found: {error}")
            assert str(error).startswith("I4")
            return
    pytest.fail(f"{mutant.__name__} was not found in {ENOUGH} ends")
