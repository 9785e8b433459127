"""A blob is written from bytes or a stream of bytes; anything else is rejected and stores nothing."""

from __future__ import annotations

import array
import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import BlobNotFoundError, BlobRef, FormatError, InvalidValueError, MicroKernel, Repository
from hbasemk.check import IntegrityCheck
from hbasemk.format import schema
from hbasemk.kernel.blobs import CHUNK, DATA, LENGTH, chunk_key
from hbasemk.repository import instance_of
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put, Scan, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.full_disk import largest_file
from tests.support.repositories import problems
from tests.support.runtime import World


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


# --- damaged lengths -----------------------------------------------------------------------------------------


def put(repo: Repository, key: bytes, *cells: NewCell) -> None:
    instance_of(repo).store.write(schema.BLOBS, [Put(key, list(cells))])


@contextmanager
def stored_length(repo: Repository, ref: BlobRef, length: int) -> Iterator[None]:
    """Store a wrong length of a blob, and the right one at the end."""
    key, right = bytes.fromhex(ref.id), repo.blobs.length(ref)
    put(repo, key, NewCell(*LENGTH, length.to_bytes(8, "big")))
    yield
    put(repo, key, NewCell(*LENGTH, right.to_bytes(8, "big")))


@pytest.mark.parametrize("size", [5, CHUNK, CHUNK + 5, 3 * CHUNK, 5 * CHUNK + 1])
def test_a_length_that_is_too_small_never_cuts_a_read(repo: Repository, size: int) -> None:
    """Reads ended at the wrong length, without an error."""
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    ref = repo.blobs.write(content)
    for length in [length for length in (0, 1, size - 1, CHUNK, 4 * CHUNK) if length < size]:
        with stored_length(repo, ref, length):
            for position in {0, length, length + 1, size - 1}:
                for count in (None, 1, size - position):
                    right = content[position:][:count]
                    with contextlib.suppress(FormatError):
                        assert repo.blobs.read(ref, position, count) == right
                    with contextlib.suppress(FormatError), repo.blobs.open(ref) as stream:
                        stream.seek(position)
                        assert stream.read(count) == right
            with pytest.raises(FormatError, match="the length of a blob") as raised:
                repo.blobs.read(ref)
            assert raised.value.row == bytes.fromhex(ref.id)
            assert repo.blobs.read(ref, length, 0) == b""


@pytest.mark.parametrize("size", [0, 5, CHUNK, 5 * CHUNK, 5 * CHUNK + 1])
def test_reads_to_the_end_and_past_it(size: int) -> None:
    """A read past the end reads the chunk at the end, but a stream that has read to the end does not."""
    store = CountingStore(MemoryStore())
    with Repository(store, poll_interval=0) as repo:
        content = (bytes(range(251)) * (size // 251 + 1))[:size]
        ref = repo.blobs.write(content)
        for position in (0, 1, size - 1, size, size + 1, size + CHUNK):
            if position >= 0:
                assert repo.blobs.read(ref, position) == content[position:]
        store.take()
        assert repo.blobs.read(ref) == content
        calls = 1 + -(-size // (4 * CHUNK))
        assert store.take() == {("read", "blobs"): calls}
        with repo.blobs.open(ref) as stream:
            assert stream.read() == content
            assert stream.read() == stream.read(1) == b""
        assert store.take() == {("read", "blobs"): calls}
        with repo.blobs.open(ref) as stream:
            stream.seek(size)
            assert stream.read() == stream.read(1) == b""
        assert store.take() == {("read", "blobs"): 1 + (size > 0)}


# --- repair --------------------------------------------------------------------------------------------------


def damage(repo: Repository) -> list[str]:
    return [problem.detail for problem in IntegrityCheck(instance_of(repo)).run()]


@pytest.mark.parametrize("length", [b"", b"many", bytes(8), (7).to_bytes(8, "big"), (2**40).to_bytes(8, "big")])
def test_writing_again_repairs_a_damaged_length(length: bytes) -> None:
    """It reported success and left the blob unreadable, or raised the error of the damage."""
    store = CountingStore(MemoryStore())
    with Repository(store, poll_interval=0) as repo:
        content = b"content" * (CHUNK // 3)
        ref = repo.blobs.write(content)
        put(repo, bytes.fromhex(ref.id), NewCell(*LENGTH, length))
        assert repo.blobs.write(content) == ref
        assert repo.blobs.read(ref) == content
        assert damage(repo) == []
        store.take()
        repo.blobs.write(content)
        assert store.take() == {("read", "blobs"): 1, ("check_and_write", "blobs"): 1}


def _cut(repo: Repository, key: bytes) -> None:
    put(repo, chunk_key(key, 1), NewCell(*DATA, b"cut"))


def _other_bytes(repo: Repository, key: bytes) -> None:
    put(repo, chunk_key(key, 1), NewCell(*DATA, b"x" * CHUNK))


def _lost(repo: Repository, key: bytes) -> None:
    store, row = instance_of(repo).store, chunk_key(key, 1)
    (cell,) = store.read(schema.BLOBS, [Get(row, columns=(DATA,))])[0].cells
    store.delete(schema.BLOBS, [Delete(row, [CellVersion(*DATA, cell.timestamp)])])


@pytest.mark.parametrize("harm", [_cut, _other_bytes, _lost])
def test_replacing_the_content_repairs_what_the_check_finds(
    repo: Repository, harm: Callable[[Repository, bytes], None]
) -> None:
    """No call repaired damaged chunks: writing the content again found the blob stored."""
    content = b"content" * (CHUNK // 3)
    ref = repo.blobs.write(content)
    harm(repo, bytes.fromhex(ref.id))
    (found,) = damage(repo)
    assert "write its content again with `hbasemk blob put --replace`" in found
    repo.blobs.write(content)
    assert damage(repo) == [found]
    assert repo.blobs.write(content, replace=True) == ref
    assert repo.blobs.read(ref) == content
    assert damage(repo) == []


class _SteppingBack(FaultyStore):
    """The store's clock goes back by an hour between the chunks of the first upload and its end."""

    def __init__(self, inner: Store, world: World) -> None:
        super().__init__(inner)
        self._world = world
        self.before = self._step

    def _step(self, call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.BLOBS):
            self.before = None
            self._world.advance(-3_600)


@pytest.fixture(params=["memory", "sqlite", "without transactions"])
def stepping_back(request: pytest.FixtureRequest, tmp_path: Path) -> _SteppingBack:
    world = World()
    if request.param == "sqlite":
        return _SteppingBack(SqliteStore(str(tmp_path / "content.db"), clock=world.clock), world)
    return _SteppingBack(MemoryStore(world.clock, transactions=request.param == "memory"), world)


@pytest.mark.parametrize("chunk", [b"cut", b"x" * (CHUNK // 3)], ids=["cut off", "other bytes"])
def test_replacing_the_content_repairs_chunks_from_the_future(stepping_back: _SteppingBack, chunk: bytes) -> None:
    """The repair was older than the damage, and reported success."""
    content = b"content" * (CHUNK // 3)
    with Repository(stepping_back, poll_interval=0) as repo:
        ref = repo.blobs.write(content)
        row = chunk_key(bytes.fromhex(ref.id), 2)
        (cell,) = stepping_back.read(schema.BLOBS, [Get(row, columns=(DATA,))])[0].cells
        put(repo, row, NewCell(*DATA, chunk, cell.timestamp))
        assert damage(repo)
        assert repo.blobs.write(content, replace=True) == ref
        assert repo.blobs.read(ref) == content
        assert damage(repo) == []


def test_writing_again_repairs_a_length_and_chunks_from_the_future(stepping_back: _SteppingBack) -> None:
    content = b"content" * (CHUNK // 3)
    with Repository(stepping_back, poll_interval=0) as repo:
        ref = repo.blobs.write(content)
        key = bytes.fromhex(ref.id)
        (cell,) = stepping_back.read(schema.BLOBS, [Get(chunk_key(key, 2), columns=(DATA,))])[0].cells
        put(repo, chunk_key(key, 2), NewCell(*DATA, b"cut", cell.timestamp))
        put(repo, key, NewCell(*LENGTH, bytes(8), cell.timestamp + 1))
        assert repo.blobs.write(content) == ref
        assert repo.blobs.read(ref) == content
        assert damage(repo) == []


def test_a_repair_reads_no_more_than_the_chunks_from_the_future() -> None:
    store = CountingStore(MemoryStore())
    with Repository(store, poll_interval=0) as repo:
        content = b"content" * (CHUNK // 3)
        repo.blobs.write(content)
        store.take()
        store.traffic()
        repo.blobs.write(content, replace=True)
        calls = {("read", "blobs"): 1, ("scan", "blobs"): 1, ("write", "blobs"): 1, ("check_and_write", "blobs"): 1}
        assert store.take() == calls
        assert store.traffic().rows_read == 1


def test_replace_is_a_bool(repo: Repository) -> None:
    with pytest.raises(TypeError, match="replace"):
        repo.blobs.write(b"", replace=1)  # type: ignore[arg-type]
