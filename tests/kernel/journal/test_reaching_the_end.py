"""In a store that orders all writes, an instance that rests moves the watermark to the last revision, whatever failed first.

Without that an instance that opens the repository reads all that was committed within the largest difference of clocks.
"""

from __future__ import annotations

import pytest

from hbasemk.errors import StoreNotAppliedError
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.periodic_work import ADVANCE_AFTER
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.runtime import World, open_instance


@pytest.fixture
def store(ordered_store: Store) -> Store:
    return ordered_store


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {"n": 0})]), "", retry_timeout=5, max_poll_age=0)


def write_many(instance: Instance, number: int = ADVANCE_AFTER) -> int:
    """Commit often, with one call of the periodic work at the end; return the last revision, far above the watermark."""
    last = [add(instance, f"/{one}") for one in range(number)][-1]
    instance.maintain()
    assert read_watermark(instance.store).revision < last
    return last


def is_move(call: Call) -> bool:
    return (call.method, call.table) == ("write_if", schema.CLUSTER)


def test_a_failed_attempt_is_repeated(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one = open_instance(faulty, world, mac=1)
    last = write_many(one)

    def fail(call: Call) -> None:
        if is_move(call):
            raise StoreNotAppliedError("the disk is full")

    faulty.before = fail
    with pytest.raises(StoreNotAppliedError):
        one.maintain()
    faulty.before = None
    one.maintain()
    assert read_watermark(store).revision == last


def test_an_attempt_that_an_arrival_prevented_is_repeated(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    write_many(one)
    later: list[int] = []

    def arrive(call: Call) -> None:
        if is_move(call) and not later:
            later.append(add(other, "/later"))

    faulty.before = arrive
    one.maintain()
    assert later
    assert read_watermark(store).revision < later[0]
    one.poll()
    for _ in range(2):
        one.maintain()
    assert read_watermark(store).revision == later[0]


@pytest.mark.no_cover
def test_another_instance_that_moves_it_less_far_prevents_no_move(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    low = write_many(one, 2 * ADVANCE_AFTER)
    world.advance(60)
    last = add(one, "/later")
    other.poll()
    moves: list[Call] = []

    def move_less_far(call: Call) -> None:
        if is_move(call):
            moves.append(call)
            if len(moves) == 1:
                found = other.recovery.advance(to_end=False)
                assert found is not None
                assert found.revision == low

    faulty.before = move_less_far
    moved = one.recovery.advance()
    assert moved is not None
    assert moved.revision == last == read_watermark(store).revision
    assert len(moves) == 2


def test_the_attempts_end_when_the_watermark_is_at_the_end(store: Store, world: World) -> None:
    counting = CountingStore(store)
    one = open_instance(counting, world, mac=1)
    write_many(one)
    one.maintain()
    counting.traffic()
    for _ in range(3):
        one.maintain()
    assert counting.traffic().calls == 0


@pytest.mark.no_cover
def test_a_pending_revision_delays_it_until_its_writer_is_dead(store: Store, world: World) -> None:
    faulty = FaultyStore(store)
    one, dead = open_instance(store, world, mac=1), open_instance(faulty, world, mac=2)

    class Killed(BaseException):
        """The process of the writer ends."""

    def die(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            raise Killed

    faulty.before = die
    # More than one transaction may write, so the journal row comes first.
    many = OperationList([AddNode(f"/never{number}", {}) for number in range(store.batch_rows + 1)])
    with pytest.raises(Killed):
        dead.commit(lambda _: many, "", retry_timeout=5, max_poll_age=0)
    one.poll()
    assert one.journal.pending
    last = write_many(one)
    one.maintain()
    assert read_watermark(store).revision < last
    world.advance(120)
    for _ in range(3):
        # The sweep is a write, too.
        one.poll()
        one.maintain()
    assert read_watermark(store).revision == last
