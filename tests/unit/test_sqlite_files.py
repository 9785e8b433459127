"""The files of a SQLite store: which they are, under any name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hbasemk.store.abc import Table
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import CountingStore

TABLES = [Table("one", (b"d",), 1)]


def identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class TestIdentities:
    def test_a_store_without_files_has_none(self) -> None:
        assert MemoryStore().files() == {}

    def test_before_and_after_the_file_exists(self, tmp_path: Path) -> None:
        path = tmp_path / "content.db"
        store = SqliteStore(str(path))
        assert store.files() == {}
        store.create_tables(TABLES)
        assert store.files() == {
            identity(tmp_path / name): str(tmp_path / name)
            for name in ("content.db", "content.db-wal", "content.db-shm")
        }
        assert CountingStore(store).files() == store.files()
        store.close()

    def test_hard_links_are_found_and_symbolic_links_followed(self, tmp_path: Path) -> None:
        real = tmp_path / "real"
        real.mkdir()
        link = tmp_path / "link.db"
        link.symlink_to(real / "content.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            store = SqliteStore("link.db")
        store.create_tables(TABLES)
        os.link(real / "content.db-wal", tmp_path / "other-name")
        assert identity(tmp_path / "other-name") in store.files()
        assert set(store.files()) == {identity(one) for one in real.iterdir()}
        assert len(store.files()) == 3
        store.close()

    def test_no_file_is_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = SqliteStore(str(tmp_path / "content.db"))
        store.create_tables(TABLES)

        def refuse(*_: object, **__: object) -> int:
            raise AssertionError("a file of the store was opened")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            patch.setattr("builtins.open", refuse)
            assert len(store.files()) == 3
        store.close()
