"""Random schedules of a few writers and a reader, and what must hold after each of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from hbasemk.errors import CommitUnknownError, ConflictError, HbasemkError, LeaseLostError, StoreError
from hbasemk.kernel import history, schema
from hbasemk.kernel.changes import CHANGED, RowChange
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.integrity import IntegrityCheck
from hbasemk.kernel.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.settings import Settings
from hbasemk.testing.simulation import Actor, Died, Simulator

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


class Broken(AssertionError):
    """An invariant does not hold; the trace says how that came about."""


def tree(instance: Instance, snapshot: Any) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Everything in a snapshot, read past the cache."""
    instance.cache.__init__(1)  # type: ignore[misc]
    instance.cache._horizon = 2**60
    found = {}
    top = instance.reader.node(snapshot, "/")
    assert top is not None
    states = [top]
    for batch in instance.reader.levels(snapshot, "/"):
        states += batch
    for state in states:
        found[state.path] = tuple(sorted(state.encoded.items()))
    return found


class Schedule:
    """One run of a seed."""

    def __init__(self, seed: int, *, faults: bool = True, writers: int = 3, commits: int = 3) -> None:
        chance = {"lost": 0.02, "refused": 0.01, "deaths": 0.004, "pauses": 0.004, "twice": 0.05} if faults else {}
        self.simulator = Simulator(seed, **chance)
        self.acknowledged: dict[int, list[Operation]] = {}
        self.unknown: dict[int, list[Operation]] = {}
        self.contains: dict[int, frozenset[int]] = {}
        self.live: list[Instance] = []
        self.kept: list[tuple[Instance, Any, dict[str, Any], frozenset[int]]] = []
        first = self.simulator.add("first", lambda _: None)
        opened = first.open(wanted=Settings(max_clock_skew_ms=500, lease_ms=2000))
        opened.commit(lambda _: [AddNode("/a", {"count": 0}), AddNode("/a/b", {})], "", patience=9, fresh=0)
        self.live.append(opened)
        for number in range(writers):
            skew = self.simulator.chance.choice((-200, 0, 0, 200))
            work = self.writer(number, commits)
            self.simulator.add(f"writer{number}", work, skew_ms=skew)
        self.simulator.add("reader", self.reader)

    def writer(self, number: int, commits: int) -> Callable[[Actor], None]:
        chance = self.simulator.chance

        def work(actor: Actor) -> None:
            instance = self.opened(actor)
            for turn in range(commits):
                operations = chance.choice(FEW)(number * 10 + turn)
                try:
                    if chance.random() < 0.3:
                        base = instance.head()
                        actor.runtime.sleep(chance.choice((0, 0.01, 1)))
                        made = instance.commit_on(base, operations, "")
                    else:
                        if chance.random() < 0.5:
                            instance.poll()
                        made = instance.commit(lambda _, told=operations: told, "", patience=20, fresh=0)  # type: ignore[misc]
                        base = None
                    if instance.journal.knows(made) and made not in self.acknowledged:
                        self.acknowledged[made] = operations
                except CommitUnknownError as error:
                    self.unknown[int(error.revision, 16)] = operations
                except (ConflictError, StoreError):
                    pass
                except Died:
                    raise
                except HbasemkError:
                    # Wrong by itself: somebody had removed what it changes.
                    pass
                if chance.random() < 0.3:
                    with contextlib.suppress(StoreError, LeaseLostError):
                        instance.tend()

        return work

    def opened(self, actor: Actor) -> Instance:
        while True:
            try:
                instance = actor.open()
                self.live.append(instance)
                return instance
            except StoreError:
                actor.runtime.sleep(0.1)

    def reader(self, actor: Actor) -> None:
        instance = self.opened(actor)
        for _ in range(6):
            actor.runtime.sleep(self.simulator.chance.choice((0, 0.005, 0.3)))
            try:
                instance.poll()
                snapshot = instance.head()
                seen = frozenset(made for made in instance.journal if instance.journal.sees(snapshot, made))
                self.kept.append((instance, snapshot, tree(instance, snapshot), seen))
            except StoreError:
                continue

    # --- after the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run it and check everything; raises Broken."""
        self.simulator.run()
        for actor in self.simulator.actors:
            if actor.error is not None and not isinstance(actor.error, Died):
                raise Broken(f"{actor.name} ended with {actor.error!r}") from actor.error
        self.simulator.calm()
        self.simulator.ms += 60_000
        heir = self.simulator.add("heir", lambda _: None).open()
        heir.clock.next(0)
        heir.tend()
        # What a loser left unswept gets its writer's whole lease time before somebody else sweeps it.
        self.simulator.ms += 2_600
        heir.poll()
        heir.tend()
        heir.poll()
        self.check(heir)

    def check(self, heir: Instance) -> None:
        """I1 to I11, as far as they can be seen from outside."""
        if heir.journal.pending:
            raise Broken(f"I9: still pending: {heir.journal.pending}")
        head = heir.head()
        for made in self.acknowledged:
            if not heir.journal.sees(head, made):
                raise Broken(f"I7: {made:016x} was acknowledged and is lost")
        problems = [str(problem) for problem in IntegrityCheck(heir).run()]
        if problems:
            raise Broken(f"tables: {problems}")
        final = tree(heir, head)
        counted = self.increments(heir)
        stored = dict(final["/a"]).get("count") if "/a" in final else None
        if stored is not None and int.from_bytes(stored[1:], "big", signed=True) != counted:
            raise Broken(f"I4: {counted} increments are committed, the count is {stored!r}")
        for instance in self.live:
            instance.poll()
            if {*instance.journal} | {*heir.journal} != {*heir.journal}:
                raise Broken("I8: an instance sees what the heir does not")
            if len(instance.journal) != len(heir.journal) - (instance.journal.floor > heir.journal.floor):
                raise Broken("I3: a live instance has not seen every committed revision")
            if tree(instance, instance.head()) != final:
                raise Broken("I11: two instances that have seen the same read different trees")
        told = self.told(heir)
        for instance, snapshot, seen, visible in self.kept:
            if tree(instance, snapshot) != seen:
                raise Broken(f"I5: the tree at {snapshot.revision:016x} has changed")
            for made in visible:
                base = told[made][0]
                if base in told and base not in visible:
                    raise Broken(f"I2: {made:016x} is visible without its base {base:016x}")
        self.lost_updates(told)

    def increments(self, heir: Instance) -> int:
        """Committed revisions that counted."""
        operations = {**self.acknowledged, **self.unknown}
        return sum(
            1
            for made in heir.journal
            if made in operations and any(isinstance(one, Increment) for one in operations[made])
        ) + sum(1 for made in heir.journal if made not in operations and self.counts(heir, made))

    def counts(self, heir: Instance, made: int) -> bool:
        """Whether a revision whose writer died before it was told is an increment."""
        changes = self.told(heir)[made][1]
        return any(
            change.path == "/a" and change.kind == CHANGED and "count" in change.properties for change in changes
        )

    def told(self, heir: Instance) -> dict[int, tuple[int, list[RowChange]]]:
        """Base and changes of every committed revision above the first."""
        return {
            int(entry.revision, 16): (int(entry.base or "0", 16), list(entry.changes))
            for entry in history.entries(heir, list(heir.journal))
        }

    def lost_updates(self, told: dict[int, tuple[int, list[RowChange]]]) -> None:
        """I4: two that write the same column (but ``lastRevision``) must be ordered: the later is built on the earlier."""
        writers: dict[tuple[str, Any], list[int]] = {}
        for made, (_, changes) in told.items():
            for change in changes:
                for column in change.columns():
                    if column != schema.LAST_REVISION:
                        writers.setdefault((change.path, column), []).append(made)
        for place, all_of in writers.items():
            ordered = sorted(all_of)
            for earlier, later in itertools.pairwise(ordered):
                # The base names the snapshot: it may have the earlier one though it is lower only in an instance that
                # saw them the other way round, and then the base's own position tells.
                base = told[later][0]
                if base < earlier and not any(
                    instance.journal.knows(base) and instance.journal.order(earlier) <= instance.journal.order(base)
                    for instance in self.live
                ):
                    raise Broken(f"I4: {earlier:016x} and {later:016x} both write {place} and neither has the other")
