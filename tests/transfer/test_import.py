"""Imports by several processes: first, repeated and interrupted ones."""

from __future__ import annotations

import errno
import hashlib
import io
import multiprocessing
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import (
    BlobRef,
    CommitUnknownError,
    HbasemkError,
    InvalidChangeError,
    InvalidPathError,
    InvalidValueError,
    LeaseLostError,
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    Transaction,
    connect,
)
from hbasemk.format import limits, schema
from hbasemk.kernel.blobs import Blobs
from hbasemk.kernel.settings import Settings
from hbasemk.repository import instance_of
from hbasemk.store.sqlite import SqliteStore
from hbasemk.transfer import retry
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.entries import Contents, Entry, Skipped
from hbasemk.transfer.files.importer import Import, Result
from hbasemk.transfer.files.reader import FileReader, Files, ReaderJob
from hbasemk.transfer.files.worker import Batch, Job, Report, Worker
from tests.support.imports import (
    SMALL,
    around_runs,
    deny_listing,
    differences,
    in_tree,
    many_files,
    on_disk,
    totals,
    write_files,
)
from tests.support.repositories import damage

AT = "/docs"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A repository with short leases, because tests kill workers; the integrity check runs at the end."""
    made = f"sqlite:///{tmp_path / 'content.db'}"
    with connect(made, settings=Settings(lease_ms=1000, max_clock_skew_ms=2000), poll_interval=0):
        pass
    yield made
    assert damage(made) == []


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return write_files(tmp_path / "docs", SMALL)


def bring_in(url: str, top: Path, at: str = AT, **options: Any) -> Result:
    options.setdefault("workers", 2)
    return Import(url, str(top), at, **options).run()


def assert_imported(url: str, top: Path, at: str = AT) -> None:
    """Assert that the tree equals the directory, by the verification and by an independent comparison."""
    assert differences(url, top, at) == []
    wanted = on_disk(top)
    assert in_tree(url, at) == wanted
    found = totals(url, at)
    kinds = [kind for kind, _ in wanted.values()]
    assert found[":nodes"] == len(wanted)
    assert found[":files"] == kinds.count("file")
    assert found[":directories"] == kinds.count("directory")
    assert found[":links"] == kinds.count("link")
    assert found[":bytes"] == sum((top / name).stat().st_size for name, (kind, _) in wanted.items() if kind == "file")


# --- the first time --------------------------------------------------------------------------------------


def test_four_workers_import_a_directory_with_correct_totals(url: str, top: Path) -> None:
    result = bring_in(url, top, workers=4, batch=2)

    assert_imported(url, top)
    assert result.added == len(on_disk(top))
    assert result.changed == result.removed == 0
    assert result.skipped == []


def test_a_file_node_keeps_the_metadata_of_the_file(url: str, top: Path) -> None:
    os.utime(top / "readme.txt", ns=(1, 1_234_567_890_123_456_789))
    (top / "readme.txt").chmod(0o640)

    bring_in(url, top)

    with connect(url) as repository:
        node = repository.head[f"{AT}/readme.txt"]
        assert dict(node) == {
            ":kind": "file",
            ":name": "readme.txt",
            ":size": 6,
            ":mode": 0o640,
            ":mtime": 1_234_567_890_123_456_789,
            ":sha256": hashlib.sha256(b"Trees\n").hexdigest(),
            ":content": "Trees\n",
        }


def test_content_is_text_or_bytes_in_the_node_or_a_blob_above_the_limit(url: str, top: Path) -> None:
    write_files(top, {"long.txt": b"x" * 101, "fits.txt": b"x" * 100, "latin": b"caf\xe9", "huge": b"\0\1" * 3_000_000})

    result = bring_in(url, top, limit=100)

    assert (result.bare, result.blobs) == (0, 2)
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

    assert result.bare == len(files) - len(kept)
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
    real = SqliteStore.write
    synced: list[bool] = []

    def write(self: SqliteStore, table: str, puts: Any, *, durable: bool = True) -> None:
        if table == schema.BLOBS:
            synced.append(durable)
        real(self, table, puts, durable=durable)

    monkeypatch.setattr(SqliteStore, "write", write)
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


def test_links_are_recorded_and_not_followed(url: str, top: Path) -> None:
    (top / "loop").symlink_to(".")
    (top / "a" / "gone").symlink_to("/nowhere/at/all")

    bring_in(url, top)

    assert in_tree(url, AT)["loop"] == ("link", ".")
    assert in_tree(url, AT)["a/gone"] == ("link", "/nowhere/at/all")
    assert_imported(url, top)


def test_odd_names_are_imported_exactly(url: str, tmp_path: Path) -> None:
    names = [
        b"caf\xe9 latin",
        "caf\u00e9".encode(),
        b" leading",
        b"trailing ",
        b"new\nline",
        b"tab\t",
        b"...",
        b"*?[x]",
        b"%2F",
        b":conflict",
        b"::conflict",
        b":",
        b"::",
        b":::",
        b":mode",
        b":hash",
        b":id",
        b":childNodeCount",
        b"\xff\xfe\x80",
        b"\xed\xa0\x80 surrogate",
        b"\x01\x1b[31m",
        b"\\",
        b"x" * 253,
        *(name.encode() for name in ("name", "mode", "mtime", "kind", "size", "sha256", "text", "content", "target")),
        *(name.encode() for name in ("nodes", "files", "links", "bytes", "directories")),
    ]
    top = os.fsencode(tmp_path / "odd")
    os.mkdir(top)
    for name in names:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name)
        os.mkdir(os.path.join(top, name + b".d"))

    bring_in(url, tmp_path / "odd")

    assert_imported(url, tmp_path / "odd")
    with connect(url) as repository:
        assert {os.fsencode(name) for name in repository.head.children(AT)} == {
            (b":" if name.startswith(b":") else b"") + name for one in names for name in (one, one + b".d")
        }
    assert bring_in(url, tmp_path / "odd").changed == 0
    for name in names:
        os.rmdir(os.path.join(top, name + b".d"))
    assert bring_in(url, tmp_path / "odd").removed == len(names)
    assert_imported(url, tmp_path / "odd")


def test_an_entry_that_is_too_deep_is_reported_and_the_rest_is_imported(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"file": b"text"})
    at = "/a" * (limits.MAX_DEPTH - 1)
    (top / "b/c/d").mkdir(parents=True)

    result = bring_in(url, top, at)

    assert sorted((one.relative, one.failed) for one in result.skipped) == [("b/c", True), ("b/c/d", True)]
    assert "levels" in result.skipped[0].reason
    assert set(in_tree(url, at)) == {"file", "b"}
    assert sum("levels" in one for one in differences(url, top, at)) == 2


def test_names_do_not_depend_on_the_locale(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = os.fsencode(tmp_path / "odd")
    os.mkdir(top)
    with open(os.path.join(top, "\u00e9".encode()), "wb"), open(os.path.join(top, b"\xe9"), "wb"):
        pass
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("LC_ALL", "C")

    bring_in(url, tmp_path / "odd")

    with connect(url) as repository:
        assert repository.head.children(AT) == ["\u00e9", "\udce9"]


def test_an_import_over_the_older_layout_is_rejected_with_an_explanation(url: str, top: Path) -> None:
    def older(tx: Transaction) -> None:
        tx.add(AT, dict.fromkeys(("nodes", "files", "directories", "links", "bytes"), 1))
        tx.add(f"{AT}/readme.txt", {"kind": "file", "name": "readme.txt", "text": "Trees\n"})

    with connect(url) as repository:
        repository.run(older)

    with pytest.raises(InvalidChangeError, match="an earlier version .*--at"):
        bring_in(url, top)

    with connect(url) as repository:
        assert repository.head.children(AT) == ["readme.txt"]


@pytest.mark.parametrize("at", ["/:conflict", "/a/:x/b", "/:"])
def test_nothing_is_imported_to_a_reserved_name(url: str, top: Path, at: str) -> None:
    with pytest.raises(InvalidPathError, match="reserved"):
        bring_in(url, top, at)


def test_a_directory_with_a_reserved_name_has_a_default_target(tmp_path: Path) -> None:
    for name in (b":conflict", b"caf\xe9", b"plain"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))

    found = [
        entries.default_target(Path(os.fsdecode(name)))
        for name in sorted(os.scandir(os.fsencode(tmp_path)), key=lambda one: one.name)
    ]

    assert found == ["/::conflict", "/caf\udce9", "/plain"]


def test_special_files_are_skipped_and_reported(url: str, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(top / "a" / "pipe")
    # The address of a socket must be short, and a test's directory may be long.
    monkeypatch.chdir(top)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")

    result = bring_in(url, top)

    assert sorted((one.relative, one.failed) for one in result.skipped) == [("a/pipe", False), ("socket", False)]
    assert differences(url, top, AT) == []


def test_excluded_names_and_paths_are_not_imported(url: str, top: Path) -> None:
    write_files(top, {"__pycache__/x.pyc": b"x", "a/__pycache__/y.pyc": b"y", "a/keep.pyc": b"z"})

    bring_in(url, top, exclude=["__pycache__", "a/b/*"])

    found = in_tree(url, AT)
    assert not any("__pycache__" in path for path in found)
    assert "a/b" in found
    assert "a/b/two.txt" not in found
    assert "a/keep.pyc" in found
    assert differences(url, top, AT, exclude=["__pycache__", "a/b/*"]) == []


def test_an_import_creates_missing_parent_nodes(url: str, top: Path) -> None:
    bring_in(url, top, "/deep/er/docs")

    assert_imported(url, top, "/deep/er/docs")


def test_an_import_at_the_root_counts_there(url: str, top: Path) -> None:
    bring_in(url, top, "/")
    bring_in(url, top, "/")

    assert_imported(url, top, "/")


def test_an_empty_directory_can_be_imported(url: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()

    bring_in(url, tmp_path / "docs")

    assert_imported(url, tmp_path / "docs")


@pytest.mark.parametrize("url", ["memory://shared", "Memory://shared"])
def test_an_import_to_a_repository_in_memory_is_rejected(top: Path, url: str) -> None:
    with pytest.raises(InvalidValueError, match="memory"):
        bring_in(url, top)


def test_an_import_never_replaces_nodes_that_were_not_imported(url: str, top: Path) -> None:
    with connect(url) as repository, repository.transaction() as tx:
        tx.add(AT)
        tx.add(f"{AT}/precious", {"by": "hand"})

    with pytest.raises(InvalidChangeError, match=AT):
        bring_in(url, top)

    with connect(url) as repository:
        assert repository.head[f"{AT}/precious"]["by"] == "hand"


# --- repeated imports -----------------------------------------------------------------------------------------------


def test_a_second_import_of_the_same_directory_changes_nothing(url: str, top: Path) -> None:
    bring_in(url, top)
    with connect(url) as repository:
        before = repository.refresh().revision

    result = bring_in(url, top)

    with connect(url) as repository:
        assert repository.refresh().revision == before
    assert (result.added, result.changed, result.removed) == (0, 0, 0)


def test_a_second_import_applies_exactly_the_changes(url: str, top: Path) -> None:
    bring_in(url, top)
    write_files(top, {"readme.txt": b"a longer text\n", "new/file": b"new"})
    (top / "a" / "b" / "two.txt").unlink()
    (top / "z" / "last.txt").unlink()
    (top / "z").rmdir()

    result = bring_in(url, top)

    assert_imported(url, top)
    assert result.added == 2
    assert result.removed == 3
    # The file, and the directory b, whose time changed as well.
    assert result.changed == 2


def test_entries_that_change_their_kind_are_replaced(url: str, top: Path) -> None:
    (top / "was-directory").mkdir()
    write_files(top, {"was-directory/x/y": b"deep", "was-file": b"file"})
    (top / "was-link").symlink_to("readme.txt")
    bring_in(url, top)
    (top / "was-directory/x/y").unlink()
    (top / "was-directory/x").rmdir()
    (top / "was-directory").rmdir()
    (top / "was-file").unlink()
    (top / "was-link").unlink()
    write_files(top, {"was-directory": b"now a file", "was-file/x": b"below", "was-link": b"a file"})

    bring_in(url, top)

    assert_imported(url, top)


def test_properties_that_the_disk_does_not_have_are_removed(url: str, top: Path) -> None:
    bring_in(url, top)
    with connect(url) as repository:
        repository.run(lambda tx: tx.set(f"{AT}/readme.txt", "extra", 1))

    bring_in(url, top)

    assert_imported(url, top)


# --- unreadable entries ----------------------------------------------------------------------------------


def test_a_missing_directory_leaves_the_earlier_import_unchanged(url: str, top: Path, tmp_path: Path) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    top.rename(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="docs"):
        bring_in(url, top)

    assert in_tree(url, AT) == before


def test_a_subdirectory_that_cannot_be_listed_keeps_its_nodes_and_is_reported(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    deny_listing(monkeypatch, b"/a/b")

    result = bring_in(url, top)

    assert [(one.relative, one.failed) for one in result.skipped] == [("a/b", True)]
    assert in_tree(url, AT) == before


@contextmanager
def one_worker(url: str, top: Path, retry_timeout: float = 30.0) -> Iterator[Worker]:
    """A worker in this process, with a reader in another one."""
    job = Job(url, str(top), AT, retry_timeout)
    with FileReader.spawned(ReaderJob(url, str(top), 65536)) as reader:
        worker = Worker(job, reader)
        with worker.repository:
            yield worker


def test_a_file_that_cannot_be_read_is_reported_and_keeps_its_node(url: str, top: Path) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    shutil.rmtree(top / "a")
    (top / "a").symlink_to("a")

    with one_worker(url, top) as worker:
        report = worker.do(Batch(0, entries=[Entry("a/one.txt", "file"), Entry("empty", "file")]))

    assert [(one.relative, one.failed) for one in report.skipped] == [("a/one.txt", True)]
    assert report.handled == 2
    assert in_tree(url, AT) == before


def test_a_file_whose_directory_vanished_and_reappeared_is_counted_and_left_to_the_next_import(
    url: str, top: Path
) -> None:
    """The import does not find the directory, so it has no node."""
    bring_in(url, top)
    write_files(top, {"back/again/file": b"text", "other": b"text"})

    with one_worker(url, top) as worker:
        batch = [Entry("back/again", "directory"), Entry("back/again/file", "file"), Entry("other", "file")]
        report = worker.do(Batch(0, entries=batch))

    assert [(one.relative, one.failed, one.vanished) for one in report.skipped] == [
        ("back/again", False, True),
        ("back/again/file", False, True),
    ]
    assert report.added == 1
    bring_in(url, top)
    assert_imported(url, top)


def test_entries_that_vanish_during_the_import_are_counted_and_not_failures(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 60, per_directory=10)
    gone = [path for path in on_disk(top) if path.startswith("d003")]

    def vanish(report: Report, total: int) -> None:
        shutil.rmtree(top / "d003", ignore_errors=True)

    result = Import(url, str(top), AT, workers=1, batch=3, on_report=vanish).run()

    assert not any(one.failed for one in result.skipped)
    assert {one.relative for one in result.skipped if one.vanished} <= {*gone}
    assert any(one.vanished for one in result.skipped)
    assert_imported(url, top)


def test_a_file_that_vanishes_before_it_is_read_is_not_a_failure(url: str, top: Path) -> None:
    bring_in(url, top)

    with one_worker(url, top) as worker:
        report = worker.do(Batch(0, entries=[Entry("temporary", "file"), Entry("readme.txt/was/a/directory", "file")]))

    assert [(one.relative, one.failed) for one in report.skipped] == [
        ("temporary", False),
        ("readme.txt/was/a/directory", False),
    ]


# --- interruptions ----------------------------------------------------------------------------------------------


def busy_pids(running: Import) -> list[int]:
    return [
        worker.process.pid for worker in running._workers if worker.batch is not None and worker.process.pid is not None
    ]


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 200)
    killed: list[int] = []

    def kill(report: Report, total: int) -> None:
        if report.added and not killed:
            killed.append(busy_pids(running)[0])
            os.kill(killed[0], signal.SIGKILL)

    running = Import(url, str(top), AT, workers=4, batch=5, on_report=kill)
    result = running.run()

    assert killed
    assert result.restarts == 1
    assert any(str(killed[0]) in note for note in result.notes)
    assert_imported(url, top)


def test_workers_that_die_repeatedly_end_the_import_and_the_next_one_finishes(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 100)

    def kill_all(report: Report, total: int) -> None:
        for pid in busy_pids(running):
            os.kill(pid, signal.SIGKILL)

    running = Import(url, str(top), AT, workers=2, batch=2, on_report=kill_all)
    with pytest.raises(HbasemkError, match="ended unexpectedly"):
        running.run()

    bring_in(url, top)
    assert_imported(url, top)


def test_an_interrupted_import_leaves_no_process_and_can_resume(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 200)

    def interrupt(report: Report, total: int) -> None:
        if running.result.added >= 30:
            raise KeyboardInterrupt

    running = Import(url, str(top), AT, workers=4, batch=5, on_report=interrupt)
    with pytest.raises(KeyboardInterrupt):
        running.run()

    assert not any(worker.process.is_alive() for worker in running._workers)
    with connect(url) as repository:
        assert not instance_of(repository).journal.pending
    first = len(in_tree(url, AT))
    assert 30 <= first < len(on_disk(top))
    assert totals(url, AT)[":nodes"] == first

    result = bring_in(url, top)

    assert result.added == len(on_disk(top)) - first
    assert_imported(url, top)


# --- outages -------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for the store."""
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)


@contextmanager
def one_batch(url: str, top: Path, retry_timeout: float = 30.0) -> Iterator[tuple[Worker, Batch]]:
    """A worker, and all entries of a directory without subdirectories as its first batch."""
    Import(url, str(top), AT, workers=1, exclude=["*"]).run()
    with one_worker(url, top, retry_timeout) as worker:
        yield worker, Batch(0, entries=list(entries.walk(str(top), (), lambda _: None)))


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        CommitUnknownError("the reply was lost", revision="0000000000000000"),
        StoreUnknownError("the reply was lost"),
        StoreNotAppliedError("the store is away"),
        LeaseLostError("paused for too long", machine=1),
    ],
)
def test_a_commit_with_an_unknown_outcome_is_retried_and_counts_once(
    url: str, tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch, error: HbasemkError, applied: bool
) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1", "two": b"22"})
    runs: list[int] = []

    def fail(number: int) -> None:
        runs.append(number)
        if number == 1:
            raise error

    with one_batch(url, top) as (worker, batch):
        around_runs(monkeypatch, **{"after" if applied else "before": fail})
        report = worker.do(batch)

    assert runs == [1, 2]
    assert report.notes == [str(error)]
    assert report.retries == 1
    assert_imported(url, top)


def test_an_import_fails_when_the_store_stays_unreachable_past_the_retry_timeout(
    url: str, tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1"})

    def run(self: Repository, *arguments: Any) -> Any:
        raise StoreNotAppliedError("the store is away")

    with one_batch(url, top, retry_timeout=0.01) as (worker, batch):
        monkeypatch.setattr(Repository, "run", run)
        with pytest.raises(StoreNotAppliedError, match="away"):
            worker.do(batch)


def test_an_error_of_a_worker_is_raised_by_the_import(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1"})

    def spoil(report: Report, total: int) -> None:
        with connect(url, poll_interval=0) as repository:
            repository.run(lambda tx: tx.set(AT, ":nodes", "no number"))

    (top / "directory").mkdir()
    running = Import(url, str(top), AT, workers=1, on_report=spoil)
    with pytest.raises(InvalidChangeError, match="nodes"):
        running.run()
    assert not any(worker.process.is_alive() for worker in running._workers)
