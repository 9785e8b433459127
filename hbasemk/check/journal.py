"""The check of the journal: each row by itself, its base, and that the nodes hold the declared cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.check import problem as kinds
from hbasemk.check.arrivals import ArrivalsCheck
from hbasemk.check.branches import BranchesCheck
from hbasemk.check.cluster import Leases
from hbasemk.check.context import CheckContext, declared_by, text
from hbasemk.check.declared_cells import compare
from hbasemk.check.logs import Logs
from hbasemk.check.notice import check_notice
from hbasemk.check.problem import Problem
from hbasemk.check.statuses import RevisionStatus
from hbasemk.errors import FormatError
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.batches import batched
from hbasemk.store.abc import Row, Scan

ROWS: Final = 100
GETS: Final = 200
"""Rows of ``nodes`` that one call compares with the declared cells."""
FLAGS: Final = (schema.NO, schema.YES)
NONCE_BYTES: Final = 16


class _Entry(NamedTuple):
    """One journal row and its status."""

    revision: int
    row: JournalRow
    status: RevisionStatus


class JournalCheck:
    """Check the journal once. ``progress`` is called with the number of rows of each batch."""

    def __init__(self, context: CheckContext, leases: Leases, logs: Logs, progress: Callable[[int], None]) -> None:
        self._context = context
        self._leases = leases
        self._logs = logs
        self._watermark = context.initial_watermark
        self._progress = progress
        self._branches = BranchesCheck(context)
        self._arrivals = ArrivalsCheck(context)
        # On a store with parallel calls, a row declares the most that its operations can touch; not all of it is written.
        self._exact = not context.store.supports_parallel_calls
        self._before = context.settings.root_revision

    def run(self) -> Iterator[Problem]:
        """Yield the problems of the journal, and its differences from the nodes."""
        yield from check_notice(self._context)
        for rows in self._context.pages(schema.JOURNAL, Scan(None, None, ROWS, families=(schema.DATA,))):
            entries: list[_Entry] = []
            for row in rows:
                if row.key == schema.revision_key(schema.NOTICE):
                    continue
                if journal_row.is_key(row.key):
                    decoded = JournalRow(row)
                    entries.append(_Entry(decoded.revision, decoded, self._context.learn(decoded)))
                else:
                    yield from _check_other(row)
            self._context.load([entry.status.base for entry in entries if entry.status.base is not None])
            for entry in entries:
                yield from self._check(entry)
                if self._leases.cover(entry.revision):
                    self._before = entry.revision
            yield from self._compare(entries)
            yield from self._branches.check([entry.row for entry in entries if entry.row.is_branch])
            yield from self._arrivals.check([entry.row for entry in entries])
            self._progress(len(rows))
        yield from self._arrivals.read_on()
        yield from self._check_hidden()

    # --- one row -----------------------------------------------------------------------------------------

    def _check(self, entry: _Entry) -> Iterator[Problem]:
        at = text(entry.revision)
        row = entry.row
        if self._is_deleted_before(entry):
            detail = (
                "a process that slept wrote to its row, which a collector had deleted; a later run deletes it again, on HBase "
                "only one with --full"
            )
            yield Problem(kinds.BRANCH if row.is_branch else kinds.ROW_AGAIN, "", at, detail, kinds.LEFTOVER)
            return
        yield from _check_shape(entry, root=entry.revision == self._context.settings.root_revision)
        if entry.row.committed and entry.row.aborted:
            yield Problem(kinds.BOTH, "", at, "both flags are set")
        elif entry.row.swept is not None and not entry.row.aborted:
            yield Problem(kinds.SWEPT_WRONGLY, "", at, "its row says that its cells are deleted, but it is not aborted")
        yield from self._check_id(entry)
        yield from self._check_base(entry)
        if not entry.row.is_branch:
            yield from self._check_end(entry)

    def _is_deleted_before(self, entry: _Entry) -> bool:
        """Return whether a collector had deleted this row, and a process that slept, or a repeated request, wrote it again."""
        if entry.row.value(schema.COMMITTED) is None:
            return self._context.is_collected(entry.revision)
        # Everything that collectors delete was decided, and swept if it was aborted. A hidden revision was aborted.
        is_open = entry.status.outcome is Outcome.PENDING or (entry.row.aborted and entry.status.swept is None)
        is_hidden = self._watermark is not None and entry.revision in self._watermark.hidden
        is_wrong = is_open or (is_hidden and entry.row.committed)
        return is_wrong and not entry.row.is_branch and self._context.is_trimmed(entry.revision)

    def _check_id(self, entry: _Entry) -> Iterator[Problem]:
        created_ms = entry.row.created_ms
        if created_ms is None:
            # The first revision, or one whose row another instance created as aborted: no writer created it.
            return
        at = text(entry.revision)
        if not self._leases.cover(entry.revision):
            yield Problem(
                kinds.OUTSIDE_LEASE,
                "",
                at,
                f"machine id {revisions.machine_of(entry.revision):04x} has never been leased for the time of this id",
            )
        settings = self._context.settings
        if self._context.store.supports_transactions:
            # There no clock plays a part: polls read revisions in the order of their arrival.
            return
        # An id may be ahead of the store's clock only as far as ids before it, or its writer's lease, already were.
        step = min(
            revisions.ms_of(entry.revision) - revisions.ms_of(self._before), self._leases.since_start(entry.revision)
        )
        ahead = min(step, revisions.ms_of(entry.revision) + settings.epoch_ms - created_ms)
        if ahead > settings.max_clock_skew_ms:
            detail = f"it is {ahead} ms ahead of the server's time at the creation of its row"
            yield Problem(kinds.OFF_CLOCK, "", at, f"{detail}; at most {settings.max_clock_skew_ms} are allowed")

    def _check_base(self, entry: _Entry) -> Iterator[Problem]:
        base = entry.status.base
        if base is None:
            return
        at, name = text(entry.revision), text(base)
        if base >= entry.revision:
            yield Problem(kinds.BASE, "", at, f"its base {name} is not lower than itself")
            return
        if revisions.is_branch(base):
            yield Problem(kinds.BASE, "", at, f"its base {name} is a branch revision")
            return
        outcome = self._context.status(base).outcome
        if outcome is not Outcome.COMMITTED:
            outcome = self._context.current_status(base).outcome
        if outcome in (Outcome.ABSENT, Outcome.PENDING) and self._context.is_trimmed(base):
            # A row that is there was created by a repeated request.
            return
        if outcome is Outcome.ABSENT:
            yield Problem(kinds.BASE, "", at, f"its base {name} does not exist")
        elif outcome is Outcome.PENDING or (outcome is Outcome.ABORTED and not self._is_final(base)):
            # A watermark may be an aborted revision; it then names a snapshot like any other.
            yield Problem(kinds.BASE, "", at, f"its base {name} is {outcome.value}")

    def _is_final(self, revision: int) -> bool:
        if self._watermark is not None and revision <= self._watermark.revision:
            return True
        try:
            moved = self._context.read_watermark()
        except FormatError:
            return False
        return moved is not None and revision <= moved.revision

    # --- outcomes ------------------------------------------------------------------------------------

    def _check_end(self, entry: _Entry) -> Iterator[Problem]:
        """Yield a trunk revision that is not decided or swept in time, or committed without an announcement."""
        outcome, swept = entry.status.outcome, entry.status.swept
        if outcome is Outcome.COMMITTED:
            yield from self._logs.check_announced(entry.revision)
            return
        if entry.revision in self._context.deferred():
            return
        if outcome is Outcome.ABSENT:
            return
        if outcome is Outcome.ABORTED and swept == schema.SWEPT_CLEAN:
            return
        mark = self._watermark
        below = mark is not None and entry.revision <= mark.revision and entry.revision not in mark.hidden
        at = text(entry.revision)
        if outcome is Outcome.ABORTED and swept is not None:
            if below and self._still_unhidden(entry.revision):
                detail = "it was swept in doubt below the watermark: cells that a late request writes would be visible"
                yield Problem(kinds.NOT_HIDDEN, "", at, detail, repairable=True)
            return
        lease_over = self._context.is_lease_over(entry.revision)
        # Its writer, or a recovering instance, may have ended it meanwhile.
        current = self._context.current_status(entry.revision)
        if current.outcome is not outcome or current.swept is not None:
            return
        if below and lease_over and outcome is Outcome.PENDING and self._context.is_collected(entry.revision):
            yield self._passed_by_horizon(at)
        elif below and lease_over:
            detail = f"it is {outcome.value}, not swept, and instances that open now would show its cells"
            repairable = outcome is Outcome.ABORTED or current.can_abort
            yield Problem(kinds.BELOW_WATERMARK, "", at, detail, kinds.LEFTOVER, repairable=repairable)
        # No instance looks for a revision that was not announced, and it has no cells. The watermark cannot pass it.
        elif lease_over and self._logs.is_announced(entry.revision):
            if outcome is Outcome.PENDING:
                detail = "its writer's lease has expired, and no instance has decided it yet"
                yield Problem(kinds.DEAD, "", at, detail, kinds.LEFTOVER, repairable=current.can_abort)
            else:
                detail = "its writer's lease has expired, and no instance has deleted its cells yet"
                yield Problem(kinds.UNSWEPT, "", at, detail, kinds.LEFTOVER, repairable=True)

    def _passed_by_horizon(self, at: str) -> Problem:
        """Return the problem of a pending row up to the horizon, which passes decided revisions only."""
        detail = "it is pending, although the horizon has passed it"
        if self._context.store.supports_transactions:
            return Problem(kinds.BELOW_WATERMARK, "", at, f"{detail}: the flag of its decision is damaged")
        # The check of the nodes reports cells of it that instances show.
        detail += (
            ": a request that was held back has created its row, or the row is damaged; a later collection deletes it"
        )
        return Problem(kinds.BELOW_WATERMARK, "", at, detail, kinds.LEFTOVER)

    def _still_unhidden(self, revision: int) -> bool:
        current = self._context.read_watermark()
        return current is not None and revision <= current.revision and revision not in current.hidden

    def _check_hidden(self) -> Iterator[Problem]:
        if self._watermark is None:
            return
        mark, hidden = self._watermark.revision, sorted(self._watermark.hidden)
        self._context.load((mark,))
        if self._context.status(mark).outcome is Outcome.ABSENT and not self._context.is_trimmed(mark):
            yield Problem(kinds.WATERMARK, "", text(mark), "the watermark is a revision that does not exist")
        for part in batched(hidden, ROWS):
            self._context.load(part)
            for revision in part:
                committed = self._context.status(revision).outcome is Outcome.COMMITTED
                if committed and not self._context.is_trimmed(revision):
                    detail = "it is committed, but instances that opened above it do not see it"
                    yield Problem(kinds.HIDDEN, "", text(revision), detail, repairable=True)

    # --- the nodes ---------------------------------------------------------------------------------------

    def _compare(self, entries: Sequence[_Entry]) -> Iterator[Problem]:
        """Check that every cell that a visible revision declares exists with the right value.

        It reads the cells again only if the check of the nodes did not find exactly these.
        """
        part: list[tuple[int, RowChange]] = []
        for entry in entries:
            if not self._context.sees(entry.revision) or entry.status.outcome is not Outcome.COMMITTED:
                continue
            if self._context.found.are(entry.revision, entry.status.number):
                continue
            for change in declared_by(entry.row) or ():
                part.append((entry.revision, change))
                if len(part) == GETS:
                    yield from compare(self._context, part, exact=self._exact)
                    part = []
        yield from compare(self._context, part, exact=self._exact)


def _check_shape(entry: _Entry, *, root: bool) -> Iterator[Problem]:
    """Check that a row has the columns of its kind, and that they can be decoded."""
    at = text(entry.revision)
    row, aborted = entry.row, entry.status.outcome is Outcome.ABORTED
    needed = [schema.COMMITTED, schema.ABORT]
    if not root and not (aborted and row.nonce is None):
        needed += [schema.NONCE, schema.BASE, schema.MESSAGE]
        branch = row.value(schema.BRANCH)
        if row.is_branch:
            needed.append(schema.BRANCH)
        # A writer adds large changes to a row after its creation. It may die, or lose a conflict, before that.
        begun = aborted or (entry.status.outcome is Outcome.PENDING and not row.is_branch)
        if not begun and (branch is None or len(branch) != 16):
            needed.append((schema.DATA, schema.CHANGES))
    missing = [column[1].decode() for column in needed if row.cell(column) is None]
    if missing:
        yield Problem(kinds.INCOMPLETE, "", at, f"it has no {', '.join(missing)}")
    wrong = [
        column[1].decode() for column in (schema.COMMITTED, schema.ABORT) if row.value(column) not in (None, *FLAGS)
    ]
    if row.nonce is not None and len(row.nonce) != NONCE_BYTES:
        wrong.append("nonce")
    if row.value(schema.BASE) is not None and entry.status.base is None:
        wrong.append("base")
    if row.swept not in (None, schema.SWEPT_CLEAN, schema.SWEPT_IN_DOUBT):
        wrong.append("swept")
    try:
        _ = row.message
    except FormatError:
        wrong.append("message")
    if wrong:
        yield Problem(kinds.JOURNAL_VALUE, "", at, f"{', '.join(wrong)} cannot be read")
    chunks = [cell.qualifier for cell in row.cells if changes.is_chunk(cell.qualifier)]
    if chunks and chunks[0] != schema.CHANGES and entry.status.outcome is not Outcome.COMMITTED:
        # Its writer died before it wrote all of them, and therefore before it wrote any cell.
        return
    if chunks and (chunks != [changes.chunk_qualifier(number) for number in range(len(chunks))]):
        yield Problem(kinds.CHANGES, "", at, f"parts of them are missing: found only {len(chunks)}")
    elif declared_by(row) is None:
        yield Problem(kinds.CHANGES, "", at, "unreadable: polls fail, and rollback is impossible")


def _check_other(row: Row) -> Iterator[Problem]:
    """Check a row whose key is no revision: polls notice a change of checkpoints by it."""
    cells = {(cell.family, cell.qualifier): cell.value for cell in row.cells}
    at = row.key[:40].hex()
    shape = [(column, len(value)) for column, value in cells.items()]
    if row.key != schema.NOTICE_FIRST or shape not in ([], [(schema.SWEPT, 8)]):
        yield Problem(kinds.JOURNAL_KEY, "", at, "no revision has this row key")
