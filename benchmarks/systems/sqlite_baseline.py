"""The embedded baseline: plain SQLite, one table with one row for each node, without versions, journal or conflicts.

It is as durable as hbasemk's own file: SQLite syncs the write-ahead log in each commit.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.system import Properties, System
from benchmarks.systems.hbasemk import file_size, remove_file

TABLE = "CREATE TABLE nodes (parent TEXT, name TEXT, properties TEXT, PRIMARY KEY (parent, name)) WITHOUT ROWID"
ONE = "SELECT properties FROM nodes WHERE parent = ? AND name = ?"
NAMES = "SELECT name FROM nodes WHERE parent = ? AND name > ? ORDER BY name LIMIT ?"
BELOW = "SELECT properties FROM nodes WHERE parent = ? UNION ALL SELECT properties FROM nodes WHERE parent > ? AND parent < ?"
SET = "UPDATE nodes SET properties = json_set(properties, ?, ?) WHERE parent = ? AND name = ?"
INCREMENT = (
    "UPDATE nodes SET properties = json_set(properties, ?, coalesce(json_extract(properties, ?), 0) + 1) "
    "WHERE parent = ? AND name = ?"
)
COUNTERS = "CREATE TABLE counters (node TEXT, name TEXT, n INTEGER, PRIMARY KEY (node, name)) WITHOUT ROWID"
ADJUST = "UPDATE counters SET n = n + ? WHERE node = ? AND name = ?"
BEGIN_COUNTER = "INSERT INTO counters VALUES (?, ?, ?)"
COUNTER = "SELECT n FROM counters WHERE node = ? AND name = ?"
CACHE_KIB = 32768


class PlainSqlite(System):
    """One row for each node: the parent, the name, and the properties as JSON."""

    name = "plain SQLite"

    def __init__(self, file: str, owner: bool) -> None:
        self.file = file
        self.owner = owner
        self._sql = self._open()

    def _open(self) -> sqlite3.Connection:
        sql = sqlite3.connect(self.file, timeout=60, isolation_level=None)
        sql.execute("PRAGMA journal_mode=WAL")
        sql.execute("PRAGMA synchronous=FULL")
        sql.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        sql.execute("PRAGMA wal_autocheckpoint=4000")
        sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return sql

    @classmethod
    def create(cls, place: str) -> System:
        """Create a file in a folder."""
        Path(place).mkdir(parents=True, exist_ok=True)
        system = cls(str(Path(place).absolute() / "plain.db"), owner=True)
        system._sql.execute(TABLE)
        system._sql.execute(COUNTERS)
        return system

    def address(self) -> str:
        """Return the path of the file."""
        return self.file

    @classmethod
    def join(cls, address: str) -> System:
        """Open another connection."""
        return cls(address, owner=False)

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        """One transaction."""
        rows = [(*_split(path), json.dumps(properties)) for path, properties in nodes]
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            self._sql.executemany("INSERT INTO nodes VALUES (?, ?, ?)", rows)
        except sqlite3.IntegrityError as error:
            self._sql.execute("ROLLBACK")
            raise ValueError(f"one of these nodes exists already: {error}") from error
        self._sql.execute("COMMIT")

    def set(self, path: str, name: str, value: int | str) -> None:
        """One transaction."""
        self._update(path, SET, (f'$."{name}"', value, *_split(path)))

    def increment(self, path: str, name: str) -> None:
        """One transaction."""
        field = f'$."{name}"'
        self._update(path, INCREMENT, (field, field, *_split(path)))

    def _update(self, path: str, statement: str, values: tuple[int | str, ...]) -> None:
        self._sql.execute("BEGIN IMMEDIATE")
        touched = self._sql.execute(statement, values).rowcount
        self._sql.execute("COMMIT")
        if not touched:
            raise KeyError(path)

    def adjust(self, path: str, name: str, by: int) -> None:
        """One transaction on a table of counters."""
        self._sql.execute("BEGIN IMMEDIATE")
        if not self._sql.execute(ADJUST, (by, path, name)).rowcount:
            self._sql.execute(BEGIN_COUNTER, (path, name, by))
        self._sql.execute("COMMIT")

    def counter(self, path: str, name: str) -> int:
        """Read one row of the counters."""
        found = self._sql.execute(COUNTER, (path, name)).fetchone()
        return 0 if found is None else int(found[0])

    def read(self, path: str) -> Properties | None:
        """Read one row."""
        found = self._sql.execute(ONE, _split(path)).fetchone()
        return None if found is None else json.loads(found[0])

    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        """Read a range of rows."""
        return [name for (name,) in self._sql.execute(NAMES, (path, after or "", limit))]

    def subtree(self, path: str) -> int:
        """Read two ranges of rows."""
        top = path.rstrip("/")
        found = self._sql.execute(BELOW, (path, f"{top}/", f"{top}0"))
        return sum(1 for (text,) in found if json.loads(text) is not None)

    def refresh(self) -> None:
        """Do nothing: each read sees all commits."""

    def clear_caches(self) -> None:
        """Open a new connection, with an empty page cache."""
        self._sql.close()
        self._sql = self._open()

    def make_history(self, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:  # noqa: ARG002
        """Commit once: the table keeps no history."""
        self.set(path, name, commits)
        return commits

    def size(self) -> int:
        """Return the size of the file."""
        return file_size(self.file)

    def close(self) -> None:
        """Close the connection; the creator also removes the file."""
        self._sql.close()
        if self.owner:
            remove_file(self.file)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
