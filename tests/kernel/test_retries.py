"""Each idempotent call is retried in one place, and a call inside an operation that is retried as a whole is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.format import schema
from hbasemk.kernel import log
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import rows as journal_rows
from hbasemk.kernel.read_sizes import GROW_AFTER
from hbasemk.kernel.retry import TimeLimit, run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import CellVersion, CheckAndWrite, Decision, Delete, DeleteBelow, Get, NewCell, Put, Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.joint import JointStore
from tests.support.runtime import TestRuntime, World, open_instance

NAME = (schema.DATA, b"name")


class Small(MemoryStore):
    """A store with small calls."""

    @property
    def batch_rows(self) -> int:
        return 4

    @property
    def batch_bytes(self) -> int:
        return 300


class Short(MemoryStore):
    """A store whose calls have few bytes."""

    @property
    def batch_bytes(self) -> int:
        return 10_000


class Refused:
    """Refuses the first calls, and counts all."""

    def __init__(self, store: FaultyStore, times: int, error: Callable[[Call], StoreError] | None = None) -> None:
        self.calls: list[Call] = []
        self.times = times
        self.error = error or (lambda call: StoreNotAppliedError(f"{call.method} was refused"))
        store.before = self

    def __call__(self, call: Call) -> None:
        self.calls.append(call)
        if len(self.calls) <= self.times:
            raise self.error(call)


def made(inner: MemoryStore) -> tuple[FaultyStore, RetryingStore, TestRuntime]:
    inner.create_tables(schema.TABLES)
    store = FaultyStore(inner)
    runtime = TestRuntime(World(), retry_timeout=5.0)
    return store, RetryingStore(store, runtime), runtime


def put(number: int, value: bytes = b"x") -> Put:
    return Put(b"row%03d" % number, [NewCell(*NAME, value)])


CALLS: dict[str, Callable[[RetryingStore], object]] = {
    "read": lambda store: store.read(schema.NODES, [Get(b"row000")]),
    "scan": lambda store: store.scan(schema.NODES, Scan(None, None, 10)),
    "write": lambda store: store.write(schema.NODES, [put(0)]),
    "check_and_write": lambda store: store.check_and_write(schema.NODES, NAME, None, put(0)),
    "write_if": lambda store: store.write_if(
        schema.NODES, [put(1)], [], lambda _: True, Decision(schema.NODES, NAME, b"old", put(0))
    ),
    "delete": lambda store: store.delete(schema.NODES, [Delete(b"row000", [CellVersion(*NAME, 1)])]),
    "delete_below": lambda store: store.delete_below(schema.NODES, [DeleteBelow(b"row000", [CellVersion(*NAME, 1)])]),
    "delete_rows": lambda store: store.delete_rows(schema.NODES, [b"row000"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_retried(name: str) -> None:
    store, retrying, _ = made(MemoryStore(transactions=True))
    refused = Refused(store, 3)
    CALLS[name](retrying)
    assert [call.method for call in refused.calls] == [name] * 4


@pytest.mark.parametrize("name", CALLS)
def test_retries_do_not_nest(name: str) -> None:
    store, retrying, runtime = made(MemoryStore(transactions=True))
    refused = Refused(store, 3)
    attempts: list[int] = []

    def operation() -> None:
        attempts.append(len(refused.calls))
        run_with_retries(runtime, lambda: CALLS[name](retrying))

    run_with_retries(runtime, operation)
    assert attempts == [0, 1, 2, 3]
    assert len(refused.calls) == 4


def test_a_call_made_once_is_not_retried() -> None:
    store, retrying, _ = made(MemoryStore())
    refused = Refused(store, 3)
    with pytest.raises(StoreNotAppliedError):
        retrying.once.write(schema.NODES, [put(0)])
    assert len(refused.calls) == 1


@pytest.mark.parametrize("nested", [False, True])
def test_an_unknown_outcome_stays_unknown_though_the_last_attempt_was_refused(nested: bool) -> None:
    store, retrying, runtime = made(MemoryStore())
    doubts: list[bool] = []
    calls: list[Call] = []

    def before(call: Call) -> None:
        calls.append(call)
        raise StoreUnknownError("no answer") if len(calls) == 2 else StoreNotAppliedError("refused")

    store.before = before

    def write() -> None:
        retrying.write(schema.NODES, [put(0)], in_doubt=lambda: doubts.append(True))

    with pytest.raises(StoreUnknownError, match="no answer"), TimeLimit(runtime, 1.0):
        run_with_retries(runtime, write) if nested else write()
    assert doubts == [True]
    assert len(calls) > 3


def test_calls_are_divided_by_rows_and_bytes() -> None:
    store, retrying, _ = made(Small())
    counted = Refused(store, 0)
    between: list[int] = []
    retrying.write(schema.NODES, [put(n) for n in range(10)], between=lambda: between.append(len(counted.calls)))
    assert [call.rows for call in counted.calls] == [4, 4, 2]
    assert between == [1, 2]
    counted.calls.clear()
    assert len(retrying.read(schema.NODES, [Get(b"row%03d" % n) for n in range(10)])) == 10
    assert [call.rows for call in counted.calls] == [4, 4, 2]
    counted.calls.clear()
    retrying.write(schema.NODES, [put(n, b"v" * 150) for n in range(3)])
    assert [call.rows for call in counted.calls] == [1, 1, 1]
    counted.calls.clear()
    retrying.delete(schema.NODES, [Delete(b"row%03d" % n, [CellVersion(*NAME, 1)]) for n in range(6)])
    assert [call.rows for call in counted.calls] == [4, 2]
    counted.calls.clear()
    assert retrying.read(schema.NODES, []) == []
    assert counted.calls == []


@pytest.mark.parametrize(
    ("gets", "sizes"),
    [
        ([Get(b"row%03d" % n) for n in range(100)], [100]),
        ([Get(b"row%03d" % n, columns=(NAME,)) for n in range(100)], [100]),
        ([Get(b"k" * 2_000 + b"%03d" % n) for n in range(18)], [4, 14]),
        ([Get(b"k" * 20_000 + b"%03d" % n) for n in range(18)], [1, 1, 16]),
        ([Get(b"%d" % n, columns=[(b"d", b"q%0100d" % q) for q in range(60)]) for n in range(5)], [1] * 5),
    ],
    ids=["short keys", "short qualifiers", "long keys", "keys above the limit", "many qualifiers"],
)
def test_reads_are_divided_by_the_bytes_of_the_request(gets: list[Get], sizes: list[int]) -> None:
    store, retrying, _ = made(Short())
    retrying.write(schema.NODES, [Put(get.row, [NewCell(*NAME, b"x")]) for get in gets])
    counted = Refused(store, 0)
    assert [row.key for row in retrying.read(schema.NODES, gets)] == [get.row for get in gets]
    assert [call.rows for call in counted.calls] == sizes


def test_a_get_of_many_columns_is_divided_and_its_row_is_whole() -> None:
    store, retrying, _ = made(Short())
    columns = [(family, b"%0100d" % number) for family in (b"d", b"c") for number in range(200, 0, -1)]
    retrying.write(schema.NODES, [Put(b"wide", [NewCell(*column, b"x", at) for column in columns for at in (1, 2)])])
    counted = Refused(store, 0)
    wide = Get(b"wide", columns=[*columns, columns[0]], versions=2)
    found = retrying.read(schema.NODES, [Get(b"none"), wide, Get(b"wide", columns=columns[:1])])
    assert found == store.inner.read(schema.NODES, [Get(b"none"), wide, Get(b"wide", columns=columns[:1])])
    assert [len(row.cells) for row in found] == [0, 800, 1]
    assert len(counted.calls) > 5


@pytest.mark.parametrize(
    "gets",
    [
        [Get(b"k" * 900 + b"%03d" % n) for n in range(20)],
        [Get(b"r", columns=[(b"d", b"%0900d" % n) for n in range(20)])],
    ],
    ids=["many keys", "many columns"],
)
def test_reads_that_do_not_fit_one_call_follow_the_write(gets: list[Get]) -> None:
    store, retrying, _ = made(Short())
    counted = Refused(store, 0)
    rows = retrying.write_and_read(schema.NODES, [put(0)], gets)
    assert [row.key for row in rows] == [get.row for get in gets]
    assert [call.method for call in counted.calls] == ["write", "read", "read"]


def test_the_last_of_several_writes_is_sent_with_the_read() -> None:
    joined: list[int] = []

    class Joining(Small):
        def write_and_read(
            self, table: str, puts: Sequence[Put], gets: Sequence[Get], *, durable: bool = True
        ) -> list[Row]:
            joined.append(len(puts))
            return super().write_and_read(table, puts, gets, durable=durable)

    inner = Joining()
    inner.create_tables(schema.TABLES)
    retrying = RetryingStore(inner, TestRuntime(World(), retry_timeout=5.0))
    between: list[int] = []
    for count, last in ((10, 2), (8, 4), (1, 1)):
        puts = (put(number) for number in range(count))
        rows = retrying.write_and_read(
            schema.NODES, puts, [Get(b"row000")], between=lambda: between.append(len(joined))
        )
        assert [row.key for row in rows] == [b"row000"]
        assert rows[0].cells[0].value == b"x"
        assert joined.pop() == last
    assert joined == []
    assert between == [0, 0, 0]
    (row,) = retrying.write_and_read(schema.NODES, [], [Get(b"row007")])
    assert row.cells
    assert joined == []


@pytest.mark.parametrize("failing", ["write", "read"])
def test_after_a_failure_the_write_and_the_read_are_made_one_by_one(failing: str) -> None:
    store, retrying, _ = made(MemoryStore())
    calls: list[str] = []
    doubts: list[bool] = []

    def after(call: Call) -> None:
        calls.append(call.method)
        if call.method == failing and calls.count(failing) <= 2:
            raise lost_reply(call) if failing == "write" else StoreNotAppliedError("refused")

    store.after = after
    (row,) = retrying.write_and_read(schema.NODES, [put(0)], [Get(b"row000")], in_doubt=lambda: doubts.append(True))
    assert row.cells[0].value == b"x"
    assert calls == (["write"] * 3 + ["read"] if failing == "write" else ["write", "read", "write", "read", "read"])
    assert doubts == ([True, True] if failing == "write" else [])


@pytest.mark.parametrize("failing", [None, "check_and_write", "read"])
def test_after_a_failure_the_compare_and_set_and_the_read_are_made_one_by_one(failing: str | None) -> None:
    joined: list[Get] = []

    class Joining(FaultyStore):
        def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
            joined.append(get)
            return super().check_and_write_then_read(check, table, get)

    store = Joining(MemoryStore())
    store.create_tables(schema.TABLES)
    retrying = RetryingStore(store, TestRuntime(World(), retry_timeout=5.0))
    calls: list[str] = []

    def after(call: Call) -> None:
        calls.append(call.method)
        if call.method == failing and calls.count(failing) <= 2:
            raise lost_reply(call)

    store.after = after
    is_applied, row = retrying.check_and_write_then_read(
        CheckAndWrite(schema.NODES, NAME, None, put(0)), schema.NODES, Get(b"row000")
    )
    assert row.cells[0].value == b"x"
    # The first attempt was applied, so a later one answers False.
    assert is_applied == (failing is None)
    assert len(joined) == 1
    if failing == "check_and_write":
        assert calls == ["check_and_write"] * 3 + ["read"]
    elif failing == "read":
        assert calls == ["check_and_write", "read", "check_and_write", "read", "read"]
    else:
        assert calls == ["check_and_write", "read"]


def test_each_lost_reply_of_two_joint_calls_is_reported() -> None:
    store = JointStore(MemoryStore())
    store.create_tables(schema.TABLES)
    retrying = RetryingStore(store, TestRuntime(World()))
    first, second = (CheckAndWrite(table, NAME, None, put(0)) for table in (schema.NODES, schema.JOURNAL))

    def fail(call: Call) -> None:
        if call.table == schema.NODES:
            raise StoreUnusableError("refused for good")

    def lose(call: Call) -> None:
        raise lost_reply(call)

    store.before, store.after = fail, lose
    lost: list[None] = []
    with pytest.raises(StoreUnusableError, match="refused for good"):
        retrying.check_and_write_each(first, second, lambda: lost.append(None))
    assert len(lost) == 1


def timeout(call: Call) -> StoreError:
    error = StoreNotAppliedError(f"{call.method}: no answer in time")
    error.__cause__ = TimeoutError()
    return error


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 9, 10, 11, 100])
@pytest.mark.parametrize("times", [0, 1, 2, 3, 7])
def test_a_scan_that_times_out_continues_with_fewer_rows(reverse: bool, limit: int, times: int) -> None:
    inner = MemoryStore()
    store, retrying, _ = made(inner)
    inner.write(schema.NODES, [put(number) for number in range(10)])
    scan = Scan(b"row009" if reverse else None, None, limit, reverse=reverse)
    expected = inner.scan(schema.NODES, scan)
    assert len(expected) == min(limit, 10)
    refused = Refused(store, times, timeout)
    assert retrying.scan(schema.NODES, scan) == expected
    assert times or len(refused.calls) == 1


def test_a_read_that_times_out_continues_with_fewer_rows() -> None:
    inner = MemoryStore()
    store, retrying, _ = made(inner)
    inner.write(schema.NODES, [put(number) for number in range(10)])
    gets = [Get(b"row%03d" % number) for number in range(10)]
    refused = Refused(store, 2, timeout)
    assert retrying.read(schema.NODES, gets) == inner.read(schema.NODES, gets)
    assert [call.rows for call in refused.calls] == [10, 5, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("is_scan", [False, True])
def test_an_operation_that_is_retried_as_a_whole_reads_fewer_rows_after_a_timeout(is_scan: bool) -> None:
    inner = MemoryStore()
    store, retrying, runtime = made(inner)
    inner.write(schema.NODES, [put(number) for number in range(10)])
    gets = [Get(b"row%03d" % number) for number in range(10)]
    sizes: list[int] = []

    def read() -> list[Row]:
        # The wrapper of a store reports one row for each scan, so the limit is recorded here.
        sizes.append(retrying._sizes.limit("scan" if is_scan else "read", schema.NODES, 10))
        return retrying.scan(schema.NODES, Scan(None, None, 10)) if is_scan else retrying.read(schema.NODES, gets)

    Refused(store, 3, timeout)
    assert run_with_retries(runtime, read) == inner.read(schema.NODES, gets)
    assert sizes == [10, 5, 2, 1]
    # Much later they are larger again.
    for _ in range(GROW_AFTER):
        read()
    assert sizes[-1] > 1


# --- whole operations ------------------------------------------------------------------------------------------


def commit(instance: Instance, operations: list[Operation]) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=60, max_poll_age=0)


def leases(store: MemoryStore) -> list[Row]:
    return [row for row in store.scan(schema.CLUSTER, Scan(None, None, 1000, columns=(schema.LEASE,))) if row.cells]


def test_a_claim_whose_reply_is_lost_leases_one_machine_id(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    lost: list[Call] = []

    def after(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.CLUSTER and not lost:
            lost.append(call)
            raise lost_reply(call)

    faulty.after = after
    first = instance.clock.next(0)
    assert lost
    assert len(leases(store)) == 1
    assert instance.clock.next(first) > first


def test_a_forgotten_claim_is_not_taken_up(store: MemoryStore, world: World) -> None:
    # A forked child must not use the lease that its parent has claimed meanwhile.
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    with pytest.raises(StoreUnknownError):

        def after(call: Call) -> None:
            if call.method == "check_and_write" and call.table == schema.CLUSTER:
                raise lost_reply(call)

        faulty.after = after
        with TimeLimit(instance.runtime, 0.0):
            instance.lease.claim()
    faulty.after = None
    before = instance.lease.machine
    claimed = len(leases(store))
    instance.lease.forget()
    instance.clock.next(0)
    assert len(leases(store)) == claimed + 1
    assert instance.lease.machine != before or claimed == 0


def test_a_poll_with_much_to_read_ends_though_calls_fail_now_and_then(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "JOURNAL_BATCH", 2)
    faulty = FaultyStore(store)
    reader = open_instance(faulty, world, mac=2)
    writer = open_instance(store, world)
    for number in range(19):
        commit(writer, [AddNode(f"/{number}", {})])
    reads: list[Call] = []

    def before(call: Call) -> None:
        if call.method == "read":
            reads.append(call)
            if len(reads) % 3 == 0:
                raise StoreNotAppliedError("refused")

    faulty.before = before
    assert len(reader.poll()) == 19
    assert len(reads) < 20


def test_no_lock_is_held_while_an_operation_waits_for_its_next_attempt(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    locks = (instance.journal._poll_lock, instance.clock._lock, instance.lease._lock)
    free: list[bool] = []

    def take() -> None:
        for lock in locks:
            free.append(lock.acquire(blocking=False))  # type: ignore[attr-defined]
            lock.release()  # type: ignore[attr-defined]

    class Runtime(TestRuntime):
        def sleep(self, seconds: float) -> None:
            thread = threading.Thread(target=take)
            thread.start()
            thread.join()
            super().sleep(seconds)

    instance.runtime.__class__ = Runtime
    Refused(faulty, 2)
    instance.poll()
    Refused(faulty, 2)
    instance.clock.next(0)
    assert len(free) >= 4 * len(locks)
    assert all(free)


def test_the_creation_of_a_journal_row_is_sent_once(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    begun: list[int] = []
    creations: list[Call] = []

    def before(call: Call) -> None:
        if begun and call.method == "check_and_write" and call.table == schema.JOURNAL and not creations:
            creations.append(call)
            raise StoreNotAppliedError("refused")

    faulty.before = before
    revision = instance.commit(
        lambda _: OperationList([SetProperty("/", "p", 1)]), "", retry_timeout=60, max_poll_age=0, begun=begun.append
    )
    assert len(begun) == 2
    assert begun[0] != begun[1] == revision


def test_the_log_is_read_though_a_call_fails(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    commit(instance, [AddNode("/a", {})])
    entries = log.log(instance)
    newest = next(entries)
    assert newest.touches("/a")
    instance.poll()
    failed: list[Call] = []

    def before(call: Call) -> None:
        if call.method == "scan" and len(failed) % 2 == 0:
            failed.append(call)
            raise StoreNotAppliedError("refused")
        failed.append(call)

    faulty.before = before
    assert next(iter(log.log(instance))).revision == newest.revision
    assert failed
