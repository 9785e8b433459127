"""Snapshots by time: the newest one that is known to be committed before a moment, by the store's clock."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hbasemk.errors import InvalidValueError, UnknownRevisionError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.kernel import time_travel
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.runtime import START_MS, World, open_instance
from tests.support.straggler import add


@pytest.fixture(params=[False, True], ids=["scanned", "ordered"])
def store(request: pytest.FixtureRequest, world: World) -> MemoryStore:
    return MemoryStore(world.clock, transactions=request.param)


def history(instance: Instance, world: World, gaps: Sequence[float], name: str = "") -> list[tuple[int, int]]:
    """Commit after each gap in seconds; return each revision with the time just after it."""
    made = []
    for number, gap in enumerate(gaps):
        world.advance(gap)
        revision = add(instance, f"/{name}{number}")
        world.advance(0.01)
        made.append((revision, int(world.ms)))
    return made


def test_a_time_gives_the_newest_revision_before_it_in_every_instance(store: MemoryStore, world: World) -> None:
    writer, reader = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    made = history(writer, world, [1, 0.02, 3600, 5, 0.1, 86_400, 1])
    world.advance(1)
    late = open_instance(store, world, mac=3)
    for instance in (writer, reader, late):
        for (revision, after), (_, later) in zip(made, [*made[1:], (0, int(world.ms))], strict=True):
            for ms in (after, (after + later - 15) // 2):
                view = time_travel.view_before(instance, ms)
                assert view.revision == revision
                assert [instance.sees(view, one) for one, _ in made] == [one <= revision for one, _ in made]


def test_what_was_decided_later_is_left_out_and_so_is_what_follows_it(world: World) -> None:
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    slow, quick = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    base = add(slow, "/base")
    moments: list[int] = []
    fast: list[int] = []

    def before(call: Call) -> None:
        if call.method in ("write", "write_if", "check_and_write") and call.table in (schema.NODES, schema.JOURNAL):
            rows = journal_row.decode(store.scan(schema.JOURNAL, Scan(None, None, 100)))
            if not fast and any(row.revision > base and not row.committed for row in rows):
                fast.append(add(quick, "/quick"))
                world.advance(0.3)
                moments.append(int(world.ms))
                world.advance(0.3)

    faulty.before = before
    late = add(slow, "/late")
    assert late < fast[0]
    world.advance(60)
    for instance in (slow, quick, open_instance(store, world, mac=3)):
        view = time_travel.view_before(instance, moments[0])
        assert view.revision == base
        assert not instance.sees(view, late)
        assert not instance.sees(view, fast[0])
        view = time_travel.view_before(instance, int(world.ms) - 1000)
        assert instance.sees(view, late)
        assert instance.sees(view, fast[0])


def test_the_newest_snapshot_is_found_when_ids_are_ahead_of_the_clock(world: World) -> None:
    writer = open_instance(MemoryStore(world.clock, transactions=True), world)
    made = history(writer, world, [20, 20])
    # Ids stay ahead for hours after a writer has seen one that is.
    writer.journal.highest_seen += (4 * 3_600_000) << 24
    made += history(writer, world, [20] * 10, "ahead")
    assert revisions.ms_of(made[2][0]) - revisions.ms_of(made[1][0]) > 4 * 3_600_000
    for revision, after in made:
        assert time_travel.view_before(writer, after).revision == revision


def test_a_time_that_has_not_come_is_refused(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    with pytest.raises(InvalidValueError, match="time must not be in the future, got 2027"):
        time_travel.view_before(instance, START_MS + 60_000)
    # A machine whose clock is ahead may ask for its own present.
    early = open_instance(store, world, mac=2, skew_ms=3_000)
    revision = add(instance, "/a")
    world.advance(0.01)
    assert time_travel.view_before(early, int(world.ms) + 3_000).revision == revision


def test_a_time_before_the_first_revision_is_refused(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    root = instance.settings.root_revision
    for ms in (START_MS - 1, START_MS, 0, -(10**12)):
        with pytest.raises(UnknownRevisionError, match=f"its first one is {root:016x}"):
            time_travel.view_before(instance, ms)
    world.advance(1)
    assert time_travel.view_before(instance, START_MS + 1).revision == root


def test_the_search_reads_only_the_minutes_before_the_moment(store: MemoryStore, world: World) -> None:
    counting = CountingStore(store)
    writer = open_instance(store, world, mac=1)
    made = history(writer, world, [10] * 300)
    instance = open_instance(counting, world, mac=2)
    for revision, after in made[::37]:
        instance.poll()
        counting.traffic()
        counting.take()
        assert time_travel.view_before(instance, after).revision == revision
        calls = counting.take()
        # The watermark, a poll, the first row above, and two pages.
        assert sum(calls.values()) <= 7, calls
        assert counting.traffic(schema.JOURNAL).rows_read <= 160


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_is_as_a_scan_of_everything_gives(store: MemoryStore, world: World, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [open_instance(store, world, mac=mac, skew_ms=chance.randrange(-400, 400)) for mac in range(1, 4)]
    for number in range(30):
        world.advance(chance.choice((0.0, 0.005, 1.0, 90.0, 4000.0)))
        add(chance.choice(writers), f"/{number}")
    world.advance(100)
    rows = [
        (row.revision, row.cells[[cell.qualifier for cell in row.cells].index(schema.COMMITTED[1])].timestamp)
        for row in journal_row.decode(store.scan(schema.JOURNAL, Scan(None, None, 1000)))
        if row.committed
    ]
    instance = writers[0]
    for _ in range(30):
        ms = chance.randrange(START_MS + 1, int(world.ms))
        expected = 0
        for revision, at_ms in rows:
            if at_ms >= ms:
                break
            expected = revision
        view = time_travel.view_before(instance, ms)
        assert view.revision == expected
        assert [instance.sees(view, one) for one, _ in rows] == [one <= expected for one, _ in rows]
