"""The cell that holds the lease of a machine id, and how it is read from its row of the ``cluster`` table."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema
from hbasemk.store.abc import Row

MAX_END_MS: Final = 2 * revisions.MAX_MS
"""The latest end of a lease, in ms since the repository's epoch; ids end at half of it."""
_RELEASED: Final = " (released)"
"""Follows the name of a holder that has released its lease. Older versions of the library take it for a part of the name."""
_HEAD: Final = struct.Struct(">QQ16s")
_FORMAT_MARK: Final = re.compile(r" \(format ([0-9]{1,9})\)\Z")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease cell of one machine id; ``start`` and ``end`` are in ms since the repository's epoch."""

    start: int
    end: int
    nonce: bytes
    holder: str

    @property
    def format(self) -> int:
        """The format of the holder's version of hbasemk; versions with format 1 do not write it."""
        mark = _FORMAT_MARK.search(self.holder)
        return int(mark[1]) if mark else 1

    @property
    def is_released(self) -> bool:
        """Whether its holder has released it, so that no more ids of it come."""
        return _RELEASED in self.holder

    def released(self, end: int) -> LeaseRecord:
        """Return the record of this lease when its holder has released it; its last id is before ``end``."""
        mark = _FORMAT_MARK.search(self.holder)
        name = len(self.holder) if mark is None else mark.start()
        return LeaseRecord(self.start, end, self.nonce, self.holder[:name] + _RELEASED + self.holder[name:])

    def encode(self) -> bytes:
        """Return the bytes of the lease cell."""
        return _HEAD.pack(self.start, self.end, self.nonce) + self.holder.encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaseRecord:
        """Parse a lease cell; raise FormatError if it is damaged."""
        try:
            start, end, nonce = _HEAD.unpack_from(data)
            if max(start, end) > MAX_END_MS:
                raise FormatError(f"the lease {data[:60]!r} is damaged")
            return cls(start, end, nonce, data[_HEAD.size :].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise FormatError(f"the lease {data[:60]!r} is damaged") from error


def record_of(row: Row) -> LeaseRecord | None:
    """Return the lease in a row of the cluster table, or None."""
    for cell in row.cells:
        if (cell.family, cell.qualifier) == schema.LEASE:
            try:
                return LeaseRecord.decode(cell.value)
            except FormatError as error:
                raise schema.damaged(error.message, schema.CLUSTER, row.key, schema.LEASE) from error
    return None
