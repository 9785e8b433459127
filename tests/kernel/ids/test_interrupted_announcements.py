"""An interrupt while a log is changed hides no id from readers, on a store that does not order all writes."""

from __future__ import annotations

import pytest

from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.ids import announcements
from hbasemk.kernel.ids.decided_ids import DecidedIds
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import commit
from tests.support.interrupting import Point, in_files, interrupted_at, place, points_of
from tests.support.runtime import World, open_instance

LOGS = in_files("ids/announcements.py", "ids/decided_ids.py")


@pytest.mark.parametrize("action", ["commit", "renewal", "first commit"])
def test_each_id_is_in_the_log_or_below_its_base(world: World, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "RECENT", 2)
    number = 0

    def add(instance: object) -> None:
        nonlocal number
        number += 1
        world.advance(0.01)
        commit(instance, AddNode(f"/n{number}", {}))  # type: ignore[arg-type]

    class Place:
        def __init__(self) -> None:
            self.store = MemoryStore(world.clock)
            self.one, self.reader = open_instance(self.store, world, mac=1), open_instance(self.store, world, mac=2)
            if action != "first commit":
                for _ in range(4):
                    add(self.one)
            self.reader.poll()
            if action == "renewal":
                add(self.one)
                self.renew()

        def renew(self) -> None:
            world.advance(self.one.settings.lease_ms / 2500)
            self.one.maintain()

        def act(self) -> None:
            if action == "renewal":
                self.renew()
            else:
                add(self.one)

        def require_all(self, point: Point) -> None:
            for _ in range(4):
                add(self.one)
            self.one.poll()
            self.reader.poll()
            fresh = open_instance(self.store, world, mac=3)
            fresh.poll()
            for each in (self.reader, fresh):
                floor = each.journal.floor
                lost = [one for one in self.one.journal if one > floor and not each.journal.knows(one)]
                assert not lost, f"interrupted at {place(point)}"

    points = [point for point in points_of(Place().act) if LOGS(point)]
    assert len(points) > 5
    for point in points:
        one = Place()
        interrupted_at(point, one.act)
        one.require_all(point)


def test_an_interrupted_addition_is_complete_or_not_begun() -> None:
    def add(ids: DecidedIds) -> None:
        ids.add(2 << 24)

    def before() -> DecidedIds:
        ids = DecidedIds()
        for each in (1, 3):
            ids.add(each << 24)
        return ids

    for point in points_of(lambda: add(before())):
        ids = before()
        interrupted_at(point, lambda ids=ids: add(ids))  # type: ignore[misc]
        add(ids)
        assert len(ids) == 3
        assert ids.encoded_with(()) == b"".join((each << 24).to_bytes(8, "big") for each in (1, 2, 3))
        assert ids.encoded_with((2 << 24,)) == ids.encoded_with(())
