"""Checkpoints: every process reads exactly the snapshot that was kept."""

from __future__ import annotations

import pytest

from hbasemk.errors import (
    BranchError,
    CheckpointError,
    ConflictError,
    FormatError,
    StoreNotAppliedError,
    StoreUnknownError,
)
from hbasemk.format import schema
from hbasemk.format.checkpoint import CheckpointList, Entry, list_column
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection import raising
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import known_revisions
from hbasemk.kernel.log import trunk_steps
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.checkpoints import HOUR, keep_shared, kept
from tests.support.runtime import START_MS, World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.straggler import Straggler, add, opened_late


@pytest.fixture(params=["scanned", "ordered"])
def straggler(request: pytest.FixtureRequest, world: World) -> Straggler:
    return Straggler(MemoryStore(world.clock, transactions=request.param == "ordered"), world)


def test_every_instance_reads_what_was_kept(straggler: Straggler) -> None:
    straggler.other.poll()
    straggler.must_be_exact(straggler.other)
    straggler.must_be_exact(straggler.maker)
    straggler.must_be_exact(open_instance(straggler.store, straggler.world, mac=9))


def test_threads_may_read_different_checkpoints_when_the_lists_have_changed(straggler: Straggler) -> None:
    cells = straggler.other.checkpoint_cells
    straggler.other.poll()
    view = cells.view_of(straggler.revision)
    assert view is not None

    class Interrupted(int):
        """A revision at whose look-up another thread, which has read a view, takes its turn."""

        def __hash__(self) -> int:
            if cells._views:
                cells._views[len(cells._views)] = 0, view
            return super().__hash__()

    cells._views = {Interrupted(straggler.revision): (0, view)}
    straggler.maker.poll()
    checkpoints.keep(straggler.maker, straggler.maker.head(), START_MS + 6 * HOUR)
    straggler.other.poll()

    straggler.must_be_exact(straggler.other)


def test_an_instance_that_polled_long_ago_reads_what_was_kept(world: World) -> None:
    opened_late(world)


def move_watermark(instance: Instance) -> None:
    instance.poll()
    instance.recovery.advance()
    instance.recovery.follow()


def test_what_was_kept_survives_the_watermark_and_restarts(
    straggler: Straggler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_revisions, "KEPT", 1)
    straggler.other.poll()
    for number in range(8):
        add(straggler.other, f"/later{number}")
    straggler.world.advance(60)
    for instance in (straggler.other, straggler.maker):
        move_watermark(instance)
        assert instance.journal.view_of(straggler.revision) is None
        straggler.must_be_exact(instance)
    fresh = open_instance(straggler.store, straggler.world, mac=9)
    assert fresh.journal.floor >= straggler.revision
    straggler.must_be_exact(fresh)


def test_snapshots_of_one_revision_are_equal_if_they_contain_the_same_revisions(
    straggler: Straggler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_revisions, "KEPT", 1)
    straggler.other.poll()
    own = straggler.other.journal.view_of(straggler.revision)
    assert own is not None
    held = [
        (straggler.maker, straggler.view, True),
        # Whether another instance saw the late commit before this revision depends on the order of the store.
        (straggler.other, own, not straggler.other.sees(own, straggler.late)),
    ]
    for number in range(20):
        for instance, view, equal in held:
            kept = instance.at(straggler.revision)
            assert instance.journal.are_equal(view, kept) is equal
            assert instance.journal.are_equal(kept, view) is equal
        add(straggler.other, f"/later{number}")
        straggler.world.advance(60)
        for instance in (straggler.other, straggler.maker):
            move_watermark(instance)
    for instance, view, _ in held:
        assert instance.journal.view_of(straggler.revision) is None
        assert not instance.journal.are_equal(view, instance.head())


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


def test_a_checkpoint_is_noticed_although_a_servers_clock_goes_back(world: World) -> None:
    behind = [0]
    store = MemoryStore(world.clock, clocks={schema.CLUSTER: lambda: world.clock() - behind[0]})
    straggler = Straggler(store, world)
    for one in checkpoints.all_of(straggler.maker):
        checkpoints.release(straggler.maker, one.revision, one.number)
    straggler.other.poll()
    straggler.other.at(straggler.revision)
    behind[0] = 4000
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


def test_a_checkpoint_beside_a_damaged_list_raises_the_error_of_the_list(store: MemoryStore, world: World) -> None:
    """It said that the checkpoint may exist, and that it should be released."""
    instance = open_instance(store, world)
    revision = add(instance, "/a")
    view = instance.at(revision)
    checkpoints.keep(instance, view, START_MS + HOUR)
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(list_column(revision),))])
    damaged = NewCell(*list_column(revision), row.cells[0].value[:-1])
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [damaged])])
    with pytest.raises(FormatError, match="list of entries"):
        checkpoints.keep(instance, view, START_MS + HOUR)
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [damaged._replace(value=row.cells[0].value)])])
    assert len(checkpoints.all_of(instance)) == 1


@pytest.mark.damages("a notice without its column")
@pytest.mark.parametrize("ordered", [False, True])
def test_a_damaged_notice_keeps_no_poll_from_reading(world: World, ordered: bool) -> None:
    store = MemoryStore(world.clock, transactions=ordered)
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    for table, key in ((schema.JOURNAL, schema.NOTICE_FIRST), (schema.CLUSTER, schema.LOGS_TAIL)):
        store.write(table, [Put(key, [NewCell(schema.DATA, b"other", b"x")])])
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


def faulty_instance(world: World, *, transactions: bool = True) -> tuple[Instance, FaultyStore]:
    """Return an instance with a revision, and its store, whose calls can fail."""
    faulty = FaultyStore(MemoryStore(world.clock, transactions=transactions))
    instance = open_instance(faulty, world)
    add(instance, "/a")
    return instance, faulty


@pytest.mark.parametrize("recovers", [True, False])
def test_a_checkpoint_that_no_caller_received_holds_nothing_back(world: World, recovers: bool) -> None:
    one, faulty = faulty_instance(world)
    written: list[Call] = []

    def fail(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            written.append(call)
        elif written and not (recovers and (len(written) > 1 or call.table != schema.JOURNAL)):
            # The notice fails. If the store recovers, the removal and its notice succeed.
            raise StoreNotAppliedError("the disk is full")

    faulty.before = fail
    with pytest.raises(StoreNotAppliedError if recovers else StoreUnknownError) as raised:
        checkpoints.keep_for(one, one.head(), HOUR)
    faulty.before = None
    left = checkpoints.all_of(one)
    assert written
    assert len(left) == (0 if recovers else 1)
    # The caller can release what is left.
    assert all(entry.name in str(raised.value) for entry in left)


@pytest.mark.parametrize(
    "last", [1, 2, 3], ids=["after the write", "after the notice", "while expired ones are removed"]
)
def test_an_interrupted_checkpoint_holds_nothing_back(world: World, last: int) -> None:
    one, faulty = faulty_instance(world)
    calls: list[Call] = []

    def interrupt(call: Call) -> None:
        if calls or (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            calls.append(call)
        if len(calls) == last:
            faulty.after = None
            raise KeyboardInterrupt

    faulty.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        checkpoints.keep_for(one, one.head(), HOUR)

    assert len(calls) == last
    assert checkpoints.all_of(one) == []


def test_a_checkpoint_interrupted_at_its_return_holds_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = faulty_instance(world)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "Checkpoint", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.keep_for(one, one.head(), HOUR)

    assert checkpoints.all_of(one) == []


@pytest.mark.parametrize("transactions", [False, True])
def test_a_branch_that_no_caller_received_holds_nothing_back(world: World, transactions: bool) -> None:
    one, faulty = faulty_instance(world, transactions=transactions)
    written: list[Call] = []

    def fail(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL):
            written.append(call)
        elif written and (call.method, call.table) == ("read", schema.CLUSTER):
            raise StoreNotAppliedError("the disk is full")

    def lose(call: Call) -> None:
        if call.method == "write_if":
            written.append(call)
            raise lost_reply(call)

    faulty.before, faulty.after = (None, lose) if transactions else (fail, None)
    with pytest.raises(StoreUnknownError if transactions else StoreNotAppliedError):
        one.begin_branch(one.head())
    faulty.before = faulty.after = None
    world.advance(3 * 3600)
    one.maintain()
    assert written
    assert raising.holds(one, 0) == []
