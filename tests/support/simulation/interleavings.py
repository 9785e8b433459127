"""All states that the interleavings of a few writers can reach, and what must hold in those at which they end."""

from __future__ import annotations

import functools
import gc
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.format import revisions
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.exploration import Exploration
from hbasemk.testing.model import State
from hbasemk.testing.simulation import Actor
from hbasemk.testing.stepped import SteppedSimulator
from tests.support.simulation.allowed import Allowed, Tree
from tests.support.simulation.remains import state_of
from tests.support.simulation.trees import Broken, check_tables, tree
from tests.support.simulation.writers import ALL_KINDS, Prepared, prepare

ENOUGH = 100
"""The number of final states of each pair or triple that must suffice to find a mutant."""
LATER_SECOND = (0, 1, 0)
"""The clocks of writers: the id of the second one is higher."""
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

    simulator_type = SteppedSimulator

    def __init__(
        self, prepared: Prepared, kinds: Sequence[str], skews: Sequence[int], *, backwards: bool = False
    ) -> None:
        self.prepared = prepared
        self.kinds = kinds
        self.simulator = self.simulator_type(backwards=backwards)
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
                if not self._must_know(instance, one):
                    continue
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

    def _must_know(self, instance: Instance, revision: int) -> bool:
        """Return whether an instance must have the position of a committed revision."""
        return True

    def _is_own(self, number: int, one: int) -> bool:
        """Return whether a writer created the revision that it returned. A commit without effect returns its head revision. In
        another instance, with another order, that head may lack the change that made the commit a no-op.
        """
        return revisions.machine_of(one) == self.instances[number].lease.machine


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
        with _collected_at_the_end():
            self._check(allowed)

    def _check(self, allowed: Allowed) -> None:
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


@contextmanager
def _collected_at_the_end() -> Iterator[None]:
    """Collect garbage once, at the end, which saves a third of the CPU time. The states of one exploration fit into memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def prepared_for(parallel: bool, adjusts: bool, marked: bool = False) -> Prepared:
    """Return the initial state; runs clone it."""
    return prepare(parallel, adjusts, marked=marked)


def explore(
    kinds: tuple[str, str],
    way: str,
    *,
    adjusts: bool = False,
    marked: bool = False,
    preemptions: int | None = None,
) -> Explored:
    """Check all interleavings of two writers, or those with so many preemptions at most."""
    skews, as_on_hbase, backwards = WAYS[way]
    prepared = prepared_for(as_on_hbase, adjusts, marked)
    explored = Explored(prepared, kinds, skews, preemptions, backwards=backwards)
    explored.check(Allowed(prepared, kinds))
    return explored


def explore_three(kinds: Sequence[str], *, adjusts: bool = True, marked: bool = False) -> Explored:
    """Check all interleavings of three writers, of which one has a later clock, with at most two preemptions."""
    prepared = prepared_for(False, adjusts, marked)
    explored = Explored(prepared, kinds, LATER_SECOND, 2)
    explored.check(Allowed(prepared, kinds))
    return explored


def must_be_found_beside(
    mutant: Callable[[pytest.MonkeyPatch], None],
    kinds: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    adjusts: bool = False,
    marked: bool = False,
    preemptions: int | None = None,
    ends: int = ENOUGH,
    by: tuple[str, ...] = ("I4", "I6"),
) -> None:
    """Explore two or three writers with a mutant until a tree is left that the kernel never leaves; fail if none is.

    The error that finds it begins with one of the texts in ``by``.
    """
    prepared = prepare(adjusts=adjusts, marked=marked)
    allowed = Allowed(prepared, kinds)
    writers = range(len(kinds))
    for count in writers:
        for some in itertools.combinations(writers, count + 1):
            # Before the mutant changes the kernel.
            allowed(some)
    mutant(monkeypatch)
    explored = Explored(prepared, kinds, LATER_SECOND[: len(kinds)], preemptions if len(kinds) < 3 else 2)
    for run in itertools.islice(explored, ends):
        try:
            run.check(allowed)
        except Broken as error:
            print(f"{mutant.__name__} was found: {error}")
            assert str(error).startswith(by)
            return
    pytest.fail(f"{mutant.__name__} was not found in {ends} ends")
