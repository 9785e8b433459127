"""An instance compares the store's change counter instead of polling; whatever a poll could find makes it poll."""

from __future__ import annotations

import pytest

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance


class Uncounted(MemoryStore):
    """A store that cannot tell without a round trip whether it has changed."""

    def change_counter(self) -> int | None:
        return None


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


def test_only_a_change_after_the_last_poll_calls_for_a_poll(store: MemoryStore, world: World) -> None:
    one, two = open_instance(store, world), open_instance(store, world, mac=2)
    one.poll()
    assert one.revalidate() is True
    revision = add(two, "/a")
    assert one.revalidate() is False
    assert one.revalidate() is False
    assert one.poll() == [revision]
    assert one.revalidate() is True


def test_a_store_without_a_counter_must_be_polled(world: World) -> None:
    instance = open_instance(Uncounted(world.clock), world)
    instance.poll()
    assert instance.revalidate() is None


def test_an_unchanged_counter_makes_the_last_poll_recent(store: MemoryStore, world: World) -> None:
    one, two = open_instance(store, world), open_instance(store, world, mac=2)
    one.poll()
    world.advance(10)
    assert not one.journal.is_recent(5)
    one.revalidate()
    assert one.journal.is_recent(5)
    world.advance(10)
    add(two, "/a")
    one.revalidate()
    assert not one.journal.is_recent(5)


def test_each_head_and_commit_polls_while_the_clock_stands_still(store: MemoryStore, world: World) -> None:
    one, two = open_instance(store, world), open_instance(store, world, mac=2)
    one.max_poll_age = 0
    one.poll()
    revision = add(two, "/a")
    assert one.recent_head() == one.at(revision)
    revision = add(two, "/b")
    heads: list[View] = []

    def change(head: View) -> OperationList:
        heads.append(head)
        return OperationList([AddNode("/c", {})])

    one.commit(change, "", retry_timeout=5, max_poll_age=0)
    assert heads == [one.at(revision)]


@pytest.mark.parametrize("method", ["change_counter", "scan"])
def test_a_commit_during_a_poll_calls_for_another_poll(store: MemoryStore, world: World, method: str) -> None:
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world), open_instance(store, world, mac=2)
    made: list[int] = []

    def commit(call: Call) -> None:
        if call.method == method:
            faulty.before = faulty.after = None
            made.append(add(two, "/a"))

    # The scan has found nothing when the commit happens; the counter was read before that, or is read just now.
    faulty.after = commit if method == "scan" else None
    faulty.before = commit if method == "change_counter" else None
    found = one.poll()
    assert found == ([] if method == "scan" else made)
    assert one.revalidate() is (method != "scan")
    if method == "scan":
        assert one.poll() == made


def test_a_failed_poll_calls_for_another_poll(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world), open_instance(store, world, mac=2)
    revision = add(two, "/a")

    def fail(call: Call) -> None:
        if call.method == "scan":
            raise ZeroDivisionError

    faulty.before = fail
    with pytest.raises(ZeroDivisionError):
        one.poll()
    faulty.before = None
    assert one.revalidate() is False
    assert one.poll() == [revision]
