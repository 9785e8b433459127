"""A writer's log shows its last commits, as far as they are small."""

from __future__ import annotations

import random

import pytest

from hbasemk.format import recent_commits, schema
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.recent_commits import MOST_BYTES, RecentCommits
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import commit
from tests.support.runtime import World, open_instance


def shown(store: MemoryStore, instance: Instance) -> list[int]:
    """Return the revisions that the log of an instance shows as committed, the last one first."""
    (row,) = store.read(schema.CLUSTER, [Get(schema.log_key(instance.lease.machine))])
    return list(recent_commits.of_row(row))


@pytest.mark.parametrize("seed", range(20))
def test_the_last_commits_are_kept_as_far_as_they_fit(seed: int) -> None:
    chance = random.Random(seed)
    commits, made = RecentCommits(), dict[int, bytes]()
    for revision in range(1, 200):
        changes = bytes(chance.randrange(1, chance.choice([20, 200, MOST_BYTES])))
        commits.add(revision, changes)
        one = recent_commits.encode(revision, changes)
        if len(one) <= MOST_BYTES:
            made[revision] = one
        expected, size = b"", 0
        for encoded in reversed(made.values()):
            size += len(encoded)
            if size > MOST_BYTES:
                break
            expected += encoded
        assert commits.encoded == expected, f"seed {seed}"


def test_a_length_of_changes_that_does_not_fit_its_two_bytes_is_ignored() -> None:
    commits = RecentCommits()
    commits.add(1 << 24, bytes(1 << 16))
    assert not commits.is_shown


def test_the_log_shows_a_commit_from_the_next_announcement_on(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    first = commit(writer, AddNode("/a", {}))
    assert shown(store, writer) == []
    second = commit(writer, SetProperty("/a", "p", 1))
    assert shown(store, writer) == [first]
    commit(writer, SetProperty("/a", "p", 2))
    assert shown(store, writer) == [second, first]


def test_the_log_shows_no_commit_of_many_changes(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    small = commit(writer, AddNode("/a", {}))
    commit(writer, *(AddNode(f"/a/{number}", {}) for number in range(200)))
    commit(writer, SetProperty("/a", "p", 1))
    assert shown(store, writer) == [small]


def test_a_log_at_rest_shows_no_commits(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    for number in range(3):
        commit(writer, AddNode(f"/{number}", {}))
    writer.announcements.renew(writer.journal.highest_seen)
    assert len(shown(store, writer)) == 3
    writer.announcements.renew(writer.journal.highest_seen)
    assert shown(store, writer) == []


def test_the_next_holder_of_a_log_shows_its_own_commits(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    for number in range(2):
        commit(writer, AddNode(f"/{number}", {}))
    world.advance(60)
    later = open_instance(store, world, mac=1, seed=2)
    own = commit(later, AddNode("/later", {}))
    assert later.lease.machine == writer.lease.machine
    assert shown(store, later) == []
    commit(later, SetProperty("/later", "p", 1))
    assert shown(store, later) == [own]


def test_a_revision_of_an_earlier_lease_is_not_added(store: MemoryStore, world: World) -> None:
    announcements: Announcements = open_instance(store, world, mac=1).announcements
    announcements.next(0, [])
    announcements.committed(7, ())
    assert not announcements._commits.is_shown
