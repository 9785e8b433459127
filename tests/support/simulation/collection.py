"""Random schedules of writers, readers of old snapshots, users of old branches, and collectors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hbasemk.check import problem as kinds
from hbasemk.errors import BranchError, HbasemkError, RevisionCollectedError, StoreError
from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel import checkpoints
from hbasemk.kernel import settings as kernel_settings
from hbasemk.kernel.collection import collector, node_cells, rule
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import ALL_VERSIONS, Column, DeleteBelow, Get, Put, Scan
from hbasemk.testing.simulation import FAULTS, Actor, Simulator
from tests.support.branches import commit_on_branch
from tests.support.collecting import set_grace
from tests.support.marking_store import MarkingStore
from tests.support.simulation.schedules import FEW, Schedule
from tests.support.simulation.trees import Broken, check_tables, tree

TRUST = 0.5
GRACE = 1.0


def small(patch: pytest.MonkeyPatch) -> None:
    """Make all times and batches short, so that a schedule contains many steps of collectors."""
    set_grace(patch, GRACE, TRUST)
    patch.setattr(collector, "WINDOW", 3)
    patch.setattr(collector, "HOT_CHANGES", 8)
    patch.setattr(node_cells, "ROWS", 2)
    patch.setattr(node_cells, "FEW_ROWS", 2)
    patch.setattr(node_cells, "COLUMNS", 2)


class WithoutWindows(Collector):
    """A collector whose windows miss everything, so that only a run that reads all rows deletes something."""

    def _next(self, _: Any) -> None:
        return None


class CollectedSchedule(Schedule):
    """One run of a seed, on a store that orders all writes or not. ``refused`` counts what was too old.

    In each fifth run the collectors read all rows (``full``), and windows delete nothing.

    ``deleted`` counts the ranges of versions of nodes that were deleted, also by collectors that failed afterwards.
    """

    excused: tuple[str, ...] = (kinds.ABORTED,)
    """A process that dies while it sweeps a branch leaves cells until the next sweep of branches."""
    misdated: tuple[str, ...] = ()
    """The kinds of problems that a check reports because the clock stepped, also after the last collection."""
    simulator_type: type[Simulator] = Simulator

    def __init__(
        self, seed: int, *, faults: bool = True, ordered: bool = True, choices: Sequence[int] | None = None
    ) -> None:
        # In half of the runs a commit of several rows goes step by step, so that others see it pending.
        batch_rows = 1 if seed % 4 >= 2 else 1000
        parallel = not ordered and seed % 8 < 4
        simulator = self.simulator_type(
            seed, choices=choices, transactions=ordered, parallel=parallel, batch_rows=batch_rows
        )
        if not ordered:
            simulator.store = MarkingStore(
                lambda: int(simulator.ms), seed=seed, parallel=parallel, batch_rows=batch_rows
            )
        skew_ms = 500 if ordered else 100
        settings = Settings(max_clock_skew_ms=skew_ms, lease_ms=2000)
        self.put: set[tuple[bytes, Column, int | None]] = set()
        """Every cell of a node that was ever written by a plain put, or by one with a condition."""
        write, check_and_write = simulator.store.write, simulator.store.check_and_write

        def record(table: str, *puts: Put) -> None:
            if table == schema.NODES:
                self.put.update(
                    (put.row, cell[:2], put.timestamp if cell[3] is None else cell[3])
                    for put in puts
                    for cell in put.cells
                )

        def record_write(table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
            record(table, *puts)
            write(table, puts, durable=durable)

        def record_check(table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True) -> bool:
            applied = check_and_write(table, column, expected, put, durable=durable)
            if applied:
                record(table, put)
            return applied

        delete_below = simulator.store.delete_below

        def count(table: str, deletes: Sequence[DeleteBelow]) -> None:
            delete_below(table, deletes)
            if table == schema.NODES:
                self.deleted += sum(len(one.cells) + len(one.families) for one in deletes)

        self.gone: dict[int, JournalRow] = {}
        """The rows of trunk revisions that collectors have deleted from the journal."""
        delete_rows, forget_arrivals = simulator.store.delete_rows, simulator.store.forget_arrivals

        def keep_rows(table: str, rows: Sequence[bytes]) -> None:
            found = journal_row.decode(simulator.store.read(table, [Get(key) for key in rows]))
            self.gone.update((row.revision, row) for row in found if row.committed or row.aborted)
            delete_rows(table, rows)

        def keep_numbers(table: str, upto: int) -> None:
            number, complete = 0, False
            while number < upto and not complete:
                number, rows, complete = simulator.store.arrivals(table, number, 1, ())
                self.forgotten.update((int.from_bytes(row.key, "big"), number) for row in rows)
            forget_arrivals(table, upto)

        simulator.store.delete_rows = keep_rows  # type: ignore[method-assign]
        simulator.store.forget_arrivals = keep_numbers  # type: ignore[method-assign]
        simulator.store.write = record_write  # type: ignore[method-assign]
        simulator.store.check_and_write = record_check  # type: ignore[method-assign]
        simulator.store.delete_below = count  # type: ignore[method-assign]
        self.orders: list[dict[int, int]] = []
        """The positions that instances knew before they began again, which drops them."""
        self.full = seed % 5 == 4
        self.refused = 0
        self.deleted = 0
        self.old_reads = 0
        self.begin(simulator, settings, FAULTS if faults else {})
        for number in range(2):
            simulator.add(f"writer{number}", self.writer(number, range(8)))
            simulator.add(f"reader{number}", lambda actor: self.reader(actor, 10))
        simulator.add("brancher", self.brancher)
        if seed % 3 == 0:
            simulator.add("keeper", self.keeper)
        for number in range(2):
            simulator.add(f"collector{number}", self.collects)

    # --- processes ---------------------------------------------------------------------------------------

    def opened(self, actor: Actor) -> Instance:
        """Open an instance, and record the order of its arrivals when it begins again."""
        instance = super().opened(actor)
        journal = instance.journal
        begin_again = journal._begin_again

        def record(*arguments: Any) -> None:
            self.orders.append({revision: journal.sort_key(revision)[0] for revision in journal})
            begin_again(*arguments)

        journal._begin_again = record  # type: ignore[method-assign, assignment]
        return instance

    def came_before(self, earlier: int, base: int) -> bool:
        """As in the base class, also for what an instance knew before it began again."""
        return super().came_before(earlier, base) or any(
            base in order and order.get(earlier, -1) <= order[base] for order in self.orders
        )

    def wait(self, actor: Actor) -> None:
        actor.runtime.sleep(self.simulator.chance.choice((0, 0.01, 0.2, 0.6, 1.3, 3)))

    def collects(self, actor: Actor) -> None:
        """Collect a few times, with another retention each time."""
        chance = self.simulator.chance
        instance = self.opened(actor)
        runs = WithoutWindows(instance) if self.full else Collector(instance)
        for _ in range(chance.choice((4, 8, 12))):
            self.wait(actor)
            with contextlib.suppress(StoreError, HbasemkError):
                runs.run(chance.choice((10, 10, 100, 1000)), wait=chance.happens(0.5), full=self.full)

    def turn(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit once, on the head or on a base that may be old."""
        self.wait(actor)
        if self.simulator.chance.happens(0.7):
            super().turn(actor, instance, number)
            return
        base = instance.head()
        operations = self.simulator.chance.choice(self.few)(number)
        self.wait(actor)
        with contextlib.suppress(StoreError, HbasemkError):
            self.commit_on(instance, base, operations)

    def commit_on(self, instance: Instance, base: Any, operations: Any) -> None:
        begun: list[int] = []
        try:
            revision = instance.commit_on(base, OperationList(operations), "", begun.append)
            if instance.journal.knows(revision) and revision in begun:
                self.acknowledged[revision] = operations
        except RevisionCollectedError:
            self.refused += 1
            self.is_collected(instance, base)
        except BaseException:
            self.unknown.update((revision, operations) for revision in begun)
            raise

    def is_collected(self, instance: Instance, view: Any) -> None:
        """I14: only a snapshot that the horizon has passed is refused."""
        horizon = fence.read_horizon(RetryingStore(self.simulator.store, instance.runtime)).revision
        if instance.journal.complete_up_to(view) >= horizon:
            raise Broken(f"I14: {view.revision:016x} is readable and was refused; the horizon is {horizon:016x}")

    def reader(self, actor: Actor, looks: int) -> None:
        """Read at heads, and at the same snapshots again later."""
        instance = self.opened(actor)
        own: list[tuple[Any, Any]] = []
        for _ in range(looks):
            self.wait(actor)
            with contextlib.suppress(StoreError):
                if self.simulator.chance.happens(0.6):
                    instance.poll()
                snapshot = instance.head()
                try:
                    found = tree(instance, snapshot)
                    seen = frozenset(one for one in instance.journal if instance.journal.sees(snapshot, one))
                    self.kept.append((instance, snapshot, found, seen))
                    own.append((snapshot, found))
                except RevisionCollectedError:
                    self.refused += 1
                    self.is_collected(instance, snapshot)
                if own:
                    snapshot, found = self.simulator.chance.choice(own)
                    self.look_into_cache(instance, snapshot, found)
                    if not self.reads_as_before(instance, snapshot, found):
                        raise Broken(f"I13: the tree at {snapshot.revision:016x} is not {found}")
                    self.old_reads += 1

    def look_into_cache(self, instance: Instance, snapshot: Any, found: Mapping[str, object]) -> None:
        try:
            super().look_into_cache(instance, snapshot, found)
        except RevisionCollectedError:
            self.refused += 1
            self.is_collected(instance, snapshot)

    def reads_as_before(self, instance: Instance, snapshot: Any, found: Mapping[str, object]) -> bool:
        try:
            return super().reads_as_before(instance, snapshot, found)
        except RevisionCollectedError:
            self.refused += 1
            self.is_collected(instance, snapshot)
            return True

    def brancher(self, actor: Actor) -> None:
        """Begin branches on snapshots that grow old, read and change them later, and merge or abandon them."""
        chance = self.simulator.chance
        instance = self.opened(actor)
        for number in range(100, 103):
            self.wait(actor)
            self.wait(actor)
            with contextlib.suppress(StoreError, HbasemkError):
                instance.poll()
                base = instance.head()
                before = tree(instance, base)
                self.wait(actor)
                try:
                    at = instance.begin_branch(base)
                except RevisionCollectedError:
                    self.refused += 1
                    continue
                self.wait(actor)
                self.wait(actor)
                self.compare_branch(actor, at, before)
                at = commit_on_branch(instance, at, chance.choice(FEW)(number))
                at = commit_on_branch(instance, at, [SetProperty("/a", f"b{number}", number)])
                self.wait(actor)
                after = tree(instance, instance.branch(at).view)
                self.wait(actor)
                self.compare_branch(actor, at, after)
                if chance.happens(0.7):
                    revision = instance.merge_branch(at, "")
                    if instance.journal.knows(revision):
                        self.merged.add(revision)
                elif chance.happens(0.5):
                    instance.abandon_branch(at)
                if chance.happens(0.7):
                    instance.sweep_branches(0)

    def keeper(self, actor: Actor) -> None:
        """Make checkpoints of snapshots that grow old, read them later in another instance, and release some of them."""
        instance = self.opened(actor)
        for _ in range(3):
            self.wait(actor)
            with contextlib.suppress(StoreError, HbasemkError):
                instance.poll()
                view = instance.head()
                before = tree(instance, view)
                self.wait(actor)
                try:
                    made = checkpoints.keep_for(instance, view, 10**9)
                except RevisionCollectedError:
                    self.refused += 1
                    self.is_collected(instance, view)
                    continue
                self.wait(actor)
                self.wait(actor)
                other = self.opened(actor)
                try:
                    found = tree(other, other.at(made.revision))
                except RevisionCollectedError as error:
                    raise Broken(f"I14: the checkpoint {made.name} was refused: {error}") from error
                if found != before:
                    raise Broken(f"I13: the checkpoint {made.name} reads {found}, not {before}")
                if self.simulator.chance.happens(0.7):
                    checkpoints.release(instance, made.revision, made.number)

    def compare_branch(self, actor: Actor, at: int, before: Any) -> None:
        """Check that a branch that has not ended reads the same in every instance, whatever its age."""
        instance = self.opened(actor)
        try:
            found = tree(instance, instance.branch(at).view)
        except RevisionCollectedError as error:
            with contextlib.suppress(BranchError):
                instance.require_branch_head(at)
                raise Broken(f"I14: the branch revision {at:016x} was refused: {error}") from error
            return
        if found != before:
            raise Broken(f"I13: branch revision {at:016x} reads {found}, not {before}")

    def rows(self) -> list[JournalRow]:
        """As in the base class, with the rows that collectors have deleted."""
        found = {row.revision: row for row in super().rows()}
        return [row for row in {**found, **self.gone}.values() if not row.is_branch]

    # --- after the run -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule and check everything; at the end nothing needless is left (I15)."""
        super().run()
        self.collect_all()

    def written(self, revision: int, change: RowChange) -> RowChange:
        """As in the base class; but the cells may be collected, so this asks what was ever put."""
        if not self.simulator.store.supports_parallel_calls:
            return change
        row = paths.key(change.path)
        names = [one for one in change.properties if (row, schema.property_column(one), revision) in self.put]
        return change._replace(properties=names)

    def collect_all(self) -> None:
        """Collect without any branch, and check the tables against the rule."""
        simulator = self.simulator
        last = simulator.add("last", lambda _: None).open()
        last.clock.next(0)
        last.sweep_branches(0)
        simulator.ms += 60_000
        last.poll()
        last.maintain()
        before = tree(last, last.head())
        Collector(last).run(10)
        if tree(last, last.head()) != before:
            raise Broken("I13: the last collection has changed the tree")
        horizon = last.journal.fence.horizon
        _, watermark = kernel_settings.read(simulator.store)
        assert watermark is not None
        for row in simulator.store.scan(schema.NODES, Scan(None, None, 10_000, versions=ALL_VERSIONS)):
            versions: dict[Any, list[tuple[int, bytes]]] = {}
            for cell in row.cells:
                if not revisions.is_branch(cell.timestamp) and cell.timestamp not in watermark.hidden:
                    versions.setdefault(cell[:2], []).append((cell.timestamp, cell.value))
            left = rule.collectable(versions, horizon)
            if left:
                raise Broken(f"I15: {paths.path_of(row.key)} still has {left} below {horizon:016x}")
        fresh = simulator.add("after", lambda _: None).open()
        if tree(fresh, fresh.head()) != before:
            raise Broken("I13: a new instance reads another tree after the last collection")
        self.check_after(fresh)

    def check_after(self, fresh: Instance) -> None:
        check_tables(fresh, "tables after the last collection", self.misdated)
        extent = Extent(fence.read_horizon(fresh.store).revision)
        (row,) = self.simulator.store.read(schema.NODES, [Get(paths.key("/"), columns=(schema.DELETED,))])
        if not any(cell.timestamp in extent for cell in row.cells):
            raise Broken("the root has been collected")
