"""Create, verify and drop tables in HBase.

Verification checks only the settings that change what a reader sees. All other settings (compression, block size,
replication …) belong to the administrator. A block encoding that slows down polls causes a warning.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hbasemk.errors import InvalidValueError, StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.format.limits import shown
from hbasemk.store.abc import ALL_VERSIONS, Table
from hbasemk.store.hbase import gateway
from hbasemk.store.hbase.client import Client
from hbasemk.store.hbase.errors import SLOP_SETTING
from hbasemk.store.hbase.layout import COMPRESSIONS, Layout

ADMIN_SECONDS: Final = 120.0
"""The timeout of creating and dropping tables, which moves regions and may be slow even if reads and writes are fast."""

LONGEST_NAME: Final = 150
"""The characters of the name of a new table, with its namespace. HBase makes files and folders of this name, with up to 100
characters more for links of restored snapshots and splits, and a file system allows 255. A master repeats forever to create a
table whose name is too long."""

_PREFIX: Final = re.compile(r"(?:([A-Za-z0-9_]+):)?((?:[A-Za-z0-9_][A-Za-z0-9_.-]*)?)")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ENCODINGS: Final = {0: "NONE", 2: "PREFIX", 3: "DIFF", 4: "FAST_DIFF", 7: "ROW_INDEX_V1"}
_log = logging.getLogger("hbasemk")
_PROBE_ROW: Final = b"\0"
_PAUSE: Final = 0.05


class TableNames:
    """The names of the tables with a prefix, which may begin with a namespace (``content:cms_``)."""

    def __init__(self, prefix: str) -> None:
        found = _PREFIX.fullmatch(prefix)
        if found is None:
            raise InvalidValueError(
                f"the prefix {prefix!r} cannot begin the name of an HBase table; expected ASCII letters, digits, '_', '-' and "
                "'.', not starting with '-' or '.', and optionally a namespace of letters, digits and '_' with ':' in front"
            )
        self.prefix = prefix
        self._namespace: str | None = found[1]
        self._start: str = found[2]
        self._known: dict[str, bytes] = {}

    def data(self, name: str) -> bytes:
        """Return a table's name as the gateway's calls for rows expect it."""
        known = self._known.get(name)
        if known is None:
            if not _NAME.fullmatch(self._start + name):
                raise InvalidValueError(
                    f"{self._start + name!r} is not a valid name of an HBase table; use another prefix"
                )
            known = self._known[name] = (self.prefix + name).encode()
        return known

    def require_short(self, name: str) -> None:
        """Raise InvalidValueError if a new table with this name would have a name that is too long for HBase."""
        full = self.data(name).decode()
        if len(full) > LONGEST_NAME:
            raise InvalidValueError(
                f"the prefix {shown(self.prefix)} has {len(self.prefix)} characters, which is too long for new tables: the name "
                f"{shown(full)} would have {len(full)}, and at most {LONGEST_NAME} are safe in HBase; use a shorter prefix"
            )

    def admin(self, name: str) -> Any:
        """Return a table's name as the gateway's calls for tables expect it."""
        self.data(name)
        space = None if self._namespace is None else self._namespace.encode()
        return gateway.idl.TableName(space, (self._start + name).encode())


class Tables:
    """Creates, verifies and drops tables through a gateway."""

    def __init__(self, client: Client, names: TableNames, where: str, timeout: float) -> None:
        self._client = client
        self._names = names
        self._where = where
        self._admin_timeout = max(timeout, ADMIN_SECONDS)

    def create(self, tables: Sequence[Table], layout: Layout) -> None:
        """Create missing tables, wait until they are available, verify them, and test a timestamp as large as a revision id."""
        self._client.verify_gateways()
        existing = self._describe(tables)
        for table in tables:
            if table.name in existing:
                self._compare(table, existing[table.name], layout)
        missing = [table for table in tables if table.name not in existing]
        for table in missing:
            self._names.require_short(table.name)
        for table in missing:
            self._create(table, layout)
        deadline = self._client.clock() + self._admin_timeout
        for table in tables:
            self._await(table, deadline)
        self._verify(tables)
        for table in tables:
            self.probe_timestamp(table, time.time_ns() // 1_000_000 - _EPOCH_MS << 24)

    def _create(self, table: Table, layout: Layout) -> None:
        families = [
            gateway.idl.Family(
                name=family,
                bloom_filter=gateway.BLOOM_ROW,
                compression=COMPRESSIONS[layout.compression or "NONE"],
                block_encoding=gateway.ROW_INDEX_V1,
                keep_deleted=0,
                versions=table.versions,
                time_to_live=gateway.FOREVER,
            )
            for family in table.families
        ]
        wanted = gateway.idl.TableDescriptor(self._names.admin(table.name), families)
        try:
            request = gateway.CREATE_TABLE.request(wanted, layout.splits.get(table.name))
            self._admin(gateway.CREATE_TABLE, request, table.name)
        except StoreError as error:
            if "TableExistsException" in error.message:
                # Another process created the table first; verify() checks it like any other table.
                self._compare(table, self._describe([table])[table.name], layout)
                return
            if layout.compression is not None and layout.compression.lower() in error.message.lower():
                raise StoreUnusableError(
                    f"{self._where}: HBase cannot compress with {layout.compression}, so table {self._shown_name(table)} was "
                    f"not created; install the codec on all region servers, or use GZ, which HBase contains ({error.cause})"
                ) from error
            raise

    def _compare(self, table: Table, found: Any, layout: Layout) -> None:
        """Raise InvalidValueError if an existing table lacks the requested layout; more regions are not a difference."""
        advice = "It was not changed: leave out the option, or change the table in HBase's shell"
        if layout.compression is not None:
            for family in found.families or ():
                if family.name in table.families and family.compression != COMPRESSIONS[layout.compression]:
                    actual = next(
                        (name for name, number in COMPRESSIONS.items() if number == family.compression), "NONE"
                    )
                    raise InvalidValueError(
                        f"{self._where}: table {self._shown_name(table)} exists with COMPRESSION = {actual}, not "
                        f"{layout.compression}. {advice}"
                    )
        if layout.splits.get(table.name):
            name = self._names.data(table.name)
            regions = self._client.call(gateway.REGIONS, gateway.REGIONS.request(name), name)
            missing = set(layout.splits[table.name]).difference(one.region.start for one in regions)
            if missing:
                first = min(missing)
                raise InvalidValueError(
                    f"{self._where}: table {self._shown_name(table)} exists, and no region of it begins at "
                    f"{layout.names.get(first, repr(first))}. {advice}"
                )

    def _await(self, table: Table, deadline: float) -> None:
        method = gateway.IS_AVAILABLE
        while not self._admin(method, method.request(self._names.admin(table.name)), table.name):
            if self._disabled(table):
                raise self._is_disabled(table)
            if self._client.clock() >= deadline:
                raise StoreNotAppliedError(
                    f"{self._where}: table {self._shown_name(table)} exists, but its regions were not available within "
                    f"{self._admin_timeout:.3g} s; see HBase's log"
                )
            time.sleep(_PAUSE)

    def verify(self, tables: Sequence[Table]) -> None:
        """Compare the tables' settings with the expected ones; raises StoreUnusableError naming table and setting.

        Also raises it for a gateway that is not a Thrift2 gateway, even if others are.
        """
        self._client.verify_gateways()
        self._verify(tables)

    def _verify(self, tables: Sequence[Table]) -> None:
        existing = self._describe(tables)
        for table in tables:
            found = existing.get(table.name)
            if found is None:
                raise StoreUnusableError(
                    f"{self._where}: table {self._shown_name(table)} does not exist; create the tables first (hbasemk init), or "
                    "check the prefix"
                )
            for setting, actual, needed in _differences(table, found):
                raise StoreUnusableError(
                    f"{self._where}: table {self._shown_name(table)} has {setting} = {actual}, but hbasemk needs {needed}; alter "
                    "it in HBase's shell, or use another prefix"
                )
            self._warn_of_encoding(table, found)
        for table in tables:
            if self._disabled(table):
                raise self._is_disabled(table)

    def _warn_of_encoding(self, table: Table, found: Any) -> None:
        """Log a warning about another block encoding, which is slower but not an error."""
        for family in found.families:
            if family.name in table.families and family.block_encoding != gateway.ROW_INDEX_V1:
                _log.warning(
                    "%s: table %s, family %s: polls and reads are slower with DATA_BLOCK_ENCODING => %s than with "
                    "ROW_INDEX_V1",
                    self._where,
                    self._shown_name(table),
                    family.name.decode(errors="replace"),
                    _ENCODINGS.get(family.block_encoding, family.block_encoding),
                )

    def probe_timestamp(self, table: Table, timestamp: int) -> None:
        """Test whether HBase accepts a cell with this timestamp; nothing ever becomes visible.

        One atomic mutation writes and deletes the cell, in a row before all others. Raises StoreUnusableError, which names
        the setting by which an administrator limits timestamps.
        """
        family = table.families[0]
        put = gateway.idl.Put(_PROBE_ROW, [gateway.idl.ColumnValue(family, b"probe", b"", timestamp)])
        delete = gateway.idl.Delete(
            _PROBE_ROW, [gateway.idl.Column(family, b"probe", timestamp)], None, gateway.ONE_VERSION
        )
        mutations = [gateway.idl.Mutation(put=put), gateway.idl.Mutation(delete_cells=delete)]
        method = gateway.MUTATE_ROW
        name = self._names.data(table.name)
        try:
            self._client.call(
                method,
                method.request(name, gateway.idl.RowMutations(_PROBE_ROW, mutations)),
                name,
            )
        except StoreUnusableError as error:
            if SLOP_SETTING not in error.message:
                raise
            raise StoreUnusableError(
                f"{self._where}: table {self._shown_name(table)} rejects cells with timestamp {timestamp} because "
                f"{SLOP_SETTING} is set; revision ids are such timestamps, so remove the setting ({error})"
            ) from error

    def drop(self, tables: Sequence[Table]) -> None:
        """Disable and delete tables; missing tables, and tables that others drop at the same time, are not an error."""
        for table in tables:
            for method in (gateway.DISABLE_TABLE, gateway.DELETE_TABLE):
                try:
                    self._admin(method, method.request(self._names.admin(table.name)), table.name)
                except StoreUnusableError as error:
                    if table.name in self._describe([table]) and "TableNotEnabledException" not in error.message:
                        raise

    def _describe(self, tables: Sequence[Table]) -> dict[str, Any]:
        """Return HBase's descriptors of the existing tables, by our name."""
        if not tables:
            # For an empty list HBase would describe all its tables.
            return {}
        names = {self._names.admin(table.name).qualifier: table.name for table in tables}
        request = gateway.DESCRIBE.request([self._names.admin(table.name) for table in tables])
        found = self._client.call(gateway.DESCRIBE, request, b", ".join(self._names.data(one.name) for one in tables))
        return {names[one.name.qualifier]: one for one in found}

    def _disabled(self, table: Table) -> bool:
        method = gateway.IS_DISABLED
        return bool(self._admin(method, method.request(self._names.admin(table.name)), table.name))

    def _is_disabled(self, table: Table) -> StoreUnusableError:
        return StoreUnusableError(
            f"{self._where}: table {self._shown_name(table)} is disabled; enable it in HBase's shell"
        )

    def _admin(self, method: gateway.Method, request: Any, name: str) -> Any:
        timeout = self._admin_timeout if method.effect else None
        return self._client.call(method, request, self._names.data(name), timeout)

    def _shown_name(self, table: Table) -> str:
        return repr(self._names.prefix + table.name)


_EPOCH_MS: Final = 1_356_998_400_000
"""2013-01-01T00:00Z, the default epoch of revision ids."""


def _differences(table: Table, found: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ: name, actual value, expected value."""
    existing = {family.name: family for family in found.families or ()}
    if not set(table.families) <= set(existing):
        yield "the families", _names(existing), _names(table.families)
    for name in table.families:
        family, of = existing[name], f" of family {name.decode(errors='replace')!r}"
        if family.versions != table.versions:
            most = " (all)" if table.versions == ALL_VERSIONS else ""
            yield f"VERSIONS{of}", str(family.versions), f"{table.versions}{most}"
        if family.time_to_live is not None and family.time_to_live != gateway.FOREVER:
            yield f"TTL{of}", f"{family.time_to_live} s", "FOREVER"
        if family.keep_deleted:
            yield f"KEEP_DELETED_CELLS{of}", "on", "FALSE"


def _names(families: Any) -> str:
    return ", ".join(sorted(repr(name.decode(errors="replace")) for name in families)) or "none"
