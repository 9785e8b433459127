"""The rights of others to exported directories, and directories and files that an export may not write."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbasemk import connect
from hbasemk.transfer.exporter import Exported, export_files
from hbasemk.transfer.files.importer import Import
from tests.support.full_disk import largest_file, no_space
from tests.support.imports import changed, write_files

AT = "/docs"


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    """Let new files be readable by all, as most systems do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def top(url: str, tmp_path: Path) -> Path:
    """An imported directory with private and public directories; the last file is large."""
    files = {
        "open/file": b"public",
        "private/inner/secret": b"secret",
        "private/secret": b"secret",
        "z/large": bytes(3_000_000),
    }
    made = write_files(tmp_path / "docs", files)
    for name, mode in (("open", 0o755), ("private", 0o700), ("private/inner", 0o755), ("z", 0o750)):
        (made / name).chmod(mode)
        os.utime(made / name, ns=(5, 7_000_000_007))
    Import(url, str(made), AT, workers=1).run()
    return made


def exported(url: str, target: Path) -> Exported:
    with connect(url) as repository:
        return export_files(repository.refresh(), AT, target)


def modes(top: Path, *names: str) -> dict[str, int]:
    return {name: stat.S_IMODE((top / name).stat().st_mode) for name in names}


def folder_of(number: int) -> str:
    return os.readlink(f"/proc/self/fd/{number}")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The modes of the folders of exported files, each when its last file had received its name."""
    found: dict[str, int] = {}
    real = os.replace

    def replace(*arguments: Any, dst_dir_fd: int, **options: Any) -> None:
        real(*arguments, dst_dir_fd=dst_dir_fd, **options)
        found[Path(folder_of(dst_dir_fd)).name] = stat.S_IMODE(os.fstat(dst_dir_fd).st_mode)

    monkeypatch.setattr(os, "replace", replace)
    return found


DIRECTORIES = {"open": 0o755, "private": 0o700, "private/inner": 0o755, "z": 0o750}


def test_no_other_user_can_enter_a_new_directory_before_it_has_its_mode(
    url: str, top: Path, tmp_path: Path, written: dict[str, int]
) -> None:
    done = exported(url, tmp_path / "out")

    assert (done.skipped, done.incomplete) == ([], [])
    assert written == dict.fromkeys(("open", "private", "inner", "z"), 0o700)
    assert modes(tmp_path / "out", *DIRECTORIES) == DIRECTORIES
    assert (tmp_path / "out/z").stat().st_mtime_ns == 7_000_000_007


def test_an_existing_directory_loses_the_rights_that_its_mode_lacks_first(
    url: str, top: Path, tmp_path: Path, written: dict[str, int]
) -> None:
    for name in ("open", "private", "private/inner", "z"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "out/private/inner").chmod(0o2711)

    done = exported(url, tmp_path / "out")

    assert (done.skipped, done.incomplete) == ([], [])
    assert written == {"open": 0o755, "private": 0o700, "inner": 0o2711, "z": 0o750}
    assert modes(tmp_path / "out", *DIRECTORIES) == DIRECTORIES


def test_an_existing_directory_of_another_user_is_written_and_reported(
    url: str, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out/private").mkdir(parents=True)
    real = os.fchmod

    def fchmod(number: int, mode: int) -> None:
        if folder_of(number).endswith("/private"):
            raise PermissionError(1, "Operation not permitted")
        real(number, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    done = exported(url, tmp_path / "out")

    assert done.skipped == []
    assert done.incomplete == [(f"{AT}/private", "its mode 700 cannot be set (Operation not permitted)")]
    assert (tmp_path / "out/private/secret").read_bytes() == b"secret"


def test_a_directory_without_a_mode_gets_the_usual_one(url: str, tmp_path: Path) -> None:
    changed(url, lambda tx: [tx.add(AT), tx.add(f"{AT}/plain", {":kind": "directory"})])

    assert exported(url, tmp_path / "out").incomplete == []
    assert modes(tmp_path / "out", "plain") == {"plain": 0o755}


def test_directories_have_their_modes_and_times_after_an_export_that_failed(
    url: str, top: Path, tmp_path: Path
) -> None:
    with no_space(), pytest.raises(OSError, match="No space left"):
        exported(url, tmp_path / "out")

    assert (tmp_path / "out/private/secret").read_bytes() == b"secret"
    assert modes(tmp_path / "out", *DIRECTORIES) == DIRECTORIES
    assert {(tmp_path / "out" / name).stat().st_mtime_ns for name in DIRECTORIES} == {7_000_000_007}


# --- entries that the system refuses ----------------------------------------------------------------------


def test_a_folder_that_the_user_may_not_change_is_skipped_and_the_rest_is_written(
    url: str, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out/private").mkdir(parents=True)
    access = os.access

    def chmod(name: bytes, *_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted", name)

    monkeypatch.setattr(os, "access", lambda name, *rest, **more: name != b"private" and access(name, *rest, **more))
    monkeypatch.setattr(os, "chmod", chmod)
    done = exported(url, tmp_path / "out")

    assert dict(done.skipped) == {
        f"{AT}/private": "it cannot be written (Operation not permitted)",
        **dict.fromkeys(
            (f"{AT}/private/inner", f"{AT}/private/inner/secret", f"{AT}/private/secret"),
            "its parent is not exported as a directory",
        ),
    }
    assert (tmp_path / "out/open/file").read_bytes() == b"public"
    assert (tmp_path / "out/z/large").stat().st_size == 3_000_000


def refuse_files(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """Let the system refuse to create files in a folder, as it does for a folder of another user."""
    real, access = os.open, os.access

    def refused(name: Any, *rest: Any, dir_fd: int | None = None, **more: Any) -> int:
        if dir_fd is not None and rest[0] & os.O_CREAT and folder_of(dir_fd) == str(folder):
            raise OSError(number, os.strerror(number), name)
        return real(name, *rest, dir_fd=dir_fd, **more)

    def denied(name: Any, *rest: Any, dir_fd: int | None = None, **more: Any) -> bool:
        at = Path(os.fsdecode(name)) if dir_fd is None else Path(folder_of(dir_fd), os.fsdecode(name))
        return Path(os.path.normpath(at)) != folder and access(name, *rest, dir_fd=dir_fd, **more)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "access", denied)


@pytest.mark.parametrize("number", [1, 13, 30])
def test_a_file_that_the_system_refuses_is_skipped_and_the_rest_is_written(
    url: str, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_files(monkeypatch, tmp_path / "out/private/inner", number)

    done = exported(url, tmp_path / "out")

    assert done.skipped == [(f"{AT}/private/inner/secret", f"it cannot be written ({os.strerror(number)})")]
    assert (done.files, done.directories) == (3, 4)


def test_a_file_that_is_too_large_is_skipped_and_the_rest_is_written(url: str, top: Path, tmp_path: Path) -> None:
    (top / "z/last").write_bytes(b"last")
    Import(url, str(top), AT, workers=1).run()

    with largest_file(2_000_000):
        done = exported(url, tmp_path / "out")

    assert done.skipped == [(f"{AT}/z/large", "it cannot be written (File too large)")]
    assert os.listdir(tmp_path / "out/z") == ["last"]


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EILSEQ])
def test_a_file_whose_name_cannot_be_taken_is_skipped_and_the_rest_is_written(
    url: str, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A mount point has it, or the file system accepts only names in UTF-8."""
    real = os.replace

    def refuse(source: bytes, target: bytes, **options: Any) -> None:
        if target == b"file":
            raise OSError(number, os.strerror(number), source)
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", refuse)
    done = exported(url, tmp_path / "out")

    assert done.skipped == [(f"{AT}/open/file", f"it cannot be written ({os.strerror(number)})")]
    assert (done.files, done.directories) == (3, 4)
    assert os.listdir(tmp_path / "out/open") == []


@pytest.mark.parametrize("number", [1, 13, 30])
def test_a_folder_in_which_nothing_can_be_written_ends_the_export(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    top = write_files(tmp_path / "docs", {"a": b"1", "b": b"2"})
    Import(url, str(top), AT, workers=1).run()
    refuse_files(monkeypatch, tmp_path / "out", number)

    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        exported(url, tmp_path / "out")

    assert (raised.value.errno, raised.value.filename) == (number, str(tmp_path / "out/a"))


@pytest.mark.usefixtures("top")
def test_a_new_folder_gets_the_mode_and_time_of_an_exported_subdirectory(url: str, tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.mkdir()
    with connect(url) as repository:
        head = repository.refresh()
        export_files(head, f"{AT}/private", tmp_path / "new")
        export_files(head, f"{AT}/private", existing)
    assert modes(tmp_path, "new", "existing") == {"new": 0o700, "existing": 0o755}
    assert (tmp_path / "new").stat().st_mtime_ns == 7_000_000_007
