"""The integrity check at the end of each test: it excuses only a repository that was never created."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk import FormatError, StoreUnusableError, connect
from hbasemk.format import schema
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.repositories import damage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A repository in a folder whose name looks like an advice of an error message."""
    folder = tmp_path / "create the repository first"
    folder.mkdir()
    with connect(f"sqlite:///{folder / 'content.db'}") as repository:
        repository.run(lambda tx: tx.add("/a"))
    return folder / "content.db"


def test_a_file_without_a_repository_is_an_error_whatever_its_path_says(file: Path) -> None:
    assert damage(f"sqlite:///{file}") == []
    file.write_bytes(b"not a database" * 100)
    with pytest.raises(FormatError):
        damage(f"sqlite:///{file}")


def test_an_emptied_file_is_an_error(file: Path) -> None:
    file.write_bytes(b"")
    with pytest.raises(StoreUnusableError, match="is empty"):
        damage(f"sqlite:///{file}")


def test_a_missing_table_is_an_error(file: Path) -> None:
    store = SqliteStore(str(file))
    store.drop_tables([table for table in schema.TABLES if table.name == schema.NODES])
    store.close()
    with pytest.raises(StoreUnusableError, match=r"nodes.*does not exist"):
        damage(f"sqlite:///{file}")


def test_a_repository_that_was_never_created_has_no_damage(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'content.db'}"
    assert damage(url) == damage(MemoryStore()) == []
    store = SqliteStore(str(tmp_path / "content.db"))
    store.create_tables(schema.TABLES)
    store.close()
    assert damage(url) == []
