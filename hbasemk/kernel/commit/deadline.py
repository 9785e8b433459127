"""What may keep a revision from its commit: a row that came too late for its id, or a request that is repeated."""

from __future__ import annotations

from typing import Final

from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.store.abc import Get, Row

WATERMARK: Final = (schema.CLUSTER, Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,)))
"""The table and the get of the watermark, for a transaction that checks it."""


class TooSlow(Exception):
    """The id is too old: its journal row came too late, or the watermark has passed it. A retry uses a new id."""


class RepeatCheck:
    """Finds in a transaction whether an earlier request, whose reply was lost, has committed the revision already.

    A second decision would change the order of arrival. The store may call this several times; the last call counts.
    """

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self.is_committed = False

    def row(self) -> tuple[str, Get]:
        """Return the additional row that the transaction must read."""
        return schema.JOURNAL, Get(schema.revision_key(self._revision), columns=(schema.COMMITTED,))

    def __call__(self, row: Row) -> bool:
        """Return whether the revision may be decided, by the row that :meth:`row` names."""
        self.is_committed = JournalRow(row).committed
        return not self.is_committed
