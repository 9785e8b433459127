"""The baseline on HBase: a bare thriftpy2 client that makes only the raw calls of each operation.

It stores the same cells in its own tables. A commit is four calls: the journal row by compare-and-set, the cells, the read-back,
and the deciding compare-and-set. A read is one get. The client ignores the answers, has no snapshots and detects no conflicts.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import thriftpy2

from benchmarks.system import Properties, System
from benchmarks.systems.hbasemk import cells_size, host_and_port
from hbasemk.format import changes, paths, schema, values
from hbasemk.format.changes import ADDED, CHANGED, RowChange
from hbasemk.store.abc import ALL_VERSIONS, MAX_TIMESTAMP, Cell
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.gateway import idl

BATCH: Final = 1000
TIMEOUT_MS: Final = 120_000
"""The time-out of each call. thriftpy2's default of 3 s is too short for large commits on a busy machine."""
IDLE: Final = 45.0
"""Seconds after which the client reconnects. A gateway closes connections after 60 idle seconds."""
TABLES: Final = tuple(table for table in schema.TABLES if table.name in {schema.NODES, schema.JOURNAL})
INCREMENTS: Final = """
struct ColumnIncrement { 1: required binary family, 2: required binary qualifier, 3: optional i64 amount = 1 }
struct Increment { 1: required binary row, 2: required list<ColumnIncrement> columns }
struct Ignored {}
service Gateway { Ignored increment(1: required binary table, 2: required Increment increment) }
"""
"""The part of the gateway's interface that hbasemk does not use. The reply is not decoded."""
increments: Final[Any] = thriftpy2.load_fp(io.StringIO(INCREMENTS), "hbase_increments_thrift")
_value = idl.ColumnValue
_column = idl.Column


class RawThrift2(System):
    """One socket and one client. It remembers the nodes it added, so that it knows the rows of a subtree."""

    name = "raw Thrift2 calls"

    def __init__(self, place: str, owner: bool) -> None:
        self.place = place
        self.owner = owner
        self._address, _, self._prefix = place.partition("/")
        self._nodes = f"{self._prefix}{schema.NODES}".encode()
        self._journal = f"{self._prefix}{schema.JOURNAL}".encode()
        self._last = 0
        self._used = time.monotonic()
        self._known: dict[str, list[str]] = {}
        if owner:
            with_tables(place, lambda store: store.create_tables(TABLES))
        self._open()

    def _open(self) -> None:
        from thriftpy2.protocol import TCyBinaryProtocol
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TCyBufferedTransport, TSocket

        self._socket = TSocket(*host_and_port(self._address), socket_timeout=TIMEOUT_MS)
        self._socket.open()
        protocol = TCyBinaryProtocol(TCyBufferedTransport(self._socket, 64 * 1024), decode_response=False)
        self._client: Any = TClient(idl.Gateway, protocol)
        self._increments: Any = TClient(increments.Gateway, protocol)

    @property
    def client(self) -> Any:
        """The client, on a new socket if the gateway may have closed the idle one."""
        now = time.monotonic()
        if now - self._used > IDLE:
            self._client.close()
            self._open()
        self._used = now
        return self._client

    @classmethod
    def create(cls, place: str) -> System:
        """Create the tables at ``host:port/prefix``."""
        return cls(place, owner=True)

    @classmethod
    def remove(cls, place: str) -> None:
        """Drop the tables."""
        with_tables(place, lambda store: store.drop_tables(TABLES))

    def address(self) -> str:
        """Return the place."""
        return self.place

    @classmethod
    def join(cls, address: str) -> System:
        """Open another socket."""
        return cls(address, owner=False)

    # --- the raw calls of a commit -------------------------------------------------------------------------

    def _id(self) -> int:
        """Return a timestamp above all earlier ones and different from those of other processes."""
        self._last = max(self._last + 1024, time.time_ns() // 1000 << 10 | os.getpid() & 1023)
        return self._last

    def _begin(self, revision: int, touched: Sequence[RowChange]) -> bytes:
        row = revision.to_bytes(8, "big")
        first = [_value(*schema.COMMITTED, b"\0"), _value(*schema.ABORT, b"\0"), _value(*schema.NONCE, os.urandom(16))]
        first += [_value(*schema.BASE, row), _value(*schema.MESSAGE, b"\0")]
        first += [_value(*cell[:3]) for cell in changes.encode(touched)]
        self.client.checkAndPut(self._journal, row, *schema.COMMITTED, None, idl.Put(row, first))
        return row

    def _decide(self, row: bytes) -> None:
        decided = idl.Put(row, [_value(*schema.COMMITTED, b"\x01")])
        self.client.checkAndPut(self._journal, row, *schema.ABORT, b"\0", decided)

    def _commit(
        self, revision: int, touched: Sequence[RowChange], puts: Sequence[Any], read_back: Sequence[Any]
    ) -> None:
        row = self._begin(revision, touched)
        if len(puts) == 1:
            self.client.put(self._nodes, puts[0])
            self.client.get(self._nodes, read_back[0])
        else:
            for at in range(0, len(puts), BATCH):
                self.client.putMultiple(self._nodes, puts[at : at + BATCH])
            for at in range(0, len(read_back), BATCH):
                self.client.getMultiple(self._nodes, read_back[at : at + BATCH])
        self._decide(row)

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        """Write the cells of each node, and the child column of each parent."""
        revision = self._id()
        children_of: dict[str, list[str]] = {path: [] for path, _ in nodes}
        for path, _ in nodes:
            children_of.setdefault(paths.parent(path), []).append(paths.name(path))
            self._known.setdefault(paths.parent(path), []).append(path)
        given = dict(nodes)
        touched, puts, read_back = [], [], []
        since = idl.TimeRange(revision, MAX_TIMESTAMP)
        for path, names in children_of.items():
            properties = given.get(path)
            cells = [_value(*schema.LAST_REVISION, schema.TOUCHED, revision)]
            cells += [_value(*schema.child_column(name), schema.PRESENT, revision) for name in names]
            if properties is None:
                columns = [schema.DELETED, *map(schema.child_column, names)]
                touched.append(RowChange(path, CHANGED, (), names))
                read_back.append(idl.Get(paths.key(path), [_column(*one) for one in columns], since, 4))
            else:
                cells.append(_value(*schema.DELETED, schema.ALIVE, revision))
                cells += [
                    _value(*schema.property_column(name), values.encode(value), revision)
                    for name, value in properties.items()
                ]
                touched.append(RowChange(path, ADDED, list(properties), names))
                read_back.append(idl.Get(paths.key(path), [_column(*schema.LAST_REVISION)], since, ALL_VERSIONS))
            puts.append(idl.Put(paths.key(path), cells))
        self._commit(revision, touched, puts, read_back)

    def set(self, path: str, name: str, value: int | str) -> None:
        """Write two cells of one row."""
        revision = self._id()
        key = paths.key(path)
        column = schema.property_column(name)
        cells = [
            _value(*column, values.encode(value), revision),
            _value(*schema.LAST_REVISION, schema.TOUCHED, revision),
        ]
        read_back = idl.Get(
            key, [_column(*column), _column(*schema.DELETED)], idl.TimeRange(revision, MAX_TIMESTAMP), 4
        )
        self._commit(revision, [RowChange(path, CHANGED, [name])], [idl.Put(key, cells)], [read_back])

    def increment(self, path: str, name: str) -> None:
        """Read the cell, then write it by compare-and-set; retry until the cell has the value that was read."""
        key = paths.key(path)
        column = schema.property_column(name)
        while True:
            found = self.client.get(self._nodes, idl.Get(key, [_column(*column)])).cells
            value = int(values.decode(found[0].value)) if found else 0  # type: ignore[arg-type]
            revision = self._id()
            row = self._begin(revision, [RowChange(path, CHANGED, [name])])
            put = idl.Put(key, [_value(*column, values.encode(value + 1), revision)])
            before = found[0].value if found else None
            if self.client.checkAndPut(self._nodes, key, *column, before, put):
                break
            self.retries += 1
        self.client.get(self._nodes, idl.Get(key, [_column(*column)], idl.TimeRange(revision, MAX_TIMESTAMP), 4))
        self._decide(row)

    def adjust(self, path: str, name: str, by: int) -> None:
        """HBase's own increment of one cell, in the table that keeps one version."""
        column = increments.ColumnIncrement(*schema.property_column(name), by)
        _ = self.client
        self._increments.increment(self._journal, increments.Increment(b"\xff" + paths.key(path), [column]))

    def counter(self, path: str, name: str) -> int:
        """Read the cell by one get."""
        get = idl.Get(b"\xff" + paths.key(path), [_column(*schema.property_column(name))])
        found = self.client.get(self._journal, get).cells
        return int.from_bytes(found[0].value, "big", signed=True) if found else 0

    # --- the raw calls of reads ----------------------------------------------------------------------------

    def read(self, path: str) -> Properties | None:
        """Read by one get."""
        return _properties(self.client.get(self._nodes, idl.Get(paths.key(path), [_column(schema.DATA)])))

    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        """Read a part of the row by one get."""
        get = idl.Get(paths.key(path), [_column(schema.CHILDREN)], cells_per_family=limit)
        if after is not None:
            from hbasemk.store.hbase.messages import column_range_filter

            get.filter = column_range_filter(paths.encode(after))
        return [paths.decode(cell.qualifier) for cell in self.client.get(self._nodes, get).cells]

    def subtree(self, path: str) -> int:
        """Read by multi-gets of up to 1000 rows, level by level. The client knows the row keys beforehand."""
        count = 0
        level = self._known.get(path, [])
        while level:
            for at in range(0, len(level), BATCH):
                gets = [idl.Get(paths.key(one), [_column(schema.DATA)]) for one in level[at : at + BATCH]]
                count += sum(
                    1 for found in self.client.getMultiple(self._nodes, gets) if _properties(found) is not None
                )
            level = [child for one in level for child in self._known.get(one, ())]
        return count

    def refresh(self) -> None:
        """Do nothing: each read reaches the server."""

    def clear_caches(self) -> None:
        """Do nothing: there are no caches."""

    def mark(self) -> object:
        """Return the last timestamp."""
        return self._last

    def read_at(self, mark: object, path: str) -> Properties | None:
        """Read by one get, bounded by the mark."""
        assert isinstance(mark, int)
        get = idl.Get(paths.key(path), [_column(schema.DATA)], idl.TimeRange(0, mark + 1))
        return _properties(self.client.get(self._nodes, get))

    def changed(self, mark: object) -> int:
        """Read the journal rows since the mark, then their nodes at the mark and now."""
        assert isinstance(mark, int)
        scan = idl.Scan(start=(mark + 1).to_bytes(8, "big"), caching=BATCH, limit=BATCH)
        rows = self.client.getScannerResults(self._journal, scan, BATCH)
        written = [
            change
            for row in rows
            for change in changes.decode(
                [Cell(cell.family, cell.qualifier, cell.timestamp, cell.value) for cell in row.cells], row.row
            )
        ]
        keys = list(dict.fromkeys(paths.key(change.path) for change in written))
        before = [idl.Get(key, [_column(schema.DATA)], idl.TimeRange(0, mark + 1)) for key in keys]
        old = self.client.getMultiple(self._nodes, before)
        new = self.client.getMultiple(self._nodes, [idl.Get(key, [_column(schema.DATA)]) for key in keys])
        return sum(1 for one, other in zip(old, new, strict=True) if _properties(one) != _properties(other))

    def make_history(self, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
        """Write a thousand versions in each put, with their journal rows."""
        key = paths.key(path)
        declared = [_value(*cell[:3]) for cell in changes.encode([RowChange(path, CHANGED, [name])])]
        number = 0
        while number < commits and not stop():
            rows, cells = [], []
            for value in range(number, min(commits, number + BATCH)):
                revision = self._id()
                row = revision.to_bytes(8, "big")
                rows.append(idl.Put(row, [_value(*schema.COMMITTED, b"\x01"), _value(*schema.ABORT, b"\0"), *declared]))
                cells.append(_value(*schema.property_column(name), values.encode(value), revision))
                cells.append(_value(*schema.LAST_REVISION, schema.TOUCHED, revision))
            self.client.put(self._nodes, idl.Put(key, cells))
            self.client.putMultiple(self._journal, rows)
            number += len(rows)
        return number

    def size(self) -> int:
        """See :func:`~benchmarks.systems.hbasemk.cells_size`."""
        found = 0

        def measure(store: HBaseStore) -> None:
            nonlocal found
            found = cells_size(store, [table.name for table in TABLES])

        with_tables(self.place, measure)
        return found

    def close(self) -> None:
        """Close the connection; the creator also drops the tables."""
        self._client.close()
        if self.owner:
            self.remove(self.place)


def with_tables(place: str, do: Callable[[HBaseStore], object]) -> None:
    """Call ``do`` with the store at ``host:port/prefix``, outside of measurements."""
    address, _, prefix = place.partition("/")
    host, port = host_and_port(address)
    store = HBaseStore([Address(host, port)], prefix=prefix)
    try:
        do(store)
    finally:
        store.close()


def _properties(found: Any) -> Properties | None:
    """Decode the properties of a raw row; None for an empty one."""
    if not found.cells:
        return None
    return {
        cell.qualifier[1:].decode(): values.decode(cell.value)  # type: ignore[misc]
        for cell in found.cells
        if cell.qualifier[0] == schema.PROPERTY
    }
