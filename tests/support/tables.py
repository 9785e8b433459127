"""A repository whose tables a test damages outside of the protocol, and the integrity check's findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hbasemk.check import IntegrityCheck, Problem, Repair
from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.watermark import Watermark
from hbasemk.format.writer_log import Claims
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Cell, CellVersion, Column, Delete, Get, NewCell, Put, Store
from tests.support.announced import make_id
from tests.support.branches import commit_on_branch

Found = tuple[str, str, str]
"""Kind, path and revision of a problem."""


class Tables:
    """One repository: ``instance`` follows the protocol; all other methods here write forbidden cells.

    ``open_instance`` makes further instances, by their machine id; ``wait`` lets seconds pass.
    """

    def __init__(
        self,
        store: Store,
        open_instance: Callable[[int], Instance],
        wait: Callable[[float], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.store = store
        self.open_instance = open_instance
        self.wait = wait
        self.now_ms = now_ms
        self.instance = open_instance(1)
        self._machines = iter(range(100, 1000))

    # --- by the protocol ---------------------------------------------------------------------------------

    def commit(self, *operations: Operation) -> int:
        """Commit operations by the protocol."""
        return self.instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)

    def branch(self) -> int:
        """Create a branch on the head."""
        return self.instance.branches.begin(self.instance.head())

    def commit_on_branch(self, revision: int, *operations: Operation) -> int:
        """Commit on a branch, whose newest revision is given."""
        return commit_on_branch(self.instance, revision, operations)

    def other(self) -> Instance:
        """Open one more instance, which holds a lease."""
        instance = self.open_instance(next(self._machines))
        instance.clock.next(0)
        return instance

    # --- raw cells ---------------------------------------------------------------------------------------

    def put(self, table: str, key: bytes, *cells: tuple[Column, bytes, int | None]) -> None:
        """Write cells at given timestamps (None: the server's time)."""
        new = [NewCell(*column, value, timestamp) for column, value, timestamp in cells]
        self.store.write(table, [Put(key, new)])

    def cell(self, table: str, key: bytes, column: Column) -> Cell:
        """Return the newest cell of a column."""
        return self.store.read(table, [Get(key, columns=(column,))])[0].cells[0]

    def remove(self, table: str, key: bytes, column: Column, timestamp: int | None = None) -> None:
        """Delete one version (None: the newest)."""
        version = self.cell(table, key, column).timestamp if timestamp is None else timestamp
        self.store.delete(table, [Delete(key, [CellVersion(*column, version)])])

    def node(self, path: str, at: int, *cells: tuple[Column, bytes]) -> None:
        """Write cells of a node at a revision, ``lastRevision`` included."""
        all_cells = [(schema.LAST_REVISION, schema.TOUCHED), *cells]
        self.put(schema.NODES, paths.key(path), *((column, value, at) for column, value in all_cells))

    def journal(self, revision: int, column: Column, value: bytes) -> None:
        """Write one cell of a journal row."""
        self.put(schema.JOURNAL, schema.revision_key(revision), (column, value, None))

    def row(
        self,
        revision: int,
        row_changes: Sequence[RowChange] = (),
        *,
        committed: bool = False,
        aborted: bool = False,
        swept: bytes | None = None,
        base: int | None = None,
    ) -> None:
        """Write a whole journal row as a writer would, decided or not."""
        built_on = self.instance.settings.root_revision if base is None else base
        cells = [
            NewCell(*schema.COMMITTED, schema.YES if committed else schema.NO),
            NewCell(*schema.ABORT, schema.YES if aborted else schema.NO),
            NewCell(*schema.NONCE, bytes(16)),
            NewCell(*schema.BASE, schema.revision_key(built_on)),
            NewCell(*schema.MESSAGE, b"\x00"),
            *changes.encode(row_changes),
        ]
        if swept is not None:
            cells.append(NewCell(*schema.SWEPT, swept))
        self.store.write(schema.JOURNAL, [Put(schema.revision_key(revision), cells)])

    def forge(self, *row_changes: RowChange, base: int | None = None) -> int:
        """Create a revision that is committed without validation; ``base`` None: on the head."""
        self.instance.poll()
        head = self.instance.head()
        revision = make_id(self.instance, head.upper)
        self.row(revision, row_changes, committed=True, base=head.revision if base is None else base)
        self.instance.announcements.decided(revision)
        self.cells(revision, row_changes)
        return revision

    def cells(self, revision: int, row_changes: Sequence[RowChange]) -> None:
        """Write the cells of nodes that a revision announces."""
        for change in row_changes:
            cells: list[tuple[Column, bytes]] = [(schema.property_column(name), b"\x04") for name in change.properties]
            cells += [(schema.child_column(name), schema.PRESENT) for name in change.children_added]
            cells += [(schema.child_column(name), schema.GONE) for name in change.children_removed]
            if change.kind != changes.CHANGED:
                cells.append((schema.DELETED, schema.ALIVE if change.kind == changes.ADDED else schema.DEAD))
            self.node(change.path, revision, *cells)

    def dead_writer(self, *row_changes: RowChange, aborted: bool = False, swept: bytes | None = None) -> int:
        """Create a revision of a writer that holds a lease and has died."""
        revision = make_id(self.other())
        self.row(revision, row_changes, aborted=aborted, swept=swept)
        self.cells(revision, row_changes)
        return revision

    def stranger(self) -> int:
        """Return an id of the present time, of a machine id that was never leased, without a journal row."""
        ms = self.now_ms() - self.instance.settings.epoch_ms
        return revisions.pack(ms, 0xE000 + next(self._machines), 0)

    def watermark(self, *, hide: Sequence[int] = (), show: Sequence[int] = ()) -> None:
        """Move the watermark to the highest revision there is."""
        now = Watermark.decode(self.cell(schema.CLUSTER, schema.SETTINGS_ROW, schema.WATERMARK).value)
        self.instance.poll()
        head = self.instance.head().upper
        self.move_watermark(Watermark(max(now.revision, head), (now.hidden | set(hide)) - set(show)))

    def move_watermark(self, moved: Watermark) -> None:
        """Write a watermark, and in a store without an order of writes also the counter of claims."""
        self.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, moved.encode(), None))
        if not self.store.supports_transactions:
            claims = Claims.decode(self.cell(schema.CLUSTER, schema.SETTINGS_ROW, schema.CLAIMS))
            self.store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [claims.next(moved.revision)])])

    # --- the check ---------------------------------------------------------------------------------------

    def problems(self, instance: Instance | None = None, **options: Any) -> list[Problem]:
        """Return the problems that an instance (None: a new one) finds, notes included."""
        looking = instance or self.open_instance(next(self._machines))
        return list(IntegrityCheck(looking, notes=True, **options).run())

    def found(self, instance: Instance | None = None, **options: Any) -> list[Found]:
        """Return kinds, paths and revisions of the problems."""
        return [(one.kind, one.path, one.revision) for one in self.problems(instance, **options)]

    def repair(self) -> list[str | None]:
        """Check and repair; return the action for each problem, or None."""
        looking = self.open_instance(next(self._machines))
        repair = Repair(looking)
        return [repair.repair(problem) for problem in IntegrityCheck(looking, notes=True).run()]
