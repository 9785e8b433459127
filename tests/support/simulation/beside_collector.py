"""A collector beside one other process, in each order of their steps with at most two switches.

The reader trusts no horizon that it has read before, so no time plays a part: after each read it reads the horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.errors import ConflictError, HbasemkError, RevisionCollectedError
from hbasemk.kernel import diff
from hbasemk.kernel.collection import collector
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading import child_count, reader
from hbasemk.kernel.settings import Settings
from hbasemk.testing.simulation import Actor, Simulator
from tests.support.branches import commit_on_branch
from tests.support.collecting import set_grace
from tests.support.simulation.collection import WithoutWindows
from tests.support.simulation.equivalent_orders import Order, RecordedSimulator, represented
from tests.support.simulation.footprints import Footprint
from tests.support.simulation.trees import Broken, check_tables, tree

SETTINGS = Settings(max_clock_skew_ms=500, lease_ms=600_000)
RETENTION_MS = 10


def without_time(patch: pytest.MonkeyPatch) -> None:
    """Let no time play a part, and make batches small."""
    set_grace(patch, 0.0, trust=0.0)
    patch.setattr(collector, "WINDOW", 3)
    patch.setattr(collector, "HOT_CHANGES", 8)
    for module in (reader, child_count):
        patch.setattr(module, "WIDE", 2)


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=9, max_poll_age=0)


class Kind:
    """What another process does beside a collector: ``begin`` with its instance, then ``act``; ``look`` checks the result."""

    def __init__(
        self,
        act: Callable[[Instance, Any], Any],
        begin: Callable[[Instance, Any], Any] = lambda one, view: view,
        finish: Callable[[Instance, Any, Any], None] = lambda *_: None,
        errors: tuple[type[HbasemkError], ...] = (),
    ) -> None:
        self.act, self.begin, self.finish, self.errors = act, begin, finish, errors


def read_all(one: Instance, view: Any) -> Any:
    return tree(one, view), one.children(view, "/a"), one.child_count(view, one.require(view, "/a"))


def differences(one: Instance, view: Any) -> Any:
    return sorted(change.path for change in diff.diff(one, view, one.head()))


def branch(one: Instance, view: Any) -> Any:
    return one.begin_branch(view)


def branch_is_kept(one: Instance, expected: Any, result: Any) -> None:
    if tree(one, one.branch(result).view) != expected:
        raise Broken("I13: the branch does not read as its base did")


def merge(one: Instance, at: Any) -> Any:
    return one.merge_branch(at, "")


def begin_branch(one: Instance, view: Any) -> Any:
    return commit_on_branch(one, one.begin_branch(view), [SetProperty("/a", "merged", 1)])


def is_merged(one: Instance, _: Any, result: Any) -> None:
    one.poll()
    if "merged" not in one.require(one.head(), "/a").properties or not one.journal.sees(one.head(), result):
        raise Broken("the merge is lost")


def recover(one: Instance, _: Any) -> None:
    one.maintain()
    one.recovery.recover_late()
    one.recovery.advance()


def sleeper(one: Instance, _: Any) -> Any:
    one.poll()
    return tree(one, one.head())


KINDS = {
    "reader of an old snapshot": Kind(read_all),
    "diff from an old snapshot": Kind(differences),
    "begin branch": Kind(branch, finish=branch_is_kept),
    "commit on an old base": Kind(
        lambda one, view: one.commit_on(view, OperationList([SetProperty("/a/k1", "x", 1)]), ""),
        errors=(ConflictError,),
    ),
    "commit of a node on an old base": Kind(
        lambda one, view: one.commit_on(view, OperationList([AddNode("/a/k1/new", {})]), ""), errors=(ConflictError,)
    ),
    "merge on an old view": Kind(merge, begin=begin_branch, finish=is_merged),
    "poll of a sleeper": Kind(sleeper),
    "count with a memo": Kind(lambda one, _: one.child_count(one.head(), one.require(one.head(), "/a"))),
    "another collector": Kind(lambda one, _: Collector(one).run(RETENTION_MS).cells and None),
    "commit on the head": Kind(lambda one, _: commit(one, SetProperty("/a", "head", 1)) and None),
    "recovery": Kind(recover),
}


class Prepared:
    """A store in which much can be collected, up to a branch or not."""

    def __init__(self, ordered: bool) -> None:
        simulator = Simulator(0, transactions=ordered)
        # Without an order, the server's clock must pass the allowed skew before leases are over.
        gap = 50 if ordered else 1000
        self.store = simulator.store
        one = simulator.add("one", lambda _: None).open(wanted=SETTINGS)
        commit(one, AddNode("/a", {"p": 0}), *(AddNode(f"/a/k{n}", {"n": n}) for n in range(4)))
        simulator.ms += 5
        commit(one, SetProperty("/a/k0", "n", 7))
        if not ordered:
            simulator.ms += gap
            one.poll()
        one.recovery.advance()
        self.old = commit(one, SetProperty("/a", "p", 1))
        one.child_count(one.head(), one.require(one.head(), "/a"))
        simulator.ms += gap
        commit(one, RemoveNode("/a/k1"), SetProperty("/a", "p", 2))
        commit(one, RemoveNode("/a/k2"))
        commit(one, AddNode("/a/k2", {"again": 1}))
        simulator.ms += gap
        commit(one, SetProperty("/a", "p", 3))
        one.close()
        simulator.ms += gap + 50
        self.ms = simulator.ms


class Run:
    """One run: the collector is process 0, the other one process 1."""

    def __init__(self, prepared: Prepared, kind: Kind, *, full: bool = False) -> None:
        self.full = full
        self.simulator = RecordedSimulator(prepared.store, prepared.ms)
        self.kind = kind
        self.result: Any = None
        self.error: HbasemkError | None = None
        first = self.simulator.add("collector", self.collects)
        second = self.simulator.add("other", self.acts)
        self.collecting, self.other = first.open(), second.open()
        for instance in (self.collecting, self.other):
            instance.clock.next(0)
            instance.announcements.renew(0)
        view = self.other.at(prepared.old)
        # Its own view at that revision: a prefix of its sequence, or an extent below it.
        self.expected = read_all(self.other, view)
        self.argument = kind.begin(self.other, view)
        self.simulator.ms += 1

    def collects(self, _: Actor) -> None:
        runs = WithoutWindows if self.full else Collector
        self.report = runs(self.collecting).run(RETENTION_MS, full=self.full)

    def acts(self, _: Actor) -> None:
        try:
            self.result = self.kind.act(self.other, self.argument)
        except HbasemkError as error:
            self.error = error

    def go(self, order: tuple[int, int, int]) -> tuple[int, int]:
        """Let process ``order[0]`` make ``order[1]`` steps, the other one ``order[2]``, then finish both; return the steps."""
        self.simulator.prepare()
        return self.simulator.run_with_switches(order)

    @property
    def footprints(self) -> list[list[Footprint]]:
        """What the steps of both processes touched."""
        return [self.simulator.footprints[actor] for actor in self.simulator.actors[:2]]

    def check(self, final: Any) -> None:
        """Raise Broken if anything was read or committed that must not be."""
        for actor in self.simulator.actors:
            if actor.error is not None:
                raise Broken(f"{actor.name} ended with {actor.error!r}") from actor.error
        if self.error is not None and not isinstance(self.error, (RevisionCollectedError, *self.kind.errors)):
            raise Broken(f"it failed with {self.error!r}") from self.error
        fresh = self.simulator.add("fresh", lambda _: None).open()
        if self.error is None:
            if self.kind.act is read_all and self.result != self.expected:
                raise Broken(f"I13: it read {self.result}, not {self.expected}")
            if self.kind.act is differences and self.result != ["/a", "/a/k1", "/a/k2"]:
                raise Broken(f"I13: the differences are {self.result}")
            if self.kind is KINDS["count with a memo"] and self.result != 3:
                raise Broken(f"I13: it counted {self.result}, not 3")
            if self.kind.act is sleeper and self.result != final:
                raise Broken(f"I13: the sleeper read {self.result}")
            self.kind.finish(fresh, self.expected[0], self.result)
        elif self.kind in (KINDS["poll of a sleeper"], KINDS["count with a memo"], KINDS["merge on an old view"]):
            raise Broken(f"I14: it was refused: {self.error}")
        # Another collector may have raised the horizon above its head.
        self.collecting.poll()
        if tree(self.collecting, self.collecting.head()).keys() - final.keys():
            raise Broken("the tree has changed")
        check_tables(fresh)


def orders(steps: tuple[int, int], every: int) -> Iterator[tuple[int, int, int]]:
    """Yield the orders with at most two switches; ``every``: only each so many-th place of the first switch.

    ``steps``: the numbers of steps of both processes, one after the other.
    """
    for first in (0, 1):
        own, others = steps if first == 0 else steps[::-1]
        for place in range(0, own + 1, every if first == 0 else 1):
            for other in range(0, others + 1, 1 if first == 0 else every):
                yield first, place, other


class Explored:
    """The runs of a collector beside one kind of process, in all orders with at most two switches."""

    def __init__(self, name: str, ordered: bool, *, full: bool = False) -> None:
        self.name, self.kind, self.full = name, KINDS[name], full
        self.prepared = Prepared(ordered)
        world = Simulator(0)
        world.store = self.prepared.store.clone(lambda: int(self.prepared.ms))
        opened = world.add("one", lambda _: None).open()
        self.final = tree(opened, opened.head())
        self.runs = self.represented = self.refused = self.deleted = 0

    def run(self, order: Order) -> Run:
        """Run the processes in this order."""
        run = Run(self.prepared, self.kind, full=self.full)
        run.go(order)
        return run

    def orders(self, every: int) -> list[Order]:
        """Return all orders, or a sample of them; see :func:`orders`."""
        steps = Run(self.prepared, self.kind, full=self.full).go((0, 10**6, 10**6))
        return list(orders(steps, every))

    def find(self, every: int) -> str | None:
        """Return how the first run that breaks an invariant does so; None if none does.

        Of orders that are the same run, only the first one runs.
        """
        run: Run | None = None

        def go(order: Order) -> list[list[Footprint]]:
            nonlocal run
            run = self.run(order)
            return run.footprints

        for same in represented(self.orders(every), go):
            assert run is not None
            try:
                run.check(self.final)
            except (Broken, RevisionCollectedError) as error:
                return "\n".join([f"{self.name} {same[0]}: {error}", *run.simulator.trace])
            self.runs += 1
            self.represented += len(same)
            self.refused += len(same) * (run.error is not None)
            self.deleted += len(same) * sum(run.report.cells.values())
        return None
