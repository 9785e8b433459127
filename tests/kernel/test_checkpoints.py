"""Checkpoints: every process reads exactly the snapshot that was kept; of shared ones the latest expiry wins; they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import BranchError, CheckpointError, ConflictError
from hbasemk.format import schema
from hbasemk.format.checkpoint import CheckpointList, Entry, list_column, view_column
from hbasemk.format.extent import Extent
from hbasemk.kernel import checkpoints
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import known_revisions
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.log import trunk_steps
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.runtime import START_MS, World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.straggler import Straggler, add, opened_late

HOUR = 3_600_000


def kept(instance: Instance) -> dict[int, int]:
    """The last expiry of each revision."""
    found: dict[int, int] = {}
    for one in checkpoints.all_of(instance):
        found[one.revision] = max(one.until_ms, found.get(one.revision, 0))
    return found


def keep_shared(instance: Instance, view: View, until_ms: int) -> None:
    checkpoints.keep(instance, view, until_ms, shared=True)


# --- exactly what was taken ---------------------------------------------------------------------------------


@pytest.fixture(params=["scanned", "ordered"])
def straggler(request: pytest.FixtureRequest, world: World) -> Straggler:
    return Straggler(MemoryStore(world.clock, transactions=request.param == "ordered"), world)


def test_every_instance_reads_what_was_kept(straggler: Straggler) -> None:
    straggler.other.poll()
    straggler.must_be_exact(straggler.other)
    straggler.must_be_exact(straggler.maker)
    straggler.must_be_exact(open_instance(straggler.store, straggler.world, mac=9))


def test_an_instance_that_polled_long_ago_reads_what_was_kept(world: World) -> None:
    opened_late(world)


def test_what_was_kept_survives_the_watermark_and_restarts(
    straggler: Straggler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_revisions, "KEPT", 1)
    straggler.other.poll()
    for number in range(8):
        add(straggler.other, f"/later{number}")
    straggler.world.advance(60)
    for instance in (straggler.other, straggler.maker):
        instance.poll()
        instance.recovery.advance()
        instance.recovery.follow()
        assert instance.journal.view_of(straggler.revision) is None
        straggler.must_be_exact(instance)
    fresh = open_instance(straggler.store, straggler.world, mac=9)
    assert fresh.journal.floor >= straggler.revision
    straggler.must_be_exact(fresh)


def test_an_instance_that_read_the_revision_before_reads_what_was_kept_from_its_next_poll_on(
    straggler: Straggler,
) -> None:
    for one in checkpoints.all_of(straggler.maker):
        checkpoints.release(straggler.maker, one.revision, one.number)
    straggler.other.poll()
    straggler.other.at(straggler.revision)
    checkpoints.keep(straggler.maker, straggler.view, START_MS + HOUR)
    straggler.other.poll()
    straggler.must_be_exact(straggler.other)


def test_the_log_shows_each_revision_in_the_order_of_its_instance(straggler: Straggler) -> None:
    other = straggler.other
    other.poll()
    first = min(straggler.late, straggler.revision, key=other.journal.sort_key)
    steps = list(trunk_steps(other, first, other.head(), "/"))
    assert len(steps) == 2
    assert [set(tree(other, step.after)) - set(tree(other, step.before)) for step in steps] in (
        [{"/late"}, {"/quick"}],
        [{"/quick"}, {"/late"}],
    )


def test_one_revision_keeps_one_snapshot(world: World) -> None:
    straggler = Straggler(MemoryStore(world.clock), world)
    straggler.other.poll()
    mine = straggler.other.head()
    assert mine.revision == straggler.revision
    with pytest.raises(CheckpointError, match="it lacks the concurrent revision .* which this snapshot contains"):
        checkpoints.keep(straggler.other, mine, START_MS + HOUR)
    with pytest.raises(CheckpointError, match="it lacks"):
        checkpoints.keep_head(straggler.other, HOUR)
    # The snapshot that is kept can be kept by all.
    checkpoints.keep(straggler.other, straggler.other.at(straggler.revision), START_MS + HOUR)
    checkpoints.keep(straggler.maker, straggler.view, START_MS + HOUR)
    assert len(checkpoints.all_of(straggler.maker)) == 3
    for one in checkpoints.all_of(straggler.maker):
        checkpoints.release(straggler.other, one.revision, one.number)
    # Once nobody keeps that one, another may be kept.
    checkpoints.keep(straggler.other, mine, START_MS + HOUR)
    straggler.maker.poll()
    assert straggler.maker.sees(straggler.maker.at(straggler.revision), straggler.late)
    with pytest.raises(CheckpointError, match="it contains the concurrent revision .* which this snapshot lacks"):
        checkpoints.keep(straggler.maker, straggler.view, START_MS + HOUR)
    # The newest snapshot may contain more.
    assert checkpoints.keep(straggler.maker, straggler.view, START_MS + HOUR, or_more=True).revision == mine.revision


def test_equal_snapshots_of_other_instances_share_a_view(world: World) -> None:
    store = MemoryStore(world.clock)
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    for number in range(5):
        add(one, f"/{number}")
    two.poll()
    checkpoints.keep(one, one.head(), START_MS + HOUR)
    world.advance(60)
    one.recovery.advance()
    three = open_instance(store, world, mac=3)
    for instance in (two, three):
        checkpoints.keep(instance, instance.head(), START_MS + HOUR)
    assert len(checkpoints.all_of(two)) == 3


def test_a_snapshot_of_a_branch_is_refused(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    revision = commit_on_branch(instance, instance.branches.begin(instance.head()), [AddNode("/b", {})])
    with pytest.raises(BranchError, match="keeps a snapshot of trunk"):
        checkpoints.keep(instance, instance.at(revision), START_MS + HOUR)
    assert checkpoints.all_of(instance) == []


@pytest.mark.damages("a notice without its column")
@pytest.mark.parametrize("ordered", [False, True])
def test_a_damaged_notice_keeps_no_poll_from_reading(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered)
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    for key in (schema.NOTICE_FIRST, schema.NOTICE_LAST):
        store.write(schema.JOURNAL, [Put(key, [NewCell(schema.DATA, b"other", b"x")])])
    revision = add(one, "/a")
    two.poll()
    assert two.head().revision == revision


@pytest.mark.parametrize("ordered", [False, True])
def test_requests_by_id_read_the_checkpoints_once_after_each_change(world: World, ordered: bool) -> None:
    shared = MemoryStore(world.clock, transactions=ordered)
    store = CountingStore(shared)
    instance, maker = open_instance(store, world, mac=1), open_instance(shared, world, mac=2)
    made = [add(instance, f"/{number}") for number in range(9)]

    def calls() -> int:
        instance.poll()
        store.calls.clear()
        for revision in [*made, *made]:
            instance.at(revision)
        return len(store.calls)

    assert calls() == 0
    maker.poll()
    kept = checkpoints.keep(maker, maker.at(made[3]), START_MS + HOUR)
    # The list, both cells of one revision, and a poll.
    assert calls() == 3
    assert calls() == 0
    checkpoints.extend(maker, kept.revision, kept.number, 9 * HOUR)
    assert calls() == 1
    checkpoints.release(maker, kept.revision, kept.number)
    assert calls() == 1
    assert calls() == 0
    late = open_instance(store, world, mac=3)
    late.poll()
    store.calls.clear()
    late.at(late.head().revision)
    assert len(store.calls) == 1


def test_a_checkpoint_of_an_earlier_version_is_kept_and_gets_a_view(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world)
    revision = add(instance, "/a")
    until = START_MS + 5 * HOUR
    old = NewCell(*list_column(revision), until.to_bytes(8, "big"))
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [old])])
    assert kept(instance) == {revision: until}
    instance.poll()
    assert instance.at(revision).revision == revision
    keep_shared(instance, instance.at(revision), START_MS + HOUR)
    assert checkpoints.all_of(instance) == [checkpoints.Checkpoint(revision, 0, until, "")]
    assert instance.checkpoint_cells.read(revision).kept is not None


# --- expiry, extension and release --------------------------------------------------------------------------


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


def test_the_cells_of_an_ended_checkpoint_go_an_hour_later_with_the_hourly_maintenance(
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


def test_a_checkpoint_made_while_the_old_cells_are_removed_stays(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    removing, making = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2, seed=2)
    made = checkpoints.keep_head(removing, HOUR)
    checkpoints.release(removing, made.revision, made.number)
    world.advance(2 * 3600)

    def before(call: Call) -> None:
        if call.method == "delete" and call.table == schema.CLUSTER:
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


def test_the_list_of_a_checkpoint_is_decoded_as_written() -> None:
    entries = (Entry(1, 2**63, ""), Entry(2**32 - 1, 0, "für \udc80"))
    for listed in (CheckpointList(7, entries), CheckpointList(0, ()), CheckpointList(2**32 - 1, entries[1:])):
        assert CheckpointList.decode(listed.encode(), 1) == listed


def test_a_commit_on_a_checkpoint_is_checked_against_what_the_checkpoint_lacks(straggler: Straggler) -> None:
    other = straggler.other
    other.poll()
    view = other.at(straggler.revision)
    other.commit_on(view, OperationList([SetProperty("/a", "p", 1)]), "")
    with pytest.raises(ConflictError):
        other.commit_on(view, OperationList([AddNode("/late", {})]), "")
