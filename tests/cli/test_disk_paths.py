"""Paths of files and folders in commands: empty ones, ``-``, links, and the files of the repository itself."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hbasemk import connect
from hbasemk.transfer.exporter import export_files, write_json
from tests.support.commands import DONE, NO, USAGE, Run

pytestmark = pytest.mark.usefixtures("tree")


@pytest.mark.parametrize(
    "words",
    [
        ("export", "/a", ""),
        ("export", "/a", "", "-f", "json"),
        ("import", ""),
        ("import", "", "-f", "json"),
        ("blob", "put", ""),
        ("blob", "get", "ab" * 32, ""),
        ("import", ".", "--at", ""),
        ("ls", "--url", ""),
    ],
    ids=" ".join,
)
def test_an_empty_text_is_wrong_usage(
    run: Run, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ran = run(*words)
    assert ran.code == USAGE, ran
    assert list(folder.iterdir()) == []


def test_an_empty_path_of_json_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"properties": {"n": 1}}')
    assert run("import", "-f", "json", str(file), "--at", "").code == USAGE
    assert "n" not in json.loads(run("cat", "/", "--output", "json").out)


def test_a_file_named_as_a_stream_is_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("export", "/a", "./-", "-f", "json") == (DONE, "", "")
    assert json.loads((tmp_path / "-").read_text()) == run("export", "/a", "-", "-f", "json").json
    assert run("import", "-f", "json", "./-", "--at", "/copy").code == DONE
    assert run("cat", "/copy", "-p", "title").out.strip() == "A"
    (tmp_path / "-").unlink()
    blob = run("blob", "put", __file__).out.strip()
    assert run("blob", "get", blob, "-").out == Path(__file__).read_text()
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("words", "otherwise"),
    [
        (("blob", "put"), "a file as the argument"),
        (("import", "-f", "json", "-"), "a file as the argument"),
        (("commit",), "JSOP as the argument"),
    ],
)
def test_a_closed_standard_input_is_wrong_usage(words: tuple[str, ...], otherwise: str, url: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m hbasemk {' '.join(words)} <&-"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "HBASEMK_URL": url},
    )
    assert ran.returncode == USAGE
    assert "standard input is closed; expected " in ran.stderr
    assert f" there, or {otherwise}\n" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_no_command_writes_into_a_file_of_the_repository(run: Run, url: str, end: str) -> None:
    blob = run("blob", "put", __file__).out.strip()
    own = url.removeprefix("sqlite:///") + end
    for words in (("blob", "get", blob, own), ("export", "-f", "json", "/a", own)):
        ran = run(*words)
        assert ran.code == USAGE, words
        assert "a file of this repository" in ran.err


def test_json_goes_through_a_link_and_keeps_the_mode(url: str, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    with connect(url) as repository:
        write_json(repository.head, "/a", link)
    assert link.is_symlink()
    assert "properties" in json.loads(real.read_text())
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["link.json", "real.json"]


def test_json_is_written_into_an_open_file(url: str, tmp_path: Path) -> None:
    """As for ``/dev/stdout`` of a command whose output goes to a file."""
    with connect(url) as repository, open(tmp_path / "out", "w+") as file:
        write_json(repository.head, "/a", Path(f"/dev/fd/{file.fileno()}"))
        assert "properties" in json.load(file)


def test_files_are_not_exported_over_a_link_of_the_system(url: str, tmp_path: Path) -> None:
    with connect(url) as repository, open(tmp_path / "out", "w+") as file:
        repository.run(lambda tx: tx.add("/file", {":kind": "file", ":content": "x"}))
        done = export_files(repository.head, "/file", Path(f"/dev/fd/{file.fileno()}"))
        assert done.skipped == [("/file", "a device, a pipe or a socket has its path")]


def test_json_is_not_written_over_a_folder(run: Run, tmp_path: Path) -> None:
    ran = run("export", "/a", str(tmp_path), "-f", "json")
    assert ran.err == f"hbasemk: {tmp_path}: expected a file, and this is a directory\n"


@pytest.mark.parametrize("end", ["/", "/."])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_is_not_exported_to_the_path_of_a_missing_folder(
    run: Run, url: str, tmp_path: Path, kind: str, end: str
) -> None:
    with connect(url) as repository:
        repository.run(lambda tx: tx.add("/one", {":kind": kind, ":content": "x", ":target": "x"}))
    target = tmp_path / "new"

    ran = run("export", "/one", f"{target}{end}")

    assert ran.code == USAGE
    assert f"expected a file, got '{target}{end}', which names a folder" in ran.err
    assert not os.path.lexists(target)
    target.mkdir()
    assert run("export", "/one", f"{target}{end}").code == DONE
    assert os.listdir(target) == ["one"]


def test_a_directory_is_exported_to_a_path_that_ends_as_one_of_a_folder(run: Run, tmp_path: Path) -> None:
    assert run("export", "/", f"{tmp_path}/new/").code == NO
    assert (tmp_path / "new/a").is_dir()


def test_a_target_is_overwritten_where_the_user_may_not_create_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = run("blob", "put", __file__).out.strip()
    target = tmp_path / "target"
    target.write_text("old")
    real = os.open

    def refuse(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if os.path.basename(os.fsencode(path)).startswith(b".hbasemk-"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert run("blob", "get", blob, str(target)) == (DONE, "", "")
    assert target.read_bytes() == Path(__file__).read_bytes()
    new = tmp_path / "new"
    assert run("blob", "get", blob, str(new)).err == f"hbasemk: {new}: Permission denied\n"
    assert not new.exists()


def refuse_to_replace(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    """Let a file be as one that is mounted into a container, which no other file can replace."""
    real = os.replace

    def replace(source: bytes, name: bytes, **options: Any) -> None:
        if name == os.fsencode(target):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, name)
        real(source, name, **options)

    monkeypatch.setattr(os, "replace", replace)


def test_a_mounted_file_is_overwritten(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = run("blob", "put", __file__).out.strip()
    target = tmp_path / "target"
    target.write_text("old" * 100_000)
    target.chmod(0o200)
    before = os.stat(target)
    refuse_to_replace(monkeypatch, target)

    assert run("blob", "get", blob, str(target)) == (DONE, "", "")
    assert target.read_bytes() == Path(__file__).read_bytes()
    assert run("export", "/a", str(target), "-f", "json") == (DONE, "", "")
    assert "properties" in json.loads(target.read_text())

    after = os.stat(target)
    assert (after.st_ino, stat.S_IMODE(after.st_mode)) == (before.st_ino, 0o200)
    assert not list(tmp_path.glob(".hbasemk-*"))


def test_a_mounted_file_stays_as_it_was_if_its_new_content_cannot_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    refuse_to_replace(monkeypatch, target)

    assert run("blob", "get", "ab" * 32, str(target)).code == NO
    assert target.read_text() == "old"
    assert not list(tmp_path.glob(".hbasemk-*"))


def test_a_target_need_not_be_readable(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = run("blob", "put", __file__).out.strip()
    target = tmp_path / "target"
    target.write_text("old")
    # Root may read every file.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.R_OK)
    assert run("blob", "get", blob, str(target)) == (DONE, "", "")
    assert target.read_bytes() == Path(__file__).read_bytes()
    assert run("export", "/a", str(target), "-f", "json") == (DONE, "", "")
    assert "properties" in json.loads(target.read_text())
