"""The context of one check: reads from the store, and a bounded cache of revision statuses."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.check.found_cells import FoundCells, declared_node, hash_of, hash_of_path, hashes_of, number_of
from hbasemk.check.statuses import RevisionStatus, Statuses
from hbasemk.errors import FormatError
from hbasemk.format import paths, revisions, schema, writer_log
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.batches import batched
from hbasemk.kernel.inspection import Inspection
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import Column, Get, Row, Scan

AT_ONCE: Final = 100
"""Journal rows in one call; each may hold its changes."""


class CheckContext:
    """Reads for one run of the check.

    ``initial_watermark`` is the watermark at the beginning of the run (None: unreadable). ``live``: other instances may
    work meanwhile, so a rollback that is still possible for its writer counts as done. ``found`` are the cells found in
    ``nodes``. ``statuses`` are those that another context has read before.
    """

    def __init__(self, inspection: Inspection, *, live: bool, statuses: Statuses | None = None) -> None:
        self.store = inspection.store
        self.settings = inspection.settings
        self.sees = inspection.sees
        self.deferred = inspection.deferred
        self.is_lease_over = inspection.is_lease_over
        self.live = live
        try:
            self.initial_watermark = self.read_watermark()
        except FormatError:
            self.initial_watermark = None
        self.found = FoundCells()
        self._horizon = 0
        self._trimmed = 0
        self.statuses = Statuses() if statuses is None else statuses

    # --- the store ---------------------------------------------------------------------------------------

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Read rows, one round trip for each batch."""
        return self.store.read(table, gets)

    def page(self, table: str, scan: Scan) -> list[Row]:
        """Return the first rows of a range."""
        return self.store.scan(table, scan)

    def pages(self, table: str, scan: Scan) -> Iterator[list[Row]]:
        """Yield all rows of a range, upwards, ``scan.limit`` at a time."""
        while True:
            rows = self.page(table, scan)
            if rows:
                yield rows
            if len(rows) < scan.limit:
                return
            scan = scan._replace(start=rows[-1].key + b"\0")

    def read_watermark(self) -> Watermark | None:
        """Return the present watermark; raises FormatError if it is damaged."""
        cells = self.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,))])[0].cells
        return Watermark.decode(cells[0].value) if cells else None

    def is_collected(self, revision: int) -> bool:
        """Return whether cells of a revision may be missing because the horizon has passed it; call it after the read."""
        if revision > self._horizon:
            try:
                self._horizon = fence.read_horizon(self.store).revision
            except FormatError:
                # The check of the settings reports it. Any revision may be collected.
                self._horizon = revisions.MAX_REVISION
        return revision <= self._horizon

    def is_trimmed(self, revision: int) -> bool:
        """Return whether the journal row of a trunk revision may have been deleted; call it after the read."""
        if revision > self._trimmed:
            try:
                self._trimmed = fence.read_trim_level(self.store).revision
            except FormatError:
                # The check of the settings reports it. Any row may be deleted.
                self._trimmed = revisions.MAX_REVISION
        return revision <= self._trimmed and not revisions.is_branch(revision)

    def was_committed(self, revision: int, status: RevisionStatus) -> bool:
        """Return whether a revision is committed although its journal row does not say so: a collector has deleted that row.

        A row that is there now was created later, by a request that was repeated.
        """
        mark = self.initial_watermark
        # A collector deletes the row of an aborted revision only after its cells, and the watermark hides what comes later.
        is_open = status.outcome in (Outcome.ABSENT, Outcome.PENDING)
        return (
            (is_open or (status.outcome is Outcome.ABORTED and status.swept is None))
            and self.is_trimmed(revision)
            and (mark is None or revision not in mark.hidden)
        )

    def is_announced_with_changes(self, revision: int) -> bool:
        """Return whether the log of its writer shows the changes of a revision, which then has no row before its decision."""
        if self.store.supports_transactions:
            return False
        (log,) = self.read(schema.CLUSTER, [writer_log.get_changes(revision)])
        return writer_log.changes_of(log, revision) is not None

    # --- revisions ---------------------------------------------------------------------------------------

    def status(self, revision: int) -> RevisionStatus:
        """Return the status of a revision; a cached status may be out of date."""
        found = self.statuses.get(revision)
        if found is None:
            self.load((revision,))
            found = self.statuses.get(revision)
            assert found is not None
        return found

    def current_status(self, revision: int) -> RevisionStatus:
        """Read the status of a revision again."""
        self.statuses.drop(revision)
        return self.status(revision)

    def is_visible(self, revision: int) -> bool:
        """Return whether this instance, or an instance that opens now, shows the cells of a revision."""
        mark = self.initial_watermark
        return self.sees(revision) or (
            mark is not None
            and revision <= mark.revision
            and revision not in mark.hidden
            and not revisions.is_branch(revision)
        )

    def load(self, ids: Iterable[int]) -> None:
        """Load the statuses of many revisions in few calls; keep the most recent ones."""
        unknown = [one for one in ids if not self.statuses.touch(one)]
        # Only before a load: statuses that a caller has just loaded stay until its next load.
        self.statuses.make_room(len(unknown))
        for part in batched(unknown, AT_ONCE):
            for row in self.journal_rows(part):
                self.learn(row)

    def journal_rows(self, revisions: Iterable[int], columns: Sequence[Column] | None = None) -> list[JournalRow]:
        """Read the journal rows of some revisions."""
        gets = [Get(schema.revision_key(revision), columns) for revision in revisions]
        return list(map(JournalRow, self.read(schema.JOURNAL, gets)))

    def learn(self, row: JournalRow) -> RevisionStatus:
        """Return and cache the status from a complete journal row."""
        outcome = row.outcome
        before = self.statuses.get(row.revision)
        if before is not None and before.outcome is Outcome.COMMITTED is outcome:
            # The changes of a committed revision stay as they are.
            declared, number = before.declared, before.number
        elif outcome is Outcome.ABORTED or outcome is Outcome.ABSENT:
            declared, number = None, None
        else:
            declared, number = self._declared_cells(row)
        found = RevisionStatus(
            outcome, row.swept, declared, base_of(row), number, row.value(schema.COMMITTED) == schema.NO
        )
        self.statuses.put(row.revision, found)
        return found

    def _declared_cells(self, row: JournalRow) -> tuple[array[int] | None, int | None]:
        """Return the hashes and the number of the cells that a row declares."""
        if row.revision == self.settings.root_revision:
            root = hash_of_path(paths.ROOT)
            return array("q", sorted(hash_of(root, one) for one in (schema.DELETED, schema.LAST_REVISION))), None
        touched = declared_by(row)
        if not touched:
            return None, None
        try:
            hashes: list[int] = []
            added: list[int] = []
            for change in touched:
                of_row = hashes_of(change)
                hashes += of_row
                node = declared_node(change, of_row)
                if node is not None:
                    added.append(node)
            return array("q", sorted(hashes + added)), number_of(touched, hashes)
        except UnicodeEncodeError:
            return None, None


def base_of(row: JournalRow) -> int | None:
    """Return the base in a journal row; None if it is missing or damaged."""
    try:
        return row.base
    except FormatError:
        return None


def declared_by(row: JournalRow) -> Sequence[RowChange] | None:
    """Return the changes that a journal row declares; empty if there are none, None if they cannot be decoded."""
    try:
        return row.changes
    except FormatError:
        return None


def text(revision: int) -> str:
    """Return a revision in text form."""
    return revisions.to_text(revision)
