"""ZODB's FileStorage: an append-only file for one process at a time, synced to disk (fsync) in every commit."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import ZODB
from zc.lockfile import LockError
from ZODB.FileStorage import FileStorage

from benchmarks.peers.objects import CACHED_OBJECTS, ObjectSystem

FILE = "Data.fs"


class FileStorageSystem(ObjectSystem):
    """A connection to its own FileStorage."""

    name: ClassVar[str] = "ZODB FileStorage"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__(ZODB.DB(FileStorage(str(folder / FILE)), cache_size=CACHED_OBJECTS))

    @classmethod
    def create(cls, place: str) -> FileStorageSystem:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        database = ZODB.DB(FileStorage(str(folder / FILE), create=True))
        cls._create_tree(database)
        database.close()
        return cls(folder)

    def address(self) -> str:
        """Return the folder. Another process can open it after this process has closed it."""
        return str(self._folder)

    @classmethod
    def join(cls, address: str) -> FileStorageSystem:
        """Open the file. Raises NotImplementedError while another process has it open: a FileStorage belongs to one process."""
        try:
            return cls(Path(address))
        except LockError as error:
            raise NotImplementedError(f"{address} is open elsewhere, and FileStorage serves one process") from error

    def size(self) -> int:
        return (self._folder / FILE).stat().st_size
