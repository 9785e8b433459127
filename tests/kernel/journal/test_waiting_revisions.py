"""Polls beside busy writers: a revision waits for what it may be built on, and the poll ends (section 5 of the protocol)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk.format import schema
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import log_poller
from hbasemk.store.abc import Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.mutants import logs
from tests.support.sole_writers import commit


class Readings(FaultyStore):
    """A store that numbers the readings of all logs, from 1; ``before_call`` learns the number and where each call begins."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.count = 0
        self.before_call: Callable[[int, bytes], object] = lambda *_: None

    def scan(self, table: str, scan: Scan) -> Sequence[Row]:  # type: ignore[override]
        if table == schema.CLUSTER and scan.stop == schema.LOGS_END:
            assert scan.start is not None
            self.count += scan.start == schema.LOGS_HEAD
            self.before_call(self.count, scan.start)
        return super().scan(table, scan)


class Place:
    """A reader, two writers in the order of their logs, whose clocks are a second ahead, and one with lower ids."""

    def __init__(self) -> None:
        self.world = World()
        store = MemoryStore(self.world.clock)
        self.readings = Readings(store)
        writers = [open_instance(store, self.world, mac=mac, skew_ms=1000) for mac in (1, 2)]
        self.first, self.second = sorted(writers, key=lambda one: one.lease.machine)
        self.slow = open_instance(store, self.world, mac=3)
        for number, writer in enumerate((self.first, self.second, self.slow)):
            commit(writer, AddNode(f"/{number}", {"x": 0}))
        self.world.advance(5)
        self.reader = open_instance(self.readings, self.world, mac=4)
        self.reader.poll()


def test_a_poll_ends_while_others_commit_all_the_time() -> None:
    """After each reading one writer makes a high id and the other one a low id."""
    place = Place()
    commits = 0

    def commit_more(number: int, start: bytes) -> None:
        nonlocal commits
        if start == schema.LOGS_HEAD and commits < 200:
            commits += 1
            place.world.advance(0.001)
            for writer, path in ((place.first, "/0"), (place.slow, "/2")):
                commit(writer, SetProperty(path, "x", number))

    made = commit(place.first, SetProperty("/0", "x", -1))
    place.readings.before_call = commit_more
    place.readings.count = 0
    joined = place.reader.poll()
    assert made in joined
    assert place.readings.count < 10
    place.readings.before_call = lambda *_: None
    place.reader.poll()
    values = [one.require(one.head(), "/0").properties["x"] for one in (place.reader, place.first)]
    assert values[0] == values[1]


def joins_with_what_it_is_built_on() -> bool:
    """Let a poll see a revision, and what it is built on only in its second reading; then let lower ids come in each reading."""
    place = Place()
    made: dict[str, int] = {}
    is_closed = True

    def make(name: str, writer: Instance, path: str) -> None:
        if name not in made:
            made[name] = commit(writer, SetProperty(path, "x", name))

    def before_call(number: int, start: bytes) -> None:
        nonlocal is_closed
        knows = place.reader.journal.knows
        is_closed = is_closed and ("built" not in made or not knows(made["built"]) or knows(made["base"]))
        if number == 1 and start > schema.log_key(place.first.lease.machine):
            make("base", place.first, "/0")
            place.second.poll()
            make("built", place.second, "/1")
        elif 1 < number < 5:
            make(f"lower {number}", place.slow, "/2")

    place.readings.before_call = before_call
    place.readings.count = 0
    with pytest.MonkeyPatch.context() as patch:
        # One row for each call.
        patch.setattr(log_poller, "LOGS", log_poller.LOGS._replace(limit=1))
        for _ in range(2):
            place.reader.poll()
    assert sorted(made.values()) == [made[name] for name in ("lower 2", "lower 3", "lower 4", "base", "built")]
    assert all(place.reader.journal.knows(one) for one in made.values())
    return is_closed


@pytest.mark.parametrize("mutant", [logs.revisions_wait_for_one_poll_only, logs.revisions_wait_for_the_lowest_only])
def test_a_revision_waits_until_all_that_it_may_be_built_on_joins(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert joins_with_what_it_is_built_on()
    mutant(monkeypatch)
    assert not joins_with_what_it_is_built_on()
