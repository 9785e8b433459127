"""The watermark: the revision up to which every outcome in the journal is final.

Every trunk revision at or below it is decided, and the cells of aborted revisions are deleted from ``nodes``. So a cell
at or below it is visible, unless its id is in ``hidden``. Those are revisions swept in doubt, whose cells a paused writer
may still write (``docs/protocol.md``, sections 3 and 6).
"""

from __future__ import annotations

from dataclasses import dataclass

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema
from hbasemk.format.limits import shown
from hbasemk.format.trim_level import NOTHING_TRIMMED, TrimLevel
from hbasemk.format.writer_log import NO_CLAIMS, Claims
from hbasemk.store.abc import Cell, NewCell


@dataclass(frozen=True, slots=True)
class Watermark:
    """The watermark's revision, and the aborted ids at or below it (``hidden``) that must stay invisible.

    ``arrival`` is stored beside it in a store that orders all writes: an arrival number before the first write of the
    journal row of every higher revision. A new instance reads the order of revisions from there. ``has_checkpoints`` says
    whether a checkpoint had ever been made when the watermark was read. ``horizon`` is stored beside it, too: the horizon
    below which old revisions are collected; and ``trimmed``, the trim level. ``claims`` is stored beside it in a store that does
    not order all writes. ``stamp`` is the timestamp of the cell when it was read.
    """

    revision: int
    hidden: frozenset[int]
    arrival: int = 0
    has_checkpoints: bool = False
    horizon: int = 0
    trimmed: TrimLevel = NOTHING_TRIMMED
    claims: Claims = NO_CLAIMS
    stamp: int = 0

    @property
    def first_cursor(self) -> int:
        """The arrival number after which an instance that starts here reads the writes of the journal."""
        # The writes up to the trim level are of rows up to the watermark, which was read with it.
        return max(self.arrival, self.trimmed.arrival)

    def check_order(self) -> None:
        """Raise FormatError if it is below the horizon or the trim level: an instance would start without deleted revisions."""
        above, name = max((self.trimmed.revision, "trim level"), (self.horizon, "horizon"))
        if self.revision < above:
            raise schema.damaged(
                f"the watermark is {revisions.to_text(self.revision)}, and the {name} is {revisions.to_text(above)}, which is "
                "never above it: one of the two is wrong",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                schema.WATERMARK,
            )

    def cells(self, timestamp: int | None = None) -> list[NewCell]:
        """Return the cells that move the watermark, or change what it hides; None: with the server's time."""
        cells = [NewCell(*schema.WATERMARK, self.encode(), timestamp)]
        if self.arrival:
            cells.append(NewCell(*schema.ARRIVAL, self.arrival.to_bytes(8, "big")))
        return cells

    def encode(self) -> bytes:
        """Return the bytes of the watermark cell: the revision, then the hidden ids, 8 bytes each."""
        return revisions.to_bytes((self.revision, *sorted(self.hidden)))

    @staticmethod
    def revision_of(data: bytes) -> int:
        """Return only the revision of a watermark cell."""
        return int.from_bytes(data[:8], "big")

    @staticmethod
    def decode_copy(cell: Cell) -> int:
        """Parse the copy of a watermark's revision that polls read; raise FormatError if it is damaged."""
        revision = int.from_bytes(cell.value, "big")
        if len(cell.value) != revisions.BYTES or revision != cell.timestamp:
            # Polls take all ids up to a published watermark for decided.
            raise schema.damaged(
                f"the copy of the watermark must be its timestamp, {revisions.to_text(cell.timestamp)}, as a revision id of 8 "
                f"bytes, got {shown(cell.value)}",
                schema.CLUSTER,
                schema.LOGS_HEAD,
                schema.WATERMARK,
            )
        return revision

    @staticmethod
    def arrival_of(data: bytes | None) -> int:
        """Parse the arrival number beside a watermark cell (None: 0); raise FormatError if it is damaged."""
        try:
            return 0 if data is None else revisions.from_only(data)
        except ValueError as error:
            raise schema.damaged(
                f"the arrival number of the watermark must have 8 bytes, got {shown(data)}",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                schema.ARRIVAL,
            ) from error

    @classmethod
    def decode(cls, data: bytes) -> Watermark:
        """Parse a watermark cell; raise FormatError if it is damaged."""
        try:
            revision, *hidden = revisions.from_bytes(data)
            if revisions.is_branch(revision):
                raise ValueError("the first one is a branch revision")
        except ValueError as error:
            raise schema.damaged(
                f"the watermark must be a list of revision ids, 8 bytes each, got {shown(data)}: {error}",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                schema.WATERMARK,
            ) from error
        return cls(revision, frozenset(hidden))


def above_all(watermark: int) -> FormatError:
    """Return the error for a watermark that is above all revisions: the next id could be years ahead."""
    return schema.damaged(
        f"the watermark is {revisions.to_text(watermark)}, and all revisions are lower",
        schema.CLUSTER,
        schema.SETTINGS_ROW,
        schema.WATERMARK,
    )
