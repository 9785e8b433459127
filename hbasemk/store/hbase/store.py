"""The store contract on HBase: every call is one call of a Thrift2 gateway, or two in one round trip.

Reads of many rows with large values take more calls (:mod:`hbasemk.store.hbase.large_values`).

The store answers some requests without a call, because HBase would interpret them differently: an empty list of
columns (HBase: all columns), an empty delete (the whole row), a range with equal ends (that row), and keys that are
too long to exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from hbasemk import options
from hbasemk.errors import InvalidValueError, LimitError, StoreError
from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    CheckAndWrite,
    Column,
    Delete,
    DeleteBelow,
    Get,
    Limits,
    Put,
    Row,
    Scan,
    Store,
    Table,
)
from hbasemk.store.hbase import gateway, large_values, messages
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.client import CONNECT_SECONDS, Client
from hbasemk.store.hbase.exchange import Request
from hbasemk.store.hbase.layout import Layout
from hbasemk.store.hbase.tables import TableNames, Tables
from hbasemk.store.hbase.transport import Transport
from hbasemk.store.sizes import by_size, is_full, size_of_rows

DEFAULT_TIMEOUT: Final = 20.0
DEFAULT_POOL: Final = 64

MAX_CELL: Final = 10 * 1024 * 1024
"""HBase's setting hbase.client.keyvalue.maxsize: key and value together."""
_KEY_OVERHEAD: Final = 65
"""Bytes of a key in HBase besides the row key and the qualifier, or more. The families have one byte."""
LIMITS: Final = Limits(together=MAX_CELL - _KEY_OVERHEAD)
MAX_SCAN: Final = 1_000_000
"""The largest limit of a scan; the gateway allocates space for all requested rows before it reads them."""


class HBaseStore(Store):
    """A store in HBase tables behind one or more Thrift2 gateways.

    ``gateways`` are the addresses of gateways to the same HBase. A call that one gateway does not take goes to another.
    ``transport`` (None: buffered and binary, without TLS) must match the settings of all gateways.
    ``prefix`` begins the tables' names and may contain a namespace (``content:cms_``). ``timeout`` bounds every call in
    seconds, including connecting, which alone may take ``connect_timeout``. The store opens at most ``pool_size``
    connections to each gateway, on demand; creating a store opens none. ``clock`` is a monotonic clock in seconds.

    ``durable=False`` has no effect here: two tables may be on two servers whose logs have no common order.
    Raises InvalidValueError for no gateway or a repeated one, a prefix that HBase does not allow, an invalid timeout, and
    an invalid pool size.
    """

    limits = LIMITS

    def __init__(
        self,
        gateways: Sequence[Address],
        *,
        prefix: str = "",
        transport: Transport | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float = CONNECT_SECONDS,
        pool_size: int = DEFAULT_POOL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options.seconds("timeout", timeout, above_zero=True)
        options.seconds("connect_timeout", connect_timeout, above_zero=True)
        options.count("pool_size", pool_size, least=1)
        if not gateways:
            raise InvalidValueError("gateways must name at least one address, got none")
        for address in gateways:
            if gateways.count(address) > 1:
                raise InvalidValueError(f"gateways must differ from each other, got {address} twice")
        self._names = TableNames(prefix)
        self._transport = transport or Transport()
        self._location = f"hbase://{','.join(map(str, gateways))}/" + (f"?prefix={prefix}" if prefix else "")
        self._client = Client(
            gateways,
            self._transport,
            timeout=timeout,
            pool_size=pool_size,
            connect_timeout=connect_timeout,
            clock=clock,
        )
        self.layout = Layout()
        self._tables = Tables(self._client, self._names, self._location, timeout)
        self._large_tables = large_values.tables_of(self._location)

    @property
    def location(self) -> str:
        """The repository's URL."""
        return self._location

    @property
    def supports_parallel_calls(self) -> bool:
        """True: concurrent calls use separate connections."""
        return True

    @property
    def batch_bytes(self) -> int:
        """The largest number of bytes for one call; with frames, half of a frame, because a message is larger."""
        usual = super().batch_bytes
        return min(usual, self._transport.frame_limit // 2) if self._transport.framing == "framed" else usual

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create missing tables, wait until they are available, verify them, and test a timestamp as large as a revision id.

        The tables get the attribute ``layout``. Raises InvalidValueError if tables exist that have another one, or if a new table
        would have a name that is too long for HBase.
        """
        self._client.check_open()
        self._tables.create(tables, self.layout)

    def verify(self, tables: Sequence[Table]) -> None:
        """Check families, VERSIONS, TTL, KEEP_DELETED_CELLS, and that no table is disabled."""
        self._client.check_open()
        self._tables.verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Disable and delete the tables."""
        self._client.check_open()
        self._tables.drop(tables)

    def probe_timestamp(self, table: Table, timestamp: int) -> None:
        """Raise StoreUnusableError if HBase is configured to reject cells with this timestamp; writes nothing visible."""
        self._tables.probe_timestamp(table, timestamp)

    @property
    def supports_joint_calls(self) -> bool:
        """True: both requests are sent before the first reply is read."""
        return True

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get; a single row uses another method of the gateway, which is cheaper.

        If values are large, further calls read them (:mod:`hbasemk.store.hbase.large_values`).
        """
        return self._read(table, gets, None)

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Return the rows of the first gets; without large values all rows, as :meth:`read`."""
        return self._read(table, gets, most_bytes)

    def _read(self, table: str, gets: Sequence[Get], most: int | None) -> list[Row]:
        nonempty = [get for get in gets if not _is_empty(get)]
        if not nonempty:
            self._client.check_open()
            return [Row(get.row, []) for get in gets]

        def read(longest: int | None) -> list[Row]:
            rows = self._client.make(self._read_request(table, nonempty, longest))
            return self._with_large(table, nonempty, rows, longest, most)

        rows = self._bounded(table, large_values.longest_of(nonempty, self.batch_bytes), read)
        if len(nonempty) < len(gets):
            for number, get in enumerate(gets):
                if number <= len(rows) and _is_empty(get):
                    rows.insert(number, Row(get.row, []))
        return rows

    def _bounded(self, table: str, longest: int | None, read: Callable[[int | None], list[Row]]) -> list[Row]:
        """Read rows. In a table that may have large values, ``longest`` bounds the values of an answer of many rows."""
        if longest is None:
            return read(None)
        is_filtered = table in self._large_tables
        try:
            rows = read(self._large_tables.longest(table, longest) if is_filtered else None)
        except StoreError as error:
            self._large_tables.failed(table, error, filtered=is_filtered)
            raise
        if is_filtered:
            self._large_tables.answered(table, rows, self.batch_bytes)
        return rows

    def _read_request(self, table: str, gets: Sequence[Get], longest: int | None) -> Request:
        name = self._names.data(table)
        converted = messages.gets(gets, longest)
        if len(gets) == 1:
            return Request(gateway.GET, gateway.GET.request(name, converted[0]), name, partial(_only_row, gets))
        return Request(gateway.GET_MULTIPLE, gateway.GET_MULTIPLE.request(name, converted), name, partial(_rows, gets))

    def _with_large(
        self, table: str, gets: Sequence[Get], rows: list[Row], longest: int | None, most: int | None = None
    ) -> list[Row]:
        """Return the rows after reading those again that have lengths in place of values, each as a whole.

        If they have more than ``most`` bytes, returns only the first ones.
        """
        if longest is None:
            return rows
        self._large_tables.received(table, rows, self.batch_bytes)
        if most is not None:
            full = [large_values.full_size(row.cells, longest) for row in rows]
            rows = rows[: len(next(by_size(full, int, len(full), most)))]
        sizes = {
            number: large_values.full_size(row.cells, longest)
            for number, (get, row) in enumerate(zip(gets, rows, strict=False))
            if large_values.is_filtered(get) and large_values.has_lengths(row.cells, longest)
        }
        for part in by_size(sizes, sizes.__getitem__, len(sizes), self.batch_bytes):
            again = [gets[number] for number in part]
            whole = self._client.make(self._read_request(table, again, None))
            for number, row in zip(part, whole, strict=True):
                rows[number] = row
        return rows

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Return the first rows of a range. If values are large, further calls read them and all rows behind the first one."""
        if scan.limit > MAX_SCAN:
            raise LimitError(f"the limit of a scan must be at most {MAX_SCAN} rows, got {scan.limit} (table {table!r})")
        if scan.limit < 1 or _selects_nothing(scan):
            self._client.check_open()
            return []

        def read(longest: int | None) -> list[Row]:
            return self._scan(table, scan, None) if longest is None else self._scan_in_parts(table, scan, longest)

        return self._bounded(table, large_values.longest_in(scan, self.batch_bytes), read)

    def _scan(self, table: str, scan: Scan, longest: int | None) -> list[Row]:
        """Return the answer of one call."""
        ends = _scan_bounds(scan)
        if ends is None:
            self._client.check_open()
            return []
        name = self._names.data(table)
        method = gateway.SCAN
        message = method.request(name, messages.scan(scan, *ends, longest), scan.limit)
        rows: list[Row] = self._client.make(Request(method, message, name, messages.rows))
        return rows

    def _scan_in_parts(self, table: str, scan: Scan, longest: int) -> list[Row]:
        """Return the first rows of a range, each read after the one before it."""
        found: list[Row] = []
        while True:
            rest = _after(scan, found)
            rows = self._scan(table, rest, longest)
            self._large_tables.received(table, rows, self.batch_bytes)
            whole, counts = large_values.parts(rows, longest, self.batch_bytes)
            found += rows[:whole]
            ended = len(rows) < rest.limit
            if not counts and ended:
                return found
            for number, count in enumerate(counts, 1):
                if is_full(scan, found, size_of_rows(found)):
                    return found
                rest = _after(scan, found)
                limit = rest.limit if ended and number == len(counts) else min(count, rest.limit)
                part = self._scan(table, rest._replace(limit=limit), None)
                found += part
                if len(part) < limit:
                    return found
            if is_full(scan, found, size_of_rows(found)):
                return found

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:  # noqa: ARG002 - see the class
        """Write cells; a single row uses another method of the gateway, which is cheaper."""
        self.check_puts(puts)
        if puts:
            self._client.make(self._write_request(table, puts))
        else:
            self._client.check_open()

    def _write_request(self, table: str, puts: Sequence[Put]) -> Request:
        name = self._names.data(table)
        if len(puts) == 1:
            return Request(gateway.PUT, gateway.PUT.request(name, messages.put(puts[0])), name)
        return Request(gateway.PUT_MULTIPLE, gateway.PUT_MULTIPLE.request(name, list(map(messages.put, puts))), name)

    def write_and_read(
        self, table: str, puts: Sequence[Put], gets: Sequence[Get], *, durable: bool = True
    ) -> list[Row]:
        """Write cells, then read rows.

        Both requests are sent on one connection before the first reply is read, except by HTTP. The gateway processes the
        second request after the first one. Neither is sent if one of them is too large.
        """
        if not puts or not gets or any(map(_is_empty, gets)) or self._transport.framing == "http":
            return super().write_and_read(table, puts, gets, durable=durable)
        self.check_puts(puts)

        def write_and_read(longest: int | None) -> list[Row]:
            read = self._read_request(table, gets, longest)
            _, rows = self._client.call_in_order(self._write_request(table, puts), read)
            return self._with_large(table, gets, rows, longest)

        return self._bounded(table, large_values.longest_of(gets, self.batch_bytes), write_and_read)

    def check_and_write(
        self,
        table: str,
        column: Column,
        expected: bytes | None,
        put: Put,
        *,
        durable: bool = True,  # noqa: ARG002 - see the class
    ) -> bool:
        """Compare and set. Raises InvalidValueError for an empty ``expected``, which HBase treats as absent."""
        return bool(self._client.make(self._check_request(table, column, expected, put)))

    def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        """Compare and set, then read a row; the requests are sent as by :meth:`write_and_read`."""
        if _is_empty(get) or self._transport.framing == "http":
            return super().check_and_write_then_read(check, table, get)
        read = self._read_request(table, [get], None)
        is_applied, (row,) = self._client.call_in_order(self._check_request(*check), read)
        return bool(is_applied), row

    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        """Make two compare-and-sets at the same time, on two connections."""
        one, two = self._client.call_both(self._check_request(*first), self._check_request(*second))
        return one, two

    def _check_request(self, table: str, column: Column, expected: bytes | None, put: Put) -> Request:
        if expected is not None and not expected:
            raise InvalidValueError(f"column {column!r} cannot be compared with an empty value; give None for absent")
        self.check_puts([put])
        name = self._names.data(table)
        message = gateway.CHECK_AND_PUT.request(name, put.row, *column, expected, messages.put(put))
        return Request(gateway.CHECK_AND_PUT, message, name)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions."""
        self._delete(
            table, [messages.delete(delete) for delete in deletes if delete.cells and _is_valid_key(delete.row)]
        )

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete ranges of versions.

        HBase keeps one marker for each range: it hides later writes into the range until a major compaction.
        """
        valid = [delete for delete in deletes if _is_valid_key(delete.row)]
        self._delete(table, [request for delete in valid for request in messages.deletes_below(delete)])

    def _delete(self, table: str, requests: Sequence[Any]) -> None:
        name = self._names.data(table)
        if len(requests) == 1:
            self._client.call(gateway.DELETE, gateway.DELETE.request(name, requests[0]), name)
        elif requests:
            self._client.call(gateway.DELETE_MULTIPLE, gateway.DELETE_MULTIPLE.request(name, requests), name)
        else:
            self._client.check_open()

    def delete_rows(self, table: str, rows: Sequence[bytes], *, before: int = MAX_TIMESTAMP) -> None:
        """Delete all cells of rows whose timestamps are less than ``before``.

        HBase keeps a marker: it hides later writes to these rows with timestamps less than ``before`` until a major
        compaction. So pass ``before`` for rows that may be written again.
        """
        self._delete(table, [gateway.idl.Delete(row, None, before - 1, None) for row in rows if _is_valid_key(row)])

    def close(self) -> None:
        """Close all connections; running calls raise an error. Idempotent."""
        self._client.close()


def _only_row(gets: Sequence[Get], result: gateway.Result) -> list[Row]:
    """Return the row of the answer to one get."""
    return [Row(gets[0].row, messages.cells(result))]


def _rows(gets: Sequence[Get], results: Sequence[gateway.Result]) -> list[Row]:
    """Return the rows of the answer to several gets; raise ValueError if it has another number of rows."""
    if len(results) != len(gets):
        raise ValueError(f"it has {len(results)} rows for {len(gets)} gets")
    return [Row(get.row, messages.cells(one)) for get, one in zip(gets, results, strict=True)]


def _after(scan: Scan, found: Sequence[Row]) -> Scan:
    """Return the scan of the rows that follow these."""
    return scan._replace(start=found[-1].key + b"\0", limit=scan.limit - len(found)) if found else scan


def _is_valid_key(row: bytes) -> bool:
    """Return whether a row with this key can exist; HBase fails on others without giving a reason."""
    return 0 < len(row) <= LIMITS.row_key


def _is_empty(get: Get) -> bool:
    """Return whether a get selects nothing in a way that HBase would misinterpret or fail on."""
    return (
        not 0 < len(get.row) <= LIMITS.row_key or (get.page is not None and get.page.limit < 1) or _selects_nothing(get)
    )


def _selects_nothing(selection: Get | Scan) -> bool:
    if selection.columns is not None:
        if not selection.columns:
            return True
    elif selection.families is not None and not selection.families:
        return True
    return selection.since >= selection.before or selection.versions < 1 or selection.before < 1 or selection.since < 0


def _scan_bounds(scan: Scan) -> tuple[bytes | None, bytes | None] | None:
    """Return a scan's start and stop as HBase accepts them; None if no row can be between.

    HBase rejects ends that are longer than a key. Let K be such an end, cut to the longest possible key. The rows on
    each side of the end are those on each side of K. A forward scan replaces the end by the key after K, a reverse scan
    by K.
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
        stop = _next_key(stop[: LIMITS.row_key])
    if start is not None and len(start) > LIMITS.row_key:
        start = _next_key(start[: LIMITS.row_key])
        if start is None:
            return None
    return None if stop is not None and (start or b"") >= stop else (start or None, stop)


def _next_key(longest: bytes) -> bytes | None:
    """Return the first possible key after a key of full length; None after the last."""
    kept = longest.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
