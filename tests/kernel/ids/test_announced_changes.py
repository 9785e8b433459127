"""The log of a writer shows the changes of revisions that have no journal row yet (decision 62)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.errors import LeaseLostError, StoreNotAppliedError
from hbasemk.format import changes, schema, writer_log
from hbasemk.format.changes import RowChange
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.store.abc import CheckAndWrite
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance

PLACES = len(schema.INTENTS)


def encoded(number: int) -> bytes:
    """Return the bytes of some changes."""
    return changes.encode([RowChange(f"/n{number}", changes.CHANGED)])[0].value


def shown(store: MemoryStore, revision: int) -> bytes | None:
    """Return the changes of a revision that its writer's log shows."""
    (log,) = store.read(schema.CLUSTER, [writer_log.get_changes(revision)])
    return writer_log.changes_of(log, revision)


def announced(announcements: Announcements, number: int) -> int:
    revision = announcements.next(0, [])
    assert announcements.announce_with(revision, encoded(number))
    return revision


def test_the_log_shows_the_changes_of_every_undecided_revision(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, mac=1)
    made = {announced(instance.announcements, number): encoded(number) for number in range(PLACES)}
    assert {one: shown(store, one) for one in made} == made
    # There is no more room until one of them is decided.
    further = instance.announcements.next(0, [])
    assert not instance.announcements.announce_with(further, encoded(21))
    instance.announcements.decided(min(made))
    assert instance.announcements.announce_with(further, encoded(21))
    assert shown(store, further) == encoded(21)
    assert shown(store, max(made)) == made[max(made)]


def test_changes_are_not_hidden_by_those_of_a_decided_revision_with_a_higher_id(
    store: MemoryStore, world: World
) -> None:
    instance = open_instance(store, world, mac=1)
    announcements = instance.announcements
    slow = announcements.next(0, [])
    for revision in [announced(announcements, number) for number in range(PLACES)]:
        announcements.decided(revision)
    # Each column has a cell with a higher timestamp.
    assert not announcements.announce_with(slow, encoded(24))
    announcements.announce(slow)


def test_a_failed_announcement_with_changes_is_sent_with_the_next_one(world: World) -> None:
    shared = MemoryStore(world.clock)
    faulty = FaultyStore(shared)
    instance = open_instance(faulty, world, mac=1)
    revision = instance.announcements.next(0, [])

    def refuse(call: Call) -> None:
        if call.table == schema.CLUSTER:
            raise StoreNotAppliedError("the store is out of reach")

    faulty.before = refuse
    with pytest.raises(StoreNotAppliedError):
        instance.announcements.announce_with(revision, encoded(23))
    assert shown(shared, revision) is None
    faulty.before = lambda _: None
    instance.announcements.announce(instance.announcements.next(0, []))
    assert shown(shared, revision) == encoded(23)


def test_the_next_holder_keeps_the_changes_of_undecided_revisions(store: MemoryStore, world: World) -> None:
    dead = open_instance(store, world, mac=1)
    left = [announced(dead.announcements, number) for number in range(PLACES - 1)]
    world.advance(60)
    later = open_instance(store, world, mac=1, seed=2)
    new = announced(later.announcements, 20)
    assert later.lease.machine == dead.lease.machine
    assert [shown(store, one) for one in left] == [encoded(number) for number in range(PLACES - 1)]
    assert shown(store, new) == encoded(20)
    further = later.announcements.next(0, [])
    assert not later.announcements.announce_with(further, encoded(21))
    # The earlier holder announces nothing more.
    dead.announcements.decided(left[0])
    with pytest.raises(LeaseLostError):
        dead.announcements.announce_with(max(dead.announcements._open), encoded(22))


def test_a_column_that_was_chosen_before_a_new_claim_is_not_used(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    announcements = open_instance(store, world, mac=1).announcements
    revision, other = announcements.next(0, []), announcements.next(0, [])
    # Another thread announces both, and another one adopts the log of a new claim while this one waits.
    announcements.announce(other)
    original = Announcements._log_with

    def adopted(self: Announcements, *arguments: Any) -> CheckAndWrite | None:
        self._intents, self._unsent = {}, {}
        return original(self, *arguments)

    monkeypatch.setattr(Announcements, "_log_with", adopted)
    with pytest.raises(LeaseLostError):
        announcements.announce_with(revision, encoded(1))
