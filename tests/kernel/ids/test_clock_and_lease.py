"""Ids are unique and greater than their bases, despite wrong clocks and pauses."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from hbasemk import ClockSkewError, LeaseLostError, RevisionOverflowError, Settings, StoreNotAppliedError
from hbasemk.errors import ClosedError
from hbasemk.format import revisions, schema
from hbasemk.format.lease_record import LeaseRecord, record_of
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.ids.leases import all_leases, leases_of
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.system import SystemRuntime
from hbasemk.testing.wrapped import CountingStore
from tests.support.runtime import START_MS, TestRuntime, World, open_instance


def add(instance, path: str) -> int:  # type: ignore[no-untyped-def]
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=1, max_poll_age=0)


def test_ids_carry_time_and_machine(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=0xBEEF)
    revision = add(instance, "/a")
    assert revisions.machine_of(revision) == 0xBEEF
    assert abs(revisions.ms_of(revision) + revisions.DEFAULT_EPOCH_MS - START_MS) < 1000


def test_more_than_128_ids_in_one_ms_continue_in_the_next(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    ids = [instance.clock.next(0) for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert revisions.ms_of(ids[-1]) - revisions.ms_of(ids[0]) == 7
    assert not any(map(revisions.is_branch, ids))


def test_branch_ids_have_their_own_counter(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    trunk, branch = instance.clock.next(0), instance.clock.next(0, branch=True)
    assert revisions.ms_of(trunk) == revisions.ms_of(branch)
    assert revisions.is_branch(branch)
    assert instance.clock.next(0, branch=True) == branch + 1
    # Causality: what this instance makes after a branch id is greater.
    assert instance.clock.next(0) > branch + 1


def test_an_id_is_greater_than_its_base(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=1)
    ahead = revisions.pack(START_MS - revisions.DEFAULT_EPOCH_MS + 3000, 0xFFFF, 0x7F)
    assert instance.clock.next(ahead) > ahead


def test_ids_keep_increasing_when_time_goes_back(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    before = instance.clock.next(0)
    instance.runtime.skew_ms = -4000  # type: ignore[attr-defined]
    assert instance.clock.next(0) > before


def test_two_processes_with_one_mac_get_different_machine_ids(store: MemoryStore, world: World) -> None:
    instances = [open_instance(store, world, mac=7, seed=n) for n in range(20)]
    ids = [instance.clock.next(0) for instance in instances]
    assert sorted(map(revisions.machine_of, ids)) == list(range(7, 27))


def test_a_damaged_lease_leaves_its_machine_id_unused(store: MemoryStore, world: World) -> None:
    first = open_instance(store, world, mac=7)
    add(first, "/a")
    first.close()
    place = schema.machine_key(7)
    whole = store.read(schema.CLUSTER, [Get(place, columns=(schema.LEASE,))])[0].cells[0].value
    store.write(schema.CLUSTER, [Put(place, [NewCell(*schema.LEASE, b"damaged")])])
    second = open_instance(store, world, mac=7)
    assert revisions.machine_of(add(second, "/b")) == 8
    store.write(schema.CLUSTER, [Put(place, [NewCell(*schema.LEASE, whole)])])


def test_machine_ids_wrap_around(store: MemoryStore, world: World) -> None:
    machines = {revisions.machine_of(open_instance(store, world, mac=0xFFFF, seed=n).clock.next(0)) for n in range(2)}
    assert machines == {0xFFFF, 0}


def test_expired_lease_is_taken_over_without_duplicate_ids(store: MemoryStore, world: World) -> None:
    sleeper = open_instance(store, world, mac=7, seed=1)
    before = sleeper.clock.next(0)
    world.advance(16)
    fresh_instance = open_instance(store, world, mac=7, seed=2)
    after = fresh_instance.clock.next(0)
    assert revisions.machine_of(after) == revisions.machine_of(before) == 7
    assert fresh_instance.lease.start >= sleeper.lease.end
    with pytest.raises(LeaseLostError, match="machine id 0x0007"):
        sleeper.clock.next(0)
    again = sleeper.clock.next(0)
    assert revisions.machine_of(again) == 8


def test_former_holder_with_a_clock_behind_issues_no_id_of_the_next_holder(store: MemoryStore, world: World) -> None:
    sleeper = open_instance(store, world, mac=7, seed=1)
    sleeper.clock.next(0)
    world.advance(16)
    fresh_instance = open_instance(store, world, mac=7, seed=2)
    taken = {fresh_instance.clock.next(0) for _ in range(50)}
    sleeper.runtime.skew_ms = -17_000  # type: ignore[attr-defined]
    late = {sleeper.clock.next(0) for _ in range(50)}
    assert not taken & late
    assert max(map(revisions.ms_of, late)) < sleeper.lease.end <= fresh_instance.lease.start


def test_a_lease_is_not_over_while_its_holders_clock_may_lag(store: MemoryStore, world: World) -> None:
    holder = open_instance(store, world, mac=7, skew_ms=-4000)
    holder.clock.next(0)
    world.advance(7)
    other = open_instance(store, world, mac=7, seed=2)
    assert revisions.machine_of(other.clock.next(0)) == 8


def test_renewal_keeps_the_machine_id(store: MemoryStore, world: World) -> None:
    holder = open_instance(store, world, mac=7)
    holder.clock.next(0)
    for _ in range(10):
        world.advance(4)
        assert holder.lease.due()
        holder.maintain()
        assert not holder.lease.due()
    assert revisions.machine_of(holder.clock.next(0)) == 7
    other = open_instance(store, world, mac=7, seed=2)
    assert revisions.machine_of(other.clock.next(0)) == 8


def test_released_lease_is_free_after_the_allowed_skew_without_duplicate_ids(store: MemoryStore, world: World) -> None:
    first = open_instance(store, world, mac=7)
    ids = {first.clock.next(0) for _ in range(1000)}
    first.close()
    world.advance(5.01)
    second = open_instance(store, world, mac=7, seed=2)
    revision = second.clock.next(0)
    assert revisions.machine_of(revision) == 7
    assert revision > max(ids)


@pytest.mark.parametrize("ordered", [True, False])
def test_short_processes_use_one_machine_id_after_a_clock_was_ahead(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered)

    def run(seed: int) -> int:
        instance = open_instance(store, world, mac=7, seed=seed)
        revision = add(instance, f"/{seed}")
        instance.close()
        return revision

    run(0)
    world.advance(86_400)
    ahead = run(1)
    world.advance(-86_400)
    made: list[int] = []
    for seed in range(2, 6):
        world.advance(10)
        made.append(run(seed))
    assert {revisions.machine_of(revision) for revision in made} == {7}
    assert [ahead, *made] == sorted({ahead, *made})


@pytest.mark.damages("no revision has the far id")
def test_a_released_lease_that_is_ahead_of_all_known_ids_stays_unused(store: MemoryStore, world: World) -> None:
    """Otherwise its next holder would make ids that are ahead, although no clock is."""
    first = open_instance(store, world, mac=7)
    first.clock.observe(revisions.pack(START_MS - revisions.DEFAULT_EPOCH_MS + 86_400_000, 7, 0))
    first.clock.next(0)
    first.close()
    lease = leases_of(first.store, [7])[7]
    assert lease is not None
    assert lease.is_released
    assert (lease.holder, lease.format) == (f"test (released) (format {lease.format})", first.lease.settings.format)
    second = open_instance(store, world, mac=7, seed=2)
    revision = second.clock.next(0)
    assert revisions.machine_of(revision) == 8
    assert revisions.ms_of(revision) < START_MS - revisions.DEFAULT_EPOCH_MS + 60_000


def test_ids_are_greater_than_all_that_several_threads_observe(store: MemoryStore, world: World) -> None:
    clock = open_instance(store, world).clock
    lower = clock.next(0) + (10 << 24)
    higher = lower + (10 << 24)
    others = [threading.Thread(target=clock.observe, args=(higher,))]
    observed = others[0]

    class Lower(int):
        """Another thread observes a higher id while this one is compared."""

        def __gt__(self, other: int) -> bool:
            greater = super().__gt__(other)
            if others:
                others.pop().start()
                # A shorter time could only make the test succeed by mistake.
                observed.join(0.2)
            return greater

    clock.observe(Lower(lower))
    observed.join()
    assert clock.next(0) > higher


def test_an_id_issued_while_the_lease_is_released_is_inside_it(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its own clock is ahead of the store's, so the time alone does not put the end of the lease behind its ids.
    instance = open_instance(store, world, skew_ms=1000)
    add(instance, "/a")
    release = instance.lease.release
    issued: list[int] = []

    def commit() -> None:
        with contextlib.suppress(ClosedError):
            issued.append(instance.clock.next(0))

    thread = threading.Thread(target=commit)

    def release_beside(*arguments: int) -> None:
        world.advance(0.01)
        thread.start()
        # A shorter time could only make the test succeed by mistake.
        thread.join(0.2)
        release(*arguments)

    monkeypatch.setattr(instance.lease, "release", release_beside)
    instance.close()
    thread.join()
    ends = {machine: record.end for machine, record in all_leases(instance.store).items()}
    assert all(revisions.ms_of(one) < ends[revisions.machine_of(one)] for one in issued)


@pytest.mark.parametrize("skew", [-600_000, -6000, 6000, 600_000])
def test_excessive_clock_skew_is_reported_with_both_times_and_writes_nothing(
    store: MemoryStore, world: World, skew: int
) -> None:
    good = open_instance(store, world, mac=1)
    add(good, "/a")
    # Seen ids raise a clock that is behind. Long after the last one they have no effect.
    world.advance(700)
    bad = open_instance(store, world, mac=2, skew_ms=skew)
    with pytest.raises(ClockSkewError, match="NTP") as caught:
        bad.commit(lambda _: OperationList([SetProperty("/a", "p", 1)]), "", retry_timeout=1, max_poll_age=0)
    assert caught.value.local_ms - caught.value.server_ms == pytest.approx(skew, abs=50)
    good.poll()
    assert good.reader.require(good.head(), "/a").properties == {}


@pytest.mark.parametrize("skew", [-6000, -600_000, -50 * 365 * 86_400_000])
def test_a_clock_that_is_behind_follows_the_revisions_that_its_writer_has_seen(
    store: MemoryStore, world: World, skew: int
) -> None:
    good, bad = open_instance(store, world, mac=1), open_instance(store, world, mac=2, skew_ms=skew)
    for number in range(5):
        last = add(good, f"/a{number}")
        world.advance(4)
        assert add(bad, f"/b{number}") > last
    world.advance(6)
    with pytest.raises(ClockSkewError, match="behind"):
        add(bad, "/c")


@pytest.mark.parametrize("skew", [-4000, 4000])
def test_a_clock_within_the_allowed_skew_works(store: MemoryStore, world: World, skew: int) -> None:
    good = open_instance(store, world, mac=1)
    other = open_instance(store, world, mac=2, skew_ms=skew)
    for number in range(10):
        add(good, f"/a{number}")
        add(other, f"/b{number}")
        world.advance(0.5)
    good.poll()
    assert len(good.reader.children(good.head(), "/")) == 20


@pytest.mark.parametrize("reads", range(1, 6))
def test_a_clock_that_jumps_ahead_while_an_id_is_made_takes_no_id_time(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    instance = open_instance(store, world)
    add(instance, "/a")
    right = instance.runtime.now_ms
    left = iter(range(reads))
    monkeypatch.setattr(instance.runtime, "now_ms", lambda: right() + (600_000 if next(left, None) is None else 0))
    with contextlib.suppress(ClockSkewError):
        revision = instance.clock.next(0)
        assert revisions.ms_of(revision) + revisions.DEFAULT_EPOCH_MS <= world.ms + 5000


def test_exhausted_ids_raise_an_error_with_epoch_and_solution(store: MemoryStore, world: World) -> None:
    open_instance(store, world)
    world.ms = float(revisions.last_moment_ms(revisions.DEFAULT_EPOCH_MS) - 1000)
    instance = open_instance(store, world)
    add(instance, "/a")
    world.advance(2)
    with pytest.raises(RevisionOverflowError, match="epoch"):
        add(instance, "/b")


def test_repository_with_a_later_epoch_continues(world: World) -> None:
    world.ms = float(revisions.last_moment_ms(revisions.DEFAULT_EPOCH_MS) + 1000)
    store = MemoryStore(world.clock)
    instance = open_instance(store, world, Settings(epoch_ms=int(world.ms) - 1000))
    assert add(instance, "/a") < revisions.pack(10_000, 0, 0)
    assert instance.settings.ids_end_ms > world.ms


def test_the_lease_row_names_its_holder(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=7)
    instance.clock.next(0)
    row = store.read(schema.CLUSTER, [Get(schema.machine_key(7))])[0]
    record = record_of(row)
    assert record == LeaseRecord.decode(record.encode())  # type: ignore[union-attr]
    assert record.holder == "test (format 4)"
    assert record.format == 4


def test_the_runtime_of_this_machine_has_a_stable_identity() -> None:
    first, second = SystemRuntime(), SystemRuntime()
    assert first.identity() == second.identity()
    assert 0 <= first.identity()[0] <= 0xFFFF
    assert TestRuntime(World()).identity() != first.identity()


def test_the_clock_is_measured_after_it_went_back_behind_many_measurements(world: World) -> None:
    ahead = 20_000
    store = MemoryStore(lambda: world.clock() + ahead)
    instance = open_instance(store, world, mac=5)
    # Like HBase, which reads one version of a column and may still have others: they appear when that one is deleted.
    store._tables[schema.CLUSTER].versions = ALL_VERSIONS
    for _ in range(100):
        instance.lease.measure()
        world.advance(0.01)
    ahead = 0
    for _ in range(3):
        instance.lease.measure()
        assert abs(instance.lease.server.at_least(instance.runtime.monotonic()) - world.clock()) < 100
    row = store.read(schema.CLUSTER, [Get(schema.machine_key(5))])[0]
    assert {cell.qualifier for cell in row.cells} <= {b"clock", b"lease"}
    store._tables[schema.CLUSTER].versions = 1


def test_a_clock_cell_that_cannot_be_read_back_is_an_error_that_passes(world: World) -> None:
    class Deaf(MemoryStore):
        is_deaf = False

        def write(self, table, puts, *, durable=True):  # type: ignore[no-untyped-def]
            if not self.is_deaf:
                super().write(table, puts, durable=durable)

    store = Deaf(world.clock)
    instance = open_instance(store, world, mac=5)
    store.is_deaf = True
    with pytest.raises(StoreNotAppliedError, match="the store's clock went back to a time before this row was deleted"):
        instance.lease.measure()
    store.is_deaf = False
    instance.lease.measure()


def test_late_row_that_could_not_be_aborted_is_resolved_later(world: World) -> None:
    class Away(MemoryStore):
        slow = away = False

        def check_and_write(self, table, column, expected, put, *, durable=True):  # type: ignore[no-untyped-def]
            if self.away:
                raise StoreNotAppliedError("the store is away")
            if table == schema.JOURNAL and expected is None and self.slow:
                world.advance(6)
                self.away = True
            return super().check_and_write(table, column, expected, put, durable=durable)

    store = Away(world.clock)
    instance = open_instance(store, world, mac=5)
    add(instance, "/a")
    store.slow = True
    with pytest.raises(StoreNotAppliedError, match="away"):
        add(instance, "/b")
    store.slow = store.away = False
    instance.poll()
    assert instance.journal.pending
    instance.maintain()
    instance.poll()
    assert not instance.journal.pending


def test_a_claim_measures_the_stores_clock_despite_a_recent_measurement(store: MemoryStore, world: World) -> None:
    counting = CountingStore(store)
    instance = open_instance(counting, world, mac=5)
    instance.lease.measure()
    counting.take()
    instance.clock.next(0)
    # A store whose clock can be read without a call needs no measurement.
    # The other write takes over the log.
    assert counting.take()["write", schema.CLUSTER] == (store.clock_ms() is None) + (not store.supports_transactions)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts sleep")
def test_sleep_time_of_the_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.monotonic()
    real = time.clock_gettime
    # A machine that slept for an hour. One that never slept shows the same time on both clocks.
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + 3600 * (clock == time.CLOCK_BOOTTIME))
    assert before + 3600 <= SystemRuntime().monotonic() <= time.monotonic() + 3600
