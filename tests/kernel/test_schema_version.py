"""The application's schema number: one process sets it, and processes that do not accept it stop committing."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbasemk import FormatError, InvalidValueError, LeaseLostError, Repository, SchemaVersionError, Settings, connect
from hbasemk.format import schema
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel import schema_change, schema_version
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.ids.lease import WATCHED
from hbasemk.kernel.ids.leases import lease_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import create
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.announced import make_id
from tests.support.repositories import Checked, Instances, problems
from tests.support.runtime import TestRuntime, World, open_instance

SETTINGS = Settings(lease_ms=2_000, max_clock_skew_ms=1_000)
SHORT = Settings(lease_ms=1_000, max_clock_skew_ms=100)


def commit(instance: Instance, *operations: Any) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def accepting(store: Any, world: World, accepted: Any, mac: int) -> Instance:
    instance = Instance.open(store, TestRuntime(world, mac=mac), wanted=SETTINGS, accepted=accepted)
    world.was_opened(store)
    return instance


# --- the number ------------------------------------------------------------------------------------------


def make_pending(instance: Instance, store: MemoryStore) -> int:
    """Create the journal row of a pending revision of an instance, and return the revision."""
    pending = make_id(instance, instance.head().upper)
    row = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.NO)]
    store.write(schema.JOURNAL, [Put(schema.revision_key(pending), row)])
    return pending


def change_while(store: MemoryStore, world: World, acts: list[Callable[[], object]]) -> None:
    """Change the number from 0 to 1; carry out one of ``acts`` each time that the change waits."""

    class Waiting(TestRuntime):
        def sleep(self, seconds: float) -> None:
            if acts:
                acts.pop(0)()
            super().sleep(seconds)

    new = Instance.open(store, Waiting(world, mac=2), wanted=SETTINGS)
    schema_change.change(new, 1, 0)


def test_the_number_is_0_at_first_and_every_process_sees_a_new_one(opened: Instances) -> None:
    first, second = opened(), opened()
    assert first.schema_version == second.schema_version == 0
    first.set_schema_version(1, expected=0)
    assert first.schema_version == second.schema_version == 1
    second.set_schema_version(1, expected=1)
    second.set_schema_version(2**63 - 1, expected=1)
    first.set_schema_version(0, expected=2**63 - 1)
    assert second.schema_version == 0


def test_of_two_that_set_the_number_only_one_succeeds(opened: Instances) -> None:
    first, second = opened(), opened()
    first.set_schema_version(1, expected=0)
    with pytest.raises(SchemaVersionError, match="schema number 1, and 0 was expected: another process") as caught:
        second.set_schema_version(2, expected=0)
    assert (caught.value.found, caught.value.expected) == (1, 0)
    assert first.schema_version == 1


def test_a_change_at_the_moment_of_the_compare_and_set_is_found(world: World, store: MemoryStore) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world, SETTINGS)
    other = Instance.open(store, TestRuntime(world, mac=2, seed=2))

    def interfere(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.CLUSTER:
            faulty.before = None
            schema_change.change(other, 1, 0)

    faulty.before = interfere
    # Even the same number, set by another process, is not this process's change.
    with pytest.raises(SchemaVersionError, match="schema number 1, and 0 was expected"):
        schema_change.change(instance, 1, 0)


def test_a_lost_reply_does_not_hide_that_the_number_was_set(world: World, store: MemoryStore) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world, SETTINGS)

    def lose(call: Call) -> None:
        if call.method == "check_and_write":
            faulty.after = None
            raise lost_reply(call)

    faulty.after = lose
    schema_change.change(instance, 1, 0)
    assert schema_version.read(instance.store) == 1


def test_a_process_can_set_a_number_that_it_does_not_accept(world: World, store: MemoryStore) -> None:
    setter, other = accepting(store, world, range(1), 1), accepting(store, world, None, 2)
    commit(setter, AddNode("/a", {}))
    commit(other, AddNode("/b", {}))
    # It waits for the other process until the lease of that one is over, and meanwhile its own lease is due.
    schema_change.change(setter, 1, 0)
    assert schema_version.read(store) == 1
    with pytest.raises(SchemaVersionError):
        commit(setter, AddNode("/c", {}))


@pytest.mark.parametrize("transactions", [False, True])
def test_a_process_that_does_not_accept_the_number_that_it_sets_stops_too(world: World, transactions: bool) -> None:
    store = Pausing(MemoryStore(world.clock, transactions=transactions))
    setter = accepting(store, world, 0, 1)
    commit(setter, AddNode("/a", {"v": 1}))
    if not transactions:
        # Another thread has begun a commit.
        store.pause_at(schema.JOURNAL, lambda: schema_change.change(setter, 1, 0))
    else:
        schema_change.change(setter, 1, 0)
    for _ in range(2):
        with pytest.raises((LeaseLostError, SchemaVersionError)):
            commit(setter, SetProperty("/a", "v", 2))
    with pytest.raises(SchemaVersionError):
        commit(setter, SetProperty("/a", "v", 3))
    new = open_instance(store.inner, world, mac=2)
    assert new.require(new.head(), "/a").properties == {"v": 1}


# --- processes that accept some numbers -------------------------------------------------------------------


@pytest.mark.parametrize("accepted", [1, range(1, 2), range(1, 4), range(3, 0, -1), range(1, 9, 2)])
def test_a_process_opens_a_repository_whose_number_it_accepts(opened: Instances, accepted: Any) -> None:
    opened().set_schema_version(1, expected=0)
    opened(schema_version=accepted).run(lambda tx: tx.add("/a"))


@pytest.mark.parametrize("accepted", [0, 2, range(2, 5), range(1), range(0, 9, 2)])
def test_a_process_does_not_open_another_one(opened: Instances, accepted: Any) -> None:
    opened().set_schema_version(1, expected=0)
    with pytest.raises(SchemaVersionError, match="schema number 1, and this process accepts") as caught:
        opened(schema_version=accepted)
    assert (caught.value.found, caught.value.expected) == (1, accepted)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.found, copy.expected) == (1, accepted)


def test_connect_takes_the_number(url: str) -> None:
    with connect(url, poll_interval=0, schema_version=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
    with pytest.raises(SchemaVersionError, match="schema number 0, and this process accepts 2 to 4"):
        connect(url, poll_interval=0, schema_version=range(2, 5))


def test_any_number_from_one_on_is_a_range_like_others(url: str) -> None:
    connect(url, poll_interval=0).close()
    with pytest.raises(SchemaVersionError, match="schema number 0, and this process accepts 1 to 9223372036854775807"):
        connect(url, poll_interval=0, schema_version=range(1, 2**63))
    for wrong in (range(2**64), range(-1, 2**63), range(2**63, 0, -1), range(5, 5)):
        with pytest.raises(InvalidValueError, match="schema_version must be a range"):
            connect(url, poll_interval=0, schema_version=wrong)
    connect(url, poll_interval=0, schema_version=range(2**63 - 1, -1, -1)).close()


def test_a_forked_child_accepts_what_its_parent_does(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    with connect(url, poll_interval=0, schema_version=0, settings=SHORT) as repo:
        with connect(url, poll_interval=0) as other:
            other.set_schema_version(1, expected=0)
        child = os.fork()
        if not child:
            code = 1
            try:
                repo.refresh()
            except SchemaVersionError:
                code = 7
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("transactions", [False, True])
def test_a_process_of_an_old_release_stops_at_its_next_renewal(world: World, transactions: bool) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    old = accepting(store, world, 0, 1)
    new = accepting(store, world, range(2), 2)
    idle = accepting(store, world, 0, 3)
    commit(old, AddNode("/a", {"v": 1}))
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SCHEMA_VERSION, schema_version.encode(1, b"n" * 16))])
    store.write(schema.CLUSTER, [put])
    world.advance(1)
    with pytest.raises(SchemaVersionError, match="schema number 1, and this process accepts 0"):
        old.maintain()
    for instance in (old, old, idle):
        with pytest.raises(SchemaVersionError):
            commit(instance, SetProperty("/a", "v", 2))
    new.poll()
    old.poll()
    assert new.require(new.head(), "/a").properties == old.require(old.head(), "/a").properties == {"v": 1}
    assert len(new.journal) == len(old.journal)
    commit(new, SetProperty("/a", "v", 3))
    # The number may go back, and the process commits again.
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SCHEMA_VERSION, schema_version.encode(0, b"n" * 16))])
    store.write(schema.CLUSTER, [put])
    commit(old, SetProperty("/a", "v", 4))


def test_a_claim_at_the_moment_of_the_change_is_noticed(world: World) -> None:
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    old = accepting(faulty, world, 0, 1)
    new = open_instance(store, world, mac=2)

    def change(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            # The claim has read the old number, and is written after all leases have been read.
            faulty.before = None
            schema_change.change(new, 1, 0)

    faulty.before = change
    with pytest.raises(SchemaVersionError):
        commit(old, AddNode("/a", {}))
    assert not old.lease.held
    new.poll()
    assert new.node(new.head(), "/a") is None


def test_only_processes_that_name_a_number_read_it_again_at_a_claim(world: World) -> None:
    for accepted, reads in ((None, 3), (0, 4)):
        store = CountingStore(MemoryStore(world.clock))
        instance = accepting(store, world, accepted, 1)
        store.take()
        store.traffic()
        instance.lease.claim()
        assert store.take() == {("write", "cluster"): 2, ("read", "cluster"): reads, ("check_and_write", "cluster"): 2}
        # The clock's cell, the settings in each other read, and the log.
        assert store.traffic().rows_read == reads + 1
        instance.lease.renew()
        assert store.take() == {("write", "cluster"): 1, ("read", "cluster"): 1, ("check_and_write", "cluster"): 1}


# --- waiting for others ----------------------------------------------------------------------------------


def test_the_change_waits_for_the_lease_of_a_process_that_does_not_renew_it(world: World, store: MemoryStore) -> None:
    old = accepting(store, world, 0, 1)
    new = open_instance(store, world, mac=2)
    commit(old, AddNode("/a", {}))
    # The cells of a commit that the old process has begun and not decided.
    pending = make_pending(old, store)
    began = world.ms
    schema_change.change(new, 1, 0)
    assert world.ms - began >= 3_000
    # The old process can neither begin a commit nor decide the one that it has begun.
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 2))
    assert not old.outcomes.decide(pending, schema.ABORT, schema.COMMITTED)


def test_a_change_that_is_repeated_after_an_interrupt_waits_too(world: World, store: MemoryStore) -> None:
    old = accepting(store, world, 0, 1)
    faulty = FaultyStore(store)
    new = open_instance(faulty, world, mac=2)
    commit(old, AddNode("/a", {}))

    def interrupt(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.CLUSTER:
            faulty.after = None
            raise KeyboardInterrupt

    faulty.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        schema_change.change(new, 1, 0)
    schema_change.change(new, 1, schema_version.read(store))
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 2))


def test_the_change_waits_for_two_renewals_of_a_process_that_accepts_it(world: World, store: MemoryStore) -> None:
    live = accepting(store, world, range(3), 1)
    commit(live, AddNode("/a", {}))

    class Renewing(TestRuntime):
        renewals = 0

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if live.lease.due():
                self.renewals += 1
                live.lease.renew()

    runtime = Renewing(world, mac=2)
    new = Instance.open(store, runtime)
    schema_change.change(new, 1, 0)
    assert runtime.renewals == 2
    commit(live, SetProperty("/a", "v", 2))


def test_the_change_keeps_its_own_lease_and_waits_for_no_ended_ones(world: World, store: MemoryStore) -> None:
    dead = accepting(store, world, 0, 1)
    commit(dead, AddNode("/a", {}))
    world.advance(5)
    new = open_instance(store, world, mac=2)
    commit(new, SetProperty("/a", "v", 1))
    began = world.ms
    schema_change.change(new, 1, 0)
    assert world.ms == began


@pytest.mark.parametrize("alone", [True, False], ids=["nothing else is written", "another commit"])
@pytest.mark.parametrize("in_steps", [False, True])
def test_a_process_that_pauses_before_its_transaction_does_not_commit_after_the_change(
    world: World, in_steps: bool, alone: bool
) -> None:
    store = MemoryStore(world.clock, transactions=True, batch_rows=1 if in_steps else 1000)
    faulty = FaultyStore(store)
    old, new = accepting(faulty, world, 0, 1), open_instance(store, world, mac=2)
    commit(old, AddNode("/a", {"v": 1}))
    paused: list[bool] = []

    def pause(call: Call) -> None:
        if call.method == "write_if" and not paused:
            paused.append(True)
            schema_change.change(new, 1, 0)
            if not alone:
                commit(new, AddNode("/b", {}))

    faulty.before = pause
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 2), AddNode("/c", {}))
    assert paused
    new.poll()
    assert new.require(new.head(), "/a").properties == {"v": 1}
    faulty.before = None
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 3))


class Pausing(FaultyStore):
    """Calls ``during`` once, before a compare-and-set of a table: what happens while the process is paused there."""

    def pause_at(self, table: str, during: Callable[[], object]) -> None:
        def pause(call: Call) -> None:
            if call.table == table and call.method == "check_and_write":
                self.before = None
                during()

        self.before = pause


@pytest.mark.parametrize("table", [schema.CLUSTER, schema.JOURNAL], ids=["its announcement", "its journal row"])
@pytest.mark.parametrize("in_steps", [False, True])
def test_a_process_that_pauses_between_its_id_and_its_row_does_not_commit_after_the_change(
    world: World, in_steps: bool, table: str
) -> None:
    pausing = Pausing(MemoryStore(world.clock, batch_rows=1 if in_steps else 1000))
    old, new = accepting(pausing, world, 0, 1), open_instance(pausing.inner, world, mac=2)
    commit(old, AddNode("/a", {"v": 1}))
    commit(new, AddNode("/b", {}))
    began = world.ms
    pausing.pause_at(table, lambda: schema_change.change(new, 1, 0))
    with pytest.raises((LeaseLostError, SchemaVersionError)):
        commit(old, SetProperty("/a", "v", 2))
    assert world.ms - began >= 3_000
    for _ in range(2):
        with pytest.raises(SchemaVersionError):
            commit(old, SetProperty("/a", "v", 3))
    commit(new, SetProperty("/b", "v", 1))
    assert new.require(new.head(), "/a").properties == {"v": 1}


@pytest.mark.parametrize(
    "is_deleted",
    [
        pytest.param(False, id="over"),
        pytest.param(True, id="over and deleted", marks=pytest.mark.damages("no horizon is above the deleted lease")),
    ],
)
def test_the_change_closes_the_log_of_a_lease_that_ended_before(world: World, is_deleted: bool) -> None:
    pausing = Pausing(MemoryStore(world.clock))
    old, new = accepting(pausing, world, 0, 1), open_instance(pausing.inner, world, mac=2)
    commit(old, AddNode("/a", {"v": 1}))

    def change() -> None:
        world.advance(5)
        if is_deleted:
            pausing.inner.delete_rows(schema.CLUSTER, [schema.machine_key(old.lease.machine)])
        began = world.ms
        schema_change.change(new, 1, 0)
        assert world.ms == began

    pausing.pause_at(schema.CLUSTER, change)
    with pytest.raises(LeaseLostError):
        commit(old, SetProperty("/a", "v", 2))
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 3))
    new.poll()
    assert new.require(new.head(), "/a").properties == {"v": 1}


class Suspended(TestRuntime):
    """A process on a virtual machine that is suspended for a time: all its clocks stand still meanwhile."""

    since: float | None = None

    def now_ms(self) -> int:
        return super().now_ms() if self.since is None else int(self.since)

    def monotonic(self) -> float:
        return super().monotonic() if self.since is None else self.since / 1000


def test_a_process_that_is_suspended_between_its_lease_and_its_log_reads_the_number(world: World) -> None:
    faulty = FaultyStore(MemoryStore(world.clock))
    runtime = Suspended(world, mac=1)
    old = Instance.open(faulty, runtime, wanted=SETTINGS, accepted=0)
    new = open_instance(faulty.inner, world, mac=2)
    commit(new, AddNode("/a", {"v": 1}))
    claims: list[Call] = []

    def suspend(call: Call) -> None:
        if call.table == schema.CLUSTER and call.method == "check_and_write":
            claims.append(call)
        elif call.table == schema.CLUSTER and call.method == "write" and claims:
            faulty.before = None
            runtime.since = world.ms
            schema_change.change(new, 1, 0)

    faulty.before = suspend
    with pytest.raises(SchemaVersionError):
        commit(old, SetProperty("/a", "v", 2))
    assert runtime.since is not None
    assert not old.lease.held
    new.poll()
    assert new.require(new.head(), "/a").properties == {"v": 1}


def test_a_renewal_that_arrives_after_its_lease_was_over_makes_the_change_wait_again(world: World) -> None:
    """The process had read the old number before it was set, and was paused before it wrote the renewal."""
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    old, new = accepting(store, world, 0, 1), open_instance(faulty, world, mac=2)
    commit(old, AddNode("/a", {"v": 1}))
    pending = make_pending(old, store)
    unannounced = old.announcements.next(pending, [])
    machine, before = old.lease.machine, lease_of(new.store, old.lease.machine)
    assert before is not None
    began = world.ms

    def arrive(call: Call) -> None:
        if world.ms - began >= 3_000 and (call.method, call.table) == ("scan", schema.CLUSTER):
            faulty.before = None
            end = before.end + 5_000
            renewed = LeaseRecord(before.start, end, before.nonce, before.holder)
            put = Put(schema.machine_key(machine), [NewCell(*schema.LEASE, renewed.encode())])
            assert store.check_and_write(schema.CLUSTER, schema.LEASE, before.encode(), put)

    faulty.before = arrive
    schema_change.change(new, 1, 0)
    assert faulty.before is None
    assert world.ms - began >= 8_000
    assert not old.outcomes.decide(pending, schema.ABORT, schema.COMMITTED)
    with pytest.raises(LeaseLostError):
        old.announcements.announce(unannounced)


def test_a_process_that_pauses_after_it_has_polled_the_change_does_not_commit_after_it(world: World) -> None:
    """Its transaction found that nothing had been written since its last poll, and did not read the number."""
    store = MemoryStore(world.clock, transactions=True)
    faulty = FaultyStore(store)
    old = accepting(faulty, world, 0, 1)
    commit(old, AddNode("/a", {"v": 1}))
    paused, resumed = threading.Event(), threading.Event()
    refused: list[SchemaVersionError] = []

    def pause(call: Call) -> None:
        if call.method == "write_if":
            paused.set()
            assert resumed.wait(60)

    def work() -> None:
        old.poll()
        faulty.before = pause
        with pytest.raises(SchemaVersionError) as caught:
            commit(old, SetProperty("/a", "v", 2))
        refused.append(caught.value)

    thread = threading.Thread(target=work)

    class Waiting(TestRuntime):
        def sleep(self, seconds: float) -> None:
            if not paused.is_set():
                thread.start()
                assert paused.wait(60)
            super().sleep(seconds)

    new = Instance.open(store, Waiting(world, mac=2))
    try:
        schema_change.change(new, 1, 0)
    finally:
        resumed.set()
        thread.join()
    assert refused
    new.poll()
    assert new.require(new.head(), "/a").properties == {"v": 1}


def test_real_processes_stop_before_the_change_returns(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    stopped = threading.Event()
    with connect(url, settings=SHORT, schema_version=range(2), poll_interval=0.05) as new:
        new.run(lambda tx: tx.add("/a", {"n": 0}))
        with connect(url, schema_version=0, poll_interval=0.05) as old:
            committed: list[str] = []

            def work() -> None:
                try:
                    while True:
                        old.run(lambda tx: tx.increment("/a", "n"))
                        committed.append(old.head.revision)
                except SchemaVersionError:
                    stopped.set()

            thread = threading.Thread(target=work)
            thread.start()
            new.set_schema_version(1, expected=0)
            total = new.refresh()["/a"]["n"]
            assert stopped.wait(60)
            thread.join()
            assert len(committed) == total == new.refresh()["/a"]["n"]
            new.run(lambda tx: tx.set("/a", "migrated", True))


def test_the_release_of_a_lease_is_no_renewal(world: World, store: MemoryStore) -> None:
    """A renewal whose writer read the number before it was set counts once, and the release after it must not count."""
    old = accepting(store, world, 0, 1)
    commit(old, AddNode("/a", {"v": 1}))
    pending = make_pending(old, store)
    lease = old.lease
    record = lease._record
    assert record is not None
    acts = [
        lambda: lease._write(lease.machine, record, replace(record, end=record.end + 700)),
        lambda: lease.release(0),
    ]

    change_while(store, world, acts)
    # The thread of a commit goes on after its process has released the lease.
    assert not old.outcomes.decide(pending, schema.ABORT, schema.COMMITTED)


def test_a_late_renewal_and_one_that_read_the_old_number_do_not_count_as_two(
    world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request of the first was delayed until the number was set; the process had begun the second before that."""
    old = accepting(store, world, 0, 1)
    commit(old, AddNode("/a", {"v": 1}))
    pending = make_pending(old, store)
    lease, machine = old.lease, old.lease.machine
    record = lease._record
    assert record is not None
    late = replace(record, end=record.end + 700)
    put = Put(schema.machine_key(machine), [NewCell(*schema.LEASE, late.encode())])
    measure = lease.measure
    read = [measure([WATCHED])]
    monkeypatch.setattr(lease, "measure", lambda also=(): read.pop() if read else measure(also))

    def renew() -> None:
        with pytest.raises(SchemaVersionError):
            lease.renew()

    acts = [lambda: store.check_and_write(schema.CLUSTER, schema.LEASE, record.encode(), put), renew]

    change_while(store, world, acts)
    assert not read
    assert not acts
    assert not old.outcomes.decide(pending, schema.ABORT, schema.COMMITTED)


def damage_lease(store: MemoryStore, machine: int) -> None:
    store.write(schema.CLUSTER, [Put(schema.machine_key(machine), [NewCell(*schema.LEASE, b"short")])])


@pytest.mark.damages("a lease")
@pytest.mark.parametrize("transactions", [True, False])
def test_a_damaged_lease_stops_the_change_before_anything_is_written(world: World, transactions: bool) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    instance = open_instance(store, world, SETTINGS)
    damage_lease(store, 0x55)
    with pytest.raises(
        FormatError, match=r"the schema number was not changed, because .*: the lease b'short' is damaged"
    ):
        schema_change.change(instance, 1, 0)
    assert schema_version.read(store) == 0


@pytest.mark.damages("a lease")
def test_an_error_of_the_wait_says_that_the_number_is_set(world: World, store: MemoryStore) -> None:
    other = open_instance(store, world, SETTINGS)
    commit(other, AddNode("/a", {}))
    damaged = "the schema number is 1 now, but .* set it again, with expected=1: the lease b'short' is damaged"
    with pytest.raises(FormatError, match=damaged) as caught:
        change_while(store, world, [lambda: damage_lease(store, other.lease.machine)])
    assert caught.value.row == schema.machine_key(other.lease.machine)  # type: ignore[attr-defined]
    assert schema_version.read(store) == 1


def test_processes_of_earlier_versions_learn_of_the_change(world: World) -> None:
    """Their transactions read the number only if the journal was written since their last poll."""
    store = MemoryStore(world.clock, transactions=True)
    old, new = accepting(store, world, 0, 1), open_instance(store, world, mac=2)
    commit(old, AddNode("/a", {}))
    old.poll()
    number = old.journal.unchanged_since(old.head())
    assert number is not None
    schema_change.change(new, 1, 0)
    assert store.arrivals("journal", number[1] if isinstance(number, tuple) else number, 10, ()).rows


# --- bad input -------------------------------------------------------------------------------------------


def test_bad_numbers_are_refused_and_write_nothing(opened: Instances) -> None:
    repo = opened()
    for bad in (-1, 2**63, -(10**5000)):
        with pytest.raises(InvalidValueError, match="must be a schema number from 0 to"):
            repo.set_schema_version(bad, expected=0)
        with pytest.raises(InvalidValueError, match="must be a schema number from 0 to"):
            repo.set_schema_version(1, expected=bad)
        with pytest.raises(InvalidValueError, match="must be a schema number from 0 to"):
            opened(schema_version=bad)
    for wrong in (True, "1", 1.0, None, b"1"):
        with pytest.raises(TypeError, match="new must be a schema number, an int"):
            repo.set_schema_version(wrong, expected=0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected must be a schema number, an int"):
            repo.set_schema_version(1, expected=wrong)  # type: ignore[arg-type]
        if wrong is not None:
            with pytest.raises(TypeError, match="schema_version must be a schema number, an int"):
                opened(schema_version=wrong)
    for empty in (range(0), range(3, 1), range(-1, 2), range(2**63, 2**63 + 2)):
        with pytest.raises(InvalidValueError, match="schema_version must be a range of schema numbers"):
            opened(schema_version=empty)
    assert repo.schema_version == 0


@pytest.mark.parametrize("data", [b"", b"1", b"x 00", b"-1 00", b" 00", b"\xff 00", b"9" * 30 + b" 00"])
def test_a_damaged_number_is_reported(data: bytes) -> None:
    store = MemoryStore()
    with Repository(store, poll_interval=0) as repo:
        store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SCHEMA_VERSION, data)])])
        with pytest.raises(FormatError, match="the schema number must be digits"):
            _ = repo.schema_version
        with pytest.raises(FormatError, match="the schema number must be digits"):
            Repository(store, poll_interval=0, owns_store=False, schema_version=1)
        (problem,) = problems(repo)
        assert "the schema number must be digits" in problem


def test_a_repository_without_the_number_has_the_number_0(world: World, store: MemoryStore) -> None:
    create(store, SETTINGS)
    assert schema_version.read(store) == 0
