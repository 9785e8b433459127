"""What one read of journal rows found, before any of it joins the sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from hbasemk.format import schema
from hbasemk.format.changes import RowChange
from hbasemk.format.horizon import decode_notice
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import NOTHING_TRIMMED, TrimLevel
from hbasemk.store.abc import Column

FLAGS: Final[Sequence[Column]] = (schema.COMMITTED, schema.ABORT, schema.SWEPT)
"""The columns that show the state of a revision."""
FLAGS_AND_CHANGES: Final[Sequence[Column]] = (*FLAGS, (schema.DATA, schema.CHANGES))
"""The columns that polls read: those of the state, and the changes without further chunks."""
Contents: TypeAlias = Mapping[int, Sequence[RowChange]]
"""The changes of revisions that join."""


class News:
    """The trunk revisions that a read found and that are not known yet, by state, and the highest id of any row.

    ``committed`` is in the order in which they join. ``last`` is the last arrival number read, and ``before`` has one
    before the first write of each row that was read. ``notice`` is the value of the notice of checkpoints, if the read met
    it. ``horizon`` is the newest horizon that the read met (0: none), and ``trimmed`` the newest trim level.
    ``is_complete`` is False if rows that the read needed may have been deleted before. In a store that does not order all
    writes, ``watermark`` is one that was published before the read, ``bounds`` says up to which id each log has been read,
    ``read`` has the changes of committed revisions, and ``deferred`` are revisions that may be committed and must wait for the
    next poll; ``held_back`` has those that are (see :class:`~hbasemk.kernel.journal.log_poller.LogPoller`).
    """

    __slots__ = (
        "before",
        "bounds",
        "committed",
        "contents",
        "deferred",
        "held_back",
        "highest",
        "horizon",
        "is_complete",
        "last",
        "notice",
        "pending",
        "read",
        "swept",
        "trimmed",
        "unswept",
        "watermark",
    )

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.contents: Contents = {}
        self.pending: set[int] = set()
        self.unswept: set[int] = set()
        self.swept: set[int] = set()
        self.highest = 0
        self.horizon = 0
        self.trimmed = NOTHING_TRIMMED
        self.is_complete = True
        self.last = 0
        self.before: dict[int, int] = {}
        self.notice: bytes | None = None
        self.watermark = 0
        self.bounds: dict[int, int] = {}
        self.deferred: set[int] = set()
        self.held_back: dict[int, int] = {}
        self.read: dict[int, Sequence[RowChange]] = {}

    def add(self, row: JournalRow) -> None:
        """Add one row, of a revision that is not known yet, with the columns :data:`FLAGS`."""
        revision = row.revision
        self.highest = max(self.highest, revision)
        if row.is_branch:
            if revision == schema.NOTICE:
                self.horizon = decode_notice(row.value(schema.NOTICE_HORIZON))
                self.trimmed = TrimLevel.decode(row.value(schema.NOTICE_TRIMMED))
            return
        if row.committed:
            self.committed.append(revision)
        elif row.aborted:
            (self.unswept if row.swept is None else self.swept).add(revision)
        elif row.cells:
            self.pending.add(revision)
