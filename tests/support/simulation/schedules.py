"""Random schedules of a few writers and a reader, and the invariants that must hold after each."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from hbasemk.check import IntegrityCheck
from hbasemk.check.problem import BELOW_WATERMARK, NOT_HIDDEN
from hbasemk.errors import (
    CommitUnknownError,
    ConflictError,
    HbasemkError,
    InvalidRevisionError,
    LeaseLostError,
    StoreError,
)
from hbasemk.format import journal_row, paths, schema, values
from hbasemk.format.adjusted import is_created
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import log
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import ALL_VERSIONS, Get, Scan, scan_all
from hbasemk.testing.choices import shrink
from hbasemk.testing.history.simulated import LATE_LOOK
from hbasemk.testing.simulation import FAULTS, Actor, Died, Simulator
from tests.support.branches import commit_on_branch
from tests.support.uncached import without_cache

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


AN_HOUR_LATER: Final = (BELOW_WATERMARK, NOT_HIDDEN)
"""The problems that rows too late for any poll cause until the hourly scan finds them."""


class Broken(AssertionError):
    """An invariant does not hold; the trace shows the cause."""


def check_tables(instance: Instance, when: str = "tables", but: Sequence[str] = ()) -> None:
    """Raises Broken if the integrity check finds anything but these kinds of problems."""
    problems = [str(problem) for problem in IntegrityCheck(instance).run() if problem.kind not in but]
    if problems:
        raise Broken(f"{when}: {problems}")


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


def tree(instance: Instance, snapshot: Any) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return the tree of a snapshot, without the cache."""
    with without_cache(instance):
        return cached_tree(instance, snapshot)


def cached_tree(instance: Instance, snapshot: Any) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return the tree of a snapshot."""
    top = instance.reader.node(snapshot, "/")
    assert top is not None
    states = [top]
    for batch in instance.reader.levels(snapshot, "/"):
        states += batch
    return {state.path: tuple(sorted(state.encoded.items())) for state in states}


def apply(model: dict[str, dict[str, Any]], operation: Operation) -> None:
    """Apply one operation to a tree in a dictionary."""
    if isinstance(operation, AddNode):
        model[operation.path] = dict(operation.properties)
    elif isinstance(operation, SetProperty):
        if operation.value is None:
            model[operation.path].pop(operation.name, None)
        else:
            model[operation.path][operation.name] = operation.value
    elif isinstance(operation, Increment):
        model[operation.path][operation.name] = model[operation.path].get(operation.name, 0) + operation.amount
    elif isinstance(operation, RemoveNode):
        for path in [path for path in model if paths.is_at_or_below(path, operation.path)]:
            del model[path]
    elif isinstance(operation, MoveNode):
        for path in [path for path in model if paths.is_at_or_below(path, operation.source)]:
            model[paths.rebase(path, operation.source, operation.target)] = model.pop(path)


class Schedule:
    """One run of a seed."""

    excused: tuple[str, ...] = ()
    """Kinds of problems that the integrity check may report in any of its runs."""
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
        settings = Settings(max_clock_skew_ms=500, lease_ms=2000, max_lag_ms=100)
        self.begin(simulator, settings, FAULTS if faults else {})
        for number in range(writers):
            skew = simulator.chance.choice((0, 0, -200, 200))
            simulator.add(f"writer{number}", self.writer(number, range(commits)), skew_ms=skew)
        if looks:
            simulator.add("reader", lambda actor: self.reader(actor, looks))

    def begin(self, simulator: Simulator, settings: Settings, faults: Mapping[str, float]) -> Instance:
        """Create the repository and a small tree, without faults; return the instance."""
        self.simulator = simulator
        self.faults = faults
        self.merged: set[int] = set()
        self.acknowledged: dict[int, list[Operation]] = {}
        self.unknown: dict[int, list[Operation]] = {}
        self.kept: list[tuple[Instance, Any, dict[str, Any], frozenset[int]]] = []
        opened = simulator.add("first", lambda _: None).open(wanted=settings)
        self.live = [opened]
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

    def look_into_cache(self, instance: Instance, snapshot: Any, found: Mapping[str, object]) -> None:
        """Check that reads that use the cache agree with the tree of a snapshot that was read without it."""
        if cached_tree(instance, snapshot) != found:
            raise Broken(f"I5: the cached tree at {snapshot.revision:016x} is not {found}")
        chance = self.simulator.chance
        for path in found:
            limit = chance.choice((None, 1, 2))
            names = sorted(paths.name(one) for one in found if one != paths.ROOT and paths.parent(one) == path)
            if instance.reader.children(snapshot, path, None, limit) != names[:limit]:
                raise Broken(f"I5: the cached children of {path} at {snapshot.revision:016x} are not {names}")

    # --- after the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule and check everything; raises Broken."""
        self.simulator.run()
        for actor in self.simulator.actors:
            if actor.error is not None and not isinstance(actor.error, Died):
                raise Broken(f"{actor.name} ended with {actor.error!r}") from actor.error
        for thread in self.simulator.threads:
            if thread.error is not None and not isinstance(thread.error, Died):
                raise Broken(f"a thread ended with {thread.error!r}") from thread.error
        self.simulator.calm()
        self.simulator.ms += 60_000
        fresh_instance = self.simulator.add("fresh_instance", lambda _: None).open()
        fresh_instance.clock.next(0)
        fresh_instance.maintain()
        # Other instances sweep an aborted revision only after its writer's whole lease time.
        self.simulator.ms += 2_600
        fresh_instance.poll()
        fresh_instance.maintain()
        fresh_instance.poll()
        self.check(fresh_instance, AN_HOUR_LATER)
        final = tree(fresh_instance, fresh_instance.head())
        self.an_hour_later(fresh_instance)
        check_tables(fresh_instance, "tables, after somebody looked for late rows", self.excused)
        if tree(fresh_instance, fresh_instance.head()) != final:
            raise Broken("I8: looking for late rows has changed the tree")

    def an_hour_later(self, fresh_instance: Instance) -> None:
        """Let an hour pass: only then an instance scans for rows too late for any poll."""
        self.simulator.ms += LATE_LOOK
        fresh_instance.poll()
        fresh_instance.maintain()
        fresh_instance.poll()

    def check(self, fresh_instance: Instance, but: Sequence[str] = ()) -> None:
        """Check I1 to I12 as far as they are visible from outside; ``but``: the kinds of problems that the tables may have."""
        if fresh_instance.journal.pending:
            raise Broken(f"I9: still pending: {fresh_instance.journal.pending}")
        head = fresh_instance.head()
        for revision in (*self.acknowledged, *self.merged):
            if not fresh_instance.journal.sees(head, revision):
                raise Broken(f"I7: {revision:016x} was acknowledged and is lost")
        check_tables(fresh_instance, but=(*but, *self.excused))
        final = tree(fresh_instance, head)
        counted = self.increments(fresh_instance)
        stored = dict(final["/a"]).get("count") if "/a" in final else None
        if stored is not None and counted is not None and int.from_bytes(stored[1:], "big", signed=True) != counted:
            raise Broken(f"I4: {counted} increments are committed, the count is {stored!r}")
        outcomes = self.outcomes()
        for instance in (*self.live, fresh_instance):
            instance.poll()
            for revision, outcome in outcomes.items():
                seen = instance.journal.sees(instance.head(), revision)
                # Below the floor, a revision that was rolled back has no cells, so no reader asks whether it is visible.
                if seen and outcome is not Outcome.COMMITTED and revision > instance.journal.floor:
                    raise Broken(f"I8: {revision:016x} is {outcome.value} and visible")
                if not seen and outcome is Outcome.COMMITTED:
                    raise Broken(f"I3: {revision:016x} is committed and a live instance has not seen it")
            if tree(instance, instance.head()) != final or cached_tree(instance, instance.head()) != final:
                raise Broken("I11: two instances that have seen the same read different trees")
        committed = self.committed(fresh_instance)
        self.compare_with_model(committed, final)
        for instance in self.live:
            for revision in instance.journal:
                base = committed[revision][0]
                if base in committed and instance.journal.sort_key(base) >= instance.journal.sort_key(revision):
                    raise Broken(f"I2: {revision:016x} comes before its base {base:016x} in an instance")
        for instance, snapshot, found, visible in self.kept:
            if tree(instance, snapshot) != found:
                raise Broken(f"I5: the tree at {snapshot.revision:016x} has changed")
            for revision in visible:
                base = committed[revision][0]
                if base in committed and not instance.journal.sees(snapshot, base):
                    raise Broken(f"I2: {revision:016x} is visible without its base {base:016x}")
        if self.simulator.store.supports_transactions:
            self.one_order([*self.live, fresh_instance])
        self.lost_updates(committed)

    def one_order(self, instances: Sequence[Instance]) -> None:
        """Where the store orders all writes, all instances have the revisions that they keep in that order."""
        last: dict[int, int] = {}
        number, complete = 0, False
        while not complete:
            number, rows, complete = self.simulator.store.arrivals(schema.JOURNAL, number, 1, ())
            last.update((int.from_bytes(row.key, "big"), number) for row in rows)
        for instance in instances:
            order = list(instance.journal)
            if order != sorted(order, key=last.__getitem__):
                raise Broken(f"I11: an instance has another order than the store: {[f'{one:016x}' for one in order]}")

    def increments(self, fresh_instance: Instance) -> int | None:
        """Return what the committed revisions add to the count; None if that is not known."""
        operations = {**self.acknowledged, **self.unknown}
        counted = 0
        for revision, (_, changes) in self.committed(fresh_instance).items():
            if revision in operations:
                counted += any(isinstance(one, Increment) for one in operations[revision])
            else:
                # Its writer died before commit() returned.
                counted += any(
                    change.path == "/a" and change.kind == CHANGED and "count" in change.properties
                    for change in changes
                )
        return counted

    def outcomes(self) -> dict[int, Outcome]:
        """Return the outcome of every trunk revision, by the journal's rows."""
        rows = scan_all(self.simulator.store, schema.JOURNAL, Scan(None, None, 1000))
        decoded = journal_row.decode(rows)
        return {row.revision: row.outcome for row in decoded if not row.is_branch}

    def committed(self, fresh_instance: Instance) -> dict[int, tuple[int, list[RowChange]]]:
        """Return base and changes of every committed revision."""
        committed = [revision for revision, outcome in self.outcomes().items() if outcome is Outcome.COMMITTED]
        found = {}
        for entry in log.entries(fresh_instance, committed):
            revision = int(entry.revision, 16)
            found[revision] = (int(entry.base or "0", 16), [self.written(revision, change) for change in entry.changes])
        return found

    def written(self, revision: int, change: RowChange) -> RowChange:
        """Return a change without the properties that already had their value. A change that was declared before its nodes were
        read may name such properties.
        """
        store = self.simulator.store
        if not store.supports_parallel_calls or not change.properties:
            return change
        columns = [schema.property_column(name) for name in change.properties]
        (row,) = store.read(
            schema.NODES, [Get(paths.key(change.path), columns=columns, since=revision, before=revision + 1)]
        )
        there = {(cell.family, cell.qualifier) for cell in row.cells}
        return change._replace(
            properties=[name for name, column in zip(change.properties, columns, strict=True) if column in there]
        )

    def compare_with_model(self, committed: dict[int, Any], final: dict[str, Any]) -> None:
        """Check that the tree equals a plain dictionary after all committed operations in order.

        This is not known if a writer died before commit() returned, or if one copied nodes that others changed.
        """
        operations = {**self.acknowledged, **self.unknown}
        later = [revision for revision in sorted(committed) if revision > self.setup]
        done = [operations.get(revision) for revision in later]
        if any(one is None or any(isinstance(part, CopyNode) for part in one) for one in done):
            return
        model: dict[str, dict[str, Any]] = {"/": {}, "/a": {"count": 0}, "/a/b": {}}
        for revision in later:
            written = {(change.path, name) for change in committed[revision][1] for name in change.properties}
            for operation in operations[revision]:
                # A property that kept its value is not written, so it does not undo a later commit.
                if not isinstance(operation, SetProperty) or (operation.path, operation.name) in written:
                    try:
                        apply(model, operation)
                    except KeyError as error:
                        raise Broken(f"{revision:016x} committed {operation}, which cannot be done then") from error
        expected = {
            path: tuple(sorted((name, values.encode(value)) for name, value in properties.items()))
            for path, properties in model.items()
        }
        if expected != final:
            raise Broken(f"the tree is {final}, and the committed operations make {expected}")

    def lost_updates(self, committed: dict[int, tuple[int, list[RowChange]]]) -> None:
        """Check I4: of two revisions that write one column (but ``lastRevision``), the later is built on the earlier."""
        writers: dict[tuple[str, Any], list[int]] = {}
        for revision, (_, changes) in committed.items():
            for change in changes:
                for column in change.columns():
                    if column != schema.LAST_REVISION:
                        writers.setdefault((change.path, column), []).append(revision)
        for place, all_of in writers.items():
            for earlier, later in itertools.pairwise(sorted(all_of)):
                base = committed[later][0]
                if self.created_twice(place, earlier, later):
                    continue
                if base < earlier and not self.came_before(earlier, base):
                    raise Broken(f"I4: {earlier:016x} and {later:016x} both write {place} and neither has the other")

    def created_twice(self, place: tuple[str, Any], earlier: int, later: int) -> bool:
        """Return whether two first adjusts of a property wrote the same base; these do not conflict."""
        path, column = place
        get = Get(paths.key(path), columns=[column], since=earlier, before=later + 1, versions=ALL_VERSIONS)
        found = {cell.timestamp: cell.value for cell in self.simulator.store.read(schema.NODES, [get])[0].cells}
        return found.get(earlier) == found.get(later) and is_created(found.get(later, b""))

    def came_before(self, earlier: int, base: int) -> bool:
        """Return whether an instance saw a revision before a lower one; a view at the lower one then contains both."""
        return any(
            instance.journal.knows(base) and instance.journal.sort_key(earlier) <= instance.journal.sort_key(base)
            for instance in self.live
        )


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
