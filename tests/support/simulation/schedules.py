"""Random schedules of a few writers and a reader; the invariants must hold after each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from hbasemk.errors import (
    CommitUnknownError,
    ConflictError,
    HbasemkError,
    InvalidRevisionError,
    LeaseLostError,
    StoreError,
)
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import Settings
from hbasemk.testing.choices import shrink
from hbasemk.testing.simulation import FAULTS, Actor, Died, Simulator
from tests.support.branches import commit_on_branch
from tests.support.simulation.invariants import RecordedRun
from tests.support.simulation.trees import Broken, tree

FEW: list[Callable[[int], list[Operation]]] = [
    lambda n: [SetProperty("/a", "p", n)],
    lambda n: [SetProperty("/a/b", f"q{n % 3}", n)],
    lambda _: [Increment("/a", "count", 1)],
    lambda _: [Increment("/a", "count", 1)],
    lambda n: [AddNode(f"/a/k{n % 4}", {"n": n})],
    lambda n: [AddNode(f"/a/b/k{n % 2}", {"n": n})],
    lambda _: [RemoveNode("/a/b")],
    lambda _: [RemoveNode("/a/b"), AddNode("/a/b", {"again": 1})],
    lambda _: [MoveNode("/a/b", "/moved")],
    lambda _: [MoveNode("/moved", "/a/b")],
    lambda n: [CopyNode("/a/b", f"/copy{n % 2}")],
    lambda n: [SetProperty("/a", "p", None), AddNode(f"/x{n % 3}", {})],
]


class StoreFeatures(TypedDict):
    """The features of a simulated store."""

    transactions: bool
    parallel: bool
    batch_rows: int


def store_like(seed: int) -> StoreFeatures:
    """Return the features of a seed's store: a third have transactions, like SQLite; a third parallel calls, like HBase.

    Half of those with transactions make a commit of several rows go step by step.
    """
    return {"transactions": seed % 3 == 2, "parallel": seed % 3 == 1, "batch_rows": 1 if seed % 6 == 5 else 1000}


class Schedule(RecordedRun):
    """One run of a seed."""

    few: Sequence[Callable[[int], list[Operation]]] = FEW
    """The operations of which each commit makes one list."""

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        writers: int = 3,
        commits: int = 3,
        looks: int = 6,
        choices: Sequence[int] | None = None,
    ) -> None:
        simulator = Simulator(seed, choices=choices, **store_like(seed))
        settings = Settings(max_clock_skew_ms=500, lease_ms=2000)
        self.begin(simulator, settings, FAULTS if faults else {})
        for number in range(writers):
            skew = simulator.chance.choice((0, 0, -200, 200))
            simulator.add(f"writer{number}", self.writer(number, range(commits)), skew_ms=skew)
        if looks:
            simulator.add("reader", lambda actor: self.reader(actor, looks))

    def begin(self, simulator: Simulator, settings: Settings, faults: Mapping[str, float]) -> Instance:
        """Create the repository and a small tree, without faults; return the instance."""
        self.record(simulator)
        self.faults = faults
        opened = simulator.add("first", lambda _: None).open(wanted=settings)
        self.live.append(opened)
        self.setup = opened.commit(
            lambda _: OperationList([AddNode("/a", {"count": 0}), AddNode("/a/b", {})]),
            "",
            retry_timeout=9,
            max_poll_age=0,
        )
        simulator.fails(**faults)
        return opened

    def writer(self, number: int, turns: Sequence[int]) -> Callable[[Actor], None]:
        """Return the work of a process that commits; after its death a new process may continue it."""
        chance = self.simulator.chance

        def work(actor: Actor) -> None:
            turn = turns[0] if turns else 0
            try:
                instance = None
                for turn in turns:
                    if chance.below(16):
                        if instance is None:
                            instance = self.opened(actor)
                            if chance.happens(0.3):
                                self.in_background(actor, instance)
                        if chance.happens(0.1):
                            self.branch(actor, instance, number * 10 + turn)
                        else:
                            self.turn(actor, instance, number * 10 + turn)
            except Died:
                left = [later for later in turns if later > turn]
                if left and chance.happens(0.5):
                    self.simulator.add(f"{actor.name}'", self.writer(number, left), skew_ms=actor.skew_ms)
                raise

        return work

    def in_background(self, actor: Actor, instance: Instance) -> None:
        """Run maintenance like a process's background thread, while the process commits and reads."""

        def work() -> None:
            for _ in range(4):
                actor.runtime.sleep(self.simulator.chance.choice((0.003, 0.0, 0.1, 2.0)))
                with contextlib.suppress(StoreError, LeaseLostError):
                    instance.poll()
                    instance.maintain()
                    if instance.lease.held:
                        instance.recovery.advance()

        actor.spawn(work)

    def branch(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit to a branch once or twice, and merge or abandon it."""
        chance, branches = self.simulator.chance, instance.branches

        with contextlib.suppress(StoreError, HbasemkError):
            base = instance.head()
            began = at = branches.begin(base)
            at = commit_on_branch(instance, at, chance.choice(FEW)(number))
            actor.runtime.sleep(chance.choice((0, 0.01, 1)))
            if chance.happens(0.5):
                at = commit_on_branch(instance, at, [SetProperty("/a", "p", number)])
            if chance.happens(0.3):
                instance.poll()
                at = rebase(branches, at, instance.head(), "")
            elif chance.happens(0.2):
                at = branches.reset(at, began)
            if chance.happens(0.7):
                revision = branches.merge(at, "")
                if instance.journal.knows(revision):
                    self.merged.add(revision)
            elif chance.happens(0.5):
                branches.abandon(at)

    def turn(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit once, on the head or on a base, and sometimes run background maintenance."""
        chance = self.simulator.chance
        operations = chance.choice(self.few)(number)
        views: list[View] = []

        def make(view: View) -> OperationList:
            views.append(view)
            return OperationList(operations)

        def begun(revision: int) -> None:
            self.begins(instance, revision, views[-1], operations)

        head = chance.below(10) < 7
        try:
            if not head:
                base = instance.head()
                actor.runtime.sleep(chance.choice((0, 0.01, 1)))
                if chance.happens(0.5):
                    # Later arrivals stay outside the base.
                    instance.poll()
                revision = instance.commit_on(base, make(base), "", begun)
            else:
                if chance.happens(0.5):
                    instance.poll()
                revision = instance.commit(make, "", retry_timeout=20, max_poll_age=0, begun=begun)
            if instance.journal.knows(revision) and revision not in self.acknowledged:
                self.acknowledged[revision] = operations
        except CommitUnknownError as error:
            self.unknown[int(error.revision, 16)] = operations
        except (ConflictError, StoreError) as error:
            if head and not self.faults:
                raise Broken(f"I10: a commit on the head has not got through: {error}") from error
        except InvalidRevisionError as error:
            raise Broken(f"I1: {error}") from error
        except HbasemkError:
            # Invalid on its base: another process had removed the node.
            pass
        if chance.happens(0.3):
            with contextlib.suppress(StoreError, LeaseLostError):
                instance.maintain()
        if instance.lease.held and chance.happens(0.3):
            with contextlib.suppress(StoreError):
                instance.recovery.advance()

    def begins(self, instance: Instance, revision: int, view: View, operations: Sequence[Operation]) -> None:
        """Called before a commit begins to write with a revision."""

    def opened(self, actor: Actor) -> Instance:
        while True:
            try:
                instance = actor.open()
                self.live.append(instance)
                return instance
            except StoreError:
                actor.runtime.sleep(0.1)

    def reader(self, actor: Actor, looks: int) -> None:
        instance = None
        for _ in range(looks):
            if not self.simulator.chance.below(16):
                continue
            instance = instance or self.opened(actor)
            actor.runtime.sleep(self.simulator.chance.choice((0, 0.005, 0.3, 5)))
            try:
                instance.poll()
                snapshot = instance.head()
                seen = frozenset(revision for revision in instance.journal if instance.journal.sees(snapshot, revision))
                self.kept.append((instance, snapshot, tree(instance, snapshot), seen))
                self.look_into_cache(*self.kept[-1][:3])
                self.look_into_cache(*self.simulator.chance.choice(self.kept)[:3])
            except StoreError:
                continue


def breaks(schedule: Schedule) -> bool:
    """Run a schedule; return whether an invariant broke."""
    try:
        schedule.run()
    except Broken:
        return True
    return False


def shortest(seed: int, **options: Any) -> Schedule:
    """Shrink the failing schedule of a seed; it has run, and its simulator has the trace."""
    failed = Schedule(seed, **options)
    with contextlib.suppress(BaseException):
        failed.run()

    def fails(choices: list[int]) -> bool:
        try:
            Schedule(seed, **options, choices=choices).run()
        except Broken:
            return True
        except BaseException:
            return False
        return False

    short = Schedule(seed, **options, choices=shrink(failed.simulator.chance.drawn, fails))
    with contextlib.suppress(BaseException):
        short.run()
    return short
