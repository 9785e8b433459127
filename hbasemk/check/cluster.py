"""The check of the ``cluster`` table: settings, watermark, checkpoints, leases; logs are in :mod:`hbasemk.check.logs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.logs import Logs
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.checkpoint import LIST, VIEW, digest_of, list_column, revision_of, view_column
from hbasemk.format.horizon import Horizon
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.format.trim_level import TrimLevel
from hbasemk.format.watermark import Watermark
from hbasemk.format.writer_log import Claims
from hbasemk.kernel import schema_version
from hbasemk.kernel.collection import retention
from hbasemk.kernel.collection.progress import Progress, decode_rows_progress
from hbasemk.kernel.journal.checkpoint_cells import Stored
from hbasemk.kernel.settings import Settings, watermark_of
from hbasemk.store.abc import Cell, Get, Row, Scan

ROWS: Final = 1000


class Leases:
    """The latest lease of each machine id, to validate revision ids."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def learn(self, machine: int, record: LeaseRecord) -> None:
        """Record a lease of the table."""
        self._ends[machine] = record.end
        self._starts[machine] = record.start

    def since_start(self, revision: int) -> int:
        """Return the ms from the start of its machine id's last lease to an id; from 1970 if that is unknown."""
        return revisions.ms_of(revision) - self._starts.get(revisions.machine_of(revision), 0)

    def cover(self, revision: int) -> bool:
        """Return whether an id is covered by a lease of its machine id: no writer issues ids beyond its lease.

        An id below the horizon is: its lease may have been deleted.
        """
        machine, ms = revisions.machine_of(revision), revisions.ms_of(revision)
        if ms < self._ends.get(machine, 0):
            return True
        row = self._context.read(schema.CLUSTER, [Get(schema.machine_key(machine), columns=(schema.LEASE,))])[0]
        try:
            for cell in row.cells:
                self.learn(machine, LeaseRecord.decode(cell.value))
        except FormatError:
            # The check of the leases reports the damage; which ids it covered is unknown.
            return True
        return ms < self._ends.get(machine, 0) or self._context.is_collected(revision)


class ClusterCheck:
    """Check the table once. ``progress`` is called with the number of rows of each batch."""

    def __init__(self, context: CheckContext, leases: Leases, logs: Logs, progress: Callable[[int], None]) -> None:
        self._context = context
        self._leases = leases
        self._logs = logs
        self._progress = progress

    def run(self) -> Iterator[Problem]:
        """Yield the problems of the table."""
        for rows in self._context.pages(schema.CLUSTER, Scan(None, None, ROWS, families=(schema.DATA,))):
            for row in rows:
                if row.key == schema.SETTINGS_ROW:
                    yield from self._check_settings(row)
                elif len(row.key) == 2:
                    yield from self._check_machine(row)
                elif not self._context.store.supports_transactions:
                    yield from self._logs.check_row(row)
            self._progress(len(rows))

    def _check_settings(self, row: Row) -> Iterator[Problem]:
        where = schema.SETTINGS_ROW.decode()
        cells = {cell[:2]: cell for cell in row.cells}
        found = {column: cell.value for column, cell in cells.items()}
        try:
            current = Settings.decode(found.get(schema.SETTINGS, b""), self._context.store)
            if current != self._context.settings:
                yield Problem(kinds.SETTINGS, where, "", f"they changed after this instance read them: {current}")
        except FormatError as error:
            yield Problem(kinds.SETTINGS, where, "", str(error))
        try:
            Watermark.decode(found.get(schema.WATERMARK, b""))
            watermark_of(cells, self._context.store)
        except FormatError as error:
            # The cells beside it are checked below.
            if getattr(error, "column", None) == schema.WATERMARK:
                yield Problem(kinds.WATERMARK, where, "", str(error))
        for kind, decode in (
            (schema.HORIZON, Horizon.decode),
            (schema.COLLECTED, Progress.decode),
            (schema.TRIMMED, TrimLevel.decode),
            (schema.CLAIMS, lambda _: Claims.decode(cells.get(schema.CLAIMS))),
            (schema.ARRIVAL, Watermark.arrival_of),
            (schema.RETENTION, retention.decode),
            (schema.COLLECTED_ROWS, lambda data: decode_rows_progress(data, schema.COLLECTED_ROWS)),
            (schema.DELETED_ROWS, lambda data: decode_rows_progress(data, schema.DELETED_ROWS)),
        ):
            try:
                decode(found.get(kind))
            except FormatError as error:
                yield Problem(kinds.SETTINGS, where, "", str(error))
        try:
            schema_version.of_row(row)
        except FormatError as error:
            yield Problem(kinds.SETTINGS, where, "", str(error))
        yield from self._check_checkpoints(row)

    def _check_checkpoints(self, row: Row) -> Iterator[Problem]:
        where = schema.SETTINGS_ROW.decode()
        cells = {(cell.family, cell.qualifier): cell for cell in row.cells}
        for column, cell in cells.items():
            prefix = next((one for one in (LIST, VIEW) if column[1].startswith(one)), None)
            if prefix is None:
                continue
            revision = revision_of(column[1], prefix)
            if revision is None:
                key = column[1][len(prefix) :]
                yield Problem(kinds.CHECKPOINT, where, "", f"{key[:40].hex()!r} is not a revision id")
                continue
            listed, view = cells.get(list_column(revision)), cells.get(view_column(revision))
            if cell is view and listed is not None:
                continue
            detail = _checkpoint_problem(Stored(revision, listed, view))
            if detail is not None:
                yield Problem(kinds.CHECKPOINT, where, text(revision), detail)

    def _check_machine(self, row: Row) -> Iterator[Problem]:
        machine = int.from_bytes(row.key, "big")
        where = f"machine {machine:04x}"
        lease = next((cell for cell in row.cells if (cell.family, cell.qualifier) == schema.LEASE), None)
        if lease is None:
            return
        try:
            record = LeaseRecord.decode(lease.value)
        except FormatError as error:
            detail = (
                f"{error}. Until it is repaired, no instance recovers pending revisions of machine id {machine:04x}, and the "
                "watermark may stay below them"
            )
            yield Problem(kinds.LEASE, where, "", detail, repairable=True)
            return
        self._leases.learn(machine, record)
        yield from self._check_lease(where, record, lease)

    def _check_lease(self, where: str, record: LeaseRecord, lease: Cell) -> Iterator[Problem]:
        settings = self._context.settings
        if record.end < record.start:
            yield Problem(kinds.LEASE, where, "", f"it ends {record.start - record.end} ms before it begins")
        # A lease covers one lease time from the server's time; an id that is ahead by the skew may extend it.
        latest = lease.timestamp - settings.epoch_ms + settings.lease_ms + 2 * settings.max_clock_skew_ms
        if record.end > latest:
            # Its holder may have seen ids ahead of the store's clock, and its own must be greater.
            latest = max(latest, self._highest_ms() + settings.lease_ms + settings.max_clock_skew_ms)
        if record.end > latest:
            detail = (
                f"it ends {record.end - latest} ms later than a lease written at that time can end; no instance recovers pending "
                f"revisions of {record.holder} earlier"
            )
            yield Problem(kinds.LEASE, where, "", detail)

    def _highest_ms(self) -> int:
        scan = Scan(None, None, 1, reverse=True, columns=(schema.COMMITTED,))
        newest = next(journal_row.decode(self._context.page(schema.JOURNAL, scan)), None)
        return 0 if newest is None else revisions.ms_of(newest.revision)


def _checkpoint_problem(stored: Stored) -> str | None:
    """Return what is wrong with the cells of one checkpoint; None if nothing is."""
    if stored.listed is None:
        return "there is a view, but no list of entries that keep it"
    try:
        digest = stored.list.digest
        kept = stored.kept
    except FormatError as error:
        return str(error)
    if stored.view is None:
        return "the view is missing" if digest else None
    if digest and digest_of(stored.view.value) != digest:
        return "the list has the digest of another view"
    if kept is not None and (stored.revision not in kept.extent or kept.upper < stored.revision):
        return f"the view lacks the revision, its highest is {text(kept.upper)}"
    return None
