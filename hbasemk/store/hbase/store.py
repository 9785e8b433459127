"""The store contract on HBase: every call is one call of the Thrift2 gateway.

What HBase takes for something else than the contract says is answered here without asking: an empty list of columns
(HBase: all of them), an empty delete (the whole row), ends of a range that meet (that row), keys too long to exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from hbasemk import options
from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.store.abc import MAX_TIMESTAMP, Column, Delete, Get, Limits, Put, Row, Scan, Store, Table
from hbasemk.store.hbase import gateway, messages
from hbasemk.store.hbase.client import CONNECT_SECONDS, Client
from hbasemk.store.hbase.tables import TableNames, Tables

DEFAULT_PORT: Final = 9090
DEFAULT_TIMEOUT: Final = 20.0
DEFAULT_POOL: Final = 64

LIMITS: Final = Limits()
MAX_CELL: Final = 10 * 1024 * 1024
"""hbase.client.keyvalue.maxsize: key and value together."""
MAX_SCAN: Final = 1_000_000
"""The gateway makes room for all rows that it is asked for before it looks for them."""
_KEY_OVERHEAD: Final = 64


class HBaseStore(Store):
    """Tables of HBase behind its Thrift2 gateway at ``host:port``.

    ``prefix`` begins the tables' names and may contain a namespace (``content:cms_``). ``timeout`` bounds every call in
    seconds, connecting included, which alone may take ``connect_timeout``. At most ``pool_size`` connections are open at a time;
    they are opened when needed, so making a store talks to nobody. ``clock`` is a monotonic clock in seconds.

    ``durable=False`` changes nothing here: two tables may live on two servers whose logs know no common order.
    Raises InvalidValueError for a prefix that HBase does not allow, and for a timeout that is none.
    """

    limits = LIMITS

    def __init__(
        self,
        host: str,
        port: int = DEFAULT_PORT,
        *,
        prefix: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float = CONNECT_SECONDS,
        pool_size: int = DEFAULT_POOL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options.seconds("timeout", timeout, above_zero=True)
        options.seconds("connect_timeout", connect_timeout, above_zero=True)
        if pool_size < 1:
            raise InvalidValueError(f"a store needs at least 1 connection, not {pool_size}")
        self._names = TableNames(prefix)
        shown = f"[{host}]" if ":" in host else host
        self._location = f"hbase://{shown}:{port}/" + (f"?prefix={prefix}" if prefix else "")
        self._client = Client(
            host, port, timeout=timeout, pool_size=pool_size, connect_timeout=connect_timeout, clock=clock
        )
        self._tables = Tables(self._client, self._names, self._location, timeout)

    @property
    def location(self) -> str:
        """The repository's URL."""
        return self._location

    @property
    def supports_parallel_calls(self) -> bool:
        """Each thread's call has a connection of its own."""
        return True

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create what is missing, wait until it can be used, verify it, and try a timestamp of the size of ids."""
        self._client.check_open()
        self._tables.create(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Check families, VERSIONS, TTL, KEEP_DELETED_CELLS, and that no table is disabled."""
        self._client.check_open()
        self._tables.verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Disable and delete the tables."""
        self._client.check_open()
        self._tables.drop(tables)

    def probe_timestamp(self, table: Table, timestamp: int) -> None:
        """Raise StoreUnusableError if HBase is set to refuse cells with this timestamp; leaves nothing behind."""
        self._tables.probe_timestamp(table, timestamp)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """One row per get, by one call for a single row, which is cheaper, or for many."""
        name = self._names.data(table)
        if len(gets) == 1 and not _empty(gets[0]):
            method = gateway.GET
            result = self._client.call(method, method.request(name, messages.gets(gets)[0]), name)
            return [Row(gets[0].row, messages.cells(result))]
        asked = [get for get in gets if not _empty(get)]
        if not asked:
            self._client.check_open()
            return [Row(get.row, []) for get in gets]
        method = gateway.GET_MULTIPLE
        results = self._client.call(method, method.request(name, messages.gets(asked)), name)
        if len(asked) == len(gets):
            return [Row(get.row, messages.cells(result)) for get, result in zip(gets, results, strict=True)]
        rest = iter(results)
        return [Row(get.row, [] if _empty(get) else messages.cells(next(rest))) for get in gets]

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """The first rows of a range."""
        if scan.limit > MAX_SCAN:
            raise LimitError(f"a scan of table {table!r} for {scan.limit} rows; at most {MAX_SCAN} come in one batch")
        name = self._names.data(table)
        ends = _ends(scan)
        if ends is None or scan.limit < 1 or _selects_nothing(scan):
            self._client.check_open()
            return []
        method = gateway.SCAN
        request = method.request(name, messages.scan(scan, *ends), scan.limit)
        return messages.rows(self._client.call(method, request, name))

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:  # noqa: ARG002 - see the class
        """Write cells, by one call for a single row, which is cheaper, or for many."""
        self.check_puts(puts)
        name = self._names.data(table)
        if len(puts) == 1:
            self._client.call(gateway.PUT, gateway.PUT.request(name, messages.put(puts[0])), name)
        elif puts:
            request = gateway.PUT_MULTIPLE.request(name, list(map(messages.put, puts)))
            self._client.call(gateway.PUT_MULTIPLE, request, name)
        else:
            self._client.check_open()

    def check_and_write(
        self,
        table: str,
        column: Column,
        expected: bytes | None,
        put: Put,
        *,
        durable: bool = True,  # noqa: ARG002 - see the class
    ) -> bool:
        """Compare-and-set. Raises InvalidValueError for an empty ``expected``, which HBase takes for an absent one."""
        if expected is not None and not expected:
            raise InvalidValueError(f"column {column!r} cannot be compared with an empty value; give None for absent")
        self.check_puts([put])
        method = gateway.CHECK_AND_PUT
        name = self._names.data(table)
        request = method.request(name, put.row, *column, expected, messages.put(put))
        return bool(self._client.call(method, request, name))

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exact versions."""
        name = self._names.data(table)
        asked = [messages.delete(delete) for delete in deletes if delete.cells and _possible(delete.row)]
        if len(asked) == 1:
            self._client.call(gateway.DELETE, gateway.DELETE.request(name, asked[0]), name)
        elif asked:
            self._client.call(gateway.DELETE_MULTIPLE, gateway.DELETE_MULTIPLE.request(name, asked), name)
        else:
            self._client.check_open()

    def delete_rows(self, table: str, rows: Sequence[bytes], *, before: int = MAX_TIMESTAMP) -> None:
        """Delete all cells of rows whose timestamps are less than ``before``.

        HBase keeps a marker: what is written later into these rows with a timestamp less than ``before`` stays
        invisible until a major compaction. So give ``before`` for rows that may come back.
        """
        name = self._names.data(table)
        asked = [gateway.idl.Delete(row, None, before - 1, None) for row in rows if _possible(row)]
        if asked:
            self._client.call(gateway.DELETE_MULTIPLE, gateway.DELETE_MULTIPLE.request(name, asked), name)
        else:
            self._client.check_open()

    def close(self) -> None:
        """End all connections; calls under way end with an error. Idempotent."""
        self._client.close()

    def check_puts(self, puts: Sequence[Put]) -> None:
        """As the contract says; besides, HBase counts a cell's whole key as part of its size."""
        super().check_puts(puts)
        for row, cells in puts:
            for family, qualifier, value, _ in cells:
                if len(value) > MAX_CELL - 2 * LIMITS.row_key - _KEY_OVERHEAD - 256:
                    size = len(row) + len(family) + len(qualifier) + len(value) + _KEY_OVERHEAD
                    if size > MAX_CELL:
                        raise LimitError(
                            f"a cell of {size} bytes, its key included, at row {row[:60]!r}, column {family!r}:"
                            f"{qualifier[:60]!r} is over the limit of {MAX_CELL} bytes; nothing was written. Keep "
                            "large content in a blob."
                        )


def _possible(row: bytes) -> bool:
    """Whether a row of this key can exist; HBase fails on others without saying why."""
    return 0 < len(row) <= LIMITS.row_key


def _empty(get: Get) -> bool:
    """Whether a get asks for nothing, in a way that HBase would take for something else or fail on."""
    return (
        not 0 < len(get.row) <= LIMITS.row_key or (get.page is not None and get.page.limit < 1) or _selects_nothing(get)
    )


def _selects_nothing(what: Get | Scan) -> bool:
    if what.columns is not None:
        if not what.columns:
            return True
    elif what.families is not None and not what.families:
        return True
    return what.since >= what.before or what.versions < 1 or what.before < 1 or what.since < 0


def _ends(scan: Scan) -> tuple[bytes | None, bytes | None] | None:
    """A scan's start and stop as HBase takes them; None if no row can be between.

    HBase refuses ends longer than a key. Rows before or after such an end are those before or after the longest key
    that begins it: going up, the end is replaced by the next possible key, going down by the longest one.
    """
    start, stop = scan.start, scan.stop
    if scan.reverse:
        if start == b"":
            return None
        if start is not None:
            start = start[: LIMITS.row_key]
        if stop is not None:
            stop = stop[: LIMITS.row_key]
        return None if start is not None and stop is not None and start <= stop else (start, stop or None)
    if stop is not None and len(stop) > LIMITS.row_key:
        stop = _next(stop[: LIMITS.row_key])
    if start is not None and len(start) > LIMITS.row_key:
        start = _next(start[: LIMITS.row_key])
        if start is None:
            return None
    return None if stop is not None and (start or b"") >= stop else (start or None, stop)


def _next(longest: bytes) -> bytes | None:
    """The first possible key after one of full length; None after the last."""
    kept = longest.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
