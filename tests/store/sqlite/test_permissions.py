"""Tests of the SQLite store on files and folders that the user may not write."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import Get
from hbasemk.store.sqlite import SqliteStore, files
from tests.support.sqlite import TABLES, flag, run

WITHOUT_RIGHTS = """
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
class TestPermissions:
    @pytest.fixture
    def open_folder(self, tmp_path: Path) -> Path:
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() == tmp_path.owner() and "pytest" in str(folder):
                folder.chmod(folder.stat().st_mode | 0o055)
        folder = tmp_path / "folder"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def test_a_write_protected_file_is_unusable_for_writing(self, open_folder: Path) -> None:
        path = open_folder / "content.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.close()
        path.chmod(0o444)
        said = run(WITHOUT_RIGHTS + 'attempt(lambda: store.write("one", [flag(b"r")]))', path)
        assert said.startswith("StoreUnusableError")
        assert "content.db" in said

    @pytest.mark.parametrize(("file", "folder"), [(0o666, 0o555), (0o444, 0o777), (0o444, 0o555)])
    def test_a_reader_needs_permission_to_read_only(self, open_folder: Path, file: int, folder: int) -> None:
        path = open_folder / "content.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.close()
        path.chmod(file)
        open_folder.chmod(folder)
        script = """
attempt(lambda: store.read("one", [Get(b"r")]))
attempt(lambda: store.write("one", [flag(b"r")]))
store.close()
"""
        read, write = run(WITHOUT_RIGHTS + script, path).splitlines()
        assert read == "[Row(key=b'r', cells=[])]"
        assert write.startswith(f"StoreUnusableError {path} is open for reading only")
        assert os.listdir(open_folder) == ["content.db"]

    def test_a_write_protected_folder_is_unusable(self, open_folder: Path) -> None:
        open_folder.chmod(0o555)
        path = open_folder / "content.db"
        said = run(WITHOUT_RIGHTS + 'attempt(lambda: store.create_tables([Table("one", (b"d",), 1)]))', path)
        assert said.startswith("StoreUnusableError")
        assert "content.db" in said
        assert not path.exists()

    def test_a_write_on_a_read_only_mount_names_the_mount(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It said that root may not write to a file of root with mode 0644."""
        path = tmp_path / "content.db"
        with contextlib.closing(SqliteStore(str(path))) as store:
            store.create_tables(TABLES)
        read_only = os.statvfs_result((*os.statvfs(tmp_path)[:8], os.ST_RDONLY, 255))
        with monkeypatch.context() as patched, contextlib.closing(SqliteStore(str(path))) as store:
            patched.setattr(files, "may", lambda path, how: not how & os.W_OK)
            patched.setattr(os, "statvfs", lambda _: read_only)
            assert store.read("one", [Get(b"r")])[0].cells == []
            with pytest.raises(StoreUnusableError, match=f"the file system of {path} is mounted read-only"):
                store.write("one", [flag(b"r")])
