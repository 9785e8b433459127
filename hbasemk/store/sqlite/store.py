"""A store in one SQLite file in write-ahead-log mode, safe for many processes and threads of one machine.

A call is one SQLite transaction, so a whole batch is atomic here. A durable call returns after the log has been synced
to disk (``synchronous=FULL``). A call that is not durable appends to the same log without syncing (``NORMAL``). The log
is one file, a sync covers all of it, and recovery keeps the longest prefix with correct running checksums. So a durable
call makes everything before it durable, whichever process wrote it, and no crash keeps a later call without an earlier
one. SQLite syncs the log before it moves pages from the log into the file. So the hint does not weaken the order.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from hbasemk import options
from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    Arrivals,
    Column,
    Decision,
    Delete,
    DeleteBelow,
    FileIdentity,
    Get,
    Put,
    Row,
    Scan,
    Store,
    Table,
)
from hbasemk.store.sqlite import arrivals, catalog, cells, errors, files, free_pages, many_rows, scans
from hbasemk.store.sqlite.catalog import Catalog
from hbasemk.store.sqlite.cells import Families
from hbasemk.store.sqlite.connection import Connection
from hbasemk.store.sqlite.connections import Connections

T = TypeVar("T")

BATCH_ROWS: Final = 16_000
DEFAULT_BUSY_TIMEOUT: Final = 30.0


def system_ms() -> int:
    """Return the wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class SqliteStore(Store):
    """A store that keeps the tables of one repository in the file at ``path``; :meth:`create_tables` creates the file.

    ``durable=False`` lets the operating system decide when to write commits to disk: a crash of the process loses
    nothing; a crash of the machine loses the last seconds, but in order. A call waits up to ``busy_timeout`` seconds for
    other writers, then raises StoreNotAppliedError. ``clock`` returns the server's time in ms since 1970. Raises
    InvalidValueError if ``busy_timeout`` is not a valid time.

    Forks are safe: the store closes handles before a fork, and both sides open new ones. Several machines cannot share
    a file on a network file system.
    """

    def __init__(
        self,
        path: str,
        *,
        durable: bool = True,
        busy_timeout: float = DEFAULT_BUSY_TIMEOUT,
        clock: Callable[[], int] = system_ms,
    ) -> None:
        self._connections = Connections(path, options.seconds("busy_timeout", busy_timeout))
        self._durable = durable
        self._clock = clock
        self._catalog = Catalog(self._connections.path)
        self._files = files.FileList(self._connections.path)

    @property
    def location(self) -> str:
        """The path of the file."""
        return self._connections.path

    @property
    def read_only(self) -> bool:
        """Whether this process's user may only read: it may not write to the file or create the files beside it."""
        return self._connections.read_only

    def files(self) -> Mapping[FileIdentity, str]:
        """Return the database file and SQLite's files beside it that exist."""
        return self._files.identities()

    def clock_ms(self) -> int | None:
        """Return this process's wall clock; the file has no server."""
        return self._clock()

    def change_counter(self) -> int | None:
        """Return a number made of SQLite's own record of the last commit; takes no lock and runs no SQL."""
        return self._connections.change_counter()

    def give_way(self, at_most: float) -> bool:
        """Wait for a time slice if this process commits in a series (decision 54)."""
        return self._connections.give_way(at_most)

    # --- schema ------------------------------------------------------------------------------------------------

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create the file and missing tables, then verify."""

        def create(connection: Connection) -> None:
            if catalog.lacks(connection.sql, self.location, tables):
                connection.begin(self._durable)
                catalog.create(connection.sql, self.location, tables)
                connection.commit()

        if not self.read_only:
            self._connections.writing(create, create=True)
        self.verify(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Raise StoreUnusableError if a table is missing or has other families or versions."""
        self._catalog.verify(self._connections.reading(self._catalog.read_verified), tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables and their contents."""

        def drop(connection: Connection) -> None:
            connection.begin(self._durable)
            catalog.drop(connection.sql, self.location, tables)
            connection.commit()

        self._connections.writing(drop)
        self._catalog.forget()

    # --- reading -----------------------------------------------------------------------------------------------

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get, all from one state of the file."""
        return self.read_first(table, gets, many_rows.UNBOUNDED)

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Return the rows of the first gets, all from one state of the file."""
        gets = [get if get.before <= MAX_TIMESTAMP else get._replace(before=MAX_TIMESTAMP) for get in gets]
        single = len(gets) == 1 and cells.is_one_state(gets[0])

        def fetch(connection: Connection, tables: Families) -> list[Row]:
            sql = connection.sql
            if single:
                return [Row(gets[0].row, cells.read(sql, tables, gets[0]))]
            sql.execute("BEGIN")
            rows = many_rows.read_rows(sql, tables, gets, most_bytes)
            sql.execute("COMMIT")
            return rows

        return self._read(table, fetch)

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Return the first rows of a range, all from one state of the file."""

        def fetch(connection: Connection, tables: Families) -> list[Row]:
            sql = connection.sql
            sql.execute("BEGIN")
            rows = scans.scan(sql, tables, scan)
            sql.execute("COMMIT")
            return rows

        return self._read(table, fetch)

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Return the rows written after an arrival number; readers of the log see a prefix of the commits."""

        def fetch(connection: Connection, tables: Families) -> Arrivals:
            if not tables.keeps_arrivals:
                # In a file of an older version that has never been upgraded nobody asks for it.
                raise errors.damaged(self.location, f"the order of writes of table {table!r} is missing", table=table)
            return arrivals.read(connection.sql, tables, after, limit, columns)

        return self._read(table, fetch)

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Delete the first numbers, but never the last one."""

        def forget(connection: Connection, tables: Families) -> None:
            connection.begin(durable=False)
            connection.sql.execute(tables.forget, (upto,))
            connection.commit()

        self._write(table, forget)

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write all cells atomically."""
        self.check_puts(puts)

        def put(connection: Connection, tables: Families) -> None:
            # Other writers wait while the transaction is open, so this prepares what it can before. But the server's
            # time must be the time of the write, not the time at which a wait began.
            groups = cells.group_timed(tables, puts)
            connection.begin(durable and self._durable)
            if groups is None:
                groups = cells.group_replacing(connection.sql, tables, puts, self._clock())
            cells.insert(connection.sql, groups)
            cells.append_arrivals(connection.sql, tables, [put.row for put in puts])
            connection.commit()

        self._write(table, put)

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Compare and set one row; if the value differs, write and sync nothing."""
        self.check_puts((put,))

        def compare_and_set(connection: Connection, tables: Families) -> bool:
            newest = tables.get(column[0]).newest
            connection.begin(durable and self._durable)
            now = self._clock()
            found = connection.sql.execute(newest, (cells.blob(put.row), cells.blob(column[1]))).fetchone()
            value = None if found is None else found[1]
            # An empty value counts as absent, as in HBase.
            applied = (value or None) == (expected or None)
            if applied:
                cells.insert(connection.sql, cells.group_replacing(connection.sql, tables, (put,), now))
                cells.append_arrivals(connection.sql, tables, (put.row,))
            connection.commit()
            return applied

        return self._write(table, compare_and_set)

    @property
    def batch_rows(self) -> int:
        """So many that most commits are one transaction. It holds the lock of the file for a tenth of a second at most."""
        return BATCH_ROWS

    @property
    def supports_transactions(self) -> bool:
        """True: SQLite has transactions."""
        return True

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Iterable[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
        *,
        unchanged_since: tuple[str, int] | None = None,
        durable: bool = True,
    ) -> int | None:
        """Use one SQLite transaction and one sync; if nothing is to be written, write and sync nothing."""
        self.check_puts((*puts, decision.put, *decision.with_puts))
        row = decision.put.row
        family, qualifier = decision.column

        def write(connection: Connection, tables: Families, deciding: Families) -> int | None:
            # Other writers wait while the transaction is open, so this prepares what it can before.
            groups = cells.group_timed(tables, puts)
            connection.begin(durable and self._durable)
            sql = connection.sql
            if unchanged_since is None or self._has_changed(sql, *unchanged_since):
                rows = [Row(get.row, cells.read(sql, tables, get)) for get in gets]
                rows += [cells.read_row(sql, self._catalog.table(name), get) for name, get in also]
                if not judge(rows):
                    sql.execute("ROLLBACK")
                    return None
            now = self._clock()
            found = sql.execute(deciding.get(family).newest, (cells.blob(row), cells.blob(qualifier))).fetchone()
            applies = (None if found is None else found[1]) == decision.expected
            if applies and decision.unchanged is not None:
                applies = not self._has_changed(sql, *decision.unchanged)
            if not applies:
                sql.execute("ROLLBACK")
                return 0
            if groups is None:
                groups = cells.group_replacing(sql, tables, puts, now)
            cells.insert(sql, groups)
            # Most commits create the row, and have nothing to replace.
            put = decision.put
            decided = cells.group_replacing(sql, deciding, (put,), now) if found else cells.group(deciding, (put,), now)
            cells.insert(sql, decided)
            number = cells.append_arrivals(sql, deciding, (row,))
            for put in decision.with_puts:
                cells.insert(sql, cells.group_replacing(sql, deciding, (put,), now))
                cells.append_arrivals(sql, deciding, (put.row,))
            cells.append_arrivals(sql, tables, [put.row for put in puts])
            connection.commit()
            return number

        names = (table, decision.table)
        return self._connections.writing(partial(self._catalog.with_tables, write, names))

    def _has_changed(self, sql: sqlite3.Connection, table: str, number: int) -> bool:
        """Return whether a table was written to after an arrival number."""
        return sql.execute(self._catalog.table(table).after, (number, 1)).fetchone() is not None

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions."""

        def delete(connection: Connection, tables: Families) -> None:
            exact: dict[str, list[tuple[bytes, bytes, int]]] = {}
            for row, versions in deletes:
                for family, qualifier, timestamp in versions:
                    exact.setdefault(tables.get(family).delete, []).append((row, qualifier, timestamp))
            connection.begin(durable=False)
            for statement, wanted in exact.items():
                connection.sql.executemany(statement, wanted)
            connection.commit()

        self._write(table, delete)

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete ranges of versions."""

        def delete(connection: Connection, tables: Families) -> None:
            ranges: dict[str, list[tuple[bytes | int, ...]]] = {}
            for row, columns, families in deletes:
                for family, qualifier, before in columns:
                    ranges.setdefault(tables.get(family).below, []).append((row, qualifier, before))
                for family, before in families:
                    ranges.setdefault(tables.get(family).below_all, []).append((row, before))
            connection.begin(durable=False)
            for statement, wanted in ranges.items():
                connection.sql.executemany(statement, wanted)
            connection.commit()

        self._write(table, delete)

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows."""

        def delete(connection: Connection, tables: Families) -> None:
            connection.begin(durable=False)
            for family in tables.all:
                connection.sql.executemany(family.delete_row, [(row,) for row in rows])
            connection.commit()

        self._write(table, delete)

    def give_back_space(self) -> bool:
        """Give some free pages back to the operating system; return whether there are more."""
        return not self.read_only and self._connections.writing(free_pages.give_back)

    def _read(self, table: str, call: Callable[[Connection, Families], T]) -> T:
        return self._connections.reading(partial(self._catalog.with_tables, call, (table,)))

    def _write(self, table: str, call: Callable[[Connection, Families], T]) -> T:
        return self._connections.writing(partial(self._catalog.with_tables, call, (table,)))

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._connections.close()
