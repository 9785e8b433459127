"""The watermark, and the part of the journal below it (section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal import recovery
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.recovery import Recovery
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.store import abc


def watermark_past_possible_late_revisions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound", property(lambda self: self.highest_seen + 1))


def watermark_past_rows_that_came_after_the_scan(patch: pytest.MonkeyPatch) -> None:
    original = Recovery._move

    def move(self: Recovery, current: Watermark, moved: Watermark, *, durable: bool = False, **_: Any) -> bool:
        return original(self, current, moved, durable=durable)

    patch.setattr(Recovery, "_move", move)


def watermark_past_unswept_revisions(patch: pytest.MonkeyPatch) -> None:
    def scan_all(store: Any, table: str, scan: Any, first: int | None = None) -> Any:
        rows = abc.scan_all(store, table, scan, first)
        # The scan for late rows has no start; it still finds them.
        return rows if scan.start is None else (row for row in rows if not unswept(row))

    def unswept(row: Any) -> bool:
        return JournalRow(row).aborted and JournalRow(row).swept is None

    patch.setattr(recovery, "scan_all", scan_all)


def watermark_not_verified(patch: pytest.MonkeyPatch) -> None:
    def verify(self: Journal, watermark: Watermark) -> None:
        self._verified = max(self._verified, watermark.revision)

    patch.setattr(Journal, "verify", verify)


def late_cells_not_hidden(patch: pytest.MonkeyPatch) -> None:
    original = Recovery._move

    def move(self: Recovery, current: Watermark, moved: Watermark, **named: Any) -> bool:
        # A scan for late rows lists them without moving it.
        shown = moved if moved.revision == current.revision else Watermark(moved.revision, frozenset())
        return original(self, current, shown, **named)

    patch.setattr(Recovery, "_move", move)


def late_rows_not_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_hide", lambda *_: None)


def hidden_revisions_lost_when_shortened(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.shortened

    def shortened(self: RevisionSequence, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        shorter = original(self, watermark, limit, keep)
        if shorter is not None:
            shorter.hidden = frozenset()
        return shorter

    patch.setattr(RevisionSequence, "shortened", shortened)


def shortened_past_possible_late_revisions(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.shortened

    def shortened(self: RevisionSequence, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        top = max(self.uppers, default=self.top)
        return original(self, watermark, top, keep)

    patch.setattr(RevisionSequence, "shortened", shortened)
