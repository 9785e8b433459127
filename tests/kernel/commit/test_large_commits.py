"""Commits of many or large nodes succeed in calls of bounded size, or are rejected immediately."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from hbasemk import (
    ConflictError,
    LimitError,
    MicroKernel,
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    Transaction,
)
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.repository import instance_of
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put, Row, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, WrappedStore
from tests.support import proof
from tests.support.repositories import Checked, Instances, problems
from tests.support.runtime import World, open_instance

T = TypeVar("T")

PER_NODE = 0.0001
"""The seconds that encoding one node takes on the test's clock."""


class Died(BaseException):
    """The process was killed."""


class FewRows(FaultyStore):
    """A store with a limit of 100 rows a call."""

    @property
    def batch_rows(self) -> int:
        return 100


def tree_of(count: int, below: str = "/top") -> list[Operation]:
    """Return a tree of many nodes in two levels."""
    found: list[Operation] = [AddNode(below, {})]
    for number in range(count // 100):
        found.append(AddNode(f"{below}/{number}", {}))
        found += (AddNode(f"{below}/{number}/{one}", {"n": one}) for one in range(100))
    return found


# --- time ----------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=proof.PROOF)])
def test_an_id_is_issued_after_the_changes_are_encoded(
    world: World, monkeypatch: pytest.MonkeyPatch, parallel: bool
) -> None:
    encode = changes.encode

    def slow(row_changes: Sequence[RowChange]) -> list[NewCell]:
        world.advance(len(row_changes) * PER_NODE)
        return encode(row_changes)

    monkeypatch.setattr(changes, "encode", slow)
    one = open_instance(MemoryStore(world.clock, parallel=parallel), world)
    one.commit(lambda _: OperationList(tree_of(12_000)), "", retry_timeout=1, max_poll_age=0)
    one.commit(lambda _: OperationList([MoveNode("/top", "/moved")]), "", retry_timeout=1, max_poll_age=0)
    one.commit(lambda _: OperationList([RemoveNode("/moved/7")]), "", retry_timeout=1, max_poll_age=0)
    assert one.statistics.too_slow == 0
    assert len(one.reader.children(one.head(), "/moved")) == 119


@pytest.mark.parametrize("how", ["write", "roll back"])
def test_a_commit_that_takes_longer_than_a_lease_renews_it(world: World, how: str) -> None:
    store = MemoryStore(world.clock)
    slow = FewRows(store)
    one, other = open_instance(slow, world), open_instance(store, world, mac=0x77)
    base = one.head()
    one.commit(lambda _: OperationList([AddNode("/before", {})]), "", retry_timeout=1, max_poll_age=0)
    seen: list[int] = []

    def pass_time(call: Call) -> None:
        if call.table == schema.NODES and call.method == ("write" if how == "write" else "delete"):
            world.advance(4)
            other.poll()
            other.maintain()
            seen.extend(other.journal.pending)

    if how == "write":
        slow.after = pass_time
        one.commit(lambda _: OperationList(tree_of(1000)), "", retry_timeout=1, max_poll_age=0)
        assert len(set(seen)) == 1
        assert len(other.reader.children(_polled(other), "/top")) == 10
    else:
        other.commit(lambda _: OperationList([AddNode("/top", {})]), "", retry_timeout=1, max_poll_age=0)
        world.advance(1)
        slow.after = pass_time
        with pytest.raises(ConflictError):
            one.commit_on(base, OperationList(tree_of(1000)), "")
        lost = max(int.from_bytes(key, "big") for key in store._tables[schema.JOURNAL].rows)
        assert other.outcomes.is_swept(lost)
        assert not other.outcomes.is_swept(lost, in_doubt=True)


def _polled(instance: Any) -> Any:
    instance.poll()
    return instance.head()


# --- bytes ---------------------------------------------------------------------------------------------------

MOST = 10_000
LARGE = 3_000


class Narrow(CountingStore):
    """A store with a limit of 10,000 bytes a call that records the size of each call."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []
        self.of_requests: list[int] = []
        self.of_reads: list[int] = []

    @property
    def batch_bytes(self) -> int:
        return MOST

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        self.sizes.append(_size(puts))
        super().write(table, puts, durable=durable)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        self.sizes.append(_size(deletes))
        super().delete(table, deletes)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        self.of_requests.append(
            sum(len(get.row) + sum(len(qualifier) for _, qualifier in get.columns or ()) for get in gets)
        )
        found = super().read(table, gets)
        self.of_reads.append(
            _size([Put(row.key, [NewCell(*cell[:2], cell.value) for cell in row.cells]) for row in found])
        )
        return found

    def write_if(self, table: str, puts: Sequence[Put], *more: Any, **others: Any) -> int | None:
        self.sizes.append(_size(puts))
        return super().write_if(table, puts, *more, **others)


def _size(rows: Sequence[Put] | Sequence[Delete]) -> int:
    return sum(
        len(row) + sum(len(cell[1]) + (0 if isinstance(cell, CellVersion) else len(cell[2])) for cell in cells)
        for row, cells, *_ in rows
    )


def large_nodes(tx: Transaction) -> None:
    """Add many nodes with a large value each, one with many large values, one with many children."""
    tx.add("/top")
    for number in range(30):
        tx.add(f"/top/{number}", {"large": bytes(LARGE)})
    tx.add("/wide", {f"large{number}": bytes(LARGE) for number in range(30)})
    for number in range(3_000):
        tx.add(f"/wide/child{number}")


@pytest.mark.parametrize("transactions", [True, pytest.param(False, marks=proof.PROOF)])
def test_no_call_is_larger_than_the_stores_limit(checked: Checked, transactions: bool) -> None:
    inner = checked(MemoryStore(transactions=transactions))
    store = Narrow(inner)
    with Repository(store, poll_interval=0) as repository, Repository(store, poll_interval=0) as other:
        base = other.head
        repository.run(large_nodes)
        assert other.refresh()["/wide"]["large7"] == bytes(LARGE)
        assert other.head.child_count("/wide") == 3_000
        late = other.transaction(base=base)
        large_nodes(late)
        with pytest.raises(ConflictError):
            late.commit()
        repository.run(lambda tx: tx.move("/wide", "/moved"))
        repository.run(lambda tx: tx.remove("/top"))
        assert max(store.sizes) <= MOST
        assert problems(other) == []


def test_a_cell_above_the_limit_is_sent_alone(checked: Checked) -> None:
    store = Narrow(checked(MemoryStore(transactions=True)))
    with Repository(store, poll_interval=0) as repository:
        store.sizes.clear()
        repository.run(lambda tx: [tx.add(f"/{number}", {"large": bytes(5 * MOST)}) for number in range(3)] and None)
        assert sum(size > MOST for size in store.sizes) == 3
        assert max(store.sizes) < 5 * MOST + 100


def test_read_back_batches_are_bounded_by_known_sizes(checked: Checked) -> None:
    store = Narrow(checked(MemoryStore()))
    with Repository(store, poll_interval=0) as repository:
        repository.run(large_nodes)
        with repository.transaction(base=repository.head) as tx:
            tx.get("/", "nothing")
            for number in range(30):
                tx.set(f"/top/{number}", "large", b"x" * LARGE)
            store.of_reads.clear()
        assert max(store.of_reads) <= 2 * MOST


def test_read_back_batches_are_bounded_by_the_lengths_of_paths(checked: Checked) -> None:
    store = Narrow(checked(MemoryStore()))
    names = [f"{number:02}" + "n" * 2_000 for number in range(20)]
    with Repository(store, poll_interval=0) as repository:
        repository.run(lambda tx: [tx.add(f"/{name}") for name in names] and None)
        with repository.transaction(base=repository.head) as tx:
            for name in names:
                tx.set(f"/{name}", "n", 1)
            store.of_reads.clear()
        assert max(store.of_reads) <= MOST


def long_names(kind: str, number: int) -> list[str]:
    """Return 400 names of 200 bytes, which fit no single call."""
    return [f"{kind}{number}{one:03d}".ljust(200, "n") for one in range(400)]


def test_the_read_back_of_a_row_is_divided_by_the_lengths_of_names(checked: Checked) -> None:
    store = Narrow(checked(MemoryStore()))
    first, second, third = (long_names("property", number) for number in range(3))
    with Repository(store, poll_interval=0) as repository, Repository(store, poll_interval=0) as other:
        repository.run(lambda tx: [tx.add(path) for path in ("/many", "/wide")] and None)
        base = other.refresh()
        late = other.transaction(base=base)
        for name in second:
            late.set("/wide", name, 1)
        store.of_requests.clear()
        repository.run(lambda tx: [tx.set("/wide", name, 1) for name in first] and None)
        repository.run(lambda tx: [tx.add(f"/many/{name}") for name in long_names("child", 0)] and None)
        repository.run(lambda tx: [tx.set("/wide", name, 2) for name in first] and None)
        late.commit()
        repository.run(lambda tx: tx.set("/wide", first[-1], 3))
        loser = other.transaction(base=base)
        for name in first:
            loser.set("/wide", name, 4)
        with pytest.raises(ConflictError):
            loser.commit()
        repository.run(lambda tx: tx.add(f"/wide/{third[-1]}"))
        loser = other.transaction(base=base)
        for name in third:
            loser.set("/wide", name, 5)
        with pytest.raises(ConflictError):
            loser.commit()
        assert [other.refresh()["/wide"][name] for name in (first[0], first[-1], second[0])] == [2, 3, 1]
        assert other.head.child_count("/many") == 400
        assert max(store.of_requests) <= MOST


class Slow(WrappedStore):
    """Times out on calls that would return more than 10,000 bytes."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.refused = 0

    def around(self, call: Call, do: Callable[[], T]) -> T:
        found = do()
        if (
            call.table == schema.NODES
            and isinstance(found, list)
            and sum(len(cell.value) for row in found for cell in row.cells) > MOST
        ):
            self.refused += 1
            raise StoreNotAppliedError(f"{call.method}: no answer within 20 s") from TimeoutError()
        return found


def test_a_read_that_times_out_is_repeated_with_fewer_rows(checked: Checked) -> None:
    inner = checked(MemoryStore())
    slow = Slow(inner)
    with Repository(inner, poll_interval=0) as repository, Repository(slow, poll_interval=0, owns_store=False) as other:
        repository.run(large_nodes)
        paths = [f"/top/{number}" for number in range(30)]
        found = other.refresh().nodes(paths)
        assert all(node is not None and node["large"] == bytes(LARGE) for node in found.values())
        assert slow.refused
        slow.refused = 0
        assert [node.path for node in other.head.walk("/top")][1:] == sorted(paths)
        assert slow.refused


# --- the journal row -----------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits of large changes to some hundred bytes."""
    monkeypatch.setattr(changes, "INLINE", 500)
    monkeypatch.setattr(changes, "FIRST_CHUNK", 100)
    monkeypatch.setattr(changes, "CHUNK", 300)


def names(seed: int, count: int = 200) -> list[Operation]:
    """Return nodes whose names hardly compress."""
    chance = random.Random(seed)
    return [AddNode(f"/{chance.getrandbits(64):x}", {}) for _ in range(count)]


@pytest.mark.usefixtures("short")
def test_large_changes_follow_the_row_that_begins_a_revision(opened: Instances) -> None:
    one, two = opened(), opened()
    before = two.head
    revision = instance_of(one).commit(lambda _: OperationList(names(1)), "large")
    shown = two.refresh()
    assert shown.children("/") == one.head.children("/")
    assert len(shown.children("/")) == 200
    entry = next(iter(two.log()))
    assert entry.message == "large"
    assert len(entry.changes) == 201
    assert len(list(two.diff(before))) == 200
    row = two.store.read(schema.JOURNAL, [Get(schema.revision_key(revision))])[0]
    chunks = [cell for cell in row.cells if changes.is_chunk(cell.qualifier)]
    assert len(chunks) > 3
    entries = MicroKernel(two).get_journal(two.at(revisions.to_text(revision)).revision, None)
    assert str(entries).count("+\\") == 200
    branch = one.branch()
    branch.run(lambda tx: [tx.add(one.path, {}) for one in names(2) if isinstance(one, AddNode)] and None)
    branch.merge()
    assert len(two.refresh().children("/")) == 400


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("lost", [False, True])
def test_a_large_commit_whose_writer_dies_at_any_call_leaves_nothing(world: World, lost: bool) -> None:
    at = 0
    while True:
        at += 1
        store = MemoryStore(world.clock)
        faulty = FewRows(store)
        one, other = open_instance(faulty, world), open_instance(store, world, mac=0x99)
        one.clock.next(0)
        count = 0

        def die(call: Call, at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at:
                if lost:
                    raise StoreUnknownError(f"the reply to {call.method} is lost")
                raise Died

        faulty.after = die
        with contextlib.suppress(Died):
            one.commit(lambda _: OperationList(names(3)), "", retry_timeout=1, max_poll_age=0)
        if count < at:
            break
        faulty.after = None
        world.advance(60)
        other.poll()
        other.maintain()
        shown = other.reader.children(_polled(other), "/")
        assert len(shown) in (0, 200)
        world.was_opened(store)
    assert at > 8


@pytest.mark.usefixtures("short")
def test_a_commit_too_large_for_the_journal_is_refused_at_once(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LARGEST", 1000)
    store = CountingStore(opened.new_store())
    repository = opened(store)
    repository.run(lambda tx: tx.add("/a"))
    branch = repository.branch()
    store.take()
    with pytest.raises(LimitError, match="1000 bytes"), repository.transaction(base=repository.head) as tx:
        for one in names(4):
            assert isinstance(one, AddNode)
            tx.add(one.path)
    assert {call for call in store.take() if call[0] not in {"read", "scan", "arrivals"}} == set()
    with pytest.raises(LimitError, match="Divide"):
        branch.run(lambda tx: [tx.add(one.path) for one in names(4) if isinstance(one, AddNode)] and None)
    assert {call for call in store.take() if call[0] not in {"read", "scan", "arrivals"}} == set()


# --- very large --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.timeout(0)
@pytest.mark.parametrize("count", proof.sizes(None, 2_500, 10_000, 100_000))
def test_a_large_tree_is_added_moved_and_removed_in_one_commit_each(opened: Instances, count: int) -> None:
    one, two = opened(), opened()
    instance_of(one).commit(lambda _: OperationList(tree_of(count)), "")
    assert len(two.refresh().children("/top")) == count // 100
    instance_of(one).commit(lambda _: OperationList([MoveNode("/top", "/moved"), SetProperty("/moved", "n", 1)]), "")
    assert two.refresh()["/moved/7/42"]["n"] == 42
    assert "/top/7" not in two.head
    branch = two.branch()
    branch.run(lambda tx: tx.copy("/moved", "/copy"))
    branch.merge()
    assert one.refresh()["/copy/7/42"]["n"] == 42
    instance_of(one).commit(lambda _: OperationList([RemoveNode("/moved")]), "")
    assert two.refresh().children("/") == ["copy"]


def test_a_chain_of_nodes_is_added_in_one_commit(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as one:
        chain = ["/a" * depth for depth in range(1, 1_001)]
        one.run(lambda tx: [tx.add(path) for path in chain] and None)
        assert chain[-1] in one.head
        one.run(lambda tx: tx.move("/a/a", "/b"))
        one.run(lambda tx: tx.remove("/b"))
        assert one.refresh().children("/") == ["a"]
