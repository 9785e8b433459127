"""The upgrade of repositories of older formats: nothing is lost, whatever interrupts it, and no process is overlooked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbasemk import FormatError, InvalidValueError, Repository, StoreNotAppliedError, StoreUnusableError
from hbasemk.check import IntegrityCheck
from hbasemk.errors import CHECK_ADVICE
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel import settings as kernel_settings
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.upgrade import Upgraded, upgrade
from hbasemk.store.abc import Cell, Get, NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.failing import Died
from tests.support.older import (
    COMMITTED,
    KEPT,
    OVER,
    SETTINGS,
    commit,
    dump,
    set_format,
    settings_fields,
    work_as,
    write,
)
from tests.support.runtime import TestRuntime, World, open_instance

UPGRADING = 0x77
"""The MAC of the process that upgrades."""


class Old:
    """A repository of an older format: commits, a branch, and one pending revision of a writer whose lease has just ended."""

    def __init__(self, world: World, new_store: Callable[[], Store], before: int = 1) -> None:
        self.world = world
        self.store = new_store
        self.said: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            work_as(patch, before)
            writer = Instance.open(self.store(), TestRuntime(world), wanted=SETTINGS)
            self.written = write(writer)
        set_format(self.store(), before)
        self.newest = kernel_settings.format_of(self.store())
        # The first revision is the watermark; the branch has two rows.
        numbers = isinstance(self.store(), SqliteStore)
        self.done = Upgraded(before, self.newest)
        if before == 1:
            self.done = Upgraded(1, self.newest, COMMITTED + (3 if numbers else 1), 1)
        self.replacement = 2 if numbers else 3
        """Which compare-and-set of an upgrade replaces the format."""

    def upgrade(self, store: Store | None = None, wanted: int | None = None) -> Upgraded:
        return upgrade(store or self.store(), TestRuntime(self.world, mac=UPGRADING), self.said.append, wanted)

    def format(self) -> int:
        found: int = settings_fields(self.store())["format"]
        return found

    def is_whole(self) -> None:
        """Raise AssertionError unless a new instance reads everything and may commit."""
        instance = open_instance(self.store(), self.world, mac=0x99)
        assert instance.settings.format == self.newest
        self.written.check(instance)
        instance.maintain()
        assert instance.outcomes.of(self.written.pending) is journal_row.Outcome.ABORTED


def cells(store: Store) -> dict[tuple[str, bytes, bytes, bytes], Cell]:
    """Return all cells by table, row and column."""
    return {(table, key, *cell[:2]): cell for table, rows in dump(store).items() for key, row in rows for cell in row}


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    shared = MemoryStore(world.clock)
    opened: list[Store] = []

    def new() -> Store:
        sqlite = request.param == "sqlite"
        opened.append(SqliteStore(str(tmp_path / "content.db"), clock=world.clock) if sqlite else copy.copy(shared))
        return opened[-1]

    yield new
    for store in opened:
        if not world.closes(store):
            store.close()


@pytest.fixture
def old(world: World, new_store: Callable[[], Store]) -> Old:
    return Old(world, new_store)


def test_an_upgraded_repository_shows_all_revisions_and_takes_new_ones(old: Old, world: World) -> None:
    world.advance(OVER)
    assert old.upgrade() == old.done
    assert old.said == []
    old.is_whole()


def test_the_upgrade_keeps_all_other_settings_and_all_other_rows(old: Old, world: World) -> None:
    world.advance(OVER)
    before = dump(old.store())
    fields = settings_fields(old.store())
    old.upgrade(wanted=2)
    assert settings_fields(old.store()) == {**fields, "format": 2}
    assert fields["kept"] == KEPT
    # SQLite numbers the rows of the journal: see test_arrival_numbering.py.
    changed = {"cluster", "journal"} if old.done.numbered else {"cluster"}
    after = dump(old.store())
    assert {name: rows for name, rows in after.items() if name not in changed} == {
        name: rows for name, rows in before.items() if name not in changed
    }


@pytest.mark.parametrize("before_it", [2, 3])
def test_an_upgrade_closes_the_logs_and_aborts_what_is_pending(world: World, before_it: int) -> None:
    shared = MemoryStore(world.clock)
    old = Old(world, lambda: copy.copy(shared), before=before_it)
    for create in (False, True):
        with pytest.raises(FormatError, match=rf"has format {before_it}, .* uses format 4; .* `hbasemk upgrade`"):
            Instance.open(old.store(), TestRuntime(world), create=create)
    world.advance(OVER)
    before = cells(old.store())
    fields = settings_fields(old.store())
    assert old.upgrade() == Upgraded(before_it, 4, 0, 1)
    after = cells(old.store())
    # To compare the leases with the store's clock, the upgrade measures the clock by a cell of its own.
    clock = (schema.CLUSTER, schema.machine_key(UPGRADING), *schema.CLOCK)
    settings = (schema.CLUSTER, schema.SETTINGS_ROW, *schema.SETTINGS)
    log = schema.log_key(revisions.machine_of(old.written.pending))
    # A process that was paused announces nothing afterwards.
    holder = (schema.CLUSTER, log, *schema.LOG_HOLDER)
    assert after[holder].value == schema.CLOSED
    pending = (schema.JOURNAL, schema.revision_key(old.written.pending), *schema.ABORT)
    changed = {one for one in {**before, **after} if before.get(one) != after.get(one)}
    assert changed == {settings, clock, holder, pending}
    assert settings_fields(old.store()) == {**fields, "format": 4}
    old.is_whole()


def test_an_upgrade_aborts_what_was_announced_without_a_journal_row(world: World) -> None:
    """A sole writer with format 3 that is paused after its announcement must not commit later: it ignores shared marks."""
    shared = MemoryStore(world.clock)
    with pytest.MonkeyPatch.context() as patch:
        work_as(patch, 3)
        writer = Instance.open(shared, TestRuntime(world), wanted=SETTINGS)
        committed = commit(writer, AddNode("/a", {"n": 0}))
        revision = writer.announcements.next(committed, [])
        touched = [RowChange("/a", CHANGED, ["n"])]
        assert writer.announcements.announce_with(revision, changes.encode(touched)[0].value)
    world.advance(OVER)
    assert upgrade(shared, TestRuntime(world, mac=UPGRADING), print) == Upgraded(3, 4, 0, 1)
    (row,) = map(journal_row.JournalRow, shared.read(schema.JOURNAL, [Get(schema.revision_key(revision))]))
    assert (row.aborted, row.swept, list(row.required_changes)) == (True, None, touched)
    own = Put(row.key, journal_row.begin(b"n" * 16, committed, "", journal_row.Outcome.COMMITTED))
    assert not shared.check_and_write(schema.JOURNAL, schema.COMMITTED, None, own)
    instance = open_instance(shared, world, mac=0x99)
    # The sweep waits for the lease time.
    for _ in range(3):
        instance.maintain()
        world.advance(OVER)
    assert instance.outcomes.is_swept(revision)
    assert list(IntegrityCheck(instance).run()) == []


def test_an_upgraded_repository_is_not_changed_again(old: Old, world: World) -> None:
    world.advance(OVER)
    old.upgrade()
    before = dump(old.store())
    assert old.upgrade() == Upgraded(old.newest, old.newest)
    assert old.upgrade(wanted=old.newest) == Upgraded(old.newest, old.newest)
    assert dump(old.store()) == before


def test_every_opening_refuses_an_old_repository_and_names_the_command(old: Old) -> None:
    before = dump(old.store())
    with pytest.raises(FormatError, match=rf"has format 1, .* uses format {old.newest}; .* `hbasemk upgrade`"):
        Instance.open(old.store(), TestRuntime(old.world), create=False)
    with pytest.raises(FormatError, match="`hbasemk upgrade`"):
        Repository(old.store(), poll_interval=0)
    assert dump(old.store()) == before


def test_impossible_upgrades_write_nothing(old: Old, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.advance(OVER)
    before = dump(old.store())
    for wanted in (0, old.newest + 1, -1, True, "2", 2.0):
        with pytest.raises(InvalidValueError, match=f"must be an int from 1 to {old.newest}"):
            old.upgrade(wanted=wanted)  # type: ignore[arg-type]
    assert old.upgrade(wanted=1) == Upgraded(1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(old.store()), "read_only", True)
        with pytest.raises(StoreUnusableError, match="may only read it; run `hbasemk upgrade` as a user who may write"):
            old.upgrade()
    assert dump(old.store()) == before
    old.upgrade()
    with pytest.raises(InvalidValueError, match=f"has format {old.newest} and cannot be downgraded to format 1"):
        old.upgrade(wanted=1)
    with monkeypatch.context() as patch:
        work_as(patch, 1)
        with pytest.raises(
            FormatError, match=rf"has format {old.newest}, .* knows formats up to 1; use a newer version"
        ):
            old.upgrade()


def test_a_store_without_a_repository_is_refused_and_not_created(world: World, tmp_path: Path) -> None:
    for store in (MemoryStore(world.clock), SqliteStore(str(tmp_path / "none.db"))):
        with pytest.raises(StoreUnusableError, match="not exist"):
            upgrade(store, TestRuntime(world), print)
        store.close()
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("before_it", [1, 2])
def test_an_upgrade_never_lowers_the_format_that_another_one_has_written(world: World, before_it: int) -> None:
    shared = MemoryStore(world.clock)
    old = Old(world, lambda: copy.copy(shared), before=before_it)
    world.advance(OVER)
    store = FaultyStore(old.store())

    def upgrade_meanwhile(call: Call) -> None:
        if call.method == "scan":
            store.before = lambda _: None
            assert old.upgrade().after == 4

    store.before = upgrade_meanwhile
    with pytest.raises(InvalidValueError, match="has format 4 and cannot be downgraded to format 3"):
        old.upgrade(store, 3)
    assert old.format() == 4
    old.is_whole()


def test_a_refused_upgrade_names_the_format_that_another_one_has_written(world: World) -> None:
    shared = MemoryStore(world.clock)
    old = Old(world, lambda: copy.copy(shared), before=2)
    world.advance(OVER)
    store = FaultyStore(old.store())

    def upgrade_meanwhile(call: Call) -> None:
        if call.method == "scan":
            store.before = lambda _: None
            old.upgrade()
            now = world.clock() - revisions.DEFAULT_EPOCH_MS
            write_lease(old.store(), 0x55, now, now + 2_000)

    store.before = upgrade_meanwhile
    with pytest.raises(StoreUnusableError, match=r"somebody may still use it .* It has format 4\."):
        old.upgrade(store, 3)


# --- leases ----------------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_reached_is_reported_at_once(old: Old, world: World) -> None:
    store = FaultyStore(old.store())

    def refuse(call: Call) -> None:
        raise StoreNotAppliedError(f"{call.method} refused on purpose")

    store.before = refuse
    began = world.ms
    with pytest.raises(StoreNotAppliedError, match="on purpose"):
        upgrade(store, TestRuntime(world, retry_timeout=60), print)
    assert world.ms - began < 1000


def test_a_live_lease_is_refused_by_name_until_the_time_that_the_error_names(old: Old, world: World) -> None:
    before = dump(old.store())
    with pytest.raises(
        StoreUnusableError, match=r"and test \(format 1\) may still use it \(.* 3\.0 s from now"
    ) as caught:
        old.upgrade()
    assert "End all processes" in str(caught.value)
    assert {name: rows for name, rows in dump(old.store()).items() if name != "cluster"} == {
        name: rows for name, rows in before.items() if name != "cluster"
    }
    assert old.format() == 1
    world.advance(2.9)
    with pytest.raises(StoreUnusableError, match=r" 0\.1 s from now"):
        old.upgrade()
    world.advance(0.2)
    assert old.upgrade().after == old.newest


def write_lease(store: Store, machine: int, start: int, end: int, holder: str = "somebody") -> None:
    store.verify(schema.TABLES)
    record = LeaseRecord(start, end, b"m" * 16, holder)
    store.write(schema.CLUSTER, [Put(schema.machine_key(machine), [NewCell(*schema.LEASE, record.encode())])])


def test_a_dead_lease_that_ends_in_years_holds_up_the_upgrade_only_for_a_lease(old: Old, world: World) -> None:
    world.advance(OVER)
    now = world.clock() - revisions.DEFAULT_EPOCH_MS
    write_lease(old.store(), 0x55, now, now + 10**11)
    began = world.ms
    assert old.upgrade().after == old.newest
    assert 3_000 < world.ms - began < 6_000
    (said,) = old.said
    assert "somebody ends far ahead" in said
    assert "waiting 3 s" in said


def test_a_live_lease_that_ends_in_years_is_refused(old: Old, world: World) -> None:
    world.advance(OVER)
    now = world.clock() - revisions.DEFAULT_EPOCH_MS
    write_lease(old.store(), 0x55, now, now + 10**11)

    def renew(_: str) -> None:
        write_lease(old.store(), 0x55, now, now + 10**11 + 1)

    with pytest.raises(StoreUnusableError, match="somebody renewed its lease just now"):
        upgrade(old.store(), TestRuntime(world), renew)
    assert old.format() == 1


def damage_lease(store: Store, machine: int) -> None:
    store.verify(schema.TABLES)
    store.write(schema.CLUSTER, [Put(schema.machine_key(machine), [NewCell(*schema.LEASE, b"short")])])


def test_a_damaged_lease_is_replaced_and_holds_up_the_upgrade_until_the_new_one_is_over(old: Old, world: World) -> None:
    world.advance(OVER)
    machine = revisions.machine_of(old.written.pending)
    damage_lease(old.store(), machine)
    began = world.ms
    assert old.upgrade() == old.done
    # A lease, and the skew three times.
    assert 4_000 < world.ms - began < 7_000
    (said,) = old.said
    assert f"the lease of machine id {machine:04x} cannot be read; the upgrade has replaced it, and waits" in said
    old.is_whole()


def test_a_process_whose_damaged_lease_is_replaced_is_noticed_when_it_claims_another_one(
    old: Old, world: World
) -> None:
    world.advance(OVER)
    damage_lease(old.store(), 0x55)
    now = world.clock() - revisions.DEFAULT_EPOCH_MS

    def claim(text: str) -> None:
        if "replaced" in text:
            write_lease(old.store(), 0x56, now, now + 2_000)

    with pytest.raises(StoreUnusableError, match="somebody may still use it"):
        upgrade(old.store(), TestRuntime(world), claim)
    assert old.format() == 1


def test_damage_that_stops_an_upgrade_names_the_version_whose_check_reads_the_repository(
    old: Old, world: World
) -> None:
    world.advance(OVER)
    store = old.store()
    store.verify(schema.TABLES)
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, b"short")])])
    with pytest.raises(FormatError, match="`hbasemk check` of a version with the repository's format lists") as caught:
        old.upgrade()
    assert CHECK_ADVICE not in str(caught.value)


@pytest.mark.parametrize("table_call", ["scan", "check_and_write"])
def test_a_process_that_begins_during_the_upgrade_is_noticed(old: Old, world: World, table_call: str) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    now = world.clock() - revisions.DEFAULT_EPOCH_MS
    calls = 0

    def claim(call: Call) -> None:
        nonlocal calls
        calls += call.method == table_call
        if call.method == table_call and calls == (1 if table_call == "scan" else old.replacement):
            # A short command: its lease is over at once.
            write_lease(store.inner, 0x55, now - 9_000, now - 8_000)

    store.after = claim
    if table_call == "scan":
        with pytest.raises(StoreUnusableError, match=r"somebody began to use it during the upgrade.* It has format 1"):
            old.upgrade(store)
        assert old.format() == 1
    else:
        with pytest.raises(
            StoreUnusableError, match=rf"has format {old.newest} now, but somebody began .* end this process at once"
        ):
            old.upgrade(store)
        assert old.format() == old.newest
    assert old.upgrade().after == old.newest
    old.is_whole()


def test_a_process_of_this_version_may_begin_at_the_end_of_the_upgrade(old: Old, world: World) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    calls = 0

    def begin(call: Call) -> None:
        nonlocal calls
        calls += call.method == "check_and_write"
        if calls == old.replacement and store.after is not None:
            store.after = None
            commit(open_instance(old.store(), world, mac=0x55), AddNode("/early", {}))

    store.after = begin
    assert old.upgrade(store) == old.done
    old.is_whole()


# --- processes that have the repository open -------------------------------------------------------------


def test_an_instance_stops_when_the_format_changes(world: World, new_store: Callable[[], Store]) -> None:
    instance = open_instance(new_store(), world, SETTINGS)
    commit(instance, AddNode("/a", {"v": 1}))
    reader = Instance.open(new_store(), TestRuntime(world, mac=0x66))
    newer = kernel_settings.format_of(new_store()) + 1
    set_format(new_store(), newer)
    before = dump(new_store())
    world.advance(1)
    with pytest.raises(FormatError, match=rf"has format {newer}, .* use a newer version"):
        instance.maintain()
    # The snapshot in memory stays readable; nothing else does, and nothing is written.
    assert instance.node(instance.head(), "/a").properties == {"v": 1}  # type: ignore[union-attr]
    for call in (
        instance.poll,
        lambda: commit(instance, SetProperty("/a", "v", 2)),
        lambda: instance.node(instance.head(), "/other"),
    ):
        with pytest.raises(FormatError, match=f"has format {newer}"):
            call()
    instance.close()
    # An instance that holds no lease yet notices when it claims one.
    with pytest.raises(FormatError, match=f"has format {newer}"):
        commit(reader, SetProperty("/a", "v", 3))
    after = dump(new_store())
    assert (after["nodes"], after["journal"]) == (before["nodes"], before["journal"])
    set_format(new_store(), newer - 1)


def test_a_process_that_pauses_in_its_claim_notices_before_it_announces_anything(world: World) -> None:
    """The upgrade sees no lease of it. In a store without an order of writes it takes over its log after the lease."""
    shared = MemoryStore(world.clock)
    commit(open_instance(shared, world, SETTINGS), AddNode("/a", {"v": 1}))
    faulty = FaultyStore(shared)
    paused = Instance.open(faulty, TestRuntime(world, mac=0x66))
    newer = kernel_settings.format_of(shared) + 1
    before = dump(shared)

    def pause(call: Call) -> None:
        if call.method == "check_and_write":
            faulty.before = lambda _: None
            set_format(shared, newer)

    faulty.before = pause
    for _ in range(2):
        with pytest.raises(FormatError, match=f"has format {newer}"):
            commit(paused, SetProperty("/a", "v", 2))
    after = dump(shared)
    assert (after["nodes"], after["journal"]) == (before["nodes"], before["journal"])
    paused.close()
    set_format(shared, newer - 1)


def test_damaged_settings_do_not_stop_an_instance(world: World, new_store: Callable[[], Store]) -> None:
    # The integrity check reports them; the instance read them when it began.
    instance = open_instance(new_store(), world, SETTINGS)
    commit(instance, AddNode("/a", {}))
    store = new_store()
    store.verify(schema.TABLES)
    row = store.read(schema.CLUSTER, [kernel_settings.CURRENT])[0]
    for damaged in (b"", b"[]", b"{}", b'{"format": "x"}', b'{"format": null}', b"\xff"):
        store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, damaged)])])
        world.advance(1)
        instance.maintain()
        commit(instance, SetProperty("/a", "v", damaged))
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, row.cells[0].value)])])


def test_no_renewal_and_no_claim_takes_a_call_more_to_read_the_format_on_a_store_without_a_clock(world: World) -> None:
    store = CountingStore(MemoryStore(world.clock))
    instance = open_instance(store, world, SETTINGS)
    store.take()
    instance.lease.claim()
    # The claim measures the clock, claims a lease, and takes over the log.
    assert store.take() == {("write", "cluster"): 2, ("read", "cluster"): 3, ("check_and_write", "cluster"): 2}
    instance.lease.renew()
    assert store.take() == {("write", "cluster"): 1, ("read", "cluster"): 1, ("check_and_write", "cluster"): 1}


# --- interruptions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_upgrade_killed_at_any_call_leaves_the_old_format_or_the_new_one(world: World, when: str) -> None:
    number = 0
    while True:
        shared = MemoryStore(world.clock)
        old = Old(world, lambda shared=shared: copy.copy(shared))  # type: ignore[misc]
        world.advance(OVER)
        store = FaultyStore(old.store())
        left = number

        def die(_: Call) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        setattr(store, when, die)
        try:
            old.upgrade(store)
            break
        except Died:
            pass
        found = old.format()
        assert found in {1, old.newest}
        again = old.upgrade()
        assert (again.before, again.after) == (found, old.newest)
        old.is_whole()
        number += 1
    assert number > 5


def test_lost_replies_do_not_harm(old: Old, world: World) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    lost = 0

    def lose(call: Call) -> None:
        nonlocal lost
        if call.method == "check_and_write" and not lost:
            lost += 1
            raise lost_reply(call)

    store.after = lose
    assert old.upgrade(store) == old.done
    assert lost == 1
    old.is_whole()


def test_two_upgrades_at_once_end_with_the_new_format(old: Old, world: World) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    nested: list[Upgraded] = []

    def other(call: Call) -> None:
        if call.method == "check_and_write" and not nested:
            nested.append(old.upgrade())

    store.before = other
    if isinstance(old.store(), SqliteStore):
        # The first one finds the settings of the second one.
        with pytest.raises(FormatError, match="another process upgrades"):
            old.upgrade(store)
    else:
        # Both write the same logs and settings, so neither can tell which one did.
        assert old.upgrade(store) == old.done
    assert nested == [old.done]
    old.is_whole()
