"""The contents of imported files: in the node, as blobs, or left out."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbasemk import BlobRef, connect
from hbasemk.format import schema
from hbasemk.kernel.blobs import Blobs
from hbasemk.store.sqlite import SqliteStore
from hbasemk.transfer.files.entries import Contents, Entry, Skipped
from hbasemk.transfer.files.reader import FileReader, Files, ReaderJob
from hbasemk.transfer.files.worker import Batch
from tests.support.commands import process
from tests.support.full_disk import largest_file
from tests.support.imports import (
    AT,
    assert_imported,
    bring_in,
    differences,
    in_tree,
    one_batch,
    one_worker,
    write_files,
)


def test_content_is_text_or_bytes_in_the_node_or_a_blob_above_the_limit(url: str, top: Path) -> None:
    write_files(top, {"long.txt": b"x" * 101, "fits.txt": b"x" * 100, "latin": b"caf\xe9", "huge": b"\0\1" * 3_000_000})

    result = bring_in(url, top, limit=100)

    assert (result.without_content, result.blobs) == (0, 2)
    with connect(url) as repository:
        contents = {
            name: repository.head[f"{AT}/{name}"][":content"] for name in os.listdir(top) if (top / name).is_file()
        }
        assert contents == {
            "readme.txt": "Trees\n",
            "empty": "",
            "fits.txt": "x" * 100,
            "latin": b"caf\xe9",
            "binary": b"\x00\xff",
            "long.txt": BlobRef(hashlib.sha256(b"x" * 101).hexdigest()),
            "huge": BlobRef(hashlib.sha256(b"\0\1" * 3_000_000).hexdigest()),
        }
        assert repository.blobs.read(str(contents["huge"].id)) == b"\0\1" * 3_000_000
    assert differences(url, top, AT, limit=100) == []


@pytest.mark.parametrize(("contents", "kept"), [("none", set()), ("small", {"small", "binary"})])
def test_contents_are_left_out_only_on_request(url: str, tmp_path: Path, contents: Contents, kept: set[str]) -> None:
    files = {"small": b"text", "binary": b"\0", "large": b"x" * 101}
    top = write_files(tmp_path / "docs", files)

    result = bring_in(url, top, limit=100, contents=contents)

    assert result.without_content == len(files) - len(kept)
    assert {name for name, (_, digest) in in_tree(url, AT).items() if digest} == set(files)
    with connect(url) as repository:
        assert {name for name in files if ":content" in repository.head[f"{AT}/{name}"]} == kept
    assert differences(url, top, AT, limit=100, contents=contents) == []
    missing = differences(url, top, AT)
    assert sorted(missing) == sorted(f"{AT}/{name}: the content is missing" for name in files.keys() - kept)

    assert bring_in(url, top, limit=100).changed == len(missing)
    assert differences(url, top, AT) == []
    assert bring_in(url, top, limit=100, contents=contents).changed == len(missing)
    assert differences(url, top, AT, limit=100, contents=contents) == []


def test_an_unchanged_large_file_is_not_written_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = write_files(tmp_path / "docs", {"large": b"x" * 100_000})
    bring_in(url, top)
    os.utime(top / "large", ns=(5, 5))
    monkeypatch.setattr(Blobs, "write", lambda *_, **__: pytest.fail("written again"))

    with one_worker(url, top) as worker:
        report = worker.do(Batch(0, entries=[Entry("large", "file")]))
    assert (report.changed, report.blobs) == (1, 1)

    monkeypatch.undo()
    write_files(top, {"large": b"y" * 100_000})
    bring_in(url, top)
    assert_imported(url, top)


def test_blobs_of_an_import_become_durable_with_the_commit_that_refers_to_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1" * 100_000, "two": b"2" * 3_000_000})
    synced: list[bool] = []

    def record(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(self: SqliteStore, table: str, *arguments: Any, durable: bool = True) -> Any:
            if table == schema.BLOBS:
                synced.append(durable)
            return real(self, table, *arguments, durable=durable)

        return write

    # The chunks of a blob, and then its length.
    monkeypatch.setattr(SqliteStore, "write", record(SqliteStore.write))
    monkeypatch.setattr(SqliteStore, "check_and_write", record(SqliteStore.check_and_write))
    with one_batch(url, top) as (worker, batch):
        worker.do(batch)
        assert synced == [False] * 4
        worker.repository.blobs.write(b"by itself")
        assert synced[4:] == [False, True]
    assert_imported(url, top)


def test_large_contents_are_committed_in_bounded_pieces(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {f"{number:02}": bytes([number]) * 1_000_000 for number in range(12)})

    result = bring_in(url, top, workers=1, batch=100, limit=1_000_000)

    assert_imported(url, top)
    # One for the root, and one for each five files, which exceed 4 MiB.
    assert result.committed == 3


@pytest.mark.parametrize("cut", [0, 1_500_000])
def test_a_large_file_that_cannot_be_read_to_its_end_is_reported(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    top = write_files(tmp_path / "docs", {"large": b"x" * 3_000_000, "other": b"y" * 3_000_000})
    real = os.read
    seen = []

    def read(number: int, size: int) -> bytes:
        seen.append(size)
        if sum(seen) > cut and len(seen) < 4:
            seen.append(10**9)
            raise OSError(errno.EIO, "Input/output error")
        return real(number, size)

    files = Files(ReaderJob(url, str(top), 100))
    ours, theirs = multiprocessing.Pipe()
    reader = FileReader(ours, lambda: None)
    kept = io.BytesIO()
    monkeypatch.setattr(os, "read", read)
    thread = threading.Thread(target=files.stream, args=("large", None, theirs))
    monkeypatch.setattr(reader, "_send", lambda request: thread.start())

    answer = reader.stream("large", None, lambda stream: shutil.copyfileobj(stream, kept))
    thread.join()

    assert answer == Skipped("large", "cannot be read: Input/output error", True)
    assert not ours.poll()
    monkeypatch.undo()
    theirs.close()
    ours.close()


def test_an_import_without_space_for_temporary_files_names_their_folder(url: str, tmp_path: Path) -> None:
    """Each worker died with a traceback, and another one repeated its batch."""
    top = write_files(tmp_path / "in", {"large": b"x" * (9 * 1024 * 1024)})
    folder = tmp_path / "temporary"
    folder.mkdir()
    arguments = ("--url", url, "import", str(top), "--at", AT, "--workers", "2")

    with largest_file(4_000_000):
        # The processes inherit the limit.
        ran = process(*arguments, env={**os.environ, "TMPDIR": str(folder)})

    assert ran.returncode == 1
    assert f"hbasemk: a temporary file in {folder} (TMPDIR): File too large" in ran.stderr.decode().splitlines()
    assert b"Traceback" not in ran.stderr
    assert process(*arguments).returncode == 0


def test_an_import_without_space_for_a_large_file_prints_what_it_has_committed(url: str, tmp_path: Path) -> None:
    files = {f"{number:02}": b"x" for number in range(20)}
    top = write_files(tmp_path / "in", {**files, "z-large": b"x" * (9 * 1024 * 1024)})
    folder = tmp_path / "temporary"
    folder.mkdir()
    arguments = ("--url", url, "import", str(top), "--at", AT, "--workers", "1", "--batch", "10")
    assert process("--url", url, "init").returncode == 0

    with largest_file(4_000_000):
        # The processes inherit the limit.
        ran = process(*arguments, env={**os.environ, "TMPDIR": str(folder)})

    assert ran.returncode == 1
    assert ran.stderr.decode().splitlines() == [
        "hbasemk: not complete; at least 20 nodes added, 0 changed and 0 removed in 2 commits stay. Run the same command "
        "again to continue.",
        f"hbasemk: a temporary file in {folder} (TMPDIR): File too large",
    ]


def test_an_import_that_a_full_disk_ends_prints_what_it_has_committed(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "in", {f"{number:03}": b"x" * 8_000 for number in range(200)})
    arguments = (
        "--url",
        url,
        "import",
        str(top),
        "--at",
        AT,
        "--workers",
        "1",
        "--batch",
        "10",
        "--retry-timeout",
        "0.1",
    )
    assert process("--url", url, "init").returncode == 0

    with largest_file(1_000_000):
        # The processes inherit the limit.
        ran = process(*arguments)

    printed = ran.stderr.decode()
    assert ran.returncode == 4, printed
    with connect(url) as repository:
        kept = len(repository.refresh().children(AT))
    assert 0 < kept < 200
    # The last batch counts as uncertain if the reply to its commit was an error of the disk.
    counts = rf"{kept} nodes added, 0 changed and 0 removed in {kept // 10} commits"
    assert re.search(
        rf"hbasemk: not complete; (at least )?{counts} stay\. Run the same command again to continue\.", printed
    )
    again = process(*arguments, "--output", "json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["nodes_added"] == 200 - kept
