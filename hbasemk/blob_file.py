"""A blob as a file: a binary stream that is read in parts, and can be positioned."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hbasemk.errors import InvalidValueError
from hbasemk.kernel.blobs import CHUNK, Blobs

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class _BlobFile(io.RawIOBase):
    """The bytes of one blob. Each read of a part is one round trip for each four chunks that it touches."""

    def __init__(self, blobs: Blobs, blob: str) -> None:
        super().__init__()
        self._blobs = blobs
        self._blob = blob
        self._end = blobs.length(blob)
        self._position = 0
        self._end_is_checked = False

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the stream can be positioned."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the next bytes into ``buffer``; return their number, 0 at the end."""
        self._require_open()
        room = memoryview(buffer).cast("B")
        end = min(self._end, self._position + len(room))
        done = 0
        for piece in self._pieces(end) if len(room) else ():
            room[done : done + len(piece)] = piece
            done += len(piece)
        self._position += done
        return done

    def readall(self) -> bytes:
        """Read the rest of the blob."""
        self._require_open()
        rest = b"".join(self._pieces(self._end))
        self._position += len(rest)
        return rest

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` from the beginning, the position or the end; return the new position."""
        self._require_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise InvalidValueError(f"whence must be 0, 1 or 2, got {whence}")
        begin = (0, self._position, self._end)[whence]
        if begin + offset < 0:
            raise InvalidValueError(f"the position in a blob must not be negative, got {begin + offset}")
        self._position = begin + offset
        return self._position

    def _pieces(self, end: int) -> Iterator[bytes]:
        """Yield the bytes from the position to ``end``; check once, at the end, that there are no more."""
        if self._position < self._end:
            yield from self._blobs.pieces(self._blob, self._position, end, self._end)
        elif not self._end_is_checked:
            self._blobs.check_end(self._blob, self._end)
        self._end_is_checked |= end == self._end

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed blob; open it again with repo.blobs.open()")


def open_blob(blobs: Blobs, blob: str) -> io.BufferedReader:
    """Return the content of a blob as a buffered binary stream. Raises BlobNotFoundError."""
    return io.BufferedReader(_BlobFile(blobs, blob), CHUNK)
