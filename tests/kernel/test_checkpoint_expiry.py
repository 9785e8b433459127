"""Checkpoints end: of shared ones the latest expiry wins; extension, release and removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import CheckpointError
from hbasemk.format import schema
from hbasemk.format.checkpoint import list_column, view_column
from hbasemk.format.extent import Extent
from hbasemk.kernel import checkpoints
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.checkpoints import HOUR, keep_shared, kept
from tests.support.marking_store import MarkingStore, store_in_memory
from tests.support.runtime import START_MS, World, open_instance
from tests.support.straggler import add


def test_concurrent_checkpoints_keep_the_later_expiry(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    mine, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    head = mine.head().revision

    def before(call: Call) -> None:
        if call.method in ("write", "check_and_write") and call.table == schema.CLUSTER:
            faulty.before = None
            keep_shared(other, other.head(), START_MS + 5 * HOUR)

    faulty.before = before
    keep_shared(mine, mine.head(), START_MS + HOUR)
    assert kept(other) == {head: START_MS + 5 * HOUR}
    keep_shared(mine, mine.head(), START_MS + 6 * HOUR)
    keep_shared(mine, mine.head(), START_MS + 2 * HOUR)
    assert kept(other) == {head: START_MS + 6 * HOUR}
    assert len(checkpoints.all_of(other)) == 1


def test_each_user_ends_only_its_own_checkpoint(store: MemoryStore, world: World) -> None:
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2, seed=2)
    first = checkpoints.keep(one, one.head(), START_MS + HOUR, "first")
    second = checkpoints.keep(two, two.head(), START_MS + 2 * HOUR, "second")
    assert first.revision == second.revision
    assert checkpoints.all_of(one) == [first, second]
    checkpoints.release(two, first.revision, first.number)
    assert checkpoints.all_of(one) == [second]
    with pytest.raises(CheckpointError, match="cannot be released: it has been released, or has expired"):
        checkpoints.release(one, first.revision, first.number)
    with pytest.raises(CheckpointError, match="cannot be extended"):
        checkpoints.extend(one, first.revision, first.number, HOUR)
    checkpoints.release(one, second.revision, second.number)
    assert checkpoints.all_of(two) == []
    assert checkpoints.view_of(two, second.revision) is None


def test_an_extension_never_shortens(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    made = checkpoints.keep(instance, instance.head(), START_MS + 3 * HOUR, "why")
    assert checkpoints.extend(instance, made.revision, made.number, HOUR) == made
    longer = checkpoints.extend(instance, made.revision, made.number, 5 * HOUR)
    assert longer.until_ms >= START_MS + 5 * HOUR
    assert checkpoints.all_of(instance) == [longer]
    assert longer.message == "why"
    world.advance(6 * 3600)
    with pytest.raises(CheckpointError, match="cannot be extended"):
        checkpoints.extend(instance, made.revision, made.number, HOUR)


@pytest.mark.parametrize("end", ["release", "extend"])
def test_an_extension_beside_another_change_loses_nothing(store: MemoryStore, world: World, end: str) -> None:
    faulty = FaultyStore(store)
    mine, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2, seed=2)
    one = checkpoints.keep(mine, mine.head(), START_MS + HOUR)
    two = checkpoints.keep(other, other.head(), START_MS + HOUR)

    def before(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.CLUSTER:
            faulty.before = None
            if end == "release":
                checkpoints.release(other, two.revision, two.number)
            else:
                checkpoints.extend(other, two.revision, two.number, 5 * HOUR)

    faulty.before = before
    longer = checkpoints.extend(mine, one.revision, one.number, 3 * HOUR)
    assert faulty.before is None
    found = {entry.number: entry.until_ms for entry in checkpoints.all_of(mine)}
    assert found.pop(one.number) == longer.until_ms
    assert (two.number in found) == (end == "extend")
    assert all(until > START_MS + 4 * HOUR for until in found.values())


@pytest.mark.parametrize("act", ["keep", "shared", "extend", "release"])
def test_a_lost_reply_changes_a_checkpoint_once(store: MemoryStore, world: World, act: str) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    head = instance.head()
    made = checkpoints.keep(instance, head, START_MS + HOUR)

    def after(call: Call) -> None:
        if call.method == "check_and_write":
            faulty.after = None
            raise lost_reply(call)

    faulty.after = after
    actions: dict[str, Callable[[], object]] = {
        "keep": lambda: checkpoints.keep(instance, head, START_MS + 2 * HOUR),
        "shared": lambda: keep_shared(instance, head, START_MS + 2 * HOUR),
        "extend": lambda: checkpoints.extend(instance, made.revision, made.number, 2 * HOUR),
        "release": lambda: checkpoints.release(instance, made.revision, made.number),
    }
    actions[act]()
    assert faulty.after is None
    found = checkpoints.all_of(instance)
    assert len(found) == {"keep": 2, "shared": 2, "extend": 1, "release": 0}[act]
    assert not found or kept(instance)[head.revision] >= START_MS + 2 * HOUR


@pytest.mark.parametrize("act", ["keep", "extend", "release"])
def test_a_request_that_a_gateway_sends_twice_changes_a_checkpoint_once(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    instance = open_instance(store, world)
    made = checkpoints.keep(instance, instance.head(), START_MS + HOUR)
    original = store.check_and_write

    def twice(*arguments: Any, **named: Any) -> bool:
        original(*arguments, **named)
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(store, "check_and_write", twice)
        actions: dict[str, Callable[[], object]] = {
            "keep": lambda: checkpoints.keep(instance, instance.head(), START_MS + 2 * HOUR),
            "extend": lambda: checkpoints.extend(instance, made.revision, made.number, 2 * HOUR),
            "release": lambda: checkpoints.release(instance, made.revision, made.number),
        }
        actions[act]()
    assert len(checkpoints.all_of(instance)) == {"keep": 2, "extend": 1, "release": 0}[act]


@pytest.mark.parametrize("skew", [0, 20 * HOUR, -20 * HOUR])
def test_expired_checkpoints_are_removed_by_the_stores_clock(store: MemoryStore, world: World, skew: int) -> None:
    instance = open_instance(store, world, skew_ms=skew)
    instance.lease.measure()

    def keep(revision: int, hours: int) -> None:
        view = View.of(revision, Extent(revision), revision)
        checkpoints.keep(instance, view, START_MS + hours * HOUR)

    for revision, hours in ((1, 1), (2, 9), (3, 2)):
        keep(revision, hours)
    assert kept(instance).keys() == {1, 2, 3}
    world.advance(4 * 3600)
    keep(4, 9)
    assert kept(instance).keys() == {2, 4}
    # An expired checkpoint can be created again.
    keep(1, 9)
    assert kept(instance).keys() == {1, 2, 4}


def test_a_lifetime_is_measured_by_the_stores_clock(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, skew_ms=-20 * HOUR)
    made = checkpoints.keep_head(instance, HOUR)
    assert START_MS + HOUR <= made.until_ms <= START_MS + HOUR + 60_000


def test_the_hourly_maintenance_deletes_the_cells_of_an_ended_checkpoint_after_an_hour(
    store: MemoryStore, world: World
) -> None:
    instance = open_instance(store, world)
    revision = add(instance, "/a")
    made = checkpoints.keep_head(instance, HOUR)
    checkpoints.release(instance, revision, made.number)
    columns = (list_column(revision), view_column(revision))

    def cells() -> int:
        return len(store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns)])[0].cells)

    assert cells() == 2
    for seconds, left in ((3590, 2), (3700, 0)):
        world.advance(seconds)
        instance.maintain()
        assert cells() == left


def test_earlier_versions_of_a_removed_checkpoint_do_not_appear_again(world: World) -> None:
    store = MarkingStore(world.clock, parallel=True)
    one = open_instance(store, world)
    made = checkpoints.keep(one, one.head(), START_MS + HOUR)
    for hours in (3, 5):
        world.advance(1)
        checkpoints.extend(one, made.revision, made.number, hours * HOUR)
    world.advance(1)
    checkpoints.release(one, made.revision, made.number)
    assert list(one.checkpoint_cells.all_lists())
    world.advance(2 * 3600)
    one.checkpoint_cells.remove_expired()
    assert not list(one.checkpoint_cells.all_lists())
    assert checkpoints.all_of(one) == []
    # After the hour, a new one of the same revision is kept.
    again = checkpoints.keep(one, one.head(), START_MS + 9 * HOUR)
    assert checkpoints.all_of(one) == [again]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_checkpoint_that_the_store_does_not_show_is_an_error(world: World, ordered: bool) -> None:
    back = 0
    store = store_in_memory(lambda: world.clock() - back, ordered=ordered)
    one = open_instance(store, world)
    made = checkpoints.keep_head(one, HOUR)
    checkpoints.release(one, made.revision, made.number)
    world.advance(2 * 3600)
    one.checkpoint_cells.remove_expired()
    assert not list(one.checkpoint_cells.all_lists())
    # The clock of the store goes back beyond the moment of the release. On HBase the delete hides what is written now.
    back = 3 * HOUR
    if ordered:
        again = checkpoints.keep(one, one.head(), START_MS + 9 * HOUR)
        assert checkpoints.all_of(one) == [again]
        return
    with pytest.raises(CheckpointError, match="the store does not show it"):
        checkpoints.keep(one, one.head(), START_MS + 9 * HOUR)
    assert checkpoints.all_of(one) == []
    # One of another revision, and one after the clock is right again, are shown.
    first, back = one.head(), 0
    newer = add(one, "/a")
    back = 3 * HOUR
    made = checkpoints.keep(one, one.head(), START_MS + 9 * HOUR)
    assert checkpoints.view_of(one, newer) is not None
    back = 0
    again = checkpoints.keep(one, first, START_MS + 9 * HOUR)
    assert checkpoints.all_of(one) == [again, made]


def test_a_checkpoint_made_while_the_old_cells_are_removed_stays(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    removing, making = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2, seed=2)
    made = checkpoints.keep_head(removing, HOUR)
    checkpoints.release(removing, made.revision, made.number)
    world.advance(2 * 3600)

    def before(call: Call) -> None:
        if call.method == "delete_below" and call.table == schema.CLUSTER:
            faulty.before = None
            checkpoints.keep_head(making, HOUR)

    faulty.before = before
    removing.checkpoint_cells.remove_expired()
    assert faulty.before is None
    assert len(checkpoints.all_of(making)) == 1
    assert checkpoints.view_of(removing, made.revision) is not None


def test_an_extension_in_time_beats_the_removal(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    removing, extending = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    made = checkpoints.keep(extending, extending.head(), START_MS + HOUR)
    cells = removing.checkpoint_cells

    def before(call: Call) -> None:
        if call.method == "check_and_write":
            faulty.before = None
            checkpoints.extend(extending, made.revision, made.number, 9 * HOUR)

    faulty.before = before
    # The removal believes that it is later than it is.
    original, cells.earliest_ms = cells.earliest_ms, lambda: START_MS + 3 * HOUR  # type: ignore[method-assign]
    removing.runtime.skew_ms = 3 * HOUR  # type: ignore[attr-defined]
    cells.remove_expired()
    cells.earliest_ms = original  # type: ignore[method-assign]
    assert faulty.before is None
    assert kept(extending)[made.revision] >= START_MS + 9 * HOUR
