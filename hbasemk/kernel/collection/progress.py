"""How far collectors have come, as the settings row shows it."""

from __future__ import annotations

from typing import NamedTuple

from hbasemk.format import revisions, schema
from hbasemk.format.limits import shown
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Column, Get


class Progress(NamedTuple):
    """How far the collector has come: the revisions up to ``collected`` are done, deletions up to ``forgotten`` forgotten."""

    collected: int = 0
    forgotten: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the cell."""
        return revisions.to_bytes(self)

    @classmethod
    def decode(cls, data: bytes | None) -> Progress:
        """Parse the cell (None: nothing has ever been collected); raise FormatError if it is damaged."""
        try:
            if data is None:
                return cls()
            collected, forgotten = revisions.from_bytes(data)
        except ValueError as error:
            reason = "the collector's progress must be two revision ids, 8 bytes each"
            raise schema.damaged(reason, schema.CLUSTER, schema.SETTINGS_ROW, schema.COLLECTED) from error
        return cls(collected, forgotten)


def read_progress(store: RetryingStore) -> tuple[Progress, bytes | None]:
    """Return how far collectors have come, and the bytes of the cell. One round trip."""
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.COLLECTED,))])
    data = row.cells[0].value if row.cells else None
    return Progress.decode(data), data


def read_rows_progress(store: RetryingStore, column: Column) -> int:
    """Return the id up to which rows of the journal are done, as ``column`` of the settings row shows it. One round trip."""
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(column,))])
    return decode_rows_progress(row.cells[0].value if row.cells else None, column)


def decode_rows_progress(data: bytes | None, column: Column) -> int:
    """Parse such a cell (None: nothing is done); raise FormatError if it is damaged."""
    try:
        return 0 if data is None else revisions.from_only(data)
    except ValueError as error:
        reason = f"the progress of the collection of journal rows must be a revision id of 8 bytes, got {shown(data)}"
        raise schema.damaged(reason, schema.CLUSTER, schema.SETTINGS_ROW, column) from error
