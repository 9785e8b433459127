"""What may keep a revision from its commit: an id that is too old, another schema number, or a request that is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from hbasemk.format import journal_row, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark, above_all
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.schema_version import NumberCheck
from hbasemk.store.abc import LAST_ROW, Column, Get, Row


class TooSlow(Exception):
    """The id is too old: the watermark has passed it, or another instance has aborted it. A retry uses a new id."""


class Overtaken(TooSlow):
    """A sole writer has marked a row that the commit changes, with the higher id ``mark``.

    The next id must be above its marks.
    """

    def __init__(self, mark: int) -> None:
        super().__init__()
        self.mark = mark


class MayExist(TooSlow):
    """The row of a node that a sole writer adds, without having read whether it exists, is not new."""


def _rows(*columns: Column) -> Sequence[tuple[str, Get]]:
    return (schema.JOURNAL, Get(LAST_ROW, columns=())), (schema.CLUSTER, Get(schema.SETTINGS_ROW, columns=columns))


_ROWS: Final = _rows(schema.WATERMARK)
_ROWS_WITH_NUMBER: Final = _rows(schema.WATERMARK, schema.SCHEMA_VERSION)


class OrderCheck:
    """Finds in a transaction whether a store that orders all writes may still receive a revision (protocol, section 2).

    The id must not be too far below the highest one, and must be above the watermark. ``highest`` is then the higher of
    the two. A process that names schema numbers must accept the present one. The store may call this several times; the last
    call counts.
    """

    def __init__(self, revision: int, clock: IdClock, known: int) -> None:
        """Check ``revision``; ``known`` is the highest id that this instance has seen."""
        self._revision = revision
        self._clock = clock
        self._known = known
        self._number = None if clock.accepted is None else NumberCheck(clock.accepted)
        self._wrong_watermark: int | None = None
        self.highest = 0
        self.rows: Final = _ROWS if self._number is None else _ROWS_WITH_NUMBER
        """The additional rows that the transaction must read."""

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether the revision may be created, by the rows that :attr:`rows` names."""
        last, settings = rows
        watermark = 0
        for cell in settings.cells:
            if cell.qualifier == schema.WATERMARK[1]:
                watermark = Watermark.revision_of(cell.value)
        if self._number is not None and not self._number((settings,)):
            return False
        # The integrity check reports a key that is not a revision id.
        is_known = journal_row.is_key(last.key)
        highest = int.from_bytes(last.key, "big") if is_known else self._known
        # There always is a row at the watermark, or above.
        self._wrong_watermark = watermark if is_known and watermark > highest else None
        self.highest = max(highest, watermark)
        return self._wrong_watermark is None and watermark < self._revision >= self._clock.least_id(self.highest)

    def refuse(self, location: str) -> NoReturn:
        """Raise the error for a revision that may not be created; after TooSlow, the next id is high enough.

        Raises FormatError if the watermark is above all revisions.
        """
        if self._number is not None:
            self._number.require(location)
        if self._wrong_watermark is not None:
            raise above_all(self._wrong_watermark)
        self._clock.observe(self.highest)
        raise TooSlow


class RepeatCheck:
    """Finds in a transaction whether an earlier request, whose reply was lost, has committed the revision already.

    A second decision would change the order of arrival. The store may call this several times; the last call counts.
    """

    def __init__(self, draft: Draft, rows: Iterable[tuple[str, Get]] = ()) -> None:
        """Check the draft's journal row in a transaction that also reads ``rows``."""
        self._draft = draft
        self.also = list(rows)
        """What the transaction must read: ``rows``, and the journal row as soon as the request may be a repetition."""
        self._others = len(self.also)
        self.is_committed = False
        if draft.reply_lost:
            self._look()

    def lost(self) -> None:
        """Record that the reply to the decision was lost: the request that follows may be a repetition."""
        self._draft.lose_decision()
        self._look()

    def _look(self) -> None:
        own = Get(schema.revision_key(self._draft.revision), columns=(schema.COMMITTED, schema.NONCE))
        self.also[self._others :] = [(schema.JOURNAL, own)]

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether the revision may be decided, by the rows that :attr:`also` names."""
        for row in rows[self._others :]:
            found = JournalRow(row)
            self.is_committed = found.committed and found.nonce == self._draft.nonce
        return not self.is_committed
