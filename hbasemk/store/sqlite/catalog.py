"""The catalog of a file: which tables it has, and the SQL tables of their column families."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from hbasemk.errors import FormatError, StoreUnusableError
from hbasemk.store.abc import Table
from hbasemk.store.sqlite import cells, errors
from hbasemk.store.sqlite.cells import Families
from hbasemk.store.sqlite.connection import Connection

T = TypeVar("T")


def read(sql: sqlite3.Connection) -> dict[str, Families]:
    """Return the tables of the file, by name."""
    rows = sql.execute("SELECT id, name, families, versions FROM hbasemk_tables").fetchall()
    numbered = {name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {
        name: Families(
            name,
            number,
            [bytes.fromhex(family) for family in families.split(",")],
            versions,
            keeps_arrivals=cells.arrivals_table(number) in numbered,
        )
        for number, name, families, versions in rows
    }


def lacks(sql: sqlite3.Connection, tables: Sequence[Table]) -> bool:
    """Return whether the file lacks one of the tables, or the order of writes of one."""
    found = read(sql)
    return not all(table.name in found and found[table.name].keeps_arrivals >= table.arrivals for table in tables)


def create(sql: sqlite3.Connection, tables: Sequence[Table]) -> None:
    """Create what the file lacks of these tables, in an open transaction."""
    for name, families, versions, _ in tables:
        made = sql.execute(
            "INSERT INTO hbasemk_tables (name, families, versions) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (name, ",".join(sorted(family.hex() for family in families)), versions),
        )
        if made.rowcount:
            for statement in Families(name, made.lastrowid or 0, families, versions).create():
                sql.execute(statement)
    # Another process may have created any of the tables meanwhile.
    found = read(sql)
    for table in tables:
        if table.arrivals and not found[table.name].keeps_arrivals:
            sql.execute(found[table.name].create_arrivals())


def drop(sql: sqlite3.Connection, tables: Sequence[Table]) -> None:
    """Remove these tables and their contents, in an open transaction."""
    found = read(sql)
    for table in tables:
        if table.name in found:
            for family in found[table.name].all:
                sql.execute(f"DROP TABLE {family.table}")
            if found[table.name].keeps_arrivals:
                sql.execute(f"DROP TABLE {found[table.name].arrivals}")
            sql.execute("DELETE FROM hbasemk_tables WHERE name = ?", (table.name,))


class Catalog:
    """The tables of the file at ``location``, as last read."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._known: dict[str, Families] = {}

    def forget(self) -> None:
        """Read the tables again when they are needed."""
        self._known = {}

    def table(self, name: str) -> Families:
        """Return a table as last read; raise StoreUnusableError if there is none."""
        return self._require(self._known, name)

    def verify(self, found: dict[str, Families], tables: Sequence[Table]) -> None:
        """Keep what was read; raise StoreUnusableError if a table is missing or has other families or versions."""
        for name, families, versions, _ in tables:
            known = self._require(found, name)
            if set(known.by_name) != set(families):
                raise StoreUnusableError(
                    f"table {name!r} in {self._location} has the column families {list(known.by_name)}, expected "
                    f"{sorted(families)}; use another file"
                )
            if known.versions != versions:
                raise StoreUnusableError(
                    f"table {name!r} in {self._location} has versions={known.versions}, expected versions={versions}; "
                    "use another file"
                )
        self._known = found

    def with_tables(self, call: Callable[..., T], names: Sequence[str], connection: Connection) -> T:
        """Return the result of ``call``, which gets the connection and the tables of these names.

        Repeat it if what was last read of the tables is out of date. ``call`` may have begun a transaction; if an SQL table is
        missing, it has written nothing.
        """
        sql = connection.sql
        known = self._known
        if known.keys() >= {*names}:
            try:
                return call(connection, *[known[name] for name in names])
            except sqlite3.OperationalError as error:
                if not errors.is_missing_table(error):
                    raise
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
        self._known = read(sql)
        tables = [self.table(name) for name in names]
        try:
            return call(connection, *tables)
        except sqlite3.OperationalError as error:
            if errors.is_missing_table(error):
                damaged = " or ".join(map(repr, dict.fromkeys(names)))
                raise FormatError(
                    f"{self._location} is damaged: a part of table {damaged} is missing; restore it from a copy"
                ) from error
            raise

    def _require(self, found: dict[str, Families], name: str) -> Families:
        known = found.get(name)
        if known is None:
            raise StoreUnusableError(f"table {name!r} does not exist in {self._location}; create the tables first")
        return known
