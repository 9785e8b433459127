"""Blobs as binary streams: ``repo.blobs.open``."""

from __future__ import annotations

import io
import random
import shutil
import zipfile
from pathlib import Path

import pytest

import hbasemk
from hbasemk import BlobNotFoundError, BlobRef
from hbasemk.kernel.blobs import CHUNK
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Instances

LENGTH = 5 * CHUNK + 17


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_reads_as_a_file_does(opened: Instances, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = chance.randbytes(chance.choice([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, LENGTH]))
    (tmp_path / "file").write_bytes(content)
    repo = opened()
    ref = repo.blobs.write(content)
    with repo.blobs.open(ref) as blob, (tmp_path / "file").open("rb") as file:
        for _ in range(30):
            size = chance.choice([-1, 0, 1, 100, CHUNK, 2 * CHUNK + 5])
            assert blob.read(size) == file.read(size)
            whence = chance.choice([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END])
            offset = chance.randrange(-len(content) - 1, len(content) + 2)
            try:
                position = file.seek(offset, whence)
            except (OSError, ValueError):
                with pytest.raises(ValueError, match="must not be negative"):
                    blob.seek(offset, whence)
                blob.seek(file.tell())
            else:
                assert blob.seek(offset, whence) == position
            assert blob.tell() == file.tell()


def test_a_blob_is_copied_to_another_repository(opened: Instances) -> None:
    content = random.Random(1).randbytes(LENGTH)
    repo = opened()
    ref = repo.blobs.write(content)
    with hbasemk.connect("memory://") as other, repo.blobs.open(ref) as stream:
        assert other.blobs.write(stream) == ref
        assert other.blobs.read(ref) == content
        assert not stream.closed
    target = io.BytesIO()
    with repo.blobs.open(ref.id) as stream:
        shutil.copyfileobj(stream, target)
    assert target.getvalue() == content


def test_one_member_of_an_archive_is_read_without_the_rest(opened: Instances) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        for name in ("a", "b", "c"):
            written.writestr(name, random.Random(name).randbytes(3 * CHUNK))
    store = CountingStore(opened.new_store())
    repo = opened(store)
    ref = repo.blobs.write(archive.getvalue())
    store.take()
    store.traffic()
    with repo.blobs.open(ref) as stream, zipfile.ZipFile(stream) as members:
        store.traffic()
        assert members.namelist() == ["a", "b", "c"]
        with members.open("b") as member:
            assert member.read(100) == random.Random("b").randbytes(3 * CHUNK)[:100]
    # Two parts of a chunk each, of nine chunks.
    assert store.traffic().rows_read <= 4


def test_a_missing_blob_and_a_closed_stream_are_errors(opened: Instances) -> None:
    repo = opened()
    with pytest.raises(BlobNotFoundError):
        repo.blobs.open(BlobRef("0" * 64))
    with pytest.raises(TypeError, match="ref must be"):
        repo.blobs.open(7)  # type: ignore[arg-type]
    stream = repo.blobs.open(repo.blobs.write(b"content"))
    assert not stream.writable()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read()
