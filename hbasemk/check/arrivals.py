"""The check of the arrival numbers of the journal, by which polls of a store that orders all writes find revisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings
from hbasemk.store.abc import Get, Row

BATCH: Final = 1000
"""Writes in one call."""


class ArrivalsCheck:
    """Check that polls of an instance that opens now find each committed revision of trunk above the watermark.

    Such an instance reads the rows whose numbers come after the number that is stored with the watermark. Nothing is checked on
    a store that does not order all writes, or if the watermark cannot be read. Memory grows with the number of revisions above
    the watermark, as that of each instance does.
    """

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._numbered: set[int] = set()
        self._unreadable: FormatError | None = None
        self._watermark = self._read_watermark() if context.store.supports_transactions else None
        self._last = 0 if self._watermark is None else self._watermark.first_cursor
        self._cursor_is_checked = self._last == 0

    def _read_watermark(self) -> Watermark | None:
        try:
            return settings.read_watermark(self._context.store)
        except FormatError:
            # The check of the settings reports it.
            return None

    def check(self, rows: Sequence[JournalRow]) -> Iterator[Problem]:
        """Check rows that have just been read: yield each row without a number."""
        mark = self._watermark
        if mark is None:
            return
        wanted = [row.revision for row in rows if row.revision > mark.revision and row.committed and not row.is_branch]
        if not self._numbered.issuperset(wanted):
            # A transaction writes a row together with its number. So a read that begins now shows the numbers of these rows.
            yield from self.read_on()
        for revision in wanted:
            if revision not in self._numbered and self._unreadable is None and self._is_above_watermark(revision):
                detail = (
                    "no arrival number names its row, so processes that open now miss it until the watermark passes it"
                )
                yield Problem(kinds.NOT_NUMBERED, "", text(revision), detail, repairable=True)

    def _is_above_watermark(self, revision: int) -> bool:
        """Return whether an instance that opens now must find a revision by its number; collectors delete only other numbers."""
        current = self._read_watermark()
        return current is not None and revision > current.revision

    def read_on(self) -> Iterator[Problem]:
        """Read the numbers that have not been read yet; yield those that name no row."""
        complete = self._watermark is None or self._unreadable is not None
        if not complete and not self._cursor_is_checked:
            yield from self._check_cursor()
        while not complete:
            try:
                self._last, rows, complete = self._context.store.arrivals(
                    schema.JOURNAL, self._last, BATCH, (schema.COMMITTED,)
                )
            except FormatError as error:
                self._unreadable = error
                yield Problem(kinds.NUMBER, "", "", str(error))
                return
            self._numbered.update(row.revision for row in journal_row.decode(rows) if not row.is_branch)
            for row in rows:
                if not row.cells:
                    yield from self._check_absent(row)

    def _check_cursor(self) -> Iterator[Problem]:
        """Check that the number after which the read begins exists, or a later one: the store never forgets the last number."""
        self._cursor_is_checked = True
        try:
            found = self._context.store.arrivals(schema.JOURNAL, self._last - 1, 1, (schema.COMMITTED,))
        except FormatError:
            # The read that follows reports it.
            return
        if not found.rows:
            detail = f"the arrival number {self._last} is above the last one, so instances cannot open the repository"
            yield Problem(kinds.NUMBER, schema.SETTINGS_ROW.decode(), "", detail)

    def _check_absent(self, row: Row) -> Iterator[Problem]:
        """Check a number whose row has no outcome: collectors delete only rows of branches, and those up to the trim level."""
        if not journal_row.is_key(row.key):
            if row.key != schema.NOTICE_FIRST:
                detail = "an arrival number names it, but no revision has this row key"
                yield Problem(kinds.NUMBER, "", row.key[:40].hex(), detail)
            return
        revision = int.from_bytes(row.key, "big")
        if revisions.is_branch(revision) or self._context.read(schema.JOURNAL, [Get(row.key)])[0].cells:
            return
        if not self._context.is_trimmed(revision):
            yield Problem(
                kinds.NUMBER, "", text(revision), "an arrival number names its journal row, which does not exist"
            )
