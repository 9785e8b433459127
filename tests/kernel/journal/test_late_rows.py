"""Journal rows that arrive below every poll are aborted and hidden, despite interruptions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hbasemk import StoreError
from hbasemk.format import changes, journal_row, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import rollback, settings
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import Cell, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.repair import late_rows
from tests.support.simulation.crashes.sites import AWAY, DIED, Died, Site, live_on, problems
from tests.support.simulation.mutants import watermark


@pytest.fixture
def site() -> Site:
    """A small repository with two such rows."""
    world = World()
    site = Site(MemoryStore(world.clock), world)
    first = site.open(1)
    first.commit(lambda _: OperationList([AddNode("/a", {"p": 1})]), "", retry_timeout=1, max_poll_age=0)
    first.close()
    site.state = late_rows(site)
    return site


def hidden(site: Site) -> frozenset[int]:
    _, mark = settings.read(site.store)
    assert mark is not None
    return mark.hidden


@pytest.mark.parametrize("way", [AWAY, DIED])
def test_interrupted_scan_for_late_rows_misses_none_next_time(site: Site, way: str) -> None:
    points = 0
    while True:
        here = site.copy()
        here.begin()
        here.steps.fail(points, way)
        try:
            here.acting.recovery.recover_late()
        except (StoreError, Died):
            points += 1
        else:
            break
        here.steps.heal()
        # The interrupted instance scans again; if it died, another one does.
        again = here.acting if way == AWAY else here.open(0x40)
        again.recovery.recover_late()
        assert hidden(here).issuperset(site.state)
        assert set(again.outcomes.of_many(site.state).values()) == {Outcome.ABORTED}
        assert problems(again) == []
    assert points > 10


def test_committed_revision_marked_as_swept_is_not_hidden(site: Site) -> None:
    one = site.open(0x40)
    one.recovery.recover_late()
    before = hidden(site)
    revision = one.commit(lambda _: OperationList([AddNode("/kept", {})]), "", retry_timeout=1, max_poll_age=0)
    site.store.write(
        schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*schema.SWEPT, schema.SWEPT_IN_DOUBT)])]
    )
    one.poll()
    site.world.advance(12)
    one.poll()
    one.recovery.advance()
    assert one.recovery.recover_late() == []
    assert hidden(site) == before
    assert site.open(0x41).reader.node(site.open(0x42).head(), "/kept") is not None


def clock_goes_back(site: Site) -> None:
    """Let the server of the settings be one minute behind from now on."""
    site.store._clocks = {schema.CLUSTER: lambda: site.world.clock() - 60_000}


def test_late_rows_are_hidden_at_once_although_the_clock_of_the_server_went_back(site: Site) -> None:
    here = site.copy()
    here.begin()
    clock_goes_back(here)
    # Far more calls than it needs.
    here.steps.fail(200, DIED)
    here.acting.recovery.recover_late()
    assert hidden(here).issuperset(site.state)
    mark = settings.read_watermark(here.store)
    here.acting.commit(lambda _: OperationList([AddNode("/b", {})]), "", retry_timeout=1, max_poll_age=0)
    here.world.advance(80)
    here.acting.maintain()
    assert settings.read_watermark(here.store).revision > mark.revision
    assert hidden(here).issuperset(site.state)


def test_a_late_row_on_a_server_that_is_behind_is_found_by_the_next_scan(site: Site) -> None:
    here = site.copy()
    here.begin()
    key = schema.revision_key(max(site.state))
    (row,) = here.store.read(schema.JOURNAL, [Get(key)])
    here.store.delete_rows(schema.JOURNAL, [key])
    here.acting.recovery.recover_late()
    here.store._clocks = {schema.JOURNAL: lambda: here.world.clock() - 4000}
    here.store.write(schema.JOURNAL, [Put(key, [NewCell(*cell[:2], cell.value) for cell in row.cells])])
    here.acting.recovery.recover_late()
    assert hidden(here).issuperset(site.state)


def test_a_late_row_behind_the_position_of_a_long_scan_is_found_by_the_next_one(site: Site) -> None:
    key = schema.revision_key(min(site.state))
    (row,) = site.store.read(schema.JOURNAL, [Get(key)])
    site.store.delete_rows(schema.JOURNAL, [key])
    site.world.advance(7200)
    newer = site.open(0x50).commit(lambda _: OperationList([AddNode("/b", {})]), "", retry_timeout=1, max_poll_age=0)
    store = FaultyStore(site.store)
    one = open_instance(store, site.world, mac=0x51)
    one.clock.next(0)
    live_on(site, one)
    assert one.journal.low_bound > newer

    def write(key: bytes, cells: Sequence[Cell]) -> None:
        site.store.write(schema.JOURNAL, [Put(key, [NewCell(*cell[:2], cell.value) for cell in cells])])

    def arrive(call: Call) -> None:
        if (call.method, call.table) == ("scan", schema.JOURNAL):
            # After the first window; the last one has a newer cell.
            store.after = None
            write(key, row.cells)
            site.world.advance(40)
            flag = Get(schema.revision_key(newer), (schema.COMMITTED,))
            write(flag.row, site.store.read(schema.JOURNAL, [flag])[0].cells)

    store.after = arrive
    one.recovery.recover_late()
    assert store.after is None
    assert min(site.state) not in hidden(site)
    one.recovery.recover_late()
    assert hidden(site).issuperset(site.state)


@pytest.mark.parametrize("change", ["hide", "show"])
def test_a_repair_changes_what_is_hidden_although_the_clock_of_the_server_went_back(site: Site, change: str) -> None:
    here = site.copy()
    here.begin()
    (revision, *_) = site.state
    if change == "show":
        assert here.acting.recovery.hide(revision)
    clock_goes_back(here)
    assert getattr(here.acting.recovery, change)(revision)
    assert (revision in hidden(here)) == (change == "hide")


def test_late_rows_that_are_not_hidden_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site.copy()
    here.begin()
    here.acting.recovery.recover_late()
    assert problems(here.acting) == []
    watermark.late_rows_not_hidden(monkeypatch)
    site.begin()
    site.acting.recovery.recover_late()
    assert problems(site.acting) != []


@pytest.mark.parametrize("when", range(4))
def test_revision_whose_row_arrives_during_its_abort_is_aborted(when: int) -> None:
    world = World()
    store = FaultyStore(MemoryStore(world.clock))
    instance = open_instance(store, world)
    instance.commit(lambda _: OperationList([AddNode("/a", {"p": 1})]), "", retry_timeout=1, max_poll_age=0)
    revision = instance.clock.next(instance.head().upper)
    left = iter(range(when))

    def arrive(call: Call) -> None:
        # Another thread sent its creation, and Ctrl-C interrupted its writer meanwhile.
        if next(left, None) is None:
            store.before = lambda _: None
            cells = journal_row.begin(b"n" * 16, instance.head().revision, "")
            put = Put(schema.revision_key(revision), [*cells, *changes.encode(())])
            store.inner.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put)

    store.before = arrive
    assert instance.outcomes.abort_own(revision, ()) is Outcome.ABORTED
    assert instance.outcomes.of(revision) is Outcome.ABORTED


@pytest.mark.parametrize("aborts", ["maintenance", "command"])
def test_the_first_revision_is_never_rolled_back(aborts: str) -> None:
    # It was created as committed; only damage makes it seem pending.
    world = World()
    store = MemoryStore(world.clock)
    one = open_instance(store, world)
    first = one.settings.root_revision
    store.write(schema.JOURNAL, [Put(schema.revision_key(first), [NewCell(*schema.COMMITTED, schema.NO)])])
    world.advance(60)
    if aborts == "maintenance":
        assert one.recovery.recover_late() == []
    else:
        assert list(rollback.recover(one)) == []
    fresh = open_instance(store, world, mac=2)
    assert fresh.node(fresh.head(), "/") is not None
