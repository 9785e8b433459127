"""Large contents, kept once each, as users see them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from hbasemk import arguments
from hbasemk.blob_file import open_blob
from hbasemk.errors import InvalidValueError
from hbasemk.format.values import BlobRef
from hbasemk.kernel.instance import Instance


class RepositoryBlobs:
    """The blobs of a repository: ``repo.blobs``."""

    def __init__(self, instance: Instance) -> None:
        # It ends when nothing refers to it.
        self._instance = instance
        self._blobs = instance.blobs

    def write(self, content: BinaryIO | bytes | bytearray | memoryview, *, replace: bool = False) -> BlobRef:
        """Store ``content``, bytes or the rest of a binary stream; return the reference to keep in a property.

        A stream is read to its end, in bounded memory, and not closed. If ``replace`` is True, store the content even if the
        repository has it; this repairs a damaged blob. Raises InvalidValueError for anything else than bytes or a binary
        stream, such as a stream of text.
        """
        arguments.flag(replace, "replace")
        if not isinstance(content, (bytes, bytearray, memoryview)) and not callable(getattr(content, "read", None)):
            raise InvalidValueError(
                "content must be bytes, or a binary stream such as open(path, 'rb') or io.BytesIO(data), not "
                f"{type(content).__name__}"
            )
        stream = io.BytesIO(bytes(content)) if isinstance(content, (bytes, bytearray, memoryview)) else content
        return BlobRef(self._blobs.write(stream, replace=replace))

    def read(self, ref: BlobRef | str, position: int = 0, length: int | None = None) -> bytes:
        """Return ``length`` bytes (None: all) of the blob ``ref`` from byte ``position`` on.

        Raises BlobNotFoundError, also if chunks are missing, and FormatError if the blob has bytes beyond its length.
        """
        _check_range(position, length)
        return self._blobs.read(_id(ref), position, length)

    def stream(self, ref: BlobRef | str, position: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return an iterator over the same bytes as :meth:`read`, in pieces of at most 1 MiB, in bounded memory.

        ``ref`` is the reference or id of the blob; ``position`` and ``length`` (None: all) are in bytes. Raises
        BlobNotFoundError and FormatError as :meth:`read`.
        """
        _check_range(position, length)
        return self._blobs.stream(_id(ref), position, length)

    def open(self, ref: BlobRef | str) -> io.BufferedReader:
        """Return the content of the blob ``ref`` as a binary stream, like ``open(path, "rb")`` for a file.

        ``ref`` is the reference or id of the blob. The stream can be positioned, reads only the parts that are requested, and
        holds at most 1 MiB of them. One round trip to open it. Raises BlobNotFoundError and FormatError as :meth:`read`, also
        for a later read.
        """
        return open_blob(self._blobs, _id(ref))

    def length(self, ref: BlobRef | str) -> int:
        """Return the number of bytes of the blob ``ref``, a reference or an id. Raises BlobNotFoundError."""
        return self._blobs.length(_id(ref))

    def __repr__(self) -> str:
        return f"<RepositoryBlobs of {self._instance.location}>"


def _id(ref: BlobRef | str) -> str:
    found = ref.id if isinstance(ref, BlobRef) else ref
    if not isinstance(found, str):
        raise arguments.wrong("ref", "a BlobRef or the id of a blob", ref)
    return found


def _check_range(position: int, length: int | None) -> None:
    arguments.count(position, "position")
    if length is not None:
        arguments.count(length, "length")
