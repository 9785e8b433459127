"""The log of one writer: the ids of the revisions that it has announced, in a store that does not order all writes.

A writer announces a revision before it writes cells. The log is one cell. Its timestamp is the bound: the writer announces
no id up to it any more. So a request that arrives late never replaces newer content. The value holds ``base``, and the
announced ids. An id leaves the log only after its revision was decided; ``base`` is the highest id that has left. See
``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from hbasemk.format import revisions, schema
from hbasemk.format.limits import shown
from hbasemk.store.abc import Cell, Column, Get, NewCell, Row


class WriterLog(NamedTuple):
    """The content of a log. The cells of an empty row give an empty log with ``bound`` 0 and without a holder.

    ``ids`` are the announced ids, lowest first, or those of them that the reader wants.
    """

    holder: bytes
    holder_at: int
    base: int
    ids: tuple[int, ...]
    bound: int
    intents: Mapping[Column, int] = MappingProxyType({})
    """The revisions whose changes the log shows, by column, if these columns were read."""

    @property
    def is_open(self) -> bool:
        """Whether a process may still write to the log: only the holder that it names may."""
        return self.holder not in (b"", schema.CLOSED)


def cell(base: int, ids: Iterable[int], bound: int) -> NewCell:
    """Return the cell of a log."""
    return encoded_cell(base, revisions.to_bytes(sorted(ids)), bound)


def encoded_cell(base: int, ids: bytes, bound: int) -> NewCell:
    """As :func:`cell`, with the bytes of the ids, lowest first."""
    return NewCell(*schema.LOG, revisions.to_bytes((base,)) + ids, bound)


def decode(row: Row, above: int = 0) -> WriterLog:
    """Parse the row of a log, with the ids greater than ``above``; raise FormatError if it is damaged."""
    holder, holder_at, base, bound = b"", 0, 0, 0
    ids: tuple[int, ...] = ()
    intents: dict[Column, int] = {}
    for one in row.cells:
        if one[:2] == schema.LOG:
            base, ids = _ids(row.key, one, above)
            bound = one.timestamp
        elif one[:2] == schema.LOG_HOLDER:
            holder, holder_at = one.value, one.timestamp
        elif one[:2] in schema.INTENTS:
            intents[one[:2]] = one.timestamp
    return WriterLog(holder, holder_at, base, ids, bound, intents)


def get_changes(revision: int) -> Get:
    """Return the read, in ``cluster``, of the changes that the log of a revision's writer shows; see :func:`changes_of`."""
    return Get(schema.log_key(revisions.machine_of(revision)), columns=schema.INTENTS)


def changes_of(row: Row, revision: int) -> bytes | None:
    """Return the encoded changes of a revision that a log shows; None if it does not show them."""
    return next((one.value for one in row.cells if one.timestamp == revision and one[:2] in schema.INTENTS), None)


def _ids(key: bytes, found: Cell, above: int) -> tuple[int, tuple[int, ...]]:
    """Return the base, and the ids greater than ``above``."""
    size, data = revisions.BYTES, found.value
    begin = size
    if above:
        # Most ids of a busy writer's log are known to its readers.
        begin = len(data)
        while begin > size and int.from_bytes(data[begin - size : begin], "big") > above:
            begin -= size
    try:
        if not data or len(data) % size:
            raise ValueError(f"its length is {len(data)}")
        base, *ids = revisions.from_bytes(data[:size] + data[begin:])
        if ids != sorted(ids):
            raise ValueError("the ids are not in their order")
        if max([base, *ids]) > found.timestamp:
            raise ValueError("an id is greater than the bound")
        return base, tuple(ids)
    except ValueError as error:
        raise schema.damaged(
            f"the log of a writer must be a list of revision ids, 8 bytes each, got {shown(found.value)}: {error}",
            schema.CLUSTER,
            key,
            schema.LOG,
        ) from error


class Claims(NamedTuple):
    """The cell that each claim of a machine id and each move of the watermark changes. Its timestamp is the counter.

    So it changes whatever the store's clock shows. ``watermark`` is the watermark's revision.
    """

    counter: int = 0
    watermark: int = 0

    def encode(self) -> bytes | None:
        """Return the value, for a comparison; None: the cell does not exist."""
        return self.counter.to_bytes(8, "big") + self.watermark.to_bytes(8, "big") if self.counter else None

    def next(self, watermark: int = 0) -> NewCell:
        """Return the cell with the next counter, and with a watermark that is not lower."""
        later = Claims(self.counter + 1, max(self.watermark, watermark))
        return NewCell(*schema.CLAIMS, later.encode() or b"", later.counter)

    @classmethod
    def decode(cls, cell: Cell | None) -> Claims:
        """Parse the cell; raise FormatError if it is damaged."""
        if cell is None:
            return cls()
        data = cell.value
        found = cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))
        # A claim after another counter would compare with a wrong value forever, or later claims would hide it.
        if len(data) != 16 or not 0 < found.counter == cell.timestamp or found.watermark > revisions.MAX_REVISION:
            raise schema.damaged(
                f"the counter of claims must be {cell.timestamp}, its timestamp, and a number up to {revisions.MAX_REVISION}, "
                f"8 bytes each, got {shown(data)}",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                schema.CLAIMS,
            )
        return found


NO_CLAIMS: Final = Claims()
