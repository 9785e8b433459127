"""A store in HBase's tables, through the Thrift2 gateway; every call is one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    Cell,
    Column,
    Delete,
    Get,
    Limits,
    Put,
    Row,
    Scan,
    Store,
    Table,
)
from hbasemk.store.hbase import tables as schema
from hbasemk.store.hbase.connections import Connections
from hbasemk.store.hbase.gateway import interface

DEFAULT_PORT: Final = 9090
DEFAULT_TIMEOUT: Final = 20.0
DEFAULT_POOL: Final = 64
CACHING: Final = 1000


class HBaseStore(Store):
    """The tables whose names begin with ``prefix``, behind the gateway at ``host`` and ``port``.

    ``timeout`` bounds each call, in seconds; ``pool_size`` the connections. Nothing is opened before the first call.
    HBase syncs each write as it is set up to; ``durable=False`` changes nothing here. A version that was deleted
    stays deleted until a major compaction, also if it is written again.
    """

    limits = Limits(row_key=32_767, cell=10 * 1024 * 1024 - 1024)

    def __init__(
        self,
        host: str,
        port: int = DEFAULT_PORT,
        *,
        prefix: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        pool_size: int = DEFAULT_POOL,
    ) -> None:
        self._prefix = schema.check_prefix(prefix)
        self._timeout = timeout
        self._connections = Connections(host, port, timeout, pool_size)
        self._names: dict[str, bytes] = {}

    @property
    def location(self) -> str:
        """Gateway and prefix, as in a URL."""
        return f"hbase://{self._connections.place}/?prefix={self._prefix}"

    @property
    def supports_parallel_calls(self) -> bool:
        """Two connections work at the same time."""
        return True

    # --- schema ------------------------------------------------------------------------------------------

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create what is missing, then verify."""
        schema.create(self._connections, self._prefix, tables, self._timeout)
        self.verify(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Check families and versions."""
        schema.verify(self._connections, self._prefix, tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables."""
        schema.drop(self._connections, self._prefix, tables)

    # --- cells -------------------------------------------------------------------------------------------

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """One row per get."""
        full = schema.full_name(self._prefix, table)
        asked = [_get(get) for get in gets]
        if not asked:
            return []
        with self._connections.use(full, writes=False) as client:
            if len(asked) == 1:
                results = [client.get(full.encode(), asked[0])]
            else:
                results = client.getMultiple(full.encode(), asked)
        return [Row(get.row, _cells(result)) for get, result in zip(gets, results, strict=True)]

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """The first rows of a range."""
        full = schema.full_name(self._prefix, table)
        if scan.limit <= 0 or scan.since >= scan.before or scan.columns == () or scan.families == ():
            return []
        if scan.start is not None and scan.start == scan.stop:
            # HBase would give the row itself.
            return []
        asked = interface().TScan(
            startRow=scan.start,
            stopRow=scan.stop,
            columns=_columns(scan.columns, scan.families),
            caching=min(scan.limit, CACHING),
            maxVersions=scan.versions,
            timeRange=_time_range(scan.since, scan.before),
            reversed=scan.reverse or None,
        )
        with self._connections.use(full, writes=False) as client:
            results = client.getScannerResults(full.encode(), asked, scan.limit)
        return [Row(result.row, _cells(result)) for result in results]

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:  # noqa: ARG002 - see the class
        """Write cells."""
        self.check_puts(puts)
        if not puts:
            return
        full = schema.full_name(self._prefix, table)
        sent = [_put(put) for put in puts]
        with self._connections.use(full, writes=True) as client:
            if len(sent) == 1:
                client.put(full.encode(), sent[0])
            else:
                client.putMultiple(full.encode(), sent)

    def check_and_write(
        self,
        table: str,
        column: Column,
        expected: bytes | None,
        put: Put,
        *,
        durable: bool = True,  # noqa: ARG002 - see the class
    ) -> bool:
        """Compare-and-set on one row."""
        self.check_puts([put])
        full = schema.full_name(self._prefix, table)
        with self._connections.use(full, writes=True) as client:
            applied: bool = client.checkAndPut(full.encode(), put.row, column[0], column[1], expected, _put(put))
        return applied

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exact versions."""
        if not deletes:
            return
        api = interface()
        full = schema.full_name(self._prefix, table)
        sent = [
            api.TDelete(
                row=row,
                columns=[api.TColumn(family, qualifier, timestamp) for family, qualifier, timestamp in cells],
                deleteType=api.TDeleteType.DELETE_COLUMN,
            )
            for row, cells in deletes
            if cells
        ]
        with self._connections.use(full, writes=True) as client:
            client.deleteMultiple(full.encode(), sent)

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows."""
        if not rows:
            return
        api = interface()
        full = schema.full_name(self._prefix, table)
        with self._connections.use(full, writes=True) as client:
            client.deleteMultiple(full.encode(), [api.TDelete(row=row) for row in rows])

    def close(self) -> None:
        """Close the connections; calls under way fail with ClosedError."""
        self._connections.close()


def _get(get: Get) -> Any:
    api = interface()
    asked = api.TGet(row=get.row, timeRange=_time_range(get.since, get.before), maxVersions=get.versions)
    if get.page is not None:
        family, after, limit = get.page
        asked.columns = [api.TColumn(family)]
        asked.storeLimit = limit
        if after is not None:
            # The filter language ends a text with a quote; one inside is doubled, any other byte stands for itself.
            asked.filterString = b"ColumnRangeFilter('" + after.replace(b"'", b"''") + b"',false,'',true)"
    else:
        asked.columns = _columns(get.columns, get.families)
    return asked


def _columns(columns: Sequence[Column] | None, families: Sequence[bytes] | None) -> list[Any] | None:
    api = interface()
    if columns is not None:
        return [api.TColumn(family, qualifier) for family, qualifier in columns]
    if families is not None:
        return [api.TColumn(family) for family in families]
    return None


def _time_range(since: int, before: int) -> Any:
    if since <= 0 and before >= MAX_TIMESTAMP:
        return None
    return interface().TTimeRange(since, before)


def _put(put: Put) -> Any:
    api = interface()
    value = api.TColumnValue
    return api.TPut(row=put.row, columnValues=[value(*cell) for cell in put.cells])


def _cells(result: Any) -> list[Cell]:
    if result.row is None:
        return []
    return [Cell(found.family, found.qualifier, found.timestamp, found.value) for found in result.columnValues]
