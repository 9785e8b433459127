"""Requests that HBase would interpret differently from the contract never reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hbasemk.errors import InvalidValueError, LimitError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.abc import CellVersion, Delete, DeleteBelow, Get, NewCell, Page, Put, Row, Scan
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.errors import from_hbase
from hbasemk.store.hbase.store import MAX_CELL, MAX_SCAN
from hbasemk.store.hbase.tables import TableNames
from tests.support.gateway import FakeGateway, fake_gateway

LONGEST = 32_767


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as made:
        yield made


@pytest.fixture
def store(gateway: FakeGateway) -> Iterator[HBaseStore]:
    made = HBaseStore([Address("127.0.0.1", gateway.port)], prefix="p_")
    yield made
    made.close()


# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "get",
    [
        Get(b"r", columns=[]),
        Get(b"r", families=()),
        Get(b"r", since=5, before=5),
        Get(b"r", since=6, before=5),
        Get(b"r", before=0),
        Get(b"r", versions=0),
        Get(b"r", page=Page(b"d", None, 0)),
        Get(b""),
        Get(bytes(LONGEST + 1)),
    ],
)
def test_a_get_that_selects_nothing_makes_no_call(gateway: FakeGateway, store: HBaseStore, get: Get) -> None:
    assert store.read("t", [get]) == [Row(get.row, [])]
    assert gateway.received == []
    # In a batch it is left out, and the other answers stay with their gets.
    rows = store.read("t", [get, Get(b"a"), get, Get(b"b"), get])
    assert [row.key for row in rows] == [get.row, b"a", get.row, b"b", get.row]
    assert [[one.row for one in received.request.what] for received in gateway.received] == [[b"a", b"b"]]


def test_gets_with_shared_columns_are_sent_with_the_right_ones(gateway: FakeGateway, store: HBaseStore) -> None:
    shared, families = [(b"d", b"q")], [b"c"]
    gets = [
        Get(b"1", columns=shared),
        Get(b"2", columns=shared, versions=7),
        Get(b"3", families=families),
        Get(b"4", page=Page(b"d", b"a'b", 5), before=9),
        Get(b"5"),
        Get(b"6", families=families),
        Get(b"7", columns=[(b"d", b"")]),
    ]
    store.read("t", gets)
    (received,) = gateway.received
    assert received.request.table == b"p_t"
    sent = [
        (
            one.row,
            one.columns and [(column.family, column.qualifier) for column in one.columns],
            one.time_range and (one.time_range.since, one.time_range.before),
            one.versions,
            one.filter,
            one.cells_per_family,
        )
        for one in received.request.what
    ]
    assert sent == [
        (b"1", [(b"d", b"q")], None, None, None, None),
        (b"2", [(b"d", b"q")], None, 7, None, None),
        (b"3", [(b"c", None)], None, None, None, None),
        (b"4", [(b"d", None)], (0, 9), None, b"ColumnRangeFilter('a''b',false,'',true)", 5),
        (b"5", None, None, None, None, None),
        (b"6", [(b"c", None)], None, None, None, None),
        (b"7", [(b"d", b"")], None, None, None, None),
    ]


@pytest.mark.parametrize(
    "scan",
    [
        Scan(b"a", b"a", 5),
        Scan(b"b", b"a", 5),
        Scan(b"", b"", 5),
        Scan(None, b"", 5),
        Scan(b"a", b"a", 5, reverse=True),
        Scan(b"a", b"b", 5, reverse=True),
        Scan(b"", None, 5, reverse=True),
        Scan(b"a", None, 0),
        Scan(None, None, 5, columns=[]),
        Scan(None, None, 5, families=[]),
        Scan(None, None, 5, since=7, before=7),
        Scan(b"\xff" * (LONGEST + 1), None, 5),
        # Both ends are too long for a key and begin with the same key.
        Scan(b"a" * LONGEST + b"c", b"a" * LONGEST + b"b", 5, reverse=True),
    ],
)
def test_an_empty_range_makes_no_call(gateway: FakeGateway, store: HBaseStore, scan: Scan) -> None:
    assert store.scan("t", scan) == []
    assert gateway.received == []


@pytest.mark.parametrize(
    ("scan", "start", "stop"),
    [
        (Scan(None, None, 5), None, None),
        (Scan(b"", None, 5), None, None),
        (Scan(b"a", b"b", 5), b"a", b"b"),
        (Scan(b"b", b"", 5, reverse=True), b"b", None),
        (Scan(None, b"a", 5, reverse=True), None, b"a"),
        # Ends that are longer than a key: the same rows are between them.
        (Scan(b"a" * LONGEST + b"\0", None, 5), b"a" * (LONGEST - 1) + b"b", None),
        (Scan(None, b"a" * LONGEST + b"\0", 5), None, b"a" * (LONGEST - 1) + b"b"),
        (Scan(b"a" + b"\xff" * LONGEST, None, 5), b"b", None),
        (Scan(b"a", b"\xff" * (LONGEST + 1), 5), b"a", None),
        (Scan(b"b" * (LONGEST + 1), b"a" * (LONGEST + 1), 5, reverse=True), b"b" * LONGEST, b"a" * LONGEST),
    ],
)
def test_the_ends_of_a_range_as_they_are_sent(
    gateway: FakeGateway, store: HBaseStore, scan: Scan, start: bytes | None, stop: bytes | None
) -> None:
    store.scan("t", scan)
    sent = gateway.received[0].request.what
    assert (sent.start, sent.stop, sent.reverse) == (start, stop, scan.reverse or None)
    assert (sent.limit, sent.caching, gateway.received[0].request.rows) == (scan.limit,) * 3


def test_a_scan_with_too_large_a_limit_is_rejected(gateway: FakeGateway, store: HBaseStore) -> None:
    with pytest.raises(LimitError, match=str(MAX_SCAN)):
        store.scan("t", Scan(None, None, 2**31 - 1))
    assert gateway.received == []


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_delete_without_cells_does_not_delete_the_row(gateway: FakeGateway, store: HBaseStore) -> None:
    store.delete("t", [Delete(b"r", [])])
    assert gateway.received == []
    store.delete("t", [Delete(b"r", []), Delete(b"s", [CellVersion(b"d", b"q", 5)]), Delete(b"", [])])
    (received,) = gateway.received
    assert (received.method, received.request.what.row) == ("deleteSingle", b"s")


def test_only_the_given_version_is_deleted(gateway: FakeGateway, store: HBaseStore) -> None:
    cells = [CellVersion(b"d", b"q", 5), CellVersion(b"c", b"", 0)]
    store.delete("t", [Delete(b"r", cells)])
    sent = gateway.received[0].request.what
    assert sent.kind == 0
    assert [(one.family, one.qualifier, one.timestamp) for one in sent.columns] == cells


def test_ranges_of_versions_end_below_the_given_timestamp(gateway: FakeGateway, store: HBaseStore) -> None:
    cells = [CellVersion(b"d", b"q", 5), CellVersion(b"c", b"", 0)]
    store.delete_below(
        "t", [DeleteBelow(b"r", cells, [(b"c", 7), (b"d", 0)]), DeleteBelow(b"", cells), DeleteBelow(b"s")]
    )
    sent = [
        (one.row, one.kind, [(*map(vars(part).get, ("family", "qualifier", "timestamp")),) for part in one.columns])
        for one in gateway.received[0].request.what
    ]
    assert sent == [(b"r", 1, [(b"d", b"q", 4)]), (b"r", 2, [(b"c", None, 6)])]


def test_rows_are_deleted_up_to_the_highest_timestamp_or_the_given_one(gateway: FakeGateway, store: HBaseStore) -> None:
    store.delete_rows("t", [b"a", b"", b"b"])
    store.delete_rows("t", [b"a", b"", b"b"], before=77)
    sent = [[(one.row, one.columns, one.timestamp) for one in received.request.what] for received in gateway.received]
    assert sent == [[(b"a", None, at), (b"b", None, at)] for at in (2**63 - 2, 76)]


@pytest.mark.parametrize("key", [10, LONGEST])
def test_the_size_of_a_cell_includes_its_key(gateway: FakeGateway, store: HBaseStore, key: int) -> None:
    value = bytes(store.limits.cell)
    fits = len(value) + 2 * key + 200 < MAX_CELL
    put = Put(b"r" * key, [NewCell(b"d", b"q" * key, value)])
    if fits:
        store.write("t", [put])
    else:
        with pytest.raises(LimitError, match="its key included"):
            store.write("t", [put])
    assert len(gateway.received) == fits


def test_comparing_with_an_empty_value_is_rejected(gateway: FakeGateway, store: HBaseStore) -> None:
    with pytest.raises(InvalidValueError, match="empty"):
        store.check_and_write("t", (b"d", b"q"), b"", Put(b"r", [NewCell(b"d", b"q", b"x")]))
    assert gateway.received == []


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.read("t", [Get(b"r"), Get(b"s")]),
        lambda store: store.read("t", [Get(b"r")]),
        lambda store: store.write("t", [Put(b"r", [NewCell(b"d", b"q", b"x")])]),
        lambda store: store.write("t", [Put(b"r", [NewCell(b"d", b"q", b"x")])] * 3),
        lambda store: store.check_and_write("t", (b"d", b"q"), None, Put(b"r", [NewCell(b"d", b"q", b"x")])),
        lambda store: store.delete("t", [Delete(b"r", [CellVersion(b"d", b"q", 5)])]),
    ],
)
def test_each_call_is_one_round_trip(
    gateway: FakeGateway, store: HBaseStore, call: Callable[[HBaseStore], object]
) -> None:
    call(store)
    assert len(gateway.received) == 1


# --- names and errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "cms_", "a.b-c", "_x", "ns:", "ns:cms_", "9"])
def test_prefixes_that_hbase_allows(prefix: str) -> None:
    names = TableNames(prefix)
    assert names.data("nodes") == prefix.encode() + b"nodes"
    admin = names.admin("nodes")
    assert b":".join(filter(None, [admin.name_space, admin.qualifier])) == prefix.encode() + b"nodes"


@pytest.mark.parametrize("prefix", ["-a", ".a", "a/b", "a b", "ns:-a", "n-s:a", ":a", "a:b:c", "ä", "a\n", "a\0"])
def test_prefixes_that_hbase_does_not_allow(prefix: str) -> None:
    with pytest.raises(InvalidValueError):
        HBaseStore([Address("127.0.0.1")], prefix=prefix)


def test_the_location_is_the_url_of_the_repository() -> None:
    assert HBaseStore([Address("db")], prefix="cms_").location == "hbase://db:9090/?prefix=cms_"
    assert HBaseStore([Address("::1", 9091)]).location == "hbase://[::1]:9091/"


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": -1}, {"connect_timeout": 0}, {"pool_size": 0}])
def test_invalid_options_are_rejected(options: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        HBaseStore([Address("127.0.0.1")], **options)  # type: ignore[arg-type]


JAVA = "org.apache.hadoop.hbase."
STACK = (
    f"\n\tat {JAVA}ipc.RpcException.call(RpcServer.java:443)\nCaused by: {JAVA}ipc.CallTimeoutException: x"
    "\n\t... 3 more\n"
)


def attempts(*failures: str) -> str:
    """Return the message of HBase's client after several attempts of a call."""
    lines = [f"2026-11-27T17:0{n}:00Z, RpcRetryingCaller{{pause=100}}, {JAVA}{one}" for n, one in enumerate(failures)]
    return "\n".join(
        [f"{JAVA}client.RetriesExhaustedException: Failed after attempts={len(lines)}, exceptions:", *lines]
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("p_t", "the table does not exist"),
        ("Failed 2 actions: p_t: 2 times, servers with issues: null", "the table does not exist"),
        (f"{JAVA}TableNotFoundException: p_t\n\tat {JAVA}master.HMaster.check(HMaster.java:1)", "create the tables"),
        (f"{JAVA}TableNotEnabledException: p_t", "enable the table"),
        (f"Failed 1 action: {JAVA}regionserver.NoSuchColumnFamilyException: Column family x", "another prefix"),
        (f"{JAVA}security.AccessDeniedException: Insufficient permissions", "right"),
        (f"{JAVA}exceptions.FailedSanityCheckException: Timestamp for KV out of range", "slop.millisecs"),
        (f"{JAVA}NamespaceNotFoundException: ns", "namespace"),
        (f"{JAVA}security.AccessDeniedException: Insufficient permissions{STACK}", "right"),
        (f"Failed 2 actions: {JAVA}regionserver.NoSuchColumnFamilyException: x{STACK}\n: 2 times", "another prefix"),
        (attempts("security.AccessDeniedException: no", f"security.AccessDeniedException: no{STACK}"), "right"),
    ],
)
@pytest.mark.parametrize("effect", [False, True])
def test_a_permanent_failure_is_reported_as_unusable(text: str, advice: str, effect: bool) -> None:
    error = from_hbase(text, "here", "p_t", effect)
    assert isinstance(error, StoreUnusableError)
    assert advice in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        # HBase's client says this only of a table that it finds disabled before it repeats a call.
        ("p_t is disabled.", "enable the table"),
        (attempts("ipc.CallTimeoutException: Call[id=1]", "TableNotEnabledException: p_t is disabled."), "enable the"),
        (attempts("NotServingRegionException: p_t", f"security.AccessDeniedException: no{STACK}"), "grant"),
        (attempts(f"ipc.CallTimeoutException: x{STACK}", "TableNotFoundException: p_t"), "create the tables"),
        ("Failed 2 actions: p_t: 1 time, CallTimeoutException: 1 time, servers with issues: null", "create the tables"),
        (f"Failed 2 actions: {JAVA}security.AccessDeniedException: no{STACK}: 1 time, IOException: 1 time", "grant"),
    ],
)
def test_a_refusal_after_an_attempt_that_may_have_been_applied_leaves_a_write_unknown(text: str, advice: str) -> None:
    error = from_hbase(text, "here", "p_t", effect=True)
    assert isinstance(error, StoreUnknownError)
    assert advice in error.message
    assert "may have been applied" in error.message
    assert "\n" not in error.message
    read = from_hbase(text, "here", "p_t", effect=False)
    assert isinstance(read, StoreUnusableError)
    assert advice in read.message


@pytest.mark.parametrize(
    "text",
    [
        f"{JAVA}PleaseHoldException: Master is initializing",
        f"{JAVA}RegionTooBusyException: over memstore limit",
        f"{JAVA}NotServingRegionException: p_t,,1",
        "Failed after attempts=16, exceptions:\n2026, java.net.ConnectException: refused",
        f"{JAVA}client.RetriesExhaustedException: p_t_other",
        "",
    ],
)
def test_a_transient_failure_leaves_reads_not_applied_and_writes_unknown(text: str) -> None:
    assert isinstance(from_hbase(text, "here", "p_t", effect=False), StoreNotAppliedError)
    assert isinstance(from_hbase(text, "here", "p_t", effect=True), StoreUnknownError)


def test_an_hbase_that_is_starting_is_named() -> None:
    error = from_hbase(f"{JAVA}PleaseHoldException: Master is initializing", "here", "p_t", effect=False)
    assert "starting" in error.message
