"""The numbers of messages, listings and reads of an import of files, and the changes that it still finds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hbasemk import Repository, connect
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer import retry
from hbasemk.transfer.files import reader
from hbasemk.transfer.files.entries import Seen
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.files.reader import BLOCK, TOGETHER, FileReader, Files, ReaderJob
from hbasemk.transfer.files.worker import Report
from tests.support.imports import AT, assert_imported, many_files, write_files


class Counting:
    """A pipe that keeps the received messages."""

    def __init__(self, pipe: Any) -> None:
        self.received: list[Any] = []
        self._pipe = pipe

    def recv(self) -> Any:
        self.received.append(self._pipe.recv())
        return self.received[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


def messages(url: str, top: Path, relatives: list[str]) -> list[list[Seen]]:
    """Return the messages in which a reader answers a request."""
    with FileReader.spawned(ReaderJob(url, str(top), BLOCK)) as reading:
        pipe = Counting(reading._pipe)
        reading._pipe = pipe  # type: ignore[assignment]
        answers = dict(reading.states(relatives, "all"))
    assert list(answers) == relatives
    assert [one for message in pipe.received for one in message] == list(answers.values())
    return pipe.received


def test_states_come_in_few_messages(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "files", 1000, per_directory=1000)
    found = messages(url, top, sorted(f"d000/{one.name}" for one in (top / "d000").iterdir()))
    assert [len(message) for message in found] == [TOGETHER] * (1000 // TOGETHER) + [1000 % TOGETHER]


def test_the_contents_in_one_message_are_bounded(url: str, tmp_path: Path) -> None:
    size = BLOCK // 4 + 1
    top = write_files(tmp_path / "files", {f"f{number}": b"x" * size for number in range(10)})
    found = messages(url, top, [f"f{number}" for number in range(10)])
    assert [len(message) for message in found] == [4, 4, 2]


def test_the_files_of_the_repository_are_listed_once_for_each_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = many_files(tmp_path / "files", 20)
    listings: list[int] = []
    monkeypatch.setattr(reader.own_files, "of", lambda _: lambda: listings.append(1) or {})
    files = Files(ReaderJob(url, str(top), 100))
    for one in sorted(top.rglob("*.txt")):
        assert isinstance(files.state(str(one.relative_to(top)), "all"), Seen)
    assert len(listings) == 1 + 20


def test_the_parent_of_a_first_import_reads_directories_only(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = many_files(tmp_path / "files", 200)
    calls: list[Call] = []

    def connected(url: str, **options: Any) -> Repository:
        store = FaultyStore(SqliteStore(url.removeprefix("sqlite:///")))
        store.before = lambda call: calls.append(call) if call.table == "nodes" else None
        return Repository(store, **options)

    connect(url, poll_interval=0).close()
    monkeypatch.setattr(retry, "connect", connected)
    Import(url, str(top), AT, workers=1).run()

    assert not [call for call in calls if call.method == "scan"]
    # The root and its 8 directories with their lists of children, besides what the root's commit and its check read.
    assert sum(call.rows for call in calls if call.method == "read") <= 2 * 9 + 8
    monkeypatch.undo()
    assert_imported(url, top)


def test_entries_that_vanish_after_their_commit_are_removed_by_a_first_import(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "files", 100)
    write_files(top, {"d000/deep/below/file": b"x", "gone/file": b"x"})
    handled: list[int] = []

    def change_disk(report: Report, total: int) -> None:
        handled.append(report.handled)
        if sum(handled) == total and (top / "gone").is_dir():
            # All are committed.
            shutil.rmtree(top / "gone")
            (top / "d001" / "f00025.txt").unlink()
            shutil.rmtree(top / "d000" / "deep")
            (top / "d000" / "deep").write_text("a file now")

    Import(url, str(top), AT, workers=2, batch=10, on_report=change_disk).run()
    with connect(url, poll_interval=0) as repository:
        head = repository.refresh()
        assert f"{AT}/gone" not in head
        assert f"{AT}/d001/f00025.txt" not in head
        assert f"{AT}/d000/deep" in head
        assert f"{AT}/d000/deep/below" not in head

    Import(url, str(top), AT, workers=1).run()
    assert_imported(url, top)
