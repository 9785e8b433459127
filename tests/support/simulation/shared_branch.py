"""Random schedules of processes that commit to, reset, merge and rebase one branch, which adjusts a property or adds nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from hbasemk.errors import HbasemkError
from hbasemk.format import values
from hbasemk.format.branch_head import ABANDONED
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Increment, RemoveNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import Settings
from hbasemk.testing.simulation import Actor, Died, Simulator
from tests.support.branches import commit_on_branch
from tests.support.simulation.invariants import AN_HOUR_LATER
from tests.support.simulation.schedules import store_like
from tests.support.simulation.trees import Broken, check_tables

FAULTS: Final[Mapping[str, float]] = {"lost": 0.02, "refused": 0.01, "deaths": 0.01, "pauses": 0.02}
TURNS: Final = 3
LONGEST_WAIT: Final = 5

P = ParamSpec("P")
T = TypeVar("T")


class SharedBranch:
    """One run of a seed. Each adjust has its own digit in base 4, so the sum shows how often each of them counts."""

    def __init__(self, seed: int, *, faults: bool = False) -> None:
        self.simulator = simulator = Simulator(seed, choices=None, **store_like(seed))
        settings = Settings(max_clock_skew_ms=500, lease_ms=2000)
        first = simulator.add("first", lambda _: None).open(wanted=settings)
        self._commit(first, AddNode("/a", {"n": 0}))
        self.digits = 0
        self.claims = 0
        self.waits: Sequence[float | None] = (0, 0, 0.01, 1)
        """Seconds before a turn; None: until another process changes a claim."""
        self.committed: dict[int, set[int]] = {}
        """The digits of the branch's adjusts up to each of its revisions."""
        self.must_count: set[int] = set()
        self.rebased: list[int] = []
        root = first.branches.begin(first.head())
        self.committed[root] = set()
        self.newest = root
        self._commits(first)
        if faults:
            simulator.fails(**FAULTS)
        kinds: list[Callable[[Instance], None]] = [
            self._commits,
            self._merges,
            self._merges,
            self._rebases,
            self._adjusts,
            self._resets,
        ]
        plans = [[simulator.chance.choice(kinds) for _ in range(TURNS)] for _ in range(3)]
        if simulator.chance.random() < 0.3:
            # A merge and a rebase of a branch that receives a commit and is reset meanwhile.
            self.waits = (0, 0.2, None, None)
            plans = [
                [self._adjusts, self._rebases, self._merges],
                [self._commits, self._resets],
                [self._merges, self._merges],
            ]
        for number, plan in enumerate(plans):
            simulator.add(f"w{number}", self._work(plan))

    def _work(self, kinds: list[Callable[[Instance], None]]) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            with contextlib.suppress(HbasemkError):
                instance = actor.open()
                self._slow_claims(actor, instance)
                self._some_in_steps(instance)
                for kind in kinds:
                    self._wait(actor)
                    with contextlib.suppress(HbasemkError):
                        kind(instance)

        return work

    def _wait(self, actor: Actor) -> None:
        seconds = self.simulator.chance.choice(self.waits)
        if seconds is not None:
            actor.runtime.sleep(seconds)
            return
        known, ends = self.claims, self.simulator.ms + LONGEST_WAIT * 1000
        while self.claims == known and self.simulator.ms < ends:
            actor.runtime.sleep(0.1)

    def _slow_claims(self, actor: Actor, instance: Instance) -> None:
        """Let the process wait sometimes after it has changed a claim, while the others go on."""
        claims = instance.branches._claims

        def slowed(change: Callable[P, T]) -> Callable[P, T]:
            def slowly(*arguments: P.args, **named: P.kwargs) -> T:
                done = change(*arguments, **named)
                self.claims += 1
                actor.runtime.sleep(self.simulator.chance.choice((0, 0, 0.05, 1, 4)))
                return done

            return slowly

        claims._replace = slowed(claims._replace)  # type: ignore[method-assign]
        claims.finalize = slowed(claims.finalize)  # type: ignore[method-assign]

    def _some_in_steps(self, instance: Instance) -> None:
        """Let some commits go step by step that one transaction could make: larger ones do."""
        if not instance.store.supports_transactions:
            return
        for transactions in (instance.branches._transactions, instance._committer.attempts._one_transaction):
            fits = transactions.fits

            def sometimes(*arguments: Any, fits: Callable[..., bool] = fits) -> bool:
                return fits(*arguments) and self.simulator.chance.random() < 0.6

            transactions.fits = sometimes  # type: ignore[method-assign, assignment]

    def _digit(self) -> int:
        self.digits += 1
        return self.digits - 1

    def _commit(self, instance: Instance, *operations: AddNode | Adjust | RemoveNode) -> int:
        return instance.commit(lambda _: OperationList(operations), "", retry_timeout=9, max_poll_age=0)

    def _adjusts(self, instance: Instance) -> None:
        digit = self._digit()
        self._commit(instance, Adjust("/a", "n", 4**digit))
        self.must_count.add(digit)

    def _change(self, digit: int) -> AddNode | Adjust | Increment:
        return Adjust("/a", "n", 4**digit)

    def _commits(self, instance: Instance) -> None:
        digit, at = self._digit(), self.newest
        revision = commit_on_branch(instance, at, [self._change(digit)])
        self.committed[revision] = {*self.committed[at], digit}
        self.newest = revision

    def _merges(self, instance: Instance) -> None:
        at = self.newest
        if instance.branches.merge(at, "") != at:
            self.must_count |= self.committed[at]

    def _rebases(self, instance: Instance) -> None:
        at = self.newest
        instance.poll()
        revision = rebase(instance.branches, at, instance.head(), "")
        self.committed[revision] = self.committed[at]
        self.newest = revision
        self.rebased.append(revision)

    def _resets(self, instance: Instance) -> None:
        at = self.newest
        earlier = [one for one in instance.branches.find(at).own if one != at and one in self.committed]
        if earlier:
            ancestor = self.simulator.chance.choice(earlier)
            revision = instance.branches.reset(at, ancestor)
            self.committed[revision] = self.committed[ancestor]
            self.newest = revision

    def run(self) -> None:
        """Run the schedule; raise Broken unless each adjust counts at most once, and each acknowledged one does."""
        simulator = self.simulator
        simulator.run()
        for actor in simulator.actors:
            if actor.error is not None and not isinstance(actor.error, Died):
                raise Broken(f"{actor.name} ended with {actor.error!r}") from actor.error
        simulator.calm()
        simulator.ms += 60_000
        fresh = simulator.add("fresh", lambda _: None).open()
        fresh.clock.next(0)
        fresh.maintain()
        # Other instances sweep an aborted revision only after its writer's whole lease time.
        simulator.ms += 2_600
        fresh.poll()
        fresh.maintain()
        fresh.sweep_branches(None)
        fresh.poll()
        check_tables(fresh, but=AN_HOUR_LATER)
        for revision in self.rebased:
            head = fresh.branches._heads.read(fresh.branches.find(revision).root)
            if head is None or head.how == ABANDONED:
                raise Broken(f"the branch of {revision:016x}, to which a rebase has led, was abandoned")
        self._require_once(fresh)

    def _require_once(self, fresh: Instance) -> None:
        total = values.decode(fresh.require(fresh.head(), "/a").encoded["n"])
        assert isinstance(total, int)
        counts = [total >> 2 * digit & 3 for digit in range(self.digits)]
        if max(counts) > 1 or any(not counts[digit] for digit in self.must_count):
            raise Broken(f"I16: the adjusts count {counts} times, at least {sorted(self.must_count)} must count once")


class SharedBranchOfSets(SharedBranch):
    """The same with a branch of which some commits increment the property: they set it to the sum that they read."""

    def _change(self, digit: int) -> AddNode | Adjust | Increment:
        if self.simulator.chance.random() < 0.5:
            return Increment("/a", "n", 4**digit)
        return super()._change(digit)


class SharedBranchOfNodes(SharedBranch):
    """The same with a branch that adds a node with each commit. The other changes of trunk remove these nodes again.

    A second merge or rebase that took effect would bring a removed node back.
    """

    def __init__(self, seed: int, *, faults: bool = False) -> None:
        self.removed: set[int] = set()
        self.may_be_removed: set[int] = set()
        super().__init__(seed, faults=faults)

    def _change(self, digit: int) -> AddNode | Adjust | Increment:
        return AddNode(f"/{digit}", {})

    def _present(self, instance: Instance) -> set[int]:
        head = instance.head()
        return {digit for digit in range(self.digits) if instance.reader.node(head, f"/{digit}") is not None}

    def _adjusts(self, instance: Instance) -> None:
        instance.poll()
        present = self._present(instance)
        self.may_be_removed |= present
        if present:
            self._commit(instance, *(RemoveNode(f"/{digit}") for digit in sorted(present)))
            self.removed |= present

    def _require_once(self, fresh: Instance) -> None:
        present = self._present(fresh)
        if present & self.removed:
            raise Broken(
                f"I16: the nodes {sorted(present & self.removed)} were removed, and a second merge added them again"
            )
        if lost := self.must_count - present - self.may_be_removed:
            raise Broken(f"I16: the nodes {sorted(lost)} of acknowledged merges are missing")


class AdoptedBranch(SharedBranch):
    """The same, with processes that list the open branches, and merge or rebase one of them."""

    def __init__(self, seed: int, *, faults: bool = False) -> None:
        super().__init__(seed, faults=faults)
        for number in range(2):
            self.simulator.add(f"adopter{number}", self._adopt)

    def _adopt(self, actor: Actor) -> None:
        choice = self.simulator.chance.choice
        with contextlib.suppress(HbasemkError):
            instance = actor.open()
            self._some_in_steps(instance)
            for _ in range(TURNS):
                actor.runtime.sleep(choice((0, 0.2, 1, 3)))
                with contextlib.suppress(HbasemkError):
                    found = instance.open_branches()
                    if found:
                        # The others go on with this branch, too.
                        self.newest = choice(found).newest
                        self.committed.setdefault(self.newest, set())
                        choice((self._merges, self._merges, self._rebases))(instance)
