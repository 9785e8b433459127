"""The cells of a checkpoint in the settings row (``docs/table-format.md``).

One cell lists the entries that keep a revision readable, and until when. Another one holds the view that they keep: all
entries of one revision keep the same view. The first cell contains a digest of the second, so a reader notices that the
view has been replaced.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from hbasemk.errors import FormatError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.limits import shown
from hbasemk.store.abc import Column

LIST: Final = b"checkpoint:"
VIEW: Final = b"checkpoint-view:"
"""Sorts before :data:`LIST`, so a page of the row after ``checkpoint:`` contains no view."""
SHARED: Final = 0
"""The number of the entry that all users without an entry of their own share."""
MAX_MESSAGE: Final = 1024
"""Bytes of the message of a checkpoint in UTF-8. Processes read all of them again and again."""
_DIGEST: Final = 4
_HEAD: Final = 14
OLD: Final = 8
"""Bytes of a list that an earlier version wrote: only a time of expiry, and no view."""


class Entry(NamedTuple):
    """One user's interest in a revision: its number, the time of expiry in ms since 1970, and a message."""

    number: int
    until_ms: int
    message: str = ""


class CheckpointList(NamedTuple):
    """The entries of one revision; without any, the checkpoint has ended. ``digest`` is that of the view, 0 without one."""

    digest: int
    entries: Sequence[Entry]

    def encode(self) -> bytes:
        """Return the value of the cell."""
        parts = [self.digest.to_bytes(_DIGEST, "big")]
        for number, until_ms, message in self.entries:
            data = paths.encode(message)
            parts += [number.to_bytes(4, "big"), until_ms.to_bytes(8, "big"), len(data).to_bytes(2, "big"), data]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, revision: int) -> CheckpointList:
        """Decode the value of the cell of a revision; raise FormatError if it is damaged."""
        if len(data) == OLD:
            return cls(0, (Entry(SHARED, int.from_bytes(data, "big")),))
        try:
            entries = []
            position = _DIGEST
            while position < len(data):
                end = position + _HEAD
                length = int.from_bytes(data[end - 2 : end], "big")
                if end + length > len(data):
                    raise ValueError("an entry is incomplete")
                number, until_ms = (
                    int.from_bytes(part, "big")
                    for part in (data[position : position + 4], data[position + 4 : end - 2])
                )
                entries.append(Entry(number, until_ms, paths.decode(data[end : end + length])))
                position = end + length
            if len(data) < _DIGEST or len({entry.number for entry in entries}) < len(entries):
                raise ValueError("the digest is incomplete, or two entries have one number")
        except (ValueError, FormatError) as error:
            raise schema.damaged(
                f"a checkpoint must be a digest of 4 bytes and a list of entries, got {shown(data)}: {error}",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                list_column(revision),
            ) from error
        return cls(int.from_bytes(data[:_DIGEST], "big"), tuple(entries))

    def entry(self, number: int) -> Entry | None:
        """Return the entry with a number."""
        return next((entry for entry in self.entries if entry.number == number), None)

    def replaced(self, entry: Entry) -> CheckpointList:
        """Return the list with this entry in place of the one with the same number, if there is one."""
        return self._replace(entries=(*self.without(entry.number).entries, entry))

    def without(self, number: int) -> CheckpointList:
        """Return the list without the entry with a number."""
        return self._replace(entries=tuple(entry for entry in self.entries if entry.number != number))


def digest_of(view: bytes) -> int:
    """Return the digest of the bytes of a view, which is not 0."""
    return zlib.crc32(view) or 1


def list_column(revision: int) -> Column:
    """Return the column of the list of a revision."""
    return schema.DATA, LIST + schema.revision_key(revision)


def view_column(revision: int) -> Column:
    """Return the column of the view of a revision."""
    return schema.DATA, VIEW + schema.revision_key(revision)


def revision_of(qualifier: bytes, prefix: bytes = LIST) -> int | None:
    """Return the revision in a qualifier with the prefix; None if the qualifier has another prefix or no revision."""
    key = qualifier[len(prefix) :]
    if not qualifier.startswith(prefix) or len(key) != 8 or int.from_bytes(key, "big") > revisions.MAX_REVISION:
        return None
    return int.from_bytes(key, "big")
