"""A search for few rows in a long journal takes several calls, none of which visits too many rows."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema
from hbasemk.kernel.journal import sparse_scan
from hbasemk.kernel.journal.sparse_scan import FIRST_MS, sparse_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import NewCell, Put, Scan, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.runtime import TestRuntime, World
from tests.support.slow_scans import SlowScans

DAY_MS = 24 * FIRST_MS
YEAR_MS = 365 * DAY_MS
SECONDS = 0.01
"""The time for one row: 20 rows are fast, 200 are slow, and 2000 time out."""


class Place:
    """A journal of trunk revisions at some times, and of branch rows among them; both in ms before now."""

    def __init__(self, world: World, age_ms: int = YEAR_MS, *, transactions: bool = False) -> None:
        self.world = world
        self.memory = MemoryStore(world.clock, transactions=transactions)
        self.memory.create_tables(schema.TABLES)
        self.now_ms = int(world.ms) - revisions.DEFAULT_EPOCH_MS
        self.settings = Settings(root_revision=revisions.pack(self.now_ms - age_ms, 1, 0))
        self.branches: list[int] = []
        self.write([age_ms])

    def write(self, trunk: Iterable[int], branches: Iterable[int] = ()) -> None:
        """Write the rows."""
        flag = NewCell(*schema.COMMITTED, b"x", 1)
        puts = [Put(self.key(ms, 0), [flag]) for ms in trunk]
        for ms in branches:
            puts.append(Put(self.key(ms, 0x80), [flag, NewCell(*schema.BRANCH_HEAD, b"head", 1)]))
            self.branches.append(int.from_bytes(self.key(ms, 0x80), "big"))
        self.memory.write(schema.JOURNAL, puts)

    def key(self, ms: int, counter: int) -> bytes:
        return schema.revision_key(revisions.pack(self.now_ms - ms, 1, counter))

    def slow(self) -> SlowScans:
        return SlowScans(self.memory, self.world, SECONDS)

    def found(
        self, store: Store, above: int = 0, stop: bytes | None = None, limit: int = 1000, skew_ms: int = 0
    ) -> list[int]:
        """Return the revisions that the scan finds through a store."""
        runtime = TestRuntime(self.world, skew_ms=skew_ms)
        scan = Scan(schema.revision_key(above + 1), stop, limit, columns=(schema.BRANCH_HEAD,))
        rows = sparse_rows(RetryingStore(store, runtime), runtime, self.settings, scan)
        return [int.from_bytes(row.key, "big") for row in rows]


@pytest.mark.parametrize(
    ("age_ms", "calls"), [(FIRST_MS, 1), (DAY_MS, 4), (7 * DAY_MS, 5), (10 * YEAR_MS, 10)], ids=str
)
def test_windows_over_few_rows_are_few(world: World, age_ms: int, calls: int) -> None:
    place = Place(world, age_ms)
    place.write([], [age_ms, age_ms // 2, 0])
    counting = CountingStore(place.memory)
    assert place.found(counting) == place.branches
    assert len(counting.take()) == 1
    place.found(counting)
    assert counting.take() == {("scan", schema.JOURNAL): calls}


def test_a_scan_above_an_id_begins_there(world: World) -> None:
    place = Place(world, 10 * YEAR_MS)
    place.write([], [2 * FIRST_MS, FIRST_MS - 1, 0])
    counting = CountingStore(place.memory)
    assert place.found(counting, above=place.branches[0]) == place.branches[1:]
    assert counting.take() == {("scan", schema.JOURNAL): 2}


def test_a_store_with_transactions_takes_one_call(world: World) -> None:
    place = Place(world, transactions=True)
    place.write([], [YEAR_MS, 0])
    counting = CountingStore(place.memory)
    assert place.found(counting) == place.branches
    assert counting.take() == {("scan", schema.JOURNAL): 1}


def test_no_call_visits_many_rows_of_a_dense_journal(world: World) -> None:
    place = Place(world)
    # A year with few revisions, and then 6000 within ten minutes.
    place.write(range(DAY_MS, YEAR_MS, DAY_MS), [YEAR_MS // 2])
    place.write(range(700_000, 100_000, -100), [650_000, 400_000, 100_500])
    slow = place.slow()
    assert place.found(slow) == place.branches
    # A window of months times out, and then one of days. Without the limit of their length there would be six.
    assert slow.visited.count(None) == 2
    assert len(slow.visited) < 200


def test_slow_calls_make_windows_shorter(world: World) -> None:
    place = Place(world, 10 * FIRST_MS)
    place.write(range(10 * FIRST_MS, 0, -FIRST_MS // 800))
    slow = place.slow()
    place.found(slow)
    # The first window is an hour.
    assert slow.visited[:4] == [800, 400, 200, 200]
    assert set(slow.visited[2:-1]) <= {199, 200, 201}


def test_a_batch_may_end_within_a_window(world: World) -> None:
    place = Place(world, DAY_MS)
    place.write([], range(DAY_MS, 0, -DAY_MS // 95))
    for limit in (1, 5, 10, 19, 1000):
        assert place.found(place.memory, limit=limit) == place.branches


def test_a_scan_ends_before_its_end(world: World) -> None:
    place = Place(world)
    place.write([], [YEAR_MS, DAY_MS, 1000, 999, 0])
    stop = schema.revision_key(place.branches[-2])
    counting = CountingStore(place.memory)
    assert place.found(counting, stop=stop) == place.branches[:-2]
    assert place.found(counting, above=place.branches[-1], stop=stop) == []


@pytest.mark.parametrize("key", [b"a", b"\0\1", b"\xff" * 8, b"\xff" * 20], ids=repr)
def test_a_damaged_key_is_found_once(world: World, key: bytes) -> None:
    place = Place(world)
    place.write([], range(DAY_MS, 0, -FIRST_MS))
    place.memory.write(schema.JOURNAL, [Put(key, [NewCell(*schema.BRANCH_HEAD, b"head", 1)])])
    for limit in (1, 2, 100):
        found = place.found(place.memory, limit=limit)
        assert sorted(found) == sorted([*place.branches, int.from_bytes(key, "big")])


@pytest.mark.parametrize("skew_ms", [-YEAR_MS, -10 * YEAR_MS, -100 * YEAR_MS, YEAR_MS, 100 * YEAR_MS])
def test_a_wrong_clock_costs_calls_only(world: World, skew_ms: int) -> None:
    place = Place(world)
    place.write(range(DAY_MS, 0, -DAY_MS // 6000), [YEAR_MS, DAY_MS, 0])
    slow = place.slow()
    assert place.found(slow, skew_ms=skew_ms) == place.branches
    assert slow.visited.count(None) <= 2
    assert len(slow.visited) < 200


@pytest.mark.no_cover
def test_a_lost_reply_loses_no_row(world: World) -> None:
    place = Place(world, DAY_MS)
    place.write([], range(DAY_MS, 0, -DAY_MS // 10))
    faulty = FaultyStore(place.memory)
    count = 0

    def lose(call: Call) -> None:
        nonlocal count
        count += 1
        if count % 3 == 1:
            raise lost_reply(call)

    faulty.after = lose
    assert place.found(faulty) == place.branches
    assert count > 3


@pytest.mark.parametrize("error", [StoreNotAppliedError, StoreUnknownError])
def test_an_outage_is_raised_after_the_retries_of_one_call(world: World, error: type[Exception]) -> None:
    place = Place(world)
    faulty = FaultyStore(place.memory)
    calls: list[float] = []

    def fail(_: Call) -> None:
        calls.append(world.ms)
        raise error("no connection")

    faulty.before = fail
    with pytest.raises(error, match="no connection"):
        place.found(faulty)
    assert calls[-1] - calls[0] == pytest.approx(TestRuntime(world).retry_timeout * 1000, abs=2)


def test_an_outage_at_the_end_of_the_journal_is_raised(world: World) -> None:
    place = Place(world, FIRST_MS)
    faulty = FaultyStore(place.memory)
    failing = False

    def fail(_: Call) -> None:
        nonlocal failing
        # The call that reads the last row succeeds.
        failing = not failing or len(seen) > 2
        seen.append(failing)
        if failing:
            raise StoreNotAppliedError("no connection")

    seen: list[bool] = []
    faulty.before = fail
    with pytest.raises(StoreNotAppliedError, match="no connection"):
        place.found(faulty)


def test_other_errors_are_not_retried(world: World) -> None:
    place = Place(world)
    place.memory.close()
    counting = CountingStore(place.memory)
    with pytest.raises(ClosedError):
        place.found(counting)
    assert counting.take().total() == 1


def test_the_first_window_suits_ten_commits_a_second() -> None:
    # HBase visits a row in about 3.3 µs.
    assert sparse_scan.FIRST_MS / 100 * 3.3e-6 < sparse_scan.FAST
