"""Read and write cells in SQL tables: one table per column family, clustered by row, qualifier, newest first.

A read steps over a few unwanted versions or columns and then seeks past the rest. Where columns with many versions are near
each other, one statement seeks from each of them to the next. So the cost of a read depends on the requested cells, not on
the length of histories or the width of rows.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, NoReturn, TypeAlias, Union

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, LAST_ROW, Cell, Get, Put, Row
from hbasemk.store.alike import AlikeCells, Columns, NewCellFields

MAX_SKIPPED: Final = 6
"""The number of unwanted versions of one column that a read steps over before it seeks past the rest."""
NEAR: Final = 2
"""If at most so many columns lie between two columns with many versions, a read takes the next columns by seeks alone."""
AT_ONCE: Final = 64
"""The number of columns that one statement then reads; it takes twice as long as a scan if they have one version each."""
MAX_GAPS: Final = 8
"""The number of wide gaps between wanted columns after which a read may decide that they are no neighbours."""
FEW_COLUMNS: Final = 3
"""Up to so many named columns are read by a statement each."""
FEW_CELLS: Final = 16
"""Up to so many cells are inserted by one statement, of which there is one for each number of cells."""
BLOCKS: Final = (64, FEW_CELLS)
"""The numbers of cells that one statement inserts if there are more."""
ROWS: Final = 16
"""The number of rows with the same columns that one statement inserts."""
WIDEST: Final = 40
"""The most parameters of such a row. Some builds of SQLite allow only 999 parameters of a statement."""
SAME: Final = 64
"""The number of cells with the same row, timestamp and value that one statement inserts."""
NUMBERED: Final = not (3, 12) <= sys.version_info < (3, 12, 4)
"""Whether statements may number their parameters (``?1``): these versions of Python warn that such parameters have names."""
_FIELDS: Final = 4
_SAME_CELLS: Final = ", ".join(f"(?1, ?{number}, ?2, ?3)" for number in range(4, 4 + SAME))
"""Parameters: the row, the timestamp and the value, then the qualifier of each cell."""
_row: Final = itemgetter(0)
new_cell = tuple.__new__
"""Creates a Cell from a tuple of its four fields, at a third of the cost of calling the class."""
blob = bytearray
"""Makes the parameter of a statement from a key or value. The module sqlite3 binds a bytearray as it is; for bytes it first
looks for an adapter, which takes longer than this copy and nearly as long as a small insert."""


class WrongTypeError(Exception):
    """A read met a key or a value that is no blob, or a timestamp that is no integer: the file is damaged."""


def reject_text(_: bytes) -> NoReturn:
    """Raise WrongTypeError for a text in the place of a key, a timestamp or a value; SQLite calls this for nothing else."""
    raise WrongTypeError


def parameters(count: int) -> str:
    """Return so many parameters of a statement, for a list."""
    return ", ".join("?" * count)


def arrivals_table(number: int) -> str:
    """Return the name of the SQL table that numbers the writes of the table with this number."""
    return f"hbasemk_arrivals_{number}"


class Family:
    """The SQL table of one column family, and the statements on it."""

    __slots__ = (
        "_insert",
        "_inserts",
        "_inserts_alike",
        "below",
        "below_all",
        "delete",
        "delete_row",
        "exact",
        "first",
        "first_ranged",
        "further",
        "further_ranged",
        "insert_same",
        "last",
        "name",
        "newest",
        "newest_of_each",
        "onward",
        "table",
        "trim",
    )

    def __init__(self, name: bytes, table: str, versions: int) -> None:
        self.name = name
        self.table = table
        cells = f"SELECT qualifier, ts, value FROM {table} WHERE row = ?"
        self.first = f"{cells} ORDER BY qualifier, ts DESC"
        self.further = f"{cells} AND qualifier > ? ORDER BY qualifier, ts DESC"
        ranged = f"{cells} AND ts >= ? AND ts < ?"
        self.first_ranged = f"{ranged} ORDER BY qualifier, ts DESC"
        self.further_ranged = f"{ranged} AND qualifier > ? ORDER BY qualifier, ts DESC"
        column = f"SELECT ts, value FROM {table} WHERE row = ? AND qualifier = ?"
        self.exact = f"{column} AND ts >= ? AND ts < ? ORDER BY ts DESC LIMIT ?"
        self.onward = f"{cells} AND qualifier >= ? ORDER BY qualifier, ts DESC"
        self.newest = f"{column} ORDER BY ts DESC LIMIT 1"
        # Two seeks for each column, and one for its value, which does not pass through the recursion: it may be large.
        following = f"SELECT qualifier, ts FROM {table} WHERE row = ? AND qualifier >"
        in_order = "ORDER BY qualifier, ts DESC LIMIT 1"
        self.newest_of_each = (
            f"WITH RECURSIVE one (qualifier, ts) AS (SELECT * FROM ({following} ? {in_order}) UNION ALL "
            f"SELECT cell.qualifier, cell.ts FROM one JOIN {table} AS cell ON cell.row = ? "
            f"AND (cell.qualifier, cell.ts) = ({following} one.qualifier {in_order})) "
            f"SELECT qualifier, ts, (SELECT value FROM {table} WHERE row = ? AND qualifier = one.qualifier AND ts = one.ts) "
            "FROM one"
        )
        self.last = f"SELECT max(ts) FROM {table} WHERE row = ?"
        if versions == 1:
            # Each column has one SQL row; only a version that is at least as new replaces it.
            conflict = "(row, qualifier) DO UPDATE SET ts = excluded.ts, value = excluded.value WHERE excluded.ts >= ts"
        else:
            conflict = "(row, qualifier, ts) DO UPDATE SET value = excluded.value"
        self._insert = f"INSERT INTO {table} (row, qualifier, ts, value) VALUES {{}} ON CONFLICT {conflict}"
        self._inserts = {
            count: self._insert.format(", ".join(["(?, ?, ?, ?)"] * count))
            for count in (*range(1, FEW_CELLS + 1), *BLOCKS)
        }
        self._inserts_alike: dict[int, str] = {}
        self.insert_same = self._insert.format(_SAME_CELLS)
        self.trim: str | None = None
        if versions not in {1, ALL_VERSIONS}:
            self.trim = (
                f"DELETE FROM {table} WHERE row = ? AND qualifier = ? AND ts <= (SELECT ts FROM {table} "
                f"WHERE row = ? AND qualifier = ? ORDER BY ts DESC LIMIT 1 OFFSET {versions})"
            )
        self.delete = f"DELETE FROM {table} WHERE row = ? AND qualifier = ? AND ts = ?"
        self.below = f"DELETE FROM {table} WHERE row = ? AND qualifier = ? AND ts < ?"
        self.below_all = f"DELETE FROM {table} WHERE row = ? AND ts < ?"
        self.delete_row = f"DELETE FROM {table} WHERE row = ?"

    def insert(self, count: int) -> str:
        """Return the statement that inserts 1 to :data:`FEW_CELLS` cells, or as many as one of :data:`BLOCKS`."""
        return self._inserts[count]

    def insert_alike(self, count: int) -> str:
        """Return the statement that inserts :data:`ROWS` rows with the same columns, ``count`` of them.

        Its parameters are the timestamp, the qualifiers, and the key and the values of each row.
        """
        found = self._inserts_alike.get(count)
        if found is None:
            width = count + 1
            found = self._inserts_alike[count] = self._insert.format(
                ", ".join(
                    f"(?{row}, ?{column + 1}, ?1, ?{row + column})"
                    for row in range(width + 1, width + 1 + ROWS * width, width)
                    for column in range(1, width)
                )
            )
        return found


class Families:
    """The column families of one table, sorted by name, and the SQL table that numbers its writes.

    ``keeps_arrivals``: that SQL table exists. Its rows are appended, and its last one is never deleted, so no number is used
    twice.
    """

    def __init__(
        self, name: str, number: int, families: Iterable[bytes], versions: int, *, keeps_arrivals: bool = False
    ) -> None:
        self.name = name
        self.versions = versions
        self.keeps_arrivals = keeps_arrivals
        self.arrivals = arrivals_table(number)
        self.append = f"INSERT INTO {self.arrivals} (row) VALUES (?)"
        self.after = f"SELECT number, row FROM {self.arrivals} WHERE number > ? ORDER BY number LIMIT ?"
        self.forget = (
            f"DELETE FROM {self.arrivals} WHERE number <= ? AND number < (SELECT max(number) FROM {self.arrivals})"
        )
        # The number is new for each creation, so a table that is dropped and recreated gets other SQL tables.
        readable = "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
        self.by_name = {
            family: Family(family, f'"{readable}_{number}_{order}"', versions)
            for order, family in enumerate(sorted(families))
        }
        self.all = tuple(self.by_name.values())

    def create(self) -> Iterator[str]:
        """Yield the statements that create the SQL tables."""
        key = "row, qualifier" if self.versions == 1 else "row, qualifier, ts DESC"
        for family in self.all:
            yield (
                f"CREATE TABLE {family.table} (row BLOB NOT NULL, qualifier BLOB NOT NULL, ts INTEGER NOT NULL, "
                f"value BLOB NOT NULL, PRIMARY KEY ({key})) WITHOUT ROWID"
            )

    def create_arrivals(self) -> str:
        """Return the statement that creates the SQL table that numbers the writes."""
        return f"CREATE TABLE {self.arrivals} (number INTEGER PRIMARY KEY, row BLOB NOT NULL)"

    @property
    def sql_tables(self) -> list[str]:
        """The names of the SQL tables."""
        names = [family.table.strip('"') for family in self.all]
        return [*names, self.arrivals] if self.keeps_arrivals else names

    def get(self, name: bytes) -> Family:
        """Return one family; raises StoreUnusableError if the table does not have it."""
        family = self.by_name.get(name)
        if family is None:
            raise StoreUnusableError(f"table {self.name!r} has no column family {name!r}; it has {list(self.by_name)}")
        return family

    def chosen(self, names: Sequence[bytes] | None) -> Sequence[Family]:
        """Return the named families, sorted by name; None selects all."""
        if names is None:
            return self.all
        if len(names) == 1:
            return (self.get(names[0]),)
        return [self.get(name) for name in sorted(set(names))]


# --- writing ---------------------------------------------------------------------------------------------------


Parameter: TypeAlias = Union[bytearray, int]  # noqa: UP007 - evaluated at run time on 3.10


class Group(NamedTuple):
    """Cells of one family as the parameters of inserts.

    Without a ``statement``, ``values`` holds row, qualifier, timestamp and value of each cell in turn. Otherwise each ``step``
    of the values, after the ``shared`` ones, are the parameters of the statement.
    """

    family: Family
    values: list[Parameter]
    statement: str = ""
    shared: Sequence[Parameter] = ()
    step: int = 0


def group(tables: Families, puts: Sequence[Put], now: int) -> list[Group]:
    """Group the cells of puts by family; raises StoreUnusableError for an unknown family."""
    groups = group_timed(tables, puts, now)
    assert groups is not None
    return groups


def group_timed(tables: Families, puts: Sequence[Put], now: int | None = None) -> list[Group] | None:
    """As :func:`group`; None if a cell has no timestamp and there is no time to give it."""
    found: list[Group] = []
    # SQLite inserts rows in the order of their keys faster than at random places.
    puts = sorted(puts, key=_row)
    if NUMBERED and len(puts) >= ROWS:
        found, puts = _group_alike(tables, puts)
    groups: dict[bytes, list[Parameter]] = {}
    last: bytes | None = None
    members: list[Parameter] = []
    for key, cells, stamp in puts:
        row = blob(key)
        if stamp is None:
            stamp = now
        if NUMBERED and len(cells) >= SAME:
            cells = _group_same(tables, row, cells, stamp, found)
        for family, qualifier, value, timestamp in cells:
            if timestamp is None:
                timestamp = stamp
                if timestamp is None:
                    return None
            if family != last:
                last = family
                members = groups.setdefault(family, [])
            members += (row, blob(qualifier), timestamp, blob(value))
    found += [Group(tables.get(name), values) for name, values in groups.items()]
    return found


def _group_alike(tables: Families, puts: Sequence[Put]) -> tuple[list[Group], list[Put]]:
    """Return groups of rows with the same columns, as many as fill statements, and the other puts."""
    alike: defaultdict[tuple[Columns, int], tuple[list[Put], list[bytes]]] = defaultdict(lambda: ([], []))
    rest: list[Put] = []
    for put in puts:
        key, cells, stamp = put
        if type(cells) is AlikeCells and stamp is not None and len(cells.values) < WIDEST:
            rows, values = alike[cells.columns, stamp]
            rows.append(put)
            values.append(key)
            values += cells.values
        else:
            rest.append(put)
    found: list[Group] = []
    for (columns, at), (rows, values) in alike.items():
        family = tables.get(columns.family)
        # Old versions are deleted cell by cell.
        whole = len(rows) - len(rows) % ROWS if family.trim is None else 0
        rest += rows[whole:]
        if whole:
            shared: list[Parameter] = [at, *map(blob, columns.qualifiers)]
            step = ROWS * len(shared)
            taken: list[Parameter] = [*map(blob, values[: whole * len(shared)])]
            found.append(Group(family, taken, family.insert_alike(len(columns.qualifiers)), shared, step))
    return found, rest


def _group_same(
    tables: Families, row: bytearray, cells: Sequence[NewCellFields], stamp: int | None, found: list[Group]
) -> Sequence[NewCellFields]:
    """Group the cells of families in which all have one timestamp and value, as many as fill statements; return the others.

    The columns of the children of a node are such cells.
    """
    by_family: defaultdict[bytes, list[NewCellFields]] = defaultdict(list)
    for cell in cells:
        by_family[cell[0]].append(cell)
    rest: list[NewCellFields] = []
    for name, members in by_family.items():
        family = tables.get(name)
        _, _, value, timestamp = members[0]
        at = stamp if timestamp is None else timestamp
        whole = len(members) - len(members) % SAME
        if whole and at is not None and family.trim is None and len({cell[2:] for cell in members}) == 1:
            taken: list[Parameter] = [blob(cell[1]) for cell in members[:whole]]
            found.append(Group(family, taken, family.insert_same, (row, at, blob(value)), SAME))
            members = members[whole:]
        rest += members
    return rest


def group_replacing(sql: sqlite3.Connection, tables: Families, puts: Sequence[Put], now: int) -> list[Group]:
    """As :func:`group`, but a cell without a timestamp is at least as new as the one that it replaces.

    The clock may have gone back since that one was written.
    """
    timed = [
        put if put.timestamp is not None else put._replace(timestamp=_not_older(sql, tables, put, now)) for put in puts
    ]
    return group(tables, timed, now)


def _not_older(sql: sqlite3.Connection, tables: Families, put: Put, now: int) -> int:
    """Return ``now``, or the highest timestamp in the columns that a put writes."""
    row = blob(put.row)
    found = 0
    for family in {cell[0] for cell in put.cells}:
        found = max(found, sql.execute(tables.get(family).last, (row,)).fetchone()[0] or 0)
    if found <= now:
        return now
    for family, qualifier, _, _ in put.cells:
        newest = sql.execute(tables.get(family).newest, (row, blob(qualifier))).fetchone()
        now = now if newest is None else max(now, newest[0])
    return now


def append_arrivals(sql: sqlite3.Connection, tables: Families, rows: Iterable[bytes]) -> int:
    """Number a write of each row, if the table keeps arrivals; return the last number, or 1."""
    number = 1
    if tables.keeps_arrivals:
        for row in rows:
            number = sql.execute(tables.append, (blob(row),)).lastrowid or 0
    return number


def insert(sql: sqlite3.Connection, groups: list[Group]) -> None:
    """Write cells; the caller has begun a transaction."""
    for family, values, statement, shared, step in groups:
        if statement:
            starts = range(0, len(values), step)
            sql.executemany(statement, ([*shared, *values[at : at + step]] for at in starts))
            continue
        begin, end = 0, len(values)
        for block in BLOCKS if end > FEW_CELLS * _FIELDS else ():
            step = block * _FIELDS
            starts = range(begin, end - step + 1, step)
            sql.executemany(family.insert(block), (values[at : at + step] for at in starts))
            begin += len(starts) * step
        if begin < end:
            sql.execute(family.insert((end - begin) // _FIELDS), values[begin:] if begin else values)
        if family.trim is not None:
            columns = {(bytes(row), bytes(one)) for row, one in zip(values[::_FIELDS], values[1::_FIELDS], strict=True)}
            sql.executemany(family.trim, [column * 2 for column in columns])


# --- reading rows ----------------------------------------------------------------------------------------------


def is_one_state(get: Get) -> bool:
    """Return whether a get sees one state of the file even outside a transaction."""
    if get.columns is not None:
        return len(get.columns) == 1
    return get.page is not None or (get.families is not None and len(get.families) == 1)


def read(sql: sqlite3.Connection, tables: Families, get: Get) -> list[Cell]:
    """Return the cells of one row that a get requests."""
    key, columns, names, page, since, before, versions = get
    row = blob(key)
    cells: list[Cell] = []
    if columns is not None:
        if len(columns) > FEW_COLUMNS:
            by_family: dict[bytes, set[bytes]] = {}
            for name, qualifier in columns:
                by_family.setdefault(name, set()).add(qualifier)
            for name in sorted(by_family):
                wanted = sorted(by_family[name])
                cells += _many_columns(sql, tables.get(name), row, wanted, since, before, versions)
            return cells
        for name, qualifier in columns if len(columns) == 1 else sorted(set(columns)):
            cells += _exact(sql, tables.get(name), row, qualifier, since, before, versions)
        return cells
    if page is not None:
        return _columns(sql, tables.get(page.family), row, since, before, versions, page.after, page.limit)
    for family in tables.chosen(names):
        cells += _columns(sql, family, row, since, before, versions, None, -1)
    return cells


def _many_columns(
    sql: sqlite3.Connection,
    family: Family,
    row: bytearray,
    wanted: Sequence[bytes],
    since: int,
    before: int,
    versions: int,
) -> list[Cell]:
    """Return the cells of many columns of one family and row; ``wanted`` is sorted.

    Where the wanted columns are neighbours, one statement reads them; it seeks past what is not wanted. If most are no
    neighbours, a statement reads each.
    """
    name = family.name
    cells: list[Cell] = []
    number = gaps = 0
    while number < len(wanted):
        if gaps > MAX_GAPS and 2 * gaps > number:
            return cells + [
                cell for one in wanted[number:] for cell in _exact(sql, family, row, one, since, before, versions)
            ]
        target = wanted[number]
        taken = skipped = 0
        for qualifier, ts, value in sql.execute(family.onward, (row, blob(target))):
            while qualifier > target:
                number += 1
                taken = skipped = 0
                if number == len(wanted):
                    return cells
                target = wanted[number]
            if qualifier == target and since <= ts < before and taken < versions:
                if value.__class__ is not bytes or ts.__class__ is not int:
                    raise WrongTypeError
                cells.append(new_cell(Cell, (name, qualifier, ts, value)))
                taken += 1
                continue
            skipped += 1
            if skipped > MAX_SKIPPED:
                break
        else:
            return cells
        if qualifier == target:
            if not taken and ts >= before:
                cells += _exact(sql, family, row, target, since, before, versions)
            number += 1
        else:
            gaps += 1
    return cells


def _exact(
    sql: sqlite3.Connection, family: Family, row: bytearray, qualifier: bytes, since: int, before: int, versions: int
) -> list[Cell]:
    """Return the cells of one column of a row."""
    found = sql.execute(family.exact, (row, blob(qualifier), since, before, versions))
    cells: list[Cell] = []
    for ts, value in found:
        if value.__class__ is not bytes or ts.__class__ is not int:
            raise WrongTypeError
        cells.append(new_cell(Cell, (family.name, qualifier, ts, value)))
    return cells


def read_row(sql: sqlite3.Connection, tables: Families, get: Get) -> Row:
    """Return the row of a get, which may name the last row of the table."""
    if get.row == LAST_ROW:
        found = [sql.execute(f"SELECT max(row) FROM {family.table}").fetchone()[0] or b"" for family in tables.all]
        if get.columns == ():
            return Row(max(found), [])
        get = get._replace(row=max(found))
    return Row(get.row, read(sql, tables, get))


def _columns(
    sql: sqlite3.Connection,
    family: Family,
    row: bytearray,
    since: int,
    before: int,
    versions: int,
    after: bytes | None,
    limit: int,
) -> list[Cell]:
    """Return up to ``limit`` (negative: all) cells of one family and row, with qualifiers greater than ``after``.

    All cells come from one state of the file, even outside a transaction: each statement begins before the previous one
    ends.
    """
    cells: list[Cell] = []
    if limit == 0:
        return cells
    # A lower bound may exclude most of a wide row; SQLite then steps over the excluded cells itself.
    ranged = since > 0
    if versions == 1 and not ranged and limit < 0 and after is None:
        return _newest(sql, family, row, before)
    name = family.name
    current = b""
    taken = skipped = 0
    bounds = (row, since, before) if ranged else (row,)
    first, further = (family.first_ranged, family.further_ranged) if ranged else (family.first, family.further)
    found = sql.execute(first, bounds) if after is None else sql.execute(further, (*bounds, blob(after)))
    while True:
        for qualifier, ts, value in found:
            # Values of different types cannot be ordered, so this finds a qualifier of a wrong type.
            if qualifier > current or qualifier != current:
                current = qualifier
                taken = skipped = 0
            if since <= ts < before and taken < versions:
                if value.__class__ is not bytes or ts.__class__ is not int:
                    raise WrongTypeError
                cells.append(new_cell(Cell, (name, qualifier, ts, value)))
                if len(cells) == limit:
                    return cells
                taken += 1
                continue
            skipped += 1
            if skipped > MAX_SKIPPED:
                break
        else:
            return cells
        if not taken and ts >= before:
            count = versions if limit < 0 else min(versions, limit - len(cells))
            cells += _exact(sql, family, row, current, since, before, count)
            if len(cells) == limit:
                return cells
        found = sql.execute(further, (*bounds, blob(current)))


def _newest(sql: sqlite3.Connection, family: Family, row: bytearray, before: int) -> list[Cell]:
    """Return the newest cell below ``before`` of each column of one family and row: what nearly all reads request.

    All cells come from one state of the file, as for :func:`_columns`.
    """
    name = family.name
    cells: list[Cell] = []
    add = cells.append
    current = b""
    taken = False
    skipped = 0
    near = NEAR + 1
    found = sql.execute(family.first, (row,))
    while True:
        for qualifier, ts, value in found:
            # Values of different types cannot be ordered, so this finds a qualifier of a wrong type.
            if qualifier > current or qualifier != current:
                current = qualifier
                near += 1
                skipped = 0
                taken = ts < before
                if taken:
                    if value.__class__ is not bytes or ts.__class__ is not int:
                        raise WrongTypeError
                    add(new_cell(Cell, (name, qualifier, ts, value)))
                    continue
            elif not taken and ts < before:
                if value.__class__ is not bytes or ts.__class__ is not int:
                    raise WrongTypeError
                add(new_cell(Cell, (name, qualifier, ts, value)))
                taken = True
                continue
            skipped += 1
            if skipped > MAX_SKIPPED:
                break
        else:
            return cells
        if not taken:
            cells += _exact(sql, family, row, current, 0, before, 1)
        if near <= NEAR + 1:
            last = _newest_of_each(sql, family, row, current, before, cells)
            if last is None:
                return cells
            found, current = last
        near = 0
        found = sql.execute(family.further, (row, blob(current)))


def _newest_of_each(
    sql: sqlite3.Connection, family: Family, row: bytearray, after: bytes, before: int, cells: list[Cell]
) -> tuple[sqlite3.Cursor, bytes] | None:
    """Append the newest cell below ``before`` of each of the next :data:`AT_ONCE` columns after one.

    Returns the statement, which has not ended, and the last of these columns; None if there are no more columns.
    """
    name = family.name
    left = AT_ONCE
    found = sql.execute(family.newest_of_each, (row, blob(after), row, row, row))
    for qualifier, ts, value in found:
        if ts < before:
            if value.__class__ is not bytes or ts.__class__ is not int or qualifier.__class__ is not bytes:
                raise WrongTypeError
            cells.append(new_cell(Cell, (name, qualifier, ts, value)))
        else:
            cells += _exact(sql, family, row, qualifier, 0, before, 1)
        left -= 1
        if not left:
            return found, qualifier
    return None
