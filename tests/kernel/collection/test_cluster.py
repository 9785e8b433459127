"""What a collection deletes in the table ``cluster``: child counts and leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.errors import StoreError, StoreNotAppliedError
from hbasemk.format import revisions, schema
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.ids.leases import all_leases, lease_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading import child_count, reader
from hbasemk.store.abc import Column, Get, Put, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import collection_mutants
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.runtime import World, open_instance


def memos(store: MemoryStore) -> list[bytes]:
    rows = store.scan(schema.CLUSTER, Scan(None, None, 1000, columns=(schema.CHILD_COUNT,)))
    return [row.key for row in rows]


def count(instance: Instance, path: str) -> int:
    return instance.child_count(instance.head(), instance.require(instance.head(), path))


def test_stored_counts_below_the_horizon_are_deleted(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reader, child_count):
        monkeypatch.setattr(module, "WIDE", 2)
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), *(AddNode(f"/a/k{n}", {}) for n in range(5)))
    assert count(one, "/a") == 5
    (old,) = memos(store)
    world.advance(1)
    commit(one, AddNode("/b", {}), *(AddNode(f"/b/k{n}", {}) for n in range(4)))
    world.advance(2 * HOUR)
    commit(one, SetProperty("/b", "p", 1))
    one.recovery.advance()
    later = open_instance(store, world, mac=2)
    assert count(later, "/b") == 4
    both = memos(store)
    assert Collector(one).estimate(RETENTION_MS).cells["child counts"] == 1
    assert memos(store) == both
    assert Collector(one).run(RETENTION_MS).cells["child counts"] == 1
    assert memos(store) == [key for key in both if key != old]
    fresh = open_instance(store, world, mac=3)
    assert (count(fresh, "/a"), count(fresh, "/b")) == (5, 4)


@BOTH_ORDERS
def test_leases_that_ended_below_the_horizon_are_deleted(store: MemoryStore, world: World) -> None:
    gone, closed, live = (open_instance(store, world, mac=mac) for mac in (1, 2, 3))
    for number, instance in enumerate((gone, closed, live)):
        commit(instance, AddNode(f"/{number}", {}))
    gone.lease.forget()
    closed.close()
    world.advance(600)
    commit(live, AddNode("/x", {}))
    assert not Collector(live).run(RETENTION_MS).cells["leases"]
    world.advance(2 * HOUR)
    late = open_instance(store, world, mac=4)
    commit(late, AddNode("/y", {}))
    late.close()
    assert Collector(live).estimate(RETENTION_MS).cells["leases"] == 2
    assert Collector(live).run(RETENTION_MS).cells["leases"] == 2
    assert set(all_leases(live.store)) == {3, 4}
    assert not list(IntegrityCheck(live).run())


@pytest.mark.parametrize("ordered", [False])
def test_logs_below_the_horizon_are_deleted_as_a_whole(store: MemoryStore, world: World) -> None:
    gone, live = (open_instance(store, world, mac=mac) for mac in (1, 2))
    for number in range(3):
        commit(gone, AddNode(f"/{number}", {}))
    log = Get(schema.log_key(gone.lease.machine))
    gone.lease.forget()
    world.advance(2 * HOUR)
    commit(live, AddNode("/x", {}))
    world.advance(2 * HOUR)
    commit(live, AddNode("/y", {}))
    live.recovery.advance()
    (row,) = store.read(schema.CLUSTER, [log])
    # The third commit to the same node was that of a sole writer.
    columns = {schema.LOG, schema.LOG_HOLDER, schema.RECENT_COMMITS, schema.INTENTS[0]}
    assert {cell[:2] for cell in row.cells} == columns
    Collector(live).run(RETENTION_MS)
    (row,) = store.read(schema.CLUSTER, [log])
    assert not row.cells


@BOTH_ORDERS
def test_a_claim_without_a_lease_before_it_begins_above_the_horizon(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}))
    one.close()
    world.advance(600)
    last = commit(other, AddNode("/b", {}))
    world.advance(2 * HOUR)
    Collector(other).run(RETENTION_MS)
    assert lease_of(other.store, 1) is None
    # A clock that shows the time of the lease before: ids must not begin there again.
    slow = open_instance(store, world, mac=1, skew_ms=-8_000_000)
    slow.clock.next(0)
    assert slow.lease.start > revisions.ms_of(last)
    assert slow.clock.next(0, branch=True) > last


class Hidden(FaultyStore):
    """A store that hides the first lease of each machine id, as HBase does if its clock went back behind a deletion."""

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        return expected is None if column == schema.LEASE else super().check_and_write(table, column, expected, put)


def collect_the_lease_before_a_claim(store: MemoryStore, world: World, *, fails: bool = False) -> tuple[Instance, int]:
    """Let a machine id be leased and its lease be collected after another claim read that it was free.

    ``fails``: the next call after the claim is refused once. Returns the instance with that claim, and the highest id in use
    meanwhile.
    """
    faulty = FaultyStore(store)
    slow = open_instance(faulty, world, mac=1, skew_ms=-8_000_000)
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/b", {}))
    used: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            faulty.before = None
            one = open_instance(store, world, mac=1)
            commit(one, AddNode("/a", {}))
            one.close()
            world.advance(600)
            used.append(commit(other, SetProperty("/b", "p", 1)))
            world.advance(2 * HOUR)
            Collector(other).run(RETENTION_MS)
            assert lease_of(other.store, 1) is None
            faulty.before = refuse if fails else None

    def refuse(call: Call) -> None:
        if call.method == "read":
            faulty.before = None
            raise StoreNotAppliedError("refused once")

    faulty.before = before
    if fails:
        with pytest.raises(StoreNotAppliedError):
            slow.clock.next(0)
    slow.clock.next(0)
    return slow, used[0]


@pytest.mark.parametrize("ordered", [False])
def test_a_claim_that_read_before_the_collection_begins_above_the_horizon(store: MemoryStore, world: World) -> None:
    slow, used = collect_the_lease_before_a_claim(store, world)
    # HBase may hide what is written to the log below the horizon, as the collector deleted the log there.
    assert slow.lease.start > revisions.ms_of(used)
    assert slow.clock.next(0) > used


@pytest.mark.parametrize("ordered", [False])
def test_the_next_claim_repeats_a_confirmation_that_has_failed(store: MemoryStore, world: World) -> None:
    slow, used = collect_the_lease_before_a_claim(store, world, fails=True)
    assert slow.lease.start > revisions.ms_of(used)
    assert slow.clock.next(0) > used
    assert slow.lease.machine == 1


@pytest.mark.parametrize("ordered", [False])
def test_a_claim_that_the_store_hides_is_refused(store: MemoryStore, world: World) -> None:
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/a", {}))
    world.advance(2 * HOUR)
    Collector(other).run(RETENTION_MS)
    one = open_instance(Hidden(store), world)
    with pytest.raises(StoreError, match="could not be read back"):
        one.clock.next(0)
    assert not one.lease.held


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (collection_mutants.claims_begin_anywhere, test_a_claim_without_a_lease_before_it_begins_above_the_horizon, ()),
        (collection_mutants.leases_of_any_age_go, test_leases_that_ended_below_the_horizon_are_deleted, ()),
        (collection_mutants.memos_stay, test_stored_counts_below_the_horizon_are_deleted, (None,)),
        (collection_mutants.memos_of_any_view_go, test_stored_counts_below_the_horizon_are_deleted, (None,)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, arguments, monkeypatch)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (
            collection_mutants.claims_do_not_learn_the_horizon,
            test_a_claim_without_a_lease_before_it_begins_above_the_horizon,
        ),
        (
            collection_mutants.claims_not_confirmed,
            test_a_claim_that_read_before_the_collection_begins_above_the_horizon,
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_without_an_order_is_found(
    mutant: Mutant, test: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, (), monkeypatch, ordered=False)
