"""The horizon: the trunk revision below which old revisions are collected.

Snapshots that contain all of trunk up to the horizon are readable. See ``docs/protocol.md``, section 9.
"""

from __future__ import annotations

from typing import NamedTuple

from hbasemk.format import revisions, schema
from hbasemk.format.limits import shown
from hbasemk.store.abc import Column

NONCE_BYTES = 8


class Horizon(NamedTuple):
    """The horizon cell: the horizon, and the higher one that a collector has announced (else the same).

    ``nonce`` makes each content of the cell different, so that a compare-and-set notices every change.
    """

    revision: int = 0
    announced: int = 0
    nonce: bytes = bytes(NONCE_BYTES)

    def encode(self) -> bytes:
        """Return the bytes of the cell."""
        return self.revision.to_bytes(8, "big") + self.announced.to_bytes(8, "big") + self.nonce

    @classmethod
    def decode(
        cls,
        data: bytes | None,
        place: tuple[str, bytes, Column] = (schema.CLUSTER, schema.SETTINGS_ROW, schema.HORIZON),
    ) -> Horizon:
        """Parse the cell (None: nothing has ever been collected); raise FormatError if it is damaged.

        ``place``: its table, row and column, for messages.
        """
        if data is None:
            return cls()
        found = cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big"), data[16:])
        if len(data) != 16 + NONCE_BYTES or not found.revision <= found.announced <= revisions.MAX_REVISION:
            raise schema.damaged(
                f"the horizon must be two ascending revision ids and a nonce, 8 bytes each, got {shown(data)}",
                *place,
            )
        return found


def decode_notice(data: bytes | None) -> int:
    """Parse the horizon in the row of the journal by which polls learn it (None: 0); raise FormatError if it is damaged."""
    revision = int.from_bytes(data or b"", "big")
    if data is not None and (len(data) != 8 or revision > revisions.MAX_REVISION):
        raise schema.damaged(
            f"the horizon in the journal must be a revision id of 8 bytes, got {shown(data)}",
            schema.JOURNAL,
            schema.revision_key(schema.NOTICE),
            schema.NOTICE_HORIZON,
        )
    return revision
