"""A blob is written from bytes or a stream of bytes; anything else is rejected and stores nothing."""

from __future__ import annotations

import array
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import BlobNotFoundError, BlobRef, InvalidValueError, MicroKernel, Repository
from hbasemk.format import schema
from hbasemk.kernel.blobs import CHUNK, DATA, chunk_key
from hbasemk.repository import instance_of
from hbasemk.store.abc import NewCell, Put, Scan
from hbasemk.store.memory import MemoryStore
from tests.support.full_disk import largest_file
from tests.support.repositories import problems


@pytest.fixture
def repo() -> Iterator[Repository]:
    with Repository(MemoryStore(), poll_interval=0) as repository:
        yield repository
        assert problems(repository) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"content", bytearray(b"content"), memoryview(b"xcontentx")[1:-1]],
    ids=["nothing", "bytes", "array", "view"],
)
def test_bytes_are_content(repo: Repository, content: bytes) -> None:
    ref = repo.blobs.write(content)
    assert repo.blobs.read(ref) == bytes(content)
    assert repo.blobs.write(io.BytesIO(content)) == ref


def test_a_memoryview_of_numbers_is_written_as_its_bytes(repo: Repository) -> None:
    numbers = memoryview(array.array("i", [1, 2, 3]))
    assert repo.blobs.read(repo.blobs.write(numbers)) == numbers.tobytes()
    assert repo.blobs.read(repo.blobs.write(numbers[::2])) == numbers[::2].tobytes()


@pytest.mark.parametrize(
    "content",
    ["text", 5, None, [b"x"], Path("file"), io.StringIO("text"), io.StringIO()],
    ids=["text", "number", "None", "list", "path", "text file", "empty text file"],
)
def test_streams_that_do_not_yield_bytes_are_rejected(repo: Repository, content: Any) -> None:
    for write in (repo.blobs.write, instance_of(repo).blobs.write):
        with pytest.raises(InvalidValueError, match="binary stream"):
            write(content)
    assert repo.store.scan(schema.BLOBS, Scan(None, None, 10)) == []


def test_microkernel_rejects_a_text_stream_too(repo: Repository) -> None:
    stream = io.StringIO("text")
    with pytest.raises(InvalidValueError, match="binary stream"):
        MicroKernel(repo).write(stream)  # type: ignore[arg-type]
    assert stream.closed


def test_stream_without_data_at_the_moment_is_not_at_its_end(repo: Repository) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(writing, "wb", buffering=0) as to, os.fdopen(reading, "rb", buffering=0) as stream:
        to.write(b"first")
        with pytest.raises(InvalidValueError, match="binary stream"):
            repo.blobs.write(stream)  # type: ignore[arg-type]
    assert repo.store.scan(schema.BLOBS, Scan(None, None, 10)) == []


def test_a_full_disk_for_the_temporary_file_is_named(
    repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said only: File too large."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    content = b"x" * (9 * 1024 * 1024)

    with largest_file(1_000_000), pytest.raises(OSError, match="too large") as raised:
        repo.blobs.write(content)

    assert raised.value.filename == f"a temporary file in {tmp_path} (TMPDIR)"
    assert repo.store.scan(schema.BLOBS, Scan(None, None, 10)) == []
    ref = repo.blobs.write(content)
    assert repo.blobs.length(ref) == len(content)


@contextmanager
def stored_chunk(repo: Repository, ref: BlobRef, number: int, data: bytes) -> Iterator[None]:
    """Store other bytes as a chunk of a blob, and the right ones at the end."""
    right = repo.blobs.read(ref, number * CHUNK, CHUNK)
    for chunk in (data, right):
        put = Put(chunk_key(bytes.fromhex(ref.id), number), [NewCell(*DATA, chunk)])
        instance_of(repo).store.write(schema.BLOBS, [put])
        if chunk is data:
            yield


@pytest.mark.parametrize("number", range(4))
def test_a_chunk_that_is_cut_off_is_an_error_and_never_shifts_the_rest(repo: Repository, number: int) -> None:
    """Reads returned as many bytes as the blob has, but took those after the first chunk from wrong positions."""
    content = bytes(range(256)) * (3 * CHUNK // 256) + b"the last chunk"
    ref = repo.blobs.write(content)
    chunk = content[number * CHUNK :][:CHUNK][:-3]
    end = number * CHUNK + len(chunk)

    with stored_chunk(repo, ref, number, chunk), repo.blobs.open(ref) as stream:
        for read in (lambda: repo.blobs.read(ref), stream.read, lambda: repo.blobs.read(ref, end - 1, 2)):
            with pytest.raises(
                BlobNotFoundError, match=rf"chunk {number} of the blob '{ref.id}' is missing or cut off"
            ):
                read()
        assert repo.blobs.read(ref, end - 1, 1) == chunk[-1:]
        assert repo.blobs.read(ref, 0, number * CHUNK) == content[: number * CHUNK]
        assert repo.blobs.read(ref, (number + 1) * CHUNK) == content[(number + 1) * CHUNK :]


def test_surplus_bytes_of_a_chunk_are_not_read(repo: Repository) -> None:
    """They took the place of the bytes of the next chunk."""
    content = bytes(range(256)) * (2 * CHUNK // 256)
    ref = repo.blobs.write(content)
    with stored_chunk(repo, ref, 0, content[:CHUNK] + b"more"):
        assert repo.blobs.read(ref) == content
