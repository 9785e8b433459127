"""The trim level: up to where rows of the journal, and the numbers of their writes, may be deleted.

See ``docs/protocol.md``, section 9.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format import revisions, schema
from hbasemk.store.abc import Column


class TrimLevel(NamedTuple):
    """Rows of trunk revisions up to ``revision`` may be deleted, and what is known of the writes up to ``arrival``.

    These writes are of rows up to ``revision`` only. Both numbers only rise. ``arrival`` is 0 in a store that does not order all
    writes.
    """

    arrival: int = 0
    revision: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the cell: two numbers of 8 bytes."""
        return revisions.to_bytes(self)

    @classmethod
    def decode(
        cls,
        data: bytes | None,
        place: tuple[str, bytes, Column] = (schema.CLUSTER, schema.SETTINGS_ROW, schema.TRIMMED),
    ) -> TrimLevel:
        """Parse the cell at a place (None: nothing has ever been deleted); raise FormatError if it is damaged."""
        try:
            if data is None:
                return cls()
            arrival, revision = revisions.from_bytes(data)
        except ValueError as error:
            reason = "the trim level must be an arrival number and a revision id, 8 bytes each"
            raise schema.damaged(reason, *place) from error
        return cls(arrival, revision)


NOTHING_TRIMMED: Final = TrimLevel()
"""The level of a repository in which no journal row has ever been deleted."""
