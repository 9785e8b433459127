"""A blob is written from bytes or a stream of bytes; anything else is rejected and stores nothing."""

from __future__ import annotations

import array
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbasemk import InvalidValueError, MicroKernel, Repository
from hbasemk.format import schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import Scan
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
