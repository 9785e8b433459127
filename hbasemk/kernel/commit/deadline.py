"""The check that a journal row was created in time for its id."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.store.abc import Get, Row


class TooSlow(Exception):
    """The store created the journal row too late for its id; a retry uses a new id."""


class DeadlineCheck:
    """Decides in a transaction whether the revision of a draft may still commit.

    It may if its journal row was created in time and the watermark has not passed it. The store may call this several
    times; the last call counts.
    """

    def __init__(self, clock: IdClock, draft: Draft) -> None:
        self._clock = clock
        self._revision = draft.revision
        self._created = draft.created
        self._created_ms: int | None = None
        self._watermark = 0
        self.refused = False

    def rows(self) -> list[tuple[str, Get]]:
        """Return the additional rows that the transaction must read."""
        journal = Get(schema.revision_key(self._revision), columns=(schema.NONCE,))
        return [(schema.JOURNAL, journal), (schema.CLUSTER, Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,)))]

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether the revision may commit, by the rows that :meth:`rows` names."""
        own, settings = rows
        self._created_ms = JournalRow(own).created_ms
        self._watermark = Watermark.revision_of(settings.cells[0].value) if settings.cells else 0
        late = self._created_ms is not None and self._clock.is_late(self._revision, self._created_ms)
        self.refused = late or self._revision <= self._watermark
        return not self.refused

    def require(self) -> None:
        """Raise TooSlow, or the clock's error, after a refusal. The next id is greater than the watermark."""
        if self.refused:
            self._clock.observe(self._watermark)
            if self._created_ms is not None:
                self._clock.created(self._revision, self._created_ms, *self._created)
            raise TooSlow
