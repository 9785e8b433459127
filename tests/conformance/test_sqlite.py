"""The SQLite store passes the conformance suite."""

from __future__ import annotations

import pytest

from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.store import OpenStore, StoreConformance
from hbasemk.testing.store.machine import Model
from tests.support.proof import PROOF


class Sqlite:
    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
        path = tmp_path_factory.mktemp("sqlite") / "content.db"
        return lambda: SqliteStore(str(path))


class TestSqlite(Sqlite, StoreConformance):
    EXAMPLES = 50


@PROOF
class TestMoreRandomCalls(Sqlite, Model):
    pass
