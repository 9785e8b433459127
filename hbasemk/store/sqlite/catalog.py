"""The catalog of a file: which tables it has, and the SQL tables of their column families."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Container, Sequence
from typing import Final, TypeVar

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import Table
from hbasemk.store.sqlite import cells, errors, wrong_types
from hbasemk.store.sqlite.cells import Families, WrongTypeError
from hbasemk.store.sqlite.connection import Connection

T = TypeVar("T")


_CONTENTS: Final = (
    "SELECT id, CAST(name AS BLOB), CAST(families AS BLOB), versions FROM hbasemk_tables UNION ALL "
    "SELECT NULL, CAST(name AS BLOB), CAST(sql AS BLOB), NULL FROM sqlite_master WHERE type = 'table'"
)
"""The tables of the file, then the SQL tables, from one state of the file: another process may create or drop tables."""
_CELLS: Final = re.compile(r".*_\d+_\d+")
_ARRIVALS: Final = re.compile(r"hbasemk_arrivals_\d+")
_COLUMNS: Final = b"row BLOB NOT NULL, qualifier BLOB NOT NULL"
"""A part of the statement that creates the SQL table of a column family."""


def read(sql: sqlite3.Connection, location: str) -> dict[str, Families]:
    """Return the tables of the file, by name; raise FormatError if the catalog is damaged.

    One transaction creates or drops a table in the catalog and all its SQL tables. So there are no other SQL tables of ours.
    """
    tables: list[tuple[int, bytes, bytes, object]] = []
    existing: dict[str, bytes] = {}
    try:
        for number, name, text, versions in sql.execute(_CONTENTS):
            if number is None:
                existing[name.decode()] = text or b""
            elif name is None or text is None:
                raise ValueError(f"table {number} has no name or no column families")
            else:
                tables.append((number, name, text, versions))
        found = {
            name.decode(): _families(number, name.decode(), text.decode(), versions, existing)
            for number, name, text, versions in tables
        }
    except WrongTypeError as error:
        raise errors.damaged(
            location, "its list of tables, hbasemk_tables, cannot be read (a number is a text)"
        ) from error
    except ValueError as error:
        raise errors.damaged(location, f"its list of tables, hbasemk_tables, cannot be read ({error})") from error
    except sqlite3.OperationalError as error:
        if not errors.is_missing_table(error):
            raise
        raise errors.damaged(location, "its list of tables, hbasemk_tables, is missing") from error
    known = {name for table in found.values() for name in table.sql_tables}
    for name, statement in existing.items():
        is_ours = _ARRIVALS.fullmatch(name) or (_CELLS.fullmatch(name) and _COLUMNS in statement)
        if is_ours and name not in known:
            raise errors.damaged(location, f"its list of tables, hbasemk_tables, does not name the table of {name!r}")
    for table in found.values():
        if not {*table.sql_tables} <= existing.keys():
            raise errors.damaged(location, f"a part of table {table.name!r} is missing")
    return found


def _families(number: int, name: str, families: str, versions: object, existing: Container[str]) -> Families:
    """Return one table of the catalog; raise ValueError if its entry is damaged."""
    if not isinstance(versions, int) or versions < 1:
        raise ValueError(f"table {name!r} has versions={versions!r}, expected an integer from 1 on")
    keeps_arrivals = cells.arrivals_table(number) in existing
    return Families(
        name, number, [bytes.fromhex(family) for family in families.split(",")], versions, keeps_arrivals=keeps_arrivals
    )


def lacks(sql: sqlite3.Connection, location: str, tables: Sequence[Table]) -> bool:
    """Return whether the file lacks one of the tables, or the order of writes of one."""
    found = read(sql, location)
    return not all(table.name in found and found[table.name].keeps_arrivals >= table.arrivals for table in tables)


def create(sql: sqlite3.Connection, location: str, tables: Sequence[Table]) -> None:
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
    found = read(sql, location)
    for table in tables:
        if table.arrivals and not found[table.name].keeps_arrivals:
            sql.execute(found[table.name].create_arrivals())


def drop(sql: sqlite3.Connection, location: str, tables: Sequence[Table]) -> None:
    """Remove these tables and their contents, in an open transaction."""
    found = read(sql, location)
    for table in tables:
        if table.name in found:
            for name in found[table.name].sql_tables:
                sql.execute(f'DROP TABLE "{name}"')
            sql.execute("DELETE FROM hbasemk_tables WHERE name = ?", (table.name,))


def _check_first_keys(connection: Connection, *tables: Families) -> None:
    """Raise WrongTypeError if the first row key of an SQL table is no blob. SQLite sorts all other types before blobs."""
    for family in [family for table in tables for family in table.all]:
        first = connection.sql.execute(f"SELECT row FROM {family.table} ORDER BY row LIMIT 1").fetchone()
        if first is not None and first[0].__class__ is not bytes:
            raise WrongTypeError


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

    def read_verified(self, connection: Connection) -> dict[str, Families]:
        """Read the tables; raise FormatError if a row key is no blob: no read by key finds such a row."""
        sql = connection.sql
        sql.execute("BEGIN")
        found = read(sql, self._location)
        self._call(_check_first_keys, connection, list(found.values()))
        sql.execute("COMMIT")
        return found

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
                return self._call(call, connection, [known[name] for name in names])
            except sqlite3.OperationalError as error:
                if not errors.is_missing_table(error):
                    raise
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
        self._known = read(sql, self._location)
        tables = [self.table(name) for name in names]
        return self._call(call, connection, tables)

    def _call(self, call: Callable[..., T], connection: Connection, tables: Sequence[Families]) -> T:
        """Return the result of a call; raise FormatError if a key, a timestamp or a value of a wrong SQL type makes it fail."""
        try:
            return call(connection, *tables)
        except WrongTypeError:
            found = self._find_wrong(connection, tables)
        except TypeError:
            # The call has compared values of different types.
            found = self._find_wrong(connection, tables)
            if found is None:
                raise
        # Here the error does not refer to a statement that has not ended, which would keep an old state of the file.
        if found is None:
            raise errors.damaged(self._location, "a value has a wrong SQL type")
        problem, table, row, column = found
        raise errors.damaged(self._location, problem, table=table, row=row, column=column)

    def _find_wrong(self, connection: Connection, tables: Sequence[Families]) -> wrong_types.WrongType | None:
        # A transaction may also have read other tables.
        return wrong_types.find(connection.sql, [*dict.fromkeys([*tables, *self._known.values()])])

    def _require(self, found: dict[str, Families], name: str) -> Families:
        known = found.get(name)
        if known is None:
            raise StoreUnusableError(f"table {name!r} does not exist in {self._location}; create the tables first")
        return known
