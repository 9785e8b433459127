"""Blobs: large contents, each stored once under the SHA-256 of its bytes, in chunks of at most 1 MiB.

The row with the length is written after all chunks. So an upload that ends early leaves unreferenced chunks, never an
unreadable blob, and deletes its chunks if its process lives. Memory stays bounded for reads and writes: an upload is spooled
to a file while it is hashed.

A collector deletes blobs that nothing refers to and no writer has used for a time. So a writer that finds its content
stored renews the cell ``used`` (``docs/protocol.md``, section 9).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple

from hbasemk.errors import BlobNotFoundError, ClosedError, HbasemkError, InvalidValueError, StoreError
from hbasemk.format import blob_use, schema
from hbasemk.format.blob_use import USED
from hbasemk.kernel.retry import BRIEFLY, TimeLimit
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, CellVersion, Column, DeleteBelow, Get, NewCell, Put, Row, Scan, scan_all
from hbasemk.temporary_file import TemporaryFile

CHUNK: Final = 1024 * 1024
SPOOL: Final = 8 * CHUNK
"""Up to this many bytes, an upload is kept in memory instead of in a file."""
KEY: Final = 32
"""The bytes of a blob's key."""
AT_ONCE: Final = 4
"""The number of chunks written or read in one call."""
DATA: Final[Column] = (schema.DATA, b"data")
LENGTH: Final[Column] = (schema.DATA, b"length")
HEAD: Final = (LENGTH, USED)
EMPTY: Final = hashlib.sha256().digest()
"""The key of the blob without content."""
RENEW_MS: Final = 3_600_000
"""A use that was recorded less than this time ago is not recorded again."""
UPLOAD_MS: Final = 24 * 3_600_000
"""An upload without new chunks for this long has ended."""


class Head(NamedTuple):
    """The first row of a blob: its length and its last use, each None if the cell does not exist."""

    length: Cell | None
    used: Cell | None

    @classmethod
    def of(cls, row: Row) -> Head:
        """Decode the row, or the columns :data:`HEAD` of it."""
        cells = {cell[:2]: cell for cell in row.cells}
        return cls(cells.get(LENGTH), cells.get(USED))

    @property
    def is_complete(self) -> bool:
        """Whether all of the content is stored, and no collector is about to delete it."""
        return self.length is not None and not self.is_doomed

    def has_length(self, length: int) -> bool:
        """Return whether the blob is complete, and its stored length is this one."""
        return self.is_complete and self.length is not None and self.length.value == _encode_length(length)

    @property
    def is_doomed(self) -> bool:
        """Whether a collector has announced that it deletes the blob."""
        return self.used is not None and blob_use.is_doomed(self.used.value)


class _Sent:
    """How many chunks of a blob an upload has sent to the store, and their latest timestamp; 0 for the store's time."""

    __slots__ = ("chunks", "timestamp")

    def __init__(self) -> None:
        self.chunks = 0
        self.timestamp = 0


class Blobs:
    """The blobs of one repository, as one instance uses them.

    ``latest_ms`` returns an upper bound of the store's clock, in ms since 1970; None if that is not known without a call.
    """

    def __init__(self, store: RetryingStore, runtime: Runtime, latest_ms: Callable[[], float | None]) -> None:
        self._store = store
        self._runtime = runtime
        self._latest_ms = latest_ms

    def write(self, stream: BinaryIO, *, durable: bool = True, replace: bool = False) -> str:
        """Store the content of a stream and return the blob's id; equal bytes have the same id.

        If ``replace`` is True, store the content even if it is stored already; this repairs a blob with damaged chunks. A
        stored blob of a wrong length is always repaired. A repair is later than all that it replaces, which takes a round trip.

        If ``durable`` is False, the blob may become durable only with the next durable commit, such as the one that refers
        to it. Errors of the stream propagate, and no blob is stored then. The stream is not closed. Raises
        InvalidValueError if ``stream`` is not a binary stream or yields anything but bytes, and an OSError that names the
        folder if there is no space for a temporary file.

        After an error, or an interruption, the chunks that were written are deleted, unless the blob is complete. If the store
        does not allow that, an HbasemkError says that they remain.
        """
        digest = hashlib.sha256()
        length = 0
        sent = _Sent()
        with TemporaryFile(in_memory=SPOOL) as spool:
            while block := _read(stream):
                digest.update(block)
                spool.write(block)
                length += len(block)
            key = digest.digest()
            try:
                self._write(key, length, spool, sent, durable=durable, replace=replace)
            except BaseException as error:
                self._clean_up(key, sent, error)
                raise
        return key.hex()

    def _write(
        self, key: bytes, length: int, spool: TemporaryFile, sent: _Sent, *, durable: bool, replace: bool
    ) -> None:
        while True:
            head = self._head(key)
            if not replace and head.has_length(length):
                if self._renew(key, head, durable=durable):
                    return
                continue
            is_repair = replace or head.is_complete
            at = self._repair_ms(key, head) if is_repair else self._upload_ms(head)
            spool.rewind()
            self._upload(key, spool, at, sent)
            # If another process has uploaded or doomed the blob meanwhile, its content may be incomplete.
            if self.use(key, head, length, durable=durable, length_at=at if is_repair else None):
                return

    def _clean_up(self, key: bytes, sent: _Sent, error: BaseException) -> None:
        """Delete the chunks of an upload that has failed; if the store does not allow that, let the error say so."""
        if not sent.chunks:
            return
        try:
            with TimeLimit(self._runtime, BRIEFLY):
                self._delete_sent(key, sent)
        except (StoreError, ClosedError):
            if isinstance(error, HbasemkError):
                error.message = (
                    f"{error.message.rstrip('.')}. The blob is not stored, but chunks of it that were written before remain, "
                    "because they could not be deleted: `hbasemk collect --full` deletes them a day later."
                )

    def _delete_sent(self, key: bytes, sent: _Sent) -> None:
        """Delete what an upload has sent, unless the blob is complete: another process may have completed it.

        Others may be uploading the same content, and their chunks are deleted too. So the blob is doomed first: a writer
        completes it by compare-and-set of ``used``, fails, and begins again with timestamps above those that are deleted.
        """
        newest = max(self._now_ms(), sent.timestamp)
        while True:
            head = self._head(key)
            if head.is_complete:
                return
            if self.doom(key, head, newest, newest):
                break
        below = [CellVersion(*DATA, newest + 1)]
        self._store.delete_below(
            schema.BLOBS, (DeleteBelow(chunk_key(key, number), below) for number in range(sent.chunks))
        )

    def keep(self, blob: str) -> int:
        """Return the length of a blob, and record that it is used: it then stays for at least the retention.

        One round trip; two if its use was not recorded recently. Raises BlobNotFoundError.
        """
        key = _key(blob)
        while True:
            head = self.head(key)
            if not head.is_complete or head.length is None:
                raise _missing(blob)
            if self._renew(key, head):
                return _decode_length(head.length.value, key)

    def head(self, key: bytes) -> Head:
        """Read the first row of a blob. One round trip. Raises FormatError if its length cannot be read."""
        head = self._head(key)
        if head.length is not None:
            _decode_length(head.length.value, key)
        return head

    def _head(self, key: bytes) -> Head:
        return Head.of(self._store.read(schema.BLOBS, [Get(key, columns=HEAD)])[0])

    def _renew(self, key: bytes, head: Head, *, durable: bool = True) -> bool:
        """Record that a complete blob is used, unless this was done recently; return False if it is not complete any more."""
        if not head.is_complete:
            return False
        if head.used is not None:
            now = self._latest_ms()
            if now is not None and 0 <= now - head.used.timestamp < RENEW_MS:
                return True
        return self.use(key, head, durable=durable)

    def use(
        self,
        key: bytes,
        head: Head,
        length: int | None = None,
        *,
        durable: bool = True,
        length_at: int | None = None,
    ) -> bool:
        """Record that a blob is used, and its length if given, unless ``used`` has changed; return whether it is recorded.

        ``length_at`` is the timestamp of the length, in ms since 1970; None: the store's time.
        """
        cells = [] if length is None else [NewCell(*LENGTH, _encode_length(length), length_at)]
        return self._mark(key, head.used, blob_use.alive(self._nonce()), cells, durable=durable)

    def doom(self, key: bytes, head: Head, now_ms: int, newest: int) -> bool:
        """Announce that a collector deletes a blob, unless ``used`` has changed; return whether it has announced that.

        ``newest`` is the latest timestamp of what it deletes. The announcement is later, and what a writer uploads after it is
        later than the announcement. So no delete, and no marker that HBase keeps of it, hides that, whatever any clock shows.
        """
        used = 0 if head.used is None else head.used.timestamp
        length = 0 if head.length is None else head.length.timestamp
        at = max(now_ms, 1 + max(used, length, newest))
        # A crash keeps no later delete without this.
        return self._mark(key, head.used, blob_use.doomed(self._nonce()), [], at=at, durable=False)

    def _upload_ms(self, head: Head) -> int | None:
        """Return the timestamp for the chunks of an upload: later than a deletion of earlier ones. None: the store's time."""
        return None if head.used is None else max(self._now_ms(), head.used.timestamp + 1)

    def _repair_ms(self, key: bytes, head: Head) -> int:
        """Return a timestamp, in ms since 1970, that is later than all cells of a blob, whatever clock their writer had.

        One round trip; more only if there are chunks from the future.
        """
        found = [cell.timestamp for cell in head if cell is not None]
        at = max([self._now_ms(), *(timestamp + 1 for timestamp in found)])
        scan = Scan(key + b"\0", key + b"\xff" * 5, AT_ONCE, columns=(DATA,), since=at)
        later = (cell.timestamp + 1 for row in scan_all(self._store, schema.BLOBS, scan) for cell in row.cells)
        return max(later, default=at)

    def _now_ms(self) -> int:
        now = self._latest_ms()
        return self._runtime.now_ms() if now is None else int(now)

    def _mark(
        self,
        key: bytes,
        found: Cell | None,
        value: bytes,
        cells: list[NewCell],
        *,
        at: int | None = None,
        durable: bool = True,
    ) -> bool:
        put = Put(key, [NewCell(*USED, value, at), *cells])
        expected = None if found is None else found.value
        if self._store.check_and_write(schema.BLOBS, USED, expected, put, durable=durable):
            return True
        # After a lost reply, the second attempt finds the value that the first one wrote.
        used = self._head(key).used
        return used is not None and used.value == value

    def _nonce(self) -> bytes:
        return self._runtime.random.getrandbits(8 * blob_use.NONCE_BYTES).to_bytes(blob_use.NONCE_BYTES, "big")

    def _upload(self, key: bytes, spool: TemporaryFile, at: int | None, sent: _Sent) -> None:
        sent.timestamp = max(sent.timestamp, at or 0)
        puts: list[Put] = []
        number = 0
        while block := spool.read(CHUNK):
            puts.append(Put(chunk_key(key, number), [NewCell(*DATA, block, at)]))
            number += 1
            if len(puts) == AT_ONCE:
                self._put(puts, number, sent)
                puts = []
        self._put(puts, number, sent)

    def _put(self, puts: list[Put], end: int, sent: _Sent) -> None:
        if puts:
            sent.chunks = max(sent.chunks, end)
            self._store.write(schema.BLOBS, puts, durable=False)

    def length(self, blob: str) -> int:
        """Return the length of a blob in bytes. One round trip. Raises BlobNotFoundError."""
        found = self._length(_key(blob))
        if found is None:
            raise _missing(blob)
        return found

    def read(self, blob: str, position: int = 0, length: int | None = None) -> bytes:
        """Return at most ``length`` (None: all) bytes of a blob from ``position``; fewer at its end, none past it.

        Raises BlobNotFoundError, FormatError if the length is damaged, and InvalidValueError for a negative position or length.
        """
        return b"".join(self.stream(blob, position, length))

    def stream(self, blob: str, position: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield what :meth:`read` returns, in pieces of at most 1 MiB.

        One round trip for the length, and one for each four chunks, or for a read past the end.
        """
        if position < 0 or (length is not None and length < 0):
            raise InvalidValueError(f"position and length of a blob must not be negative, got {position} and {length}")
        total = self.length(blob)
        if position >= total and length != 0:
            self.check_end(blob, total)
        return self.pieces(blob, position, total if length is None else min(total, position + length), total)

    def pieces(self, blob: str, position: int, end: int, total: int) -> Iterator[bytes]:
        """Yield the bytes of a blob from ``position`` to ``end``, in pieces as :meth:`stream` does.

        ``total`` is the stored length. Raises FormatError if there are bytes beyond it, in a read that reaches it.
        """
        key = _key(blob)
        while position < end:
            first = position // CHUNK
            last = min(first + AT_ONCE, -(-end // CHUNK))
            # With a right length that is a multiple of the chunk's, there is no chunk at the end.
            chunks = self._chunks(key, first, last + 1 if last * CHUNK == total else last)
            for number, chunk in enumerate(chunks, start=first):
                _check_end(key, number, chunk, total)
                if number == last:
                    break
                begin = position % CHUNK
                size = min(CHUNK - begin, end - position)
                piece = chunk[begin : begin + size]
                if len(piece) < size:
                    raise _incomplete(blob, number)
                position += size
                yield piece

    def check_end(self, blob: str, total: int) -> None:
        """Raise FormatError if a blob has bytes beyond ``total``, its stored length. One round trip; none if that is 0."""
        key = _key(blob)
        if total > 0:
            number = total // CHUNK
            _check_end(key, number, self._chunks(key, number, number + 1)[0], total)
        elif key != EMPTY:
            raise schema.damaged("the length of a blob with content is 0", schema.BLOBS, key, LENGTH)

    def _chunks(self, key: bytes, first: int, end: int) -> list[bytes]:
        """Read the chunks with the numbers from ``first`` to before ``end``; empty for a missing one. One round trip."""
        gets = [Get(chunk_key(key, number), columns=(DATA,)) for number in range(first, end)]
        return [row.cells[0].value if row.cells else b"" for row in self._store.read(schema.BLOBS, gets)]

    def _length(self, key: bytes) -> int | None:
        row = self._store.read(schema.BLOBS, [Get(key, columns=(LENGTH,))])[0]
        return _decode_length(row.cells[0].value, key) if row.cells else None


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
    if len(key) != KEY or key.hex() != blob:
        raise _missing(blob)
    return key


def chunk_key(key: bytes, number: int) -> bytes:
    """Return the row key of a chunk; ``key`` is that of the blob."""
    return key + number.to_bytes(4, "big")


def _decode_length(data: bytes, key: bytes) -> int:
    if len(data) != 8:
        raise schema.damaged("the length of a blob is not a number of 8 bytes", schema.BLOBS, key, LENGTH)
    return int.from_bytes(data, "big")


def _encode_length(length: int) -> bytes:
    return length.to_bytes(8, "big")


def _check_end(key: bytes, number: int, chunk: bytes, total: int) -> None:
    """Raise FormatError if a chunk is the one at the end of a blob of ``total`` bytes, and has bytes beyond the end."""
    if number == total // CHUNK and len(chunk) > total % CHUNK:
        raise schema.damaged(
            f"the length of a blob is {total}, but its chunk {number} has bytes beyond that: the length or the chunk is "
            "damaged",
            schema.BLOBS,
            key,
            LENGTH,
        )


def _missing(blob: str) -> BlobNotFoundError:
    return BlobNotFoundError(
        f"there is no blob {str(blob)[:80]!r}; ids are the SHA-256 of the content in lower-case hexadecimal digits",
        blob=blob,
    )


def _incomplete(blob: str, number: int) -> BlobNotFoundError:
    return BlobNotFoundError(
        f"chunk {number} of the blob {blob!r} is missing or cut off: the blob is damaged, or has been collected meanwhile. "
        "`hbasemk check --blobs` lists what is damaged.",
        blob=blob,
    )
