"""The contract of the MicroKernel interface: blobs."""

from __future__ import annotations

import io

import pytest

from hbasemk import BlobNotFoundError
from tests.support.microkernel import Cluster, nodes


def test_blobs_are_kept_once_and_read_in_parts(mk: Cluster) -> None:
    content = bytes(range(256)) * 12_345
    blob = str(mk.write(io.BytesIO(content)))
    assert mk.write(io.BytesIO(content)) == blob
    assert mk.get_length(blob) == len(content)
    for position, length in ((0, 10), (1_048_570, 20), (len(content) - 5, 50), (0, len(content)), (len(content), 10)):
        assert mk.read(blob, position, length) == content[position : position + length]
    empty = str(mk.write(io.BytesIO(b"")))
    assert mk.get_length(empty) == 0
    assert mk.read(empty, 0, 1) == b""
    mk.commit("", f'+"/file":{{"data":":blobId:{blob}","all":[":blobId:{empty}"]}}')
    assert nodes(mk, "/file")["data"] == f":blobId:{blob}"


def test_invalid_blob_arguments_are_named_in_errors(mk: Cluster) -> None:
    for blob in ("", "zz", "00" * 32, "AB" * 32):
        with pytest.raises(BlobNotFoundError):
            mk.get_length(blob)
        with pytest.raises(BlobNotFoundError):
            mk.read(blob, 0, 1)
    blob = mk.write(io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="negative"):
        mk.read(blob, -1, 1)


def test_a_broken_stream_stores_nothing_and_is_closed(mk: Cluster) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 2_000_000:
                raise OSError("the line was cut")
            return super().read(size)

    stream = Broken(b"x" * 5_000_000)
    with pytest.raises(OSError, match="cut"):
        mk.write(stream)
    assert stream.closed
