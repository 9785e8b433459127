"""The invariants of the protocol, as far as they are visible after a run of simulated processes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hbasemk.check.problem import BELOW_WATERMARK, NOT_HIDDEN
from hbasemk.format import journal_row, paths, schema, values
from hbasemk.format.adjusted import is_created
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, Get, Scan, scan_all
from hbasemk.testing.history.simulated import LATE_SWEEP
from hbasemk.testing.simulation import Died, Simulator
from tests.support.simulation.trees import Broken, cached_tree, check_tables, tree

AN_HOUR_LATER: Final = (BELOW_WATERMARK, NOT_HIDDEN)
"""The problems that rows too late for any poll cause until the hourly scan finds them."""


def look_for_late_rows(simulator: Simulator, instance: Instance) -> None:
    """Let an hour pass: only then an instance scans for rows too late for any poll."""
    simulator.ms += LATE_SWEEP
    instance.poll()
    instance.maintain()
    instance.poll()


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


class RecordedRun:
    """What one run of simulated processes has recorded, and the invariants that must hold after it."""

    excused: tuple[str, ...] = ()
    """Kinds of problems that the integrity check may report in any of its runs."""

    def record(self, simulator: Simulator) -> None:
        """Begin the record."""
        self.simulator = simulator
        self.setup = 0
        """The revision that creates the tree."""
        self.merged: set[int] = set()
        self.acknowledged: dict[int, list[Operation]] = {}
        self.unknown: dict[int, list[Operation]] = {}
        self.forgotten: dict[int, int] = {}
        """The arrival numbers of revisions that a collector has made the store forget."""
        self.kept: list[tuple[Instance, Any, dict[str, Any], frozenset[int]]] = []
        self.live: list[Instance] = []

    def run(self) -> None:
        """Run the schedule and check everything; raise Broken if an invariant is violated."""
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
        look_for_late_rows(self.simulator, fresh_instance)
        check_tables(fresh_instance, "tables, after somebody looked for late rows", self.excused)
        if tree(fresh_instance, fresh_instance.head()) != final:
            raise Broken("I8: looking for late rows has changed the tree")

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
        counted = self.increments()
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
        committed = self.committed()
        self.compare_with_model(committed, final)
        for instance in self.live:
            for revision in instance.journal:
                base = committed[revision][0]
                if base in committed and instance.journal.sort_key(base) >= instance.journal.sort_key(revision):
                    raise Broken(f"I2: {revision:016x} comes before its base {base:016x} in an instance")
        for instance, snapshot, found, visible in self.kept:
            if not self.reads_as_before(instance, snapshot, found):
                raise Broken(f"I5: the tree at {snapshot.revision:016x} has changed")
            for revision in visible:
                base = committed[revision][0]
                if base in committed and not instance.journal.sees(snapshot, base):
                    raise Broken(f"I2: {revision:016x} is visible without its base {base:016x}")
        if self.simulator.store.supports_transactions:
            self.one_order([*self.live, fresh_instance])
        self.lost_updates(committed)

    def reads_as_before(self, instance: Instance, snapshot: Any, found: Mapping[str, object]) -> bool:
        """Return whether a snapshot still reads as it did."""
        return tree(instance, snapshot) == found

    def one_order(self, instances: Sequence[Instance]) -> None:
        """Where the store orders all writes, all instances have the revisions that they keep in that order."""
        last: dict[int, int] = {}
        number, complete = 0, False
        while not complete:
            number, rows, complete = self.simulator.store.arrivals(schema.JOURNAL, number, 1, ())
            last.update((int.from_bytes(row.key, "big"), number) for row in rows)
        last = {**self.forgotten, **last}
        for instance in instances:
            order = list(instance.journal)
            if order != sorted(order, key=last.__getitem__):
                raise Broken(f"I11: an instance has another order than the store: {[f'{one:016x}' for one in order]}")

    def increments(self) -> int | None:
        """Return what the committed revisions add to the count; None if that is not known."""
        operations = {**self.acknowledged, **self.unknown}
        counted = 0
        for revision, (_, changes) in self.committed().items():
            if revision in operations:
                counted += any(isinstance(one, Increment) for one in operations[revision])
            else:
                # Its writer died before commit() returned.
                counted += any(
                    change.path == "/a" and change.kind == CHANGED and "count" in change.properties
                    for change in changes
                )
        return counted

    def rows(self) -> list[JournalRow]:
        """Return the whole journal rows of every trunk revision."""
        rows = scan_all(self.simulator.store, schema.JOURNAL, Scan(None, None, 1000))
        return [row for row in journal_row.decode(rows) if not row.is_branch]

    def outcomes(self) -> dict[int, Outcome]:
        """Return the outcome of every trunk revision, by the journal's rows."""
        return {row.revision: row.outcome for row in self.rows()}

    def committed(self) -> dict[int, tuple[int, list[RowChange]]]:
        """Return base and changes of every committed revision."""
        return {
            row.revision: (row.base or 0, [self.written(row.revision, change) for change in row.changes])
            for row in self.rows()
            if row.committed
        }

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
