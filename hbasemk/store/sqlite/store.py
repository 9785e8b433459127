"""A store in one SQLite file, in write-ahead-log mode, safe for many processes and threads.

A call is one SQLite transaction. A durable call returns after the log has been synced to disk. One that is not durable
appends to the same log without syncing it; the log is kept in order, and recovery after a crash keeps a prefix of it,
so a later durable call makes everything before it durable too.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Column, Delete, Get, Limits, Put, Row, Scan, Store, Table
from hbasemk.store.sqlite import cells
from hbasemk.store.sqlite.cells import Families
from hbasemk.store.sqlite.connections import Connection, Connections

DEFAULT_BUSY_TIMEOUT: Final = 30.0


def system_ms() -> int:
    """The wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class SqliteStore(Store):
    """The tables of one repository in the file at ``path``.

    ``durable`` False leaves every commit to the operating system's own time of writing: a crash of the process loses
    nothing, a crash of the machine the last seconds. ``busy_timeout`` is how many seconds a call waits for other
    processes; ``clock`` gives the time in ms since 1970 of cells without one.
    """

    limits = Limits(row_key=32_767, cell=10 * 1024 * 1024 - 1024)

    def __init__(
        self,
        path: str,
        *,
        durable: bool = True,
        busy_timeout: float = DEFAULT_BUSY_TIMEOUT,
        clock: Callable[[], int] = system_ms,
    ) -> None:
        self._connections = Connections(path, busy_timeout)
        self._durable = durable
        self._clock = clock
        self._known: dict[str, Families] = {}
        self._known_lock = threading.Lock()

    @property
    def location(self) -> str:
        """The file."""
        return self._connections.path

    # --- schema ------------------------------------------------------------------------------------------

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create what is missing, then verify."""
        with self._connections.use(create=True) as connection:
            found = self._catalog(connection.sql)
            if any(table.name not in found for table in tables):
                with self._transaction(connection, True) as sql:
                    for table in tables:
                        names = ",".join(sorted(family.hex() for family in table.families))
                        inserted = sql.execute(
                            "INSERT INTO hbasemk_tables (name, families, versions) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                            (table.name, names, table.versions),
                        )
                        if inserted.rowcount:
                            for statement in Families(table.name, table.families, table.versions).create():
                                sql.execute(statement)
        self.verify(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Check that the tables are there with the same families and versions."""
        with self._connections.use() as connection:
            found = self._catalog(connection.sql)
        for table in tables:
            known = found.get(table.name)
            if known is None:
                raise StoreUnusableError(f"there is no table {table.name!r} in {self.location}; create it first")
            if set(known.families) != set(table.families):
                raise StoreUnusableError(
                    f"table {table.name!r} in {self.location} has families {list(known.families)}, needed are "
                    f"{list(table.families)}"
                )
            if known.versions != table.versions:
                raise StoreUnusableError(
                    f"table {table.name!r} in {self.location} keeps versions={known.versions}, needed is {table.versions}"
                )
        with self._known_lock:
            self._known = found

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables."""
        with self._connections.use() as connection:
            found = self._catalog(connection.sql)
            with self._transaction(connection, True) as sql:
                for table in tables:
                    known = found.get(table.name)
                    if known is not None:
                        for name in known.sql.values():
                            sql.execute(f"DROP TABLE IF EXISTS {name}")
                        sql.execute("DELETE FROM hbasemk_tables WHERE name = ?", (table.name,))
        with self._known_lock:
            self._known = {}

    def _catalog(self, sql: sqlite3.Connection) -> dict[str, Families]:
        rows = sql.execute("SELECT name, families, versions FROM hbasemk_tables").fetchall()
        return {
            name: Families(name, [bytes.fromhex(family) for family in families.split(",")], versions)
            for name, families, versions in rows
        }

    def _find(self, connection: Connection, name: str) -> Families:
        families = self._known.get(name)
        if families is None:
            found = self._catalog(connection.sql)
            with self._known_lock:
                self._known = found
            families = found.get(name)
        if families is None:
            raise StoreUnusableError(f"there is no table {name!r} in {self.location}; create the tables first")
        return families

    # --- cells -------------------------------------------------------------------------------------------

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """One row per get, all from one state of the file."""
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            sql = connection.sql
            sql.execute("BEGIN")
            rows = [Row(get.row, cells.read(sql, tables, get)) for get in gets]
            sql.execute("COMMIT")
            return rows

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """The first rows of a range, all from one state of the file."""
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            sql = connection.sql
            sql.execute("BEGIN")
            rows = cells.scan(sql, tables, scan)
            sql.execute("COMMIT")
            return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write cells; the whole batch is atomic here."""
        self.check_puts(puts)
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            with self._transaction(connection, durable) as sql:
                self._put(sql, tables, puts, self._clock())

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Compare-and-set on one row."""
        self.check_puts([put])
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            self._family(tables, column[0])
            with self._transaction(connection, durable) as sql:
                newest = sql.execute(
                    f"SELECT ts, value FROM {tables.sql[column[0]]} WHERE row = ? AND qualifier = ? ORDER BY ts DESC LIMIT 1",
                    (put.row, column[1]),
                ).fetchone()
                if (newest[1] if newest else None) != expected:
                    return False
                now = self._clock()
                self._put(sql, tables, [put], max(now, newest[0]) if newest else now)
                return True

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exact versions."""
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            with self._transaction(connection, True) as sql:
                for row, versions in deletes:
                    for family, qualifier, timestamp in versions:
                        sql.execute(
                            f"DELETE FROM {self._family(tables, family)} WHERE row = ? AND qualifier = ? AND ts = ?",
                            (row, qualifier, timestamp),
                        )

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows."""
        with self._connections.use() as connection:
            tables = self._find(connection, table)
            with self._transaction(connection, True) as sql:
                for name in tables.sql.values():
                    sql.executemany(f"DELETE FROM {name} WHERE row = ?", [(row,) for row in rows])

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._connections.close()

    # --- inside a transaction ------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, connection: Connection, durable: bool) -> Iterator[sqlite3.Connection]:
        connection.set_durable(durable and self._durable)
        connection.sql.execute("BEGIN IMMEDIATE")
        yield connection.sql
        connection.sql.execute("COMMIT")

    def _family(self, tables: Families, family: bytes) -> str:
        try:
            return tables.sql[family]
        except KeyError:
            raise StoreUnusableError(f"table {tables.name!r} in {self.location} has no family {family!r}") from None

    def _put(self, sql: sqlite3.Connection, tables: Families, puts: Sequence[Put], now: int) -> None:
        by_family: dict[bytes, list[tuple[bytes, bytes, int, bytes]]] = {}
        for row, new in puts:
            for family, qualifier, value, timestamp in new:
                by_family.setdefault(family, []).append(
                    (row, qualifier, now if timestamp is None else timestamp, value)
                )
        for family, rows in by_family.items():
            self._family(tables, family)
            sql.executemany(tables.insert(family), rows)
            if tables.versions not in {1, ALL_VERSIONS}:
                sql.executemany(
                    f"DELETE FROM {tables.sql[family]} WHERE row = ?1 AND qualifier = ?2 AND ts NOT IN (SELECT ts FROM "
                    f"{tables.sql[family]} WHERE row = ?1 AND qualifier = ?2 ORDER BY ts DESC LIMIT {tables.versions})",
                    [(row, qualifier) for row, qualifier, _, _ in rows],
                )
