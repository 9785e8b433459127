"""A feed that moves to another instance, as that of a forked child, delivers each revision once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.feed import Feed
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from tests.support.runtime import World, open_instance


@pytest.fixture(params=["ordered", "unordered", "sqlite"])
def store(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(str(tmp_path / "content.db"), clock=world.clock)
    return MemoryStore(world.clock, transactions=request.param == "ordered")


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


def take_all(feed: Feed, instance: Instance) -> list[int]:
    """Deliver all batches."""
    taken: list[int] = []
    instance.poll()
    while True:
        batch = feed.advance(instance)
        if not batch.revisions:
            return taken
        taken += batch.revisions
        batch.given = len(batch.revisions)


def test_a_feed_goes_on_in_an_instance_with_a_shorter_sequence(store: Store, world: World) -> None:
    parent, writer = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    feed = Feed(parent.journal.extent(parent.head(), parent.settings.max_clock_skew_ms << 24))
    early = [add(writer, f"/early{number}") for number in range(30)]
    # As when the process is forked: the last batch is delivered, and not recorded yet.
    parent.poll()
    batch = feed.advance(parent)
    assert sorted(batch.revisions) == early
    batch.given = len(early)
    # The child opens where the watermark is, so its positions are lower.
    world.advance(60)
    writer.maintain()
    writer.recovery.advance()
    child = open_instance(store, world, mac=3)
    late = [add(writer, f"/late{number}") for number in range(5)]
    assert take_all(feed, child) == late
    assert [add(writer, "/last")] == take_all(feed, child)
    assert all(one in feed.extent for one in (*early, *late))
