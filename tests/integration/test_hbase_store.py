"""The HBase store beyond the store contract, on a real HBase: settings of tables, lost replies, restarts, threads, forks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
import thriftpy2
from thriftpy2.rpc import client_context

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, NewCell, Put, Row, Scan, Table
from hbasemk.store.hbase import COMPRESSIONS, Address, HBaseStore, gateway
from hbasemk.store.hbase.store import MAX_CELL
from hbasemk.testing.store.base import together
from tests.support.gateway_processes import gateway_process
from tests.support.hbase import HBase
from tests.support.proxy import Proxy, proxy

pytestmark = pytest.mark.integration

TABLE = Table("cells", (b"c", b"d"), ALL_VERSIONS)
ID = 7_350_000_000_000_000_000

ADMIN = """
struct TableName { 1: optional binary space, 2: required binary qualifier }
struct Family { 1: required binary name, 8: optional i32 encoding, 9: optional i32 keep_deleted,
                10: optional i32 versions, 13: optional i32 time_to_live }
struct Descriptor { 1: required TableName name, 2: optional list<Family> families,
                    3: optional map<binary, binary> attributes }
exception Failed { 1: optional binary message }
service Admin {
    void createTable(1: Descriptor table, 2: list<binary> keys) throws (1: Failed error)
    void disableTable(1: TableName table) throws (1: Failed error)
}
"""
admin: Any = thriftpy2.load_fp(StringIO(ADMIN), "tests_admin_thrift")


@pytest.fixture(scope="module")
def prefix() -> str:
    return f"store_{os.urandom(4).hex()}_"


@pytest.fixture(scope="module")
def store(hbase_server: HBase, prefix: str) -> Iterator[HBaseStore]:
    made = HBaseStore([Address(hbase_server.host, hbase_server.thrift2)], prefix=prefix)
    made.create_tables([TABLE])
    yield made
    made.drop_tables([TABLE])
    made.close()


@pytest.fixture
def line(hbase_server: HBase) -> Iterator[Proxy]:
    with proxy(hbase_server.host, hbase_server.thrift2) as made:
        yield made


@pytest.fixture
def proxied(line: Proxy, store: HBaseStore, prefix: str) -> Iterator[HBaseStore]:
    """A store on the same tables whose line can be cut."""
    made = HBaseStore([Address("127.0.0.1", line.port)], prefix=prefix)
    made.read("cells", [Get(b"r")])
    yield made
    made.close()


@pytest.fixture
def row() -> bytes:
    return os.urandom(8)


def put(row: bytes, value: bytes = b"x", timestamp: int | None = None) -> Put:
    return Put(row, [NewCell(b"d", b"q", value, timestamp)])


def values(store: HBaseStore, row: bytes) -> list[bytes]:
    return [cell.value for cell in store.read("cells", [Get(row, versions=ALL_VERSIONS)])[0].cells]


# --- tables --------------------------------------------------------------------------------------------------------


@pytest.fixture
def make(hbase_server: HBase, prefix: str, store: HBaseStore) -> Iterator[Callable[..., Table]]:
    """Creates tables with given settings, as another program would."""
    made: list[Table] = []

    def call(method: str, *arguments: object) -> None:
        with client_context(admin.Admin, hbase_server.host, hbase_server.thrift2, socket_timeout=60_000) as client:
            getattr(client, method)(*arguments)

    def make_one(*, attributes: dict[bytes, bytes] | None = None, disabled: bool = False, **settings: int) -> Table:
        table = Table(f"made{len(made)}", (b"d",), 1)
        made.append(table)
        name = admin.TableName(qualifier=(prefix + table.name).encode())
        family = admin.Family(name=b"d", **{"versions": 1, "encoding": gateway.ROW_INDEX_V1, **settings})
        call("createTable", admin.Descriptor(name, [family], attributes), [])
        if disabled:
            call("disableTable", name)
        return table

    yield make_one
    store.drop_tables(made)


def test_tables_are_created_with_the_settings_that_polls_and_histories_need(store: HBaseStore) -> None:
    found = store._tables._describe([TABLE])["cells"]
    assert sorted(family.name for family in found.families) == [b"c", b"d"]
    for family in found.families:
        assert family.versions == 2**31 - 1
        assert family.block_encoding == gateway.ROW_INDEX_V1
        assert family.bloom_filter == gateway.BLOOM_ROW
        assert family.compression == COMPRESSIONS["NONE"]
        assert family.time_to_live == gateway.FOREVER
        assert not family.keep_deleted


def test_an_hbase_that_limits_timestamps_is_refused_when_tables_are_created(
    store: HBaseStore, make: Callable[..., Table]
) -> None:
    setting = "hbase.hregion.keyvalue.timestamp.slop.millisecs"
    table = make(attributes={setting.encode(): b"10000"})
    store.verify([table])
    with pytest.raises(StoreUnusableError, match=setting) as raised:
        store.create_tables([table])
    assert table.name in raised.value.message
    store.write(table.name, [put(b"r")])
    with pytest.raises(StoreUnusableError, match=setting):
        store.write(table.name, [put(b"r", timestamp=ID)])
    with pytest.raises(StoreUnusableError, match=setting):
        store.write(table.name, [put(b"r", timestamp=ID), put(b"s")])


def test_the_timestamp_probe_leaves_no_cell(store: HBaseStore, make: Callable[..., Table]) -> None:
    table = make()
    store.probe_timestamp(table, ID)
    store.probe_timestamp(table, 2**63 - 2)
    assert store.scan(table.name, Scan(None, None, 10, versions=ALL_VERSIONS)) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"time_to_live": 3600}, "TTL.*3600"),
        ({"keep_deleted": 1}, "KEEP_DELETED_CELLS"),
        ({"versions": 5}, "VERSIONS.*5"),
        ({"disabled": True}, "disabled"),
    ],
)
def test_settings_that_change_reads_are_rejected_by_name(
    store: HBaseStore, prefix: str, make: Callable[..., Table], settings: dict[str, int], named: str
) -> None:
    table = make(**settings)
    for check in (store.verify, store.create_tables):
        with pytest.raises(StoreUnusableError, match=named) as raised:
            check([TABLE, table])
        assert prefix + table.name in raised.value.message


def test_a_slow_block_encoding_causes_a_warning(
    store: HBaseStore, make: Callable[..., Table], caplog: pytest.LogCaptureFixture
) -> None:
    store.verify([make(encoding=4)])
    assert "FAST_DIFF" in caplog.text


def test_each_call_on_a_disabled_table_raises_an_error_that_says_so(
    store: HBaseStore, make: Callable[..., Table]
) -> None:
    table = make(disabled=True)
    for read in (
        lambda: store.read(table.name, [Get(b"r")]),
        lambda: store.scan(table.name, Scan(None, None, 5)),
    ):
        with pytest.raises(StoreUnusableError, match="disabled"):
            read()
    # HBase's client finds it before it repeats a call, and does not tell whether its first attempt was applied.
    for write in (
        lambda: store.write(table.name, [put(b"r")]),
        lambda: store.check_and_write(table.name, (b"d", b"q"), None, put(b"r")),
    ):
        with pytest.raises(StoreUnknownError, match="disabled"):
            write()


def test_an_empty_list_of_tables_makes_no_call(store: HBaseStore) -> None:
    store.create_tables([])
    store.verify([])
    store.drop_tables([])
    store.verify([TABLE])


def test_a_namespace_that_is_missing_is_named(hbase_server: HBase) -> None:
    store = HBaseStore([Address(hbase_server.host, hbase_server.thrift2)], prefix="nowhere:cms_")
    with pytest.raises(StoreUnusableError, match="namespace"):
        store.create_tables([TABLE])
    with pytest.raises(StoreUnusableError, match="nowhere:cms_cells"):
        store.verify([TABLE])
    with pytest.raises(StoreUnusableError, match="nowhere:cms_cells"):
        store.read("cells", [Get(b"r")])
    store.drop_tables([TABLE])
    store.close()


def test_the_default_namespace_may_be_named(hbase_server: HBase, store: HBaseStore, prefix: str, row: bytes) -> None:
    other = HBaseStore([Address(hbase_server.host, hbase_server.thrift2)], prefix="default:" + prefix)
    other.verify([TABLE])
    other.write("cells", [put(row)])
    assert values(store, row) == [b"x"]
    other.close()


def test_the_thrift1_gateway_is_refused_by_name(hbase_server: HBase) -> None:
    if hbase_server.thrift1 is None:
        pytest.skip("HBASEMK_TEST_HBASE_THRIFT1 is not set")
    store = HBaseStore([Address(hbase_server.host, hbase_server.thrift1)])
    with pytest.raises(StoreUnusableError, match="Thrift1"):
        store.verify([TABLE])
    store.close()


# --- limits --------------------------------------------------------------------------------------------------------


def test_hbase_accepts_the_largest_allowed_cell(store: HBaseStore, row: bytes) -> None:
    long = row.ljust(store.limits.row_key, b"k")
    room = MAX_CELL - len(long) - 2 - 64
    store.write("cells", [Put(long, [NewCell(b"d", b"q", bytes(room - 1))])])
    assert [len(value) for value in values(store, long)] == [room - 1]
    store.delete_rows("cells", [long])


def test_ends_longer_than_a_key_bound_the_range_of_the_longest_keys(store: HBaseStore, row: bytes) -> None:
    keys = [row.ljust(store.limits.row_key, fill) for fill in (b"a", b"b", b"\xff")]
    store.write("cells", [put(key) for key in keys])

    def scan(start: bytes, stop: bytes, reverse: bool = False) -> list[int]:
        found = store.scan("cells", Scan(start, stop, 10, reverse=reverse))
        return [keys.index(one.key) for one in found]

    end = row + b"\xff" * 40_000
    assert scan(row, end) == [0, 1, 2]
    assert scan(keys[0] + b"\0", end) == [1, 2]
    assert scan(keys[2] + b"\0", end) == []
    assert scan(row, keys[1] + b"\0") == [0, 1]
    assert scan(end, row, reverse=True) == [2, 1, 0]
    assert scan(keys[1] + b"\0", keys[0] + b"\0", reverse=True) == [1]
    store.delete_rows("cells", keys)


def test_a_row_that_was_deleted_up_to_a_revision_can_be_written_with_later_ones(store: HBaseStore, row: bytes) -> None:
    store.write("cells", [put(row, b"old", ID), put(row, b"new", ID + 10)])
    store.delete_rows("cells", [row], before=ID + 5)
    assert values(store, row) == [b"new"]
    store.write("cells", [put(row, b"newer", ID + 11), put(row, b"first", ID + 5)])
    assert values(store, row) == [b"newer", b"new", b"first"]


# --- lost answers ----------------------------------------------------------------------------------------------------


def test_a_write_whose_answer_is_lost_is_unknown_and_was_applied(
    store: HBaseStore, proxied: HBaseStore, line: Proxy, row: bytes
) -> None:
    line.cut = "after"
    with pytest.raises(StoreUnknownError, match="may have been applied"):
        proxied.write("cells", [put(row)])
    assert values(store, row) == [b"x"]
    line.cut = "after"
    with pytest.raises(StoreUnknownError):
        proxied.check_and_write("cells", (b"d", b"q"), b"x", put(row, b"y"))
    assert values(store, row)[0] == b"y"
    assert line.cuts == {"after": 2}


def test_a_write_that_is_lost_on_its_way_is_unknown_and_was_not_applied(
    store: HBaseStore, proxied: HBaseStore, line: Proxy, row: bytes
) -> None:
    line.cut = "before"
    with pytest.raises(StoreUnknownError):
        proxied.write("cells", [put(row), put(row + b"2")])
    assert values(store, row) == []
    proxied.write("cells", [put(row)])
    assert values(store, row) == [b"x"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_an_interrupted_read_is_retried_silently(
    store: HBaseStore, proxied: HBaseStore, line: Proxy, row: bytes, cut: str
) -> None:
    store.write("cells", [put(row)])
    for read in (
        lambda: proxied.read("cells", [Get(row)]),
        lambda: proxied.read("cells", [Get(row), Get(row)])[:1],
        lambda: proxied.scan("cells", Scan(row, row + b"\0", 5)),
    ):
        line.cut = cut
        assert [cell.value for cell in read()[0].cells] == [b"x"]
    assert line.cuts.total() == 3


def test_calls_are_not_applied_while_the_gateway_is_down_and_succeed_afterwards(
    store: HBaseStore, proxied: HBaseStore, line: Proxy, row: bytes
) -> None:
    together([lambda: proxied.read("cells", [Get(row)])] * 4)
    line.down = True
    line.drop_all()
    for _ in range(3):
        with pytest.raises(StoreNotAppliedError):
            proxied.write("cells", [put(row)])
        with pytest.raises(StoreNotAppliedError):
            proxied.read("cells", [Get(row)])
    assert values(store, row) == []
    line.down = False
    proxied.write("cells", [put(row)])
    assert values(proxied, row) == [b"x"]


def test_a_gateway_that_is_killed_under_load_and_comes_back(hbase: HBase, row: bytes) -> None:
    with gateway_process(hbase) as gateway:
        gateway.until_ready()
        store = HBaseStore([Address(hbase.host, gateway.port)], prefix=hbase.new_prefix(), timeout=10)
        store.create_tables([TABLE])
        errors: list[StoreError] = []
        done: list[bytes] = []

        def work(thread: int) -> None:
            turn = 0
            while len(errors) < 40 or turn < 50:
                key = row + b"%d/%d" % (thread, turn)
                turn += 1
                try:
                    store.write("cells", [put(key, key)])
                    done.append(key)
                except StoreError as error:
                    errors.append(error)

        try:
            workers = [lambda thread=thread: work(thread) for thread in range(4)]  # type: ignore[misc]
            together([*workers, lambda: gateway.signal("KILL")])
            assert errors
            assert all(isinstance(error, (StoreNotAppliedError, StoreUnknownError)) for error in errors)
            gateway.start()
            gateway.until_ready()
            rows = store.read("cells", [Get(key) for key in done])
            assert [[cell.value for cell in found.cells] for found in rows] == [[key] for key in done]
            store.drop_tables([TABLE])
        finally:
            store.close()


# --- threads and forks -----------------------------------------------------------------------------------------------


def test_sixteen_threads_on_one_store_get_their_own_answers(store: HBaseStore, row: bytes) -> None:
    keys = [row + b"%03d" % number for number in range(100)]
    store.write("cells", [put(key, key, 5) for key in keys])

    def work(thread: int) -> None:
        for turn in range(60):
            at = (thread * 7 + turn) % 90
            key = keys[at]
            assert store.read("cells", [Get(key)]) == [Row(key, [Cell(b"d", b"q", 5, key)])]
            two = store.read("cells", [Get(keys[at + 1]), Get(key)])
            assert [found.key for found in two] == [keys[at + 1], key]
            three = store.scan("cells", Scan(key, None, 3))
            assert [found.cells[0].value for found in three] == keys[at : at + 3]

    together([lambda thread=thread: work(thread) for thread in range(16)])  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_and_parent_read_at_once_and_get_their_own_answers(store: HBaseStore, row: bytes) -> None:
    store.write("cells", [put(row + b"%d" % number, b"%d" % number) for number in range(5)])

    def reads(number: int) -> bool:
        return all(values(store, row + b"%d" % number) == [b"%d" % number] for _ in range(100))

    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                right = reads(number)
                store.close()
                os._exit(0 if right else 3)
            finally:
                os._exit(4)
        children.append(child)
    assert reads(4)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert reads(4)
