"""One commit against the raw calls that it is made of, in turn, on HBase.

The floor is a bare thriftpy2 client that makes the same four calls on the same tables: the journal row by compare-and-set,
two cells of a node, reading two columns back, the deciding compare-and-set.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import hbasemk
from hbasemk.kernel import changes, paths, schema
from hbasemk.kernel.changes import CHANGED, RowChange
from hbasemk.store.hbase import HBaseStore
from hbasemk.store.hbase.gateway import idl


def raw_client(url: str) -> Any:
    """A bare client of the gateway in a URL."""
    from thriftpy2.protocol import TCyBinaryProtocol
    from thriftpy2.thrift import TClient
    from thriftpy2.transport import TCyBufferedTransport, TSocket

    parts = urlsplit(url)
    socket = TSocket(parts.hostname, parts.port or 9090)
    socket.open()
    return TClient(idl.Gateway, TCyBinaryProtocol(TCyBufferedTransport(socket, 64 * 1024)))


def raw_commit(client: Any, prefix: str) -> Callable[[int], None]:
    """The four calls, as a function of a turn's number."""
    value, column = idl.ColumnValue, idl.Column
    journal, nodes = f"{prefix}{schema.JOURNAL}".encode(), f"{prefix}{schema.NODES}".encode()
    key = paths.key("/floor")
    told = changes.encode([RowChange("/floor", CHANGED, ["value"])])

    def commit(turn: int) -> None:
        made = turn + 1
        row = made.to_bytes(8, "big")
        first = [value(*schema.COMMITTED, b"\0"), value(*schema.ABORT, b"\0"), value(*schema.NONCE, os.urandom(16))]
        first += [value(*schema.BASE, row), value(*schema.MESSAGE, b"\0"), *(value(*cell[:3]) for cell in told)]
        client.checkAndPut(journal, row, *schema.COMMITTED, None, idl.Put(row, first))
        cells = [
            value(*schema.property_column("value"), b"\x02\x01", made),
            value(*schema.LAST_REVISION, b"\x01", made),
        ]
        client.put(nodes, idl.Put(key, cells))
        wanted = [column(*schema.property_column("value")), column(*schema.DELETED)]
        client.get(nodes, idl.Get(row=key, columns=wanted, time_range=idl.TimeRange(made, 2**62), versions=4))
        client.checkAndPut(journal, row, *schema.ABORT, b"\0", idl.Put(row, [value(*schema.COMMITTED, b"\x01")]))

    return commit


def measure(url: str, turns: int) -> dict[str, float]:
    """Medians in µs of a commit and of its floor, taken in turn, and their ratio."""
    parts = urlsplit(url)
    prefix = parse_qs(parts.query).get("prefix", [""])[0] + "floor_"
    tables = HBaseStore(parts.hostname or "", parts.port or 9090, prefix=prefix)
    tables.create_tables(schema.TABLES)
    client = raw_client(url)
    floor = raw_commit(client, prefix)
    ours: list[float] = []
    theirs: list[float] = []
    try:
        with hbasemk.connect(url) as repository:
            repository.run(lambda tx: tx.exists("/measured") or tx.add("/measured", {"value": 0}))
            for turn in range(-turns // 5, turns):
                began = time.perf_counter()
                with repository.transaction(base=repository.head) as tx:
                    tx.set("/measured", "value", turn)
                middle = time.perf_counter()
                floor(turn + turns)
                end = time.perf_counter()
                if turn >= 0:
                    ours.append(middle - began)
                    theirs.append(end - middle)
    finally:
        client.close()
        tables.drop_tables(schema.TABLES)
        tables.close()
    commit, calls = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    return {"commit_us": round(commit), "raw_calls_us": round(calls), "ratio": round(commit / calls, 3)}
