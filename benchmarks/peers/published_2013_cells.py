"""The HBase calls of the published algorithm, through either Thrift gateway.

Thrift1 (happybase) lacks two operations of HBase's own interface. *All versions of a row* return without the names of their
columns, so each value begins with its column's name here. A delete also deletes older versions, so a roll-back writes an empty
value over exactly its version instead. Both replacements cost as many calls as the original. Many rows do cost more: Thrift1
needs one call for all versions of each row; Thrift2 needs one call for a batch, as HBase's own client does.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import happybase
from happybase.batch import BatchMutation, Mutation  # HBase's Thrift1 interface
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyBufferedTransport, TSocket

from benchmarks.systems.hbase_baseline import with_tables
from benchmarks.systems.hbasemk import cells_size, host_and_port
from hbasemk.store.abc import Table
from hbasemk.store.hbase import HBaseStore
from hbasemk.store.hbase.gateway import idl

Versions: TypeAlias = dict[bytes, dict[int, bytes]]
"""A row: from column to version to value."""

NODES, JOURNAL = "nodes", "journal"
FAMILY: Final = b"d"
COMMITTED, ABORT, MESSAGE = b"committed", b"abort", b"message"
NO, YES = b"\0", b"\x01"
ALL: Final = 2**31 - 1
BATCH: Final = 1000
IDLE: Final = 45.0
"""Seconds after which the client reconnects. A gateway closes connections after 60 idle seconds."""
TIMEOUT_MS: Final = 120_000
THRIFT1: Final = "HBASEMK_BENCH_THRIFT1"
"""The environment variable with ``host:port`` of the Thrift1 gateway, if the place under test is a Thrift2 gateway."""


class Cells(ABC):
    """The two tables of one microkernel."""

    def __init__(self, place: str) -> None:
        self.place = place
        address, _, self.prefix = place.partition("/")
        self.host, self.port = host_and_port(address)
        self._used = time.monotonic()
        self._open()

    @property
    def client(self) -> Any:
        """The Thrift client, on a new connection if the gateway may have closed the idle one."""
        now = time.monotonic()
        if now - self._used > IDLE:
            self.close()
            self._open()
        self._used = now
        return self._client

    _client: Any

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def create(self) -> None:
        """Create the tables."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the tables that exist."""

    @abstractmethod
    def begin(self, revision: int, message: str) -> None:
        """Write the journal row of a pending revision."""

    @abstractmethod
    def decide(self, revision: int, unless: bytes, flag: bytes) -> bool:
        """Set ``flag`` in a journal row if ``unless`` is not set. Returns whether it is set now."""

    @abstractmethod
    def committed(self, since: int) -> Iterator[int]:
        """Scan upwards from a revision and yield the committed ones in order."""

    @abstractmethod
    def versions(self, rows: Sequence[bytes], before: int) -> dict[bytes, Versions]:
        """Return all versions below ``before`` of all columns of the existing rows."""

    @abstractmethod
    def below(self, start: bytes, stop: bytes, before: int) -> dict[bytes, Versions]:
        """Return the same as :meth:`versions` for a range of rows."""

    @abstractmethod
    def write(self, rows: Mapping[bytes, Mapping[bytes, bytes]], revision: int) -> None:
        """Write cells with the timestamp of a revision."""

    @abstractmethod
    def roll_back(self, rows: Mapping[bytes, Iterable[bytes]], revision: int) -> None:
        """Remove the cells of exactly this revision."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of all cells in HBase's form."""


class Thrift1Cells(Cells):
    """Calls through happybase. Its Thrift client also has the calls that happybase does not wrap."""

    def __init__(self, place: str) -> None:
        _, _, prefix = place.partition("/")
        given = os.environ.get(THRIFT1)
        super().__init__(f"{given}/{prefix}" if given else place)

    def _open(self) -> None:
        self._connection = happybase.Connection(self.host, self.port, timeout=TIMEOUT_MS)
        self._client = self._connection.client
        self._nodes, self._journal = (f"{self.prefix}{name}".encode() for name in (NODES, JOURNAL))

    def close(self) -> None:
        self._connection.close()

    def create(self) -> None:
        kept = {"block_cache_enabled": True, "bloom_filter_type": "ROW"}  # the defaults of HBase, not of Thrift1
        try:
            self._connection.tables()  # Thrift2 has no call of this name
        except TApplicationException as error:
            where = f"{self.host}:{self.port}"
            raise NotImplementedError(
                f"{where} must be a Thrift1 gateway, got another; set {THRIFT1}=host:port"
            ) from error
        self._connection.create_table(self._nodes, {FAMILY.decode(): {**kept, "max_versions": ALL}})
        self._connection.create_table(self._journal, {FAMILY.decode(): {**kept, "max_versions": 1}})

    def drop(self) -> None:
        for table in {self._nodes, self._journal}.intersection(self._connection.tables()):
            # It may have been interrupted before.
            if self._connection.is_table_enabled(table):
                self._connection.disable_table(table)
            self._connection.delete_table(table)

    def begin(self, revision: int, message: str) -> None:
        cells = ((COMMITTED, NO), (ABORT, NO), (MESSAGE, message.encode()))
        mutations = [Mutation(column=_full(column), value=value) for column, value in cells]
        self.client.mutateRow(self._journal, _row(revision), mutations, {})

    def decide(self, revision: int, unless: bytes, flag: bytes) -> bool:
        mutation = Mutation(column=_full(flag), value=YES)
        done: bool = self.client.checkAndPut(self._journal, _row(revision), _full(unless), NO, mutation, {})
        return done

    def committed(self, since: int) -> Iterator[int]:
        _ = self.client  # reconnect after idle time
        column = _full(COMMITTED)
        rows = self._connection.table(self._journal).scan(row_start=_row(since), columns=[column], batch_size=BATCH)
        return (_revision(row) for row, cells in rows if cells[column] == YES)

    def versions(self, rows: Sequence[bytes], before: int) -> dict[bytes, Versions]:
        found = {}
        client = self.client
        for row in rows:
            if cells := client.getVerTs(self._nodes, row, FAMILY, before, ALL, {}):
                found[row] = _named(cells)
        return found

    def below(self, start: bytes, stop: bytes, before: int) -> dict[bytes, Versions]:
        _ = self.client
        table = self._connection.table(self._nodes)
        scan = table.scan(row_start=start, row_stop=stop, timestamp=before, batch_size=BATCH, filter="KeyOnlyFilter()")
        return self.versions([row for row, _ in scan], before)

    def write(self, rows: Mapping[bytes, Mapping[bytes, bytes]], revision: int) -> None:
        changes = [
            BatchMutation(row=row, mutations=[_mutation(column, value) for column, value in cells.items()])
            for row, cells in rows.items()
        ]
        if len(changes) == 1:  # the cheaper call
            self.client.mutateRowTs(self._nodes, changes[0].row, changes[0].mutations, revision, {})
            return
        for at in range(0, len(changes), BATCH):
            self.client.mutateRowsTs(self._nodes, changes[at : at + BATCH], revision, {})

    def roll_back(self, rows: Mapping[bytes, Iterable[bytes]], revision: int) -> None:
        self.write({row: dict.fromkeys(columns, b"") for row, columns in rows.items()}, revision)

    def size(self) -> int:
        total = 0
        _ = self.client
        scan = self._connection.table(self._journal).scan(batch_size=BATCH)
        for row, cells in scan:
            total += sum(_cell_size(row, column[len(FAMILY) + 1 :], value) for column, value in cells.items())
        scan = self._connection.table(self._nodes).scan(batch_size=BATCH, filter="KeyOnlyFilter()")
        for row in [row for row, _ in scan]:
            for cell in self.client.getVer(self._nodes, row, FAMILY, ALL, {}):
                total += _cell_size(row, _split(cell.value)[0], cell.value)
        return total


class Thrift2Cells(Cells):
    """Calls through a bare client, as in the baseline."""

    def _open(self) -> None:
        self._socket = TSocket(self.host, self.port, socket_timeout=TIMEOUT_MS)
        self._socket.open()
        transport = TCyBufferedTransport(self._socket, 64 * 1024)
        self._client = TClient(idl.Gateway, TCyBinaryProtocol(transport, decode_response=False))
        self._nodes, self._journal = (f"{self.prefix}{name}".encode() for name in (NODES, JOURNAL))

    def close(self) -> None:
        self._socket.close()

    def create(self) -> None:
        with_tables(self.place, lambda store: store.create_tables(_TABLES))

    def drop(self) -> None:
        with_tables(self.place, lambda store: store.drop_tables(_TABLES))

    def begin(self, revision: int, message: str) -> None:
        cells = ((COMMITTED, NO), (ABORT, NO), (MESSAGE, message.encode() or NO))
        put = idl.Put(_row(revision), [idl.ColumnValue(FAMILY, column, value) for column, value in cells])
        self.client.put(self._journal, put)

    def decide(self, revision: int, unless: bytes, flag: bytes) -> bool:
        row = _row(revision)
        put = idl.Put(row, [idl.ColumnValue(FAMILY, flag, YES)])
        done: bool = self.client.checkAndPut(self._journal, row, FAMILY, unless, NO, put)
        return done

    def committed(self, since: int) -> Iterator[int]:
        columns = [idl.Column(FAMILY, COMMITTED)]
        for found in self._scan(self._journal, idl.Scan(start=_row(since), columns=columns)):
            if found.cells[0].value == YES:
                yield _revision(found.row)

    def versions(self, rows: Sequence[bytes], before: int) -> dict[bytes, Versions]:
        window = idl.TimeRange(0, before)
        gets = [idl.Get(row=row, time_range=window, versions=ALL) for row in rows]
        if len(gets) == 1:
            answers = [self.client.get(self._nodes, gets[0])]
        else:
            batches = (gets[at : at + BATCH] for at in range(0, len(gets), BATCH))
            answers = [answer for batch in batches for answer in self.client.getMultiple(self._nodes, batch)]
        return {answer.row: _by_column(answer.cells) for answer in answers if answer.row is not None}

    def below(self, start: bytes, stop: bytes, before: int) -> dict[bytes, Versions]:
        scan = idl.Scan(start=start, stop=stop, time_range=idl.TimeRange(0, before), versions=ALL)
        return {found.row: _by_column(found.cells) for found in self._scan(self._nodes, scan)}

    def _scan(self, table: bytes, scan: Any) -> Iterator[Any]:
        """Yield all rows of a scan, one batch for each call."""
        scan.caching = BATCH
        while True:
            answers = self.client.getScannerResults(table, scan, BATCH)
            yield from answers
            if len(answers) < BATCH:
                return
            scan.start = answers[-1].row + b"\0"

    def write(self, rows: Mapping[bytes, Mapping[bytes, bytes]], revision: int) -> None:
        puts = (
            idl.Put(row, [idl.ColumnValue(FAMILY, column, value, revision) for column, value in cells.items()])
            for row, cells in rows.items()
        )
        if len(rows) == 1:
            self.client.put(self._nodes, next(puts))
            return
        while batch := list(islice(puts, BATCH)):
            self.client.putMultiple(self._nodes, batch)

    def roll_back(self, rows: Mapping[bytes, Iterable[bytes]], revision: int) -> None:
        deletes = (
            idl.Delete(row, [idl.Column(FAMILY, column, revision) for column in columns], kind=0)
            for row, columns in rows.items()
        )
        while batch := list(islice(deletes, BATCH)):
            self.client.deleteMultiple(self._nodes, batch)

    def size(self) -> int:
        found = 0

        def measure(store: HBaseStore) -> None:
            nonlocal found
            found = cells_size(store, [NODES, JOURNAL])

        with_tables(self.place, measure)
        return found


_TABLES: Final = (Table(NODES, (FAMILY,), ALL), Table(JOURNAL, (FAMILY,), 1))


def _row(revision: int) -> bytes:
    return revision.to_bytes(8, "big")


def _revision(row: bytes) -> int:
    return int.from_bytes(row, "big")


def _full(column: bytes) -> bytes:
    """Return the name of a column in Thrift1."""
    return FAMILY + b":" + column


def _mutation(column: bytes, value: bytes) -> Any:
    """Return a cell for Thrift1: the column's name and the value, or an empty value for a roll-back."""
    return Mutation(column=_full(column), value=value and len(column).to_bytes(2, "big") + column + value)


def _split(value: bytes) -> tuple[bytes, bytes]:
    """Split such a cell into column and value."""
    end = 2 + int.from_bytes(value[:2], "big")
    return value[2:end], value[end:]


def _named(cells: Iterable[Any]) -> Versions:
    """Group Thrift1's cells by column, without those that were rolled back."""
    found: Versions = {}
    for cell in cells:
        if cell.value:
            column, value = _split(cell.value)
            found.setdefault(column, {})[cell.timestamp] = value
    return found


def _by_column(cells: Iterable[Any]) -> Versions:
    """Group Thrift2's cells by column."""
    found: Versions = {}
    for cell in cells:
        found.setdefault(cell.qualifier, {})[cell.timestamp] = cell.value
    return found


def _cell_size(row: bytes, column: bytes, value: bytes) -> int:
    """See :func:`~benchmarks.systems.hbasemk.cells_size`."""
    return 8 + 2 + len(row) + 1 + len(FAMILY) + len(column) + 8 + 1 + len(value)
