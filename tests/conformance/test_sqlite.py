"""The SQLite store passes the conformance suite."""

from __future__ import annotations

import pytest

from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.store import OpenStore, StoreConformance


class TestSqlite(StoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
        path = tmp_path_factory.mktemp("sqlite") / "content.db"
        return lambda: SqliteStore(str(path))
