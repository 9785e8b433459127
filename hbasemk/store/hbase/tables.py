"""HBase tables as the kernel wants them: created with the right settings, and checked."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from hbasemk.errors import InvalidValueError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.abc import Table
from hbasemk.store.hbase.connections import Connections
from hbasemk.store.hbase.gateway import interface

_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9_]+:)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_log = logging.getLogger("hbasemk")


def check_prefix(prefix: str) -> str:
    """The prefix itself; raises InvalidValueError when no table name can begin with it."""
    if not _PREFIX.fullmatch(prefix):
        raise InvalidValueError(
            f"{prefix!r} cannot begin the name of an HBase table; possible are letters, digits, '_', '.' and '-', with a "
            "namespace and ':' before them"
        )
    return prefix


def full_name(prefix: str, name: str) -> str:
    """The name of a table as HBase knows it."""
    return prefix + name


def _table_name(full: str) -> Any:
    namespace, _, qualifier = full.rpartition(":")
    return interface().TTableName(ns=(namespace or "default").encode(), qualifier=qualifier.encode())


def create(connections: Connections, prefix: str, tables: Sequence[Table], timeout: float) -> None:
    """Create the tables that are missing; two creators at once do no harm."""
    api = interface()
    for table in tables:
        full = full_name(prefix, table.name)
        name = _table_name(full)
        with connections.use(full, writes=False) as client:
            if client.tableExists(name):
                continue
        families = [
            api.TColumnFamilyDescriptor(
                name=family,
                maxVersions=table.versions,
                bloomFilterType=api.TBloomFilterType.ROW,
                compressionType=api.TCompressionAlgorithm.NONE,
                dataBlockEncoding=api.TDataBlockEncoding.ROW_INDEX_V1,
            )
            for family in table.families
        ]
        try:
            with connections.use(full, writes=False) as client:
                client.createTable(api.TTableDescriptor(tableName=name, columns=families), [])
        except StoreNotAppliedError as error:
            if "TableExistsException" not in str(error):
                raise
        _wait(connections, full, name, timeout)


def _wait(connections: Connections, full: str, name: Any, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        with connections.use(full, writes=False) as client:
            if client.isTableEnabled(name):
                return
        if time.monotonic() > deadline:
            raise StoreNotAppliedError(
                f"table {full} at {connections.place} was created but is not enabled yet; try again"
            )
        time.sleep(0.05)


def verify(connections: Connections, prefix: str, tables: Sequence[Table]) -> None:
    """Check families and versions; another block encoding only costs speed and is logged."""
    wanted_encoding = interface().TDataBlockEncoding.ROW_INDEX_V1
    for table in tables:
        full = full_name(prefix, table.name)
        with connections.use(full, writes=False) as client:
            found = client.getTableDescriptor(_table_name(full))
        families = {family.name: family for family in found.columns or []}
        missing = [family for family in table.families if family not in families]
        if missing:
            raise StoreUnusableError(
                f"table {full} at {connections.place} has no column family {missing[0].decode()!r}; it was not made by "
                "hbasemk, use another prefix"
            )
        for family in table.families:
            versions = families[family].maxVersions
            if versions != table.versions:
                raise StoreUnusableError(
                    f"table {full} at {connections.place} keeps VERSIONS => {versions} in family {family.decode()!r}, "
                    f"needed is {table.versions}; alter the table or use another prefix"
                )
            if families[family].dataBlockEncoding != wanted_encoding:
                _log.warning(
                    "table %s at %s, family %s: polls and reads are faster with DATA_BLOCK_ENCODING => ROW_INDEX_V1",
                    full,
                    connections.place,
                    family.decode(),
                )


def drop(connections: Connections, prefix: str, tables: Sequence[Table]) -> None:
    """Disable and delete the tables that are there."""
    for table in tables:
        full = full_name(prefix, table.name)
        name = _table_name(full)
        with connections.use(full, writes=False) as client:
            if not client.tableExists(name):
                continue
            if client.isTableEnabled(name):
                client.disableTable(name)
            client.deleteTable(name)
