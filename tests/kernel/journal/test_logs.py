"""The logs of writers: what polls and the watermark rely on, and a planted fault for each rule."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from hbasemk.errors import LeaseLostError, StoreNotAppliedError
from hbasemk.format import journal_row, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.ids.announcements import RECENT
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import log_poller
from hbasemk.store.abc import Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.joint import JointStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.mutants import logs

Mutant = Callable[[pytest.MonkeyPatch], None]


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


class Place:
    """Two writers, whose store reads the logs one by one for a reader."""

    wrap: type[FaultyStore] = FaultyStore
    """:class:`JointStore`: writers announce and create a row in one call of the store."""

    def __init__(self) -> None:
        self.world = World()
        memory = MemoryStore(self.world.clock)
        self.store: Store = memory if self.wrap is FaultyStore else self.wrap(memory)
        self.faulty = self.wrap(self.store)
        self.low, self.high = (open_instance(self.store, self.world, mac=mac) for mac in (1, 2))
        for number, writer in enumerate((self.low, self.high)):
            add(writer, f"/{number}")
            self.world.advance(0.01)
        self.reader = open_instance(self.faulty, self.world, mac=3)
        self.reader.poll()

    def before_scan(self, number: int, act: Callable[[], object]) -> None:
        """Act before the scan with this number, from 1."""
        count = 0

        def before(call: Call) -> None:
            nonlocal count
            if (call.method, call.table) == ("scan", schema.CLUSTER):
                count += 1
                if count == number:
                    act()

        self.faulty.before = before

    def is_closed(self) -> bool:
        """Return whether the reader has each child only together with its parent; read everything at the end."""
        self.reader.poll()
        head = self.reader.head()
        child, parent = (self.reader.node(head, path) for path in ("/p/c", "/p"))
        return child is None or parent is not None

    def has_all(self) -> bool:
        """Return whether the reader, after two more polls, sees what is committed."""
        for _ in range(2):
            self.reader.poll()
        head = self.reader.head()
        return all(self.reader.node(head, path) is not None for path in ("/p", "/p/c"))


def built_on_each_other(place: Place) -> None:
    add(place.low, "/p")
    add(place.high, "/p/c")


def child_joins_with_its_parent() -> bool:
    """Let a poll read the log of the parent's writer before, and that of the child's writer after both committed."""
    place = Place()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_poller, "LOGS", log_poller.LOGS._replace(limit=1))
        # One row for each call: the first writer's log, the second one's.
        place.before_scan(2, lambda: built_on_each_other(place))
        return place.is_closed() and place.has_all()


def announced_during_a_poll_joins_later() -> bool:
    """Let both commit between the two readings of a poll."""
    place = Place()
    add(place.low, "/first")
    place.before_scan(2, lambda: built_on_each_other(place))
    return place.is_closed() and place.has_all()


def pending_joins_when_it_is_decided() -> bool:
    """Let a poll find a revision between its announcement and its decision."""
    place = Place()
    faulty = place.wrap(place.store)
    writer = open_instance(faulty, place.world, mac=4)

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES):
            place.reader.poll()

    faulty.before = before
    add(writer, "/p")
    add(place.low, "/p/c")
    return place.has_all()


def many_commits_between_two_polls() -> bool:
    """Let the log of a writer drop ids before a reader has read them."""
    place = Place()
    made = [add(place.low, f"/many{number}") for number in range(RECENT + 5)]
    place.reader.poll()
    return all(place.reader.journal.knows(revision) for revision in made)


def many_commits_during_a_poll() -> bool:
    """Let the log of a writer drop ids between the two readings of a poll."""
    place = Place()
    made = [add(place.high, "/first")]
    place.before_scan(2, lambda: made.extend(add(place.low, f"/many{number}") for number in range(RECENT + 5)))
    for _ in range(2):
        place.reader.poll()
    return all(place.reader.journal.knows(revision) for revision in made)


def poll_shows_what_was_committed_before_it() -> bool:
    """Let a lower id be announced during a poll."""
    place = Place()
    lower = place.low.announcements.next(0, [])
    place.world.advance(0.01)
    revision = add(place.high, "/c")
    place.before_scan(2, lambda: place.low.announcements.announce(lower))
    assert lower < revision
    return place.reader.poll() == [revision]


def renewal_between_an_id_and_its_announcement() -> bool:
    """Let a writer renew its log after it has made an id, and let a reader poll before the id is announced."""
    place = Place()
    made: list[int] = []
    make = place.low.announcements.next

    def late(above: int, listed: list[int]) -> int:
        made.append(make(above, listed))
        place.low.announcements.renew(0)
        place.reader.poll()
        return made[-1]

    place.low.announcements.next = late  # type: ignore[method-assign]
    add(place.low, "/p")
    place.reader.poll()
    return place.reader.journal.knows(made[0])


def announcement_fails() -> bool:
    """Let a writer's announcements fail for a while; a reader must see what the writer then commits."""
    place = Place()
    faulty = place.wrap(place.store)
    writer = open_instance(faulty, place.world, mac=4)
    add(writer, "/begun")

    def before(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            raise StoreNotAppliedError("refused on purpose")

    faulty.before = before
    made = []
    with contextlib.suppress(StoreNotAppliedError):
        made.append(add(writer, "/p"))
    place.reader.poll()
    return all(place.reader.journal.knows(revision) for revision in made)


def watermark_stays_below_an_id_that_may_be_announced() -> bool:
    """Let a writer make an id, and announce it only after another one has moved the watermark."""
    place = Place()
    made = place.low.announcements.next(place.low.journal.highest_seen, [])
    for number in range(3):
        place.world.advance(0.01)
        add(place.high, f"/later{number}")
    moved = place.high.recovery.advance()
    return moved is None or moved.revision < made


def watermark_stays_below_an_announced_id_without_a_row() -> bool:
    """Let a writer announce an id and a higher bound, but create no row yet."""
    place = Place()
    made = place.low.announcements.next(place.low.journal.highest_seen, [])
    place.low.announcements.announce(made)
    place.world.advance(0.01)
    add(place.high, "/later")
    place.low.poll()
    place.low.announcements.renew(place.low.journal.highest_seen)
    moved = place.high.recovery.advance()
    return moved is None or moved.revision < made


def claim_during_a_move_begins_above_the_watermark() -> bool:
    """Let a process claim a machine id between the reading of the logs and the move of the watermark."""
    place = Place()
    faulty = place.wrap(place.store)
    mover = open_instance(faulty, place.world, mac=5, skew_ms=4_000)
    claimer = open_instance(place.store, place.world, mac=6)
    # Its id is ahead of the ids that the other process makes now.
    add(mover, "/mover")
    for writer in (place.low, place.high):
        # Their logs hold nothing back.
        writer.poll()
        writer.announcements.renew(writer.journal.highest_seen)
    made: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            faulty.before = None
            made.append(claimer.announcements.next(0, []))

    faulty.before = before
    moved = mover.recovery.advance()
    return bool(made) and (moved is None or moved.revision < made[0])


def sleeper_cannot_announce() -> bool:
    """Let the lease of a writer end; another instance then moves the watermark past its log."""
    place = Place()
    made = place.low.announcements.next(place.low.journal.highest_seen, [])
    place.world.advance(30)
    place.high.maintain()
    add(place.high, "/later")
    moved = place.high.recovery.advance()
    try:
        place.low.announcements.announce(made)
    except LeaseLostError:
        return moved is not None and moved.revision > made
    return moved is None or moved.revision < made


def next_holder_keeps_pending_ids() -> bool:
    """Let a writer die after its announcement; the next holder of its machine id announces before a reader polls."""
    place = Place()
    made = place.low.announcements.next(place.low.journal.highest_seen, [])
    place.low.announcements.announce(made)
    place.world.advance(30)
    later = open_instance(place.store, place.world, mac=1, seed=9)
    add(later, "/next")
    assert later.lease.machine == place.low.lease.machine
    place.reader.poll()
    return made in place.reader.journal.pending


def test_the_watermark_stays_below_a_row_that_comes_after_the_scan() -> None:
    place = Place()
    made = place.low.announcements.next(place.low.journal.highest_seen, [])
    place.low.announcements.announce(made)
    place.world.advance(0.01)
    mover = open_instance(place.faulty, place.world, mac=5)
    add(mover, "/later")
    for writer in (place.low, place.high):
        writer.poll()
        writer.announcements.renew(writer.journal.highest_seen)

    def create(call: Call) -> None:
        if (call.method, call.table) == ("scan", schema.JOURNAL):
            place.faulty.after = None
            row = journal_row.begin(b"n" * 16, 0, "pending")
            place.store.write(schema.JOURNAL, [Put(schema.revision_key(made), row)])

    place.faulty.after = create
    moved = mover.recovery.advance()
    assert place.faulty.after is None
    assert moved is None or moved.revision < made


SCENARIOS: list[tuple[Callable[[], bool], Mutant]] = [
    (child_joins_with_its_parent, logs.one_reading),
    (announced_during_a_poll_joins_later, logs.deferred_revisions_forgotten),
    (pending_joins_when_it_is_decided, logs.pending_revisions_forgotten),
    (many_commits_between_two_polls, logs.revisions_not_announced),
    (many_commits_between_two_polls, logs.what_has_left_the_logs_not_read),
    (many_commits_during_a_poll, logs.ids_that_left_a_log_between_the_readings_ignored),
    (poll_shows_what_was_committed_before_it, logs.polls_not_repeated),
    (renewal_between_an_id_and_its_announcement, logs.bound_past_ids_that_are_not_announced),
    (announcement_fails, logs.failed_announcements_taken_as_sent),
    (watermark_stays_below_an_id_that_may_be_announced, logs.watermark_past_the_bounds_of_logs),
    (watermark_stays_below_an_announced_id_without_a_row, logs.watermark_past_announced_revisions),
    (watermark_stays_below_an_announced_id_without_a_row, logs.logs_without_other_pending_ids),
    (claim_during_a_move_begins_above_the_watermark, logs.watermark_past_new_claims),
    (sleeper_cannot_announce, logs.logs_written_by_any_holder),
    (sleeper_cannot_announce, logs.logs_of_expired_leases_not_closed),
    (next_holder_keeps_pending_ids, logs.pending_ids_of_the_earlier_holder_dropped),
]


@pytest.mark.parametrize("wrap", [FaultyStore, JointStore])
@pytest.mark.parametrize(("scenario", "mutant"), SCENARIOS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    scenario: Callable[[], bool], mutant: Mutant, wrap: type[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "wrap", wrap)
    assert scenario()
    mutant(monkeypatch)
    assert not scenario()
