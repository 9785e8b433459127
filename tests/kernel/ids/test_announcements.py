"""The log of a writer is written for the lease under which it was made, and in time."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.errors import ClosedError, LeaseLostError, StoreNotAppliedError
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.abc import CheckAndWrite, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.joint import JointStore
from tests.support.runtime import World, open_instance


def test_a_log_names_the_holder_and_machine_of_its_ids_although_the_lease_changes_before_it_is_sent(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    announcements = open_instance(store, world, mac=1).announcements
    revision = announcements.next(0, [])
    lease = announcements._nonce, announcements._machine
    make, write = announcements._log, announcements._store.check_and_write
    written: list[tuple[bytes | None, bytes]] = []

    def make_and_lose() -> CheckAndWrite:
        log = make()
        # Another thread claims a lease anew, and makes an id.
        announcements._nonce, announcements._machine = b"another", announcements._machine + 1
        return log

    def record(table: str, column: Any, expected: bytes | None, put: Any, **options: Any) -> bool:
        written.append((expected, put.row))
        return write(table, column, expected, put, **options)

    with monkeypatch.context() as patch:
        patch.setattr(announcements, "_log", make_and_lose)
        patch.setattr(announcements._store, "check_and_write", record)
        announcements.announce(revision)
    announcements._nonce, announcements._machine = lease
    assert written == [(lease[0], schema.log_key(lease[1]))]
    assert announcements._acknowledged < revision


def test_a_refused_log_of_an_earlier_lease_does_not_drop_the_next_one(world: World) -> None:
    memory = MemoryStore(world.clock)
    store = FaultyStore(memory)
    one, two = open_instance(store, world, mac=1), open_instance(memory, world, mac=1, seed=2)
    revision = one.announcements.next(0, [])
    machine = one.lease.machine

    def before(call: Call) -> None:
        if call.method != "check_and_write":
            return
        store.before = None
        # The process was paused here. Another one takes its machine id, and another thread of it claims the next one.
        world.advance(60)
        two.clock.next(0)
        with pytest.raises(LeaseLostError):
            one.lease.renew()
        one.clock.next(0)

    store.before = before
    with pytest.raises(LeaseLostError) as raised:
        one.announcements.announce(revision)
    assert raised.value.machine == machine == two.lease.machine
    assert one.lease.held
    assert one.lease.machine == machine + 1


@pytest.mark.parametrize("failing", [schema.CLUSTER, schema.JOURNAL])
def test_of_the_log_and_the_row_at_the_same_time_only_the_log_is_sent_again(failing: str, world: World) -> None:
    memory = MemoryStore(world.clock)
    store = JointStore(memory)
    instance = open_instance(store, world, mac=1)
    revision = instance.announcements.next(0, [])
    calls: list[str] = []

    def before(call: Call) -> None:
        calls.append(call.table)
        if call.table == failing and calls.count(failing) <= 2:
            raise StoreNotAppliedError(f"{call.table} refused")

    store.before = before
    put = Put(schema.revision_key(revision), [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.NO)])
    create = CheckAndWrite(schema.JOURNAL, schema.COMMITTED, None, put)
    if failing == schema.JOURNAL:
        with pytest.raises(StoreNotAppliedError, match="journal refused"):
            instance.announcements.announce_and(revision, create)
        assert calls == [schema.JOURNAL, schema.CLUSTER]
    else:
        assert instance.announcements.announce_and(revision, create)
        assert calls == [schema.JOURNAL, *[schema.CLUSTER] * 3]
    store.before = lambda _: None
    instance.outcomes.abort_own(revision, ())


def test_a_commit_beside_the_close_of_its_instance_does_not_blame_another_process(
    store: MemoryStore, world: World
) -> None:
    instance = open_instance(store, world, mac=1)
    revision = instance.announcements.next(0, [])
    instance.close()
    with pytest.raises(ClosedError, match="nothing was committed"):
        instance.announcements.announce(revision)
    with pytest.raises(ClosedError, match="nothing was committed"):
        instance.lease.renew()


def test_a_bound_is_announced_in_time_although_something_else_renews_the_lease(
    store: MemoryStore, world: World
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    one.lease.claim()
    third = one.settings.lease_ms / 3000
    for _ in range(30):
        world.advance(third / 4)
        # A large commit renews the lease between its calls.
        one.lease.renew()
        one.maintain()
        other.maintain()
        commit(other)
    other.recovery.advance()
    behind = revisions.ms_of(other.journal.head.upper) - revisions.ms_of(read_watermark(store).revision)
    assert behind <= third * 1000 * 1.5


def test_a_bound_that_could_not_be_announced_is_announced_at_the_next_call(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world, mac=1)
    one.lease.claim()
    world.advance(one.settings.lease_ms / 2000)
    before = one.announcements._acknowledged

    def fail(*_: object) -> bool:
        raise StoreNotAppliedError("the region moves")

    with monkeypatch.context() as patch:
        patch.setattr(one.announcements, "_send", fail)
        with pytest.raises(StoreNotAppliedError):
            one.maintain()
    one.maintain()
    assert one.announcements._acknowledged > before


def commit(instance: Instance) -> int:
    path = f"/{instance.journal.highest_seen:x}"
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=1, max_poll_age=0)
