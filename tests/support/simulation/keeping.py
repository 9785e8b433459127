"""Random schedules of writers, of makers of checkpoints, and of readers that must read exactly what was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hbasemk.errors import CheckpointError, HbasemkError
from hbasemk.format import journal_row, schema
from hbasemk.kernel import checkpoints
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Scan
from hbasemk.testing.simulation import FAULTS, Actor, Simulator
from tests.support.simulation.invariants import AN_HOUR_LATER, look_for_late_rows
from tests.support.simulation.schedules import store_like
from tests.support.simulation.trees import Broken, check_tables, tree

LIFETIME_MS = 10**9
SETTINGS = Settings(max_clock_skew_ms=500, lease_ms=2000)


class KeepSchedule:
    """One run. ``made`` and ``read`` count the checkpoints and the reads of them that were compared."""

    def __init__(self, seed: int, *, faults: bool = False) -> None:
        self.simulator = simulator = Simulator(seed, **store_like(seed), **(FAULTS if faults else {}))  # type: ignore[arg-type]
        self.made = self.read = 0
        self.contents: dict[int, frozenset[int]] = {}
        self.trees: dict[int, Any] = {}
        self.holders: dict[int, set[object]] = {}
        """For each revision, the checkpoints that surely keep it now."""
        self.doubts = 0
        """How many checkpoints may exist, because the call that makes or releases them failed."""
        # A fresh repository; no fault meets its creation.
        chances = {name: getattr(simulator, name) for name in FAULTS}
        simulator.calm()
        first = simulator.add("first", lambda _: None).open(wanted=SETTINGS)
        self._add(first, "/a")
        simulator.fails(**chances)
        for name, count, work in (("writer", 3, self._write), ("maker", 2, self._make), ("reader", 2, self._read)):
            for number in range(count):
                simulator.add(f"{name}{number}", self._surviving(work))

    def run(self) -> None:
        """Run to the end; raise Broken if a reader read anything but the kept snapshot."""
        self.simulator.run()
        self.simulator.calm()
        for actor in (*self.simulator.actors, *self.simulator.threads):
            if (
                actor.error is not None
                and not isinstance(actor.error, (HbasemkError, Broken))
                and not actor_died(actor)
            ):
                raise actor.error
            if isinstance(actor.error, Broken):
                raise actor.error
        self.simulator.ms += 60_000
        last = self.simulator.add("last", lambda _: None).open()
        # Only an instance that holds a lease looks for late rows.
        last.clock.next(0)
        for _ in range(2):
            last.poll()
            last.maintain()
            last.recovery.advance()
            self.simulator.ms += 60_000
        fresh = self.simulator.add("fresh", lambda _: None).open()
        for instance in (last, fresh):
            instance.poll()
            for revision, holders in self.holders.items():
                if holders:
                    self._compare(instance, revision)
        kept = {one.revision for one in checkpoints.all_of(last)}
        missing = {revision for revision, holders in self.holders.items() if holders} - kept
        extra = kept - {revision for revision, holders in self.holders.items() if holders}
        if missing or (extra and not self.doubts):
            raise Broken(f"checkpoints: missing {missing}, not released {extra}")
        check_tables(last, but=AN_HOUR_LATER)
        look_for_late_rows(self.simulator, last)
        check_tables(last, "tables, after an instance looked for late rows")

    def _surviving(self, work: Callable[[Instance, Actor], None]) -> Callable[[Actor], None]:
        """Repeat some work in one instance after another, as processes that are started again."""

        def repeat(actor: Actor) -> None:
            for _ in range(2):
                with suppress(HbasemkError):
                    work(actor.open(), actor)

        return repeat

    def _sleep(self, actor: Actor, *seconds: float) -> None:
        actor.runtime.sleep(self.simulator.chance.choice(seconds))

    def _add(self, instance: Instance, path: str) -> int:
        return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=1, max_poll_age=0)

    # --- processes ---------------------------------------------------------------------------------------

    def _write(self, instance: Instance, actor: Actor) -> None:
        for number in range(4):
            self._sleep(actor, 0.0, 0.001, 0.01, 1.0)
            self._add(instance, f"/{actor.name}-{self.simulator.chance.choice(range(10**6))}-{number}")
            if self.simulator.happens(0.2):
                instance.maintain()
                instance.recovery.advance()

    def _make(self, instance: Instance, actor: Actor) -> None:
        mine: list[checkpoints.Checkpoint] = []
        for _ in range(4):
            self._sleep(actor, 0.0, 0.001, 0.01, 0.5)
            what = self.simulator.chance.choice(("view", "view", "head", "shared", "extend", "release"))
            if what in ("extend", "release"):
                if mine:
                    self._change(instance, what, mine)
                continue
            instance.poll()
            view = instance.head()
            try:
                with self._doubt():
                    if what == "view":
                        made = checkpoints.keep_for(instance, view, LIFETIME_MS)
                    else:
                        made = checkpoints.keep_head(instance, LIFETIME_MS, shared=what == "shared")
                        # It may keep a view that contains more than the head.
                        view = instance.at(made.revision)
            except CheckpointError:
                continue
            content = self._content(instance, view)
            if self.holders.get(made.revision) and self.contents[made.revision] != content:
                raise Broken(f"checkpoints of {made.revision:x} keep two snapshots")
            self._keeps(instance, made, content, view)
            if what != "shared":
                mine.append(made)

    def _keeps(self, instance: Instance, made: checkpoints.Checkpoint, content: frozenset[int], view: View) -> None:
        self.made += 1
        if not self.holders.get(made.revision):
            self.trees.pop(made.revision, None)
            self.contents[made.revision] = content
            self.holders[made.revision] = {made.number}
            self.trees[made.revision] = tree(instance, view)
        else:
            self.holders[made.revision].add(made.number)

    def _change(self, instance: Instance, what: str, mine: list[checkpoints.Checkpoint]) -> None:
        one = mine.pop()
        if what == "release":
            self.holders[one.revision].discard(one.number)
            with self._doubt():
                checkpoints.release(instance, one.revision, one.number)
        else:
            longer = checkpoints.extend(instance, one.revision, one.number, 2 * LIFETIME_MS)
            found = [found for found in checkpoints.all_of(instance) if found[:2] == one[:2]]
            if found != [longer]:
                raise Broken(f"the extension of a checkpoint of {one.revision:x} was lost")
            mine.append(longer)

    def _read(self, instance: Instance, actor: Actor) -> None:
        for _ in range(6):
            self._sleep(actor, 0.0, 0.01, 0.3, 1.0)
            kept = [revision for revision, holders in self.holders.items() if holders]
            if not kept:
                continue
            revision = self.simulator.chance.choice(sorted(kept))
            before = set(self.holders[revision])
            if self.simulator.happens(0.2):
                instance = actor.open()
            else:
                instance.poll()
            if self.simulator.happens(0.3):
                instance.recovery.follow()
            view = instance.at(revision)
            if before & self.holders[revision]:
                self._must_be_exact(instance, revision, view)

    # --- comparing ---------------------------------------------------------------------------------------

    @contextmanager
    def _doubt(self) -> Iterator[None]:
        """Count a doubt if the block fails; the process may also die in it."""
        self.doubts += 1
        try:
            yield
        except CheckpointError:
            self.doubts -= 1
            raise
        self.doubts -= 1

    def _content(self, instance: Instance, view: View) -> frozenset[int]:
        """Return the committed revisions that a view contains, without steps of the simulator."""
        rows = journal_row.decode(self.simulator.store.scan(schema.JOURNAL, Scan(None, None, 10_000)))
        return frozenset(row.revision for row in rows if row.committed and instance.sees(view, row.revision))

    def _must_be_exact(self, instance: Instance, revision: int, view: View) -> None:
        self.read += 1
        found = self._content(instance, view)
        if found != self.contents[revision]:
            differing = sorted(f"{one:x}" for one in found ^ self.contents[revision])
            raise Broken(f"another snapshot than was kept at {revision:x}: they differ in {differing}")

    def _compare(self, instance: Instance, revision: int) -> None:
        view = instance.at(revision)
        self._must_be_exact(instance, revision, view)
        if revision in self.trees and tree(instance, view) != self.trees[revision]:
            raise Broken(f"another tree than was kept at {revision:x}")


def actor_died(actor: Any) -> bool:
    """Return whether the process of a thread has died, as the simulator wanted."""
    return bool(getattr(actor, "died", False))
