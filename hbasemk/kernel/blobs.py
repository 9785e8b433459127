"""Blobs: large contents, each stored once under the SHA-256 of its bytes, in chunks of at most 1 MiB.

The row with the length is written after all chunks. So an interrupted upload leaves unreferenced chunks, never an
unreadable blob. Memory stays bounded for reads and writes: an upload is spooled to a file while it is hashed.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from hbasemk.errors import BlobNotFoundError, InvalidValueError
from hbasemk.format import schema
from hbasemk.store.abc import Column, Get, NewCell, Put, Store

CHUNK: Final = 1024 * 1024
SPOOL: Final = 8 * CHUNK
"""Up to this many bytes, an upload is kept in memory instead of in a file."""
AT_ONCE: Final = 4
"""The number of chunks written or read in one call."""
DATA: Final[Column] = (schema.DATA, b"data")
LENGTH: Final[Column] = (schema.DATA, b"length")


class Blobs:
    """The blobs of one repository."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, stream: BinaryIO, *, durable: bool = True) -> str:
        """Store the content of a stream and return the blob's id; equal bytes have the same id.

        If ``durable`` is False, the blob may become durable only with the next durable commit, such as the one that refers
        to it. Errors of the stream propagate, and no blob is stored then. The stream is not closed. Raises
        InvalidValueError if ``stream`` is not a binary stream or yields anything but bytes.
        """
        digest = hashlib.sha256()
        length = 0
        with tempfile.SpooledTemporaryFile(max_size=SPOOL) as spool:
            while block := _read(stream):
                digest.update(block)
                spool.write(block)
                length += len(block)
            key = digest.digest()
            if self._length(key) is None:
                spool.seek(0)
                self._upload(key, spool, length, durable)  # type: ignore[arg-type]
        return key.hex()

    def _upload(self, key: bytes, spool: BinaryIO, length: int, durable: bool) -> None:
        puts: list[Put] = []
        number = 0
        while block := spool.read(CHUNK):
            puts.append(Put(_chunk_key(key, number), [NewCell(*DATA, block)]))
            number += 1
            if len(puts) == AT_ONCE:
                self._put(puts)
                puts = []
        self._put(puts)
        self._put([Put(key, [NewCell(*LENGTH, length.to_bytes(8, "big"))])], durable=durable)

    def _put(self, puts: list[Put], *, durable: bool = False) -> None:
        if puts:
            self._store.write(schema.BLOBS, puts, durable=durable)

    def length(self, blob: str) -> int:
        """Return the length of a blob in bytes. One round trip. Raises BlobNotFoundError."""
        found = self._length(_key(blob))
        if found is None:
            raise _missing(blob)
        return found

    def read(self, blob: str, position: int = 0, length: int | None = None) -> bytes:
        """Return at most ``length`` (None: all) bytes of a blob from ``position``; fewer at its end, none past it.

        Raises BlobNotFoundError, and ValueError for a negative position or length.
        """
        return b"".join(self.stream(blob, position, length))

    def stream(self, blob: str, position: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield what :meth:`read` returns, in pieces of at most 1 MiB. One round trip for each four chunks."""
        if position < 0 or (length is not None and length < 0):
            raise ValueError(f"position and length of a blob must not be negative, got {position} and {length}")
        total = self.length(blob)
        end = total if length is None else min(total, position + length)
        return self._pieces(blob, position, end)

    def _pieces(self, blob: str, position: int, end: int) -> Iterator[bytes]:
        key = _key(blob)
        while position < end:
            first = position // CHUNK
            last = min(first + AT_ONCE, -(-end // CHUNK))
            gets = [Get(_chunk_key(key, number), columns=(DATA,)) for number in range(first, last)]
            for row in self._store.read(schema.BLOBS, gets):
                if not row.cells:
                    raise _missing(blob)
                begin = position % CHUNK
                piece = row.cells[0].value[begin : begin + end - position]
                position += len(piece)
                if not piece:
                    raise _missing(blob)
                yield piece

    def _length(self, key: bytes) -> int | None:
        row = self._store.read(schema.BLOBS, [Get(key, columns=(LENGTH,))])[0]
        if row.cells and len(row.cells[0].value) != 8:
            raise schema.damaged("the length of a blob is not a number of 8 bytes", schema.BLOBS, key, LENGTH)
        return int.from_bytes(row.cells[0].value, "big") if row.cells else None


def _read(stream: BinaryIO) -> bytes:
    """Read the next bytes of a binary stream; no bytes at its end."""
    if not hasattr(stream, "read"):
        raise InvalidValueError(
            "a blob is written from a binary stream, such as open(path, 'rb') or io.BytesIO(data), not from "
            f"{type(stream).__name__}"
        )
    block = stream.read(CHUNK)
    if not isinstance(block, (bytes, bytearray)):
        # Text has no defined bytes, and None, from a stream without data at the moment, is not the end.
        raise InvalidValueError(
            f"{stream!r} yields {type(block).__name__} instead of bytes; a blob is written from a binary stream that waits "
            "for its content, such as open(path, 'rb')"
        )
    return block


def _key(blob: str) -> bytes:
    try:
        key = bytes.fromhex(blob)
    except (ValueError, TypeError):
        raise _missing(blob) from None
    if len(key) != 32 or key.hex() != blob:
        raise _missing(blob)
    return key


def _chunk_key(key: bytes, number: int) -> bytes:
    return key + number.to_bytes(4, "big")


def _missing(blob: str) -> BlobNotFoundError:
    return BlobNotFoundError(
        f"there is no blob {str(blob)[:80]!r}, or a part of it is missing; ids are the SHA-256 of the content in lower-case "
        "hexadecimal digits",
        blob=blob,
    )
