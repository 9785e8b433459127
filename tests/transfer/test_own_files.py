"""Commands that read or write files never open or replace the repository's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import InvalidValueError, Repository, connect
from hbasemk.transfer import own_files
from hbasemk.transfer.files.entries import Entry, Seen, Skipped, walk
from hbasemk.transfer.files.reader import FileReader, Files, ReaderDiedError, ReaderJob
from hbasemk.transfer.json.importer import JsonImport
from tests.support.imports import write_files


@pytest.fixture
def url(url: str) -> Iterator[str]:
    """An open repository, so that all its files exist."""
    with connect(url, poll_interval=0) as repository:
        repository.run(lambda tx: tx.set("/", "x", 1))
        yield url


@pytest.fixture
def top(url: str, tmp_path: Path) -> Path:
    """The folder that holds it, with additional names of its files."""
    for name in ("content.db", "content.db-wal", "content.db-shm"):
        os.link(tmp_path / name, tmp_path / f"hard {name}")
    (tmp_path / "link").symlink_to("content.db")
    return write_files(tmp_path, {"file": b"text"})


OWN = [
    "content.db",
    "content.db-shm",
    "content.db-wal",
    "hard content.db",
    "hard content.db-shm",
    "hard content.db-wal",
]


def test_a_walk_skips_the_own_files_under_every_name_and_keeps_links(url: str, top: Path) -> None:
    skipped: list[Skipped] = []

    found = list(walk(str(top), (), skipped.append, own_files.of(url)))

    assert found == [Entry("file", "file"), Entry("link", "link")]
    assert [one.relative for one in skipped] == OWN
    assert {(one.reason, one.failed) for one in skipped} == {("is a file of this repository", False)}


def test_a_reader_does_not_open_files_of_the_repository(url: str, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(ReaderJob(url, str(top), 100))
    opened: list[bytes] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda where, *rest: opened.append(where) or real(where, *rest))

    answers = {name: files.state(name, "all") for name in [*OWN, "file", "link"]}

    assert opened == [os.fsencode(top / "file")]
    assert all(isinstance(answers[name], Skipped) for name in OWN)
    assert isinstance(answers["file"], Seen)
    assert answers["file"].content == b"text"
    assert isinstance(answers["link"], Seen)
    assert answers["link"].target == "content.db"


def test_a_file_that_is_replaced_by_one_of_the_repository_before_opening_is_not_read(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(ReaderJob(url, str(top), 100))
    real = os.open

    def swapped(where: bytes, *rest: int) -> int:
        (top / "file").unlink()
        # Another process: this one has the repository open and must not open its files.
        os.rename(top / "hard content.db", top / "file")
        held.append(real(where, *rest))
        return os.dup(held[0])

    held: list[int] = []
    monkeypatch.setattr(os, "open", swapped)
    # It must not close them either.
    monkeypatch.setattr(os, "close", lambda number: None)

    assert files.state("file", "all") == Skipped("file", "is a file of this repository", False)


@pytest.mark.parametrize("becomes", ["pipe", "link", "directory", "nothing"])
def test_a_file_that_is_replaced_before_opening_is_read_in_its_new_state(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    files = Files(ReaderJob(url, str(top), 100))
    real = os.open

    def swapped(where: bytes, *rest: int) -> int:
        monkeypatch.undo()
        (top / "file").unlink()
        if becomes == "pipe":
            os.mkfifo(top / "file")
        elif becomes == "link":
            (top / "file").symlink_to("content.db")
        elif becomes == "directory":
            (top / "file").mkdir()
        return real(where, *rest)

    monkeypatch.setattr(os, "open", swapped)
    answer = files.state("file", "all")

    if becomes == "link":
        assert isinstance(answer, Seen)
        assert (answer.kind, answer.target) == ("link", "content.db")
    else:
        assert isinstance(answer, Skipped)
        assert not answer.failed


def test_a_dead_reader_is_an_error_and_not_an_endless_wait(url: str, top: Path) -> None:
    with FileReader.spawned(ReaderJob(url, str(top), 100)) as reader:
        assert dict(reader.states(["file"], "none"))["file"].kind == "file"  # type: ignore[union-attr]
        reader._pipe.send("not a request")
        with pytest.raises(ReaderDiedError, match="again"):
            list(reader.states(["file"], "none"))


# --- other commands ---------------------------------------------------------------------------------------


def hbasemk(url: str, *arguments: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
    with open(stdin or os.devnull, "rb") as given:
        return subprocess.run(
            [sys.executable, "-m", "hbasemk", "--url", url, *arguments],
            stdin=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def closed(url: str, checked: object, tmp_path: Path) -> str:
    """A repository that this process does not use, so that it may open the files itself."""
    made = f"sqlite:///{tmp_path / 'other' / 'content.db'}"
    (tmp_path / "other").mkdir()
    with connect(made, poll_interval=0) as repository:
        repository.run(lambda tx: tx.set("/", "x", 1))
    os.link(tmp_path / "other" / "content.db", tmp_path / "other" / "hard")
    (tmp_path / "other" / "link").symlink_to("hard")
    return made


@pytest.mark.parametrize("end", ["/", "/."])
@pytest.mark.parametrize("arguments", [("blob", "get"), ("export", "-f", "json", "/")])
def test_a_file_of_the_repository_is_not_replaced_under_a_name_of_a_folder(
    closed: str, tmp_path: Path, arguments: tuple[str, ...], end: str
) -> None:
    (tmp_path / "content").write_text("content")
    blob = hbasemk(closed, "blob", "put", str(tmp_path / "content")).stdout.strip()
    content = blob if arguments[0] == "blob" else ""
    before = (tmp_path / "other" / "content.db").read_bytes()

    ran = hbasemk(closed, *arguments, *filter(None, [content]), str(tmp_path / "other" / "content.db") + end)

    assert ran.returncode == 2, ran.stderr
    assert "names a folder" in ran.stderr
    assert (tmp_path / "other" / "content.db").read_bytes()[:16] == before[:16] == b"SQLite format 3\0"
    with connect(closed, create=False, poll_interval=0) as repository:
        assert repository.refresh()["/"]["x"] == 1


@pytest.mark.parametrize("name", ["content.db", "hard", "link"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("blob", "put", "{file}"),
        ("import", "-f", "json", "{file}"),
        ("export", "-f", "json", "/", "{file}"),
        ("blob", "get", "0" * 64, "{file}"),
    ],
)
def test_commands_reject_the_files_of_the_repository(
    closed: str, tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    before = (tmp_path / "other" / "content.db").read_bytes()

    ran = hbasemk(closed, *(one.format(file=tmp_path / "other" / name) for one in arguments))

    assert ran.returncode == 2, ran.stderr
    assert "a file of this repository" in ran.stderr
    assert (tmp_path / "other" / "content.db").read_bytes() == before
    with connect(closed, create=False, poll_interval=0) as repository:
        assert repository.refresh()["/"]["x"] == 1


@pytest.mark.parametrize("arguments", [("blob", "put"), ("import", "-f", "json", "-")])
def test_commands_reject_the_files_of_the_repository_as_standard_input(
    closed: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = hbasemk(closed, *arguments, stdin=tmp_path / "other" / "content.db")

    assert ran.returncode == 2
    assert "standard input" in ran.stderr
    assert "a file of this repository" in ran.stderr


def test_a_json_import_in_a_process_that_uses_the_repository_does_not_open_its_files(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))

    with pytest.raises(InvalidValueError, match="a file of this repository"):
        JsonImport(url, top / "hard content.db", "/").run()


def test_a_repository_without_files_owns_no_file(real_store: object) -> None:
    with Repository(real_store, poll_interval=0) as repository:  # type: ignore[arg-type]
        assert repository.store.files() == {}
    assert own_files.of("memory://x")() == {}


def test_a_scheme_in_capitals_names_the_same_files(url: str) -> None:
    with connect(url, poll_interval=0):
        found = own_files.of(url)()
        assert len(found) == 3
        assert own_files.of(url.replace("sqlite:", "SQLite:"))() == found
    assert own_files.of("HBase://127.0.0.1:1/")() == {}
