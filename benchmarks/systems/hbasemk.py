"""hbasemk as a system under test, opened as its users open it: with background polling at the default interval."""

from __future__ import annotations

import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, cast
from urllib.parse import quote, unquote, urlsplit

from benchmarks.system import Properties, System
from benchmarks.systems.batch_history import write_history
from hbasemk.errors import NodeExistsError, NodeNotFoundError
from hbasemk.format import schema
from hbasemk.opening import open_store
from hbasemk.repository import DEFAULT_POLL_INTERVAL, Repository, instance_of
from hbasemk.store.abc import Scan, Store, scan_all
from hbasemk.transaction import Transaction


class _Hbasemk(System):
    """The common part; subclasses know where the tree is."""

    name = "hbasemk"
    background_refresh = True
    has_slots = True
    has_branches = True

    def __init__(self, url: str, owner: bool, poll_interval: float = DEFAULT_POLL_INTERVAL) -> None:
        self.url = url
        self.owner = owner
        self.poll_interval = poll_interval
        self._earlier_retries = 0
        self.repository = self._open(create=owner)

    def _store(self) -> Store:
        return open_store(self.url)[0]

    def _open(self, create: bool) -> Repository:
        store = self._store()
        try:
            return Repository(store, create=create, poll_interval=self.poll_interval)
        except BaseException:
            store.close()
            raise

    def address(self) -> str:
        """Return the URL."""
        return self.url

    @classmethod
    def join(cls, address: str) -> System:
        """Open another instance on a URL."""
        return cls(address, owner=False)

    # --- changing ----------------------------------------------------------------------------------------

    def _count(self) -> None:
        self.retries = self._earlier_retries + self.repository.statistics.conflicts

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        """One commit."""

        def change(tx: Transaction) -> None:
            for path, properties in nodes:
                tx.add(path, properties)

        try:
            self.repository.run(change)
        except NodeExistsError as error:
            raise ValueError(str(error)) from error
        self._count()

    def set(self, path: str, name: str, value: int | str) -> None:
        """One commit."""
        self.repository.run(lambda tx: tx.set(path, name, value))
        self._count()

    def increment(self, path: str, name: str) -> None:
        """One commit, retried after a conflict."""
        self.repository.run(lambda tx: tx.increment(path, name))
        self._count()

    def adjust(self, path: str, name: str, by: int) -> None:
        """One commit."""
        self.repository.adjust(path, name, by)
        self._count()

    def counter(self, path: str, name: str) -> int:
        """Read the property."""
        return cast("int", self.repository.head[path][name])

    def adjust_in_slots(self, path: str, name: str, count: int) -> None:
        """Commit on one old snapshot, on which each commit needs its own slot."""
        base = self.repository.head
        for _ in range(count):
            with self.repository.transaction(base=base) as tx:
                tx.adjust(path, name, 1)

    def branch_and_merge(self, nodes: Sequence[tuple[str, Properties]], commits: int) -> None:
        """Commit on a new branch and merge it."""
        size = -(-len(nodes) // commits)
        with self.repository.branch() as branch:
            for at in range(0, len(nodes), size):

                def change(tx: Transaction, at: int = at) -> None:
                    for path, properties in nodes[at : at + size]:
                        tx.add(path, properties)

                branch.run(change)

    def rebase_and_merge(self, path: str, name: str, value: int, beside: str | None) -> None:
        """Commit on a new branch, and once on trunk if asked; rebase and merge the branch."""
        branch = self.repository.branch()
        branch.run(lambda tx: tx.set(path, name, value))
        if beside is not None:
            self.set(beside, name, value)
        branch.rebase()
        branch.merge()

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, path: str) -> Properties | None:
        """Read at head."""
        try:
            return cast("Properties", self.repository.head[path])
        except NodeNotFoundError:
            return None

    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        """Read at head."""
        return self.repository.head.children(path, after, limit)

    def subtree(self, path: str) -> int:
        """Walk the subtree and decode every value."""
        return sum(1 for node in self.repository.head.walk(path) if node.items() is not None) - 1

    def refresh(self) -> None:
        """Poll once."""
        self.repository.refresh()

    def clear_caches(self) -> None:
        """Replace the instance and its connections."""
        self._earlier_retries = self.retries
        self.repository.close()
        self.repository = self._open(create=False)

    def mark(self) -> object:
        """Return the head's revision."""
        return self.repository.head.revision

    def read_at(self, mark: object, path: str) -> Properties | None:
        """Read from the snapshot of the revision."""
        try:
            return cast("Properties", self.repository.at(str(mark))[path])
        except NodeNotFoundError:
            return None

    def changed(self, mark: object) -> int:
        """Compare by the journal."""
        return sum(1 for _ in self.repository.diff(self.repository.at(str(mark))))

    # --- a long history ----------------------------------------------------------------------------------

    def make_history(self, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
        """See :func:`~benchmarks.systems.batch_history.write_history`."""
        return write_history(instance_of(self.repository), [path], name, commits, stop)

    def close(self) -> None:
        """Close the instance; the creator also removes the tree."""
        self.repository.close()
        if self.owner:
            self._remove()

    @abstractmethod
    def _remove(self) -> None: ...


class EmbeddedHbasemk(_Hbasemk):
    """hbasemk in one SQLite file, with the default durability."""

    file: ClassVar[str] = "hbasemk.db"

    @classmethod
    def create(cls, place: str) -> System:
        """Create the file in a folder."""
        Path(place).mkdir(parents=True, exist_ok=True)
        return cls(f"sqlite:///{quote(str(Path(place).absolute() / cls.file))}", owner=True)

    @property
    def path(self) -> str:
        """The path of the file."""
        return unquote(self.url.removeprefix("sqlite:///"))

    def size(self) -> int:
        """Return the size of the file after a checkpoint of the write-ahead log."""
        return file_size(self.path)

    def _remove(self) -> None:
        remove_file(self.path)


class DistributedHbasemk(_Hbasemk):
    """hbasemk on HBase."""

    @classmethod
    def create(cls, place: str) -> System:
        """Create the tables at ``host:port/prefix``."""
        return cls(_url(place), owner=True)

    @classmethod
    def remove(cls, place: str) -> None:
        """Drop the tables."""
        _drop_tables(_url(place))

    def size(self) -> int:
        """See :func:`cells_size`."""
        return cells_size(self.repository.store, [table.name for table in schema.TABLES])

    def _remove(self) -> None:
        _drop_tables(self.url)


def _url(place: str) -> str:
    address, _, prefix = place.partition("/")
    return f"hbase://{address}/?prefix={prefix}"


def _drop_tables(url: str) -> None:
    store = open_store(url)[0]
    try:
        store.drop_tables(schema.TABLES)
    finally:
        store.close()


def host_and_port(address: str) -> tuple[str, int]:
    """Split ``host:port``; the default port is 9090."""
    parts = urlsplit(f"//{address}")
    return parts.hostname or "", parts.port or 9090


def cells_size(store: Store, tables: Sequence[str]) -> int:
    """Return the bytes of all cells in HBase's form: lengths, row, column, timestamp, type and value.

    The size of HBase's files differs because of block encoding, indexes, and data that is not compacted yet.
    """
    total = 0
    for table in tables:
        for key, cells in scan_all(store, table, Scan(None, None, 500, versions=2**31 - 1)):
            for family, qualifier, _, value in cells:
                total += 8 + 2 + len(key) + 1 + len(family) + len(qualifier) + 8 + 1 + len(value)
    return total


def file_size(path: str) -> int:
    """Return the size of an SQLite file and its write-ahead log after a checkpoint."""
    with sqlite3.connect(path, timeout=30) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sql.close()
    size = os.path.getsize(path)
    with suppress(FileNotFoundError):
        # The log goes with the last connection, at any moment.
        size += os.path.getsize(f"{path}-wal")
    return size


def remove_file(path: str) -> None:
    """Remove an SQLite file and its write-ahead log."""
    for end in ("", "-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)
