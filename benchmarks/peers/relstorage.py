"""RelStorage on SQLite: ZODB objects as rows of a file that processes share."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import ZODB
from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
from relstorage.options import Options
from relstorage.storage import RelStorage

from benchmarks.peers.objects import CACHED_OBJECTS, ObjectSystem
from benchmarks.systems.hbasemk import file_size

FULL = 2
"""SQLite's ``synchronous`` level that syncs the log in every commit. RelStorage's default, 1, may lose commits."""


class RelStorageSystem(ObjectSystem):
    """A connection to the database in a folder. The database keeps history, as hbasemk does."""

    name: ClassVar[str] = "RelStorage SQLite"

    def __init__(self, folder: Path, create: bool = False) -> None:
        self._folder = folder
        options = Options(keep_history=True)
        adapter = Sqlite3Adapter(str(folder), {"synchronous": FULL}, options=options)
        database = ZODB.DB(RelStorage(adapter, options=options, create=create), cache_size=CACHED_OBJECTS)
        if create:
            self._create_tree(database)
        super().__init__(database)

    @classmethod
    def create(cls, place: str) -> RelStorageSystem:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, create=True)

    def address(self) -> str:
        return str(self._folder)

    @classmethod
    def join(cls, address: str) -> RelStorageSystem:
        return cls(Path(address))

    def clear_caches(self) -> None:
        # Also clear RelStorage's cache of records; otherwise the next read would not reach SQLite.
        self._manager.abort()
        self._connection._storage._cache.clear(load_persistent=False)
        self._connection.cacheMinimize()
        self._manager.begin()

    def size(self) -> int:
        # A checkpoint waits for readers.
        self._manager.abort()
        try:
            return sum(file_size(str(file)) for file in self._folder.glob("*.sqlite3"))
        finally:
            self._manager.begin()
