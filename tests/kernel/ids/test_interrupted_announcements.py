"""An interrupt while a log is changed hides no id from readers, on a store that does not order all writes."""

from __future__ import annotations

import pytest

from hbasemk.format import journal_row, schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.ids import announcements
from hbasemk.kernel.ids.decided_ids import DecidedIds
from hbasemk.store.abc import Scan
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import commit
from tests.support.interrupting import in_files, interrupted_at, place, points_of
from tests.support.runtime import World, open_instance


class Place:
    """A writer, and a reader that has polled before what the writer does."""

    def __init__(self, world: World, action: str) -> None:
        self.world = world
        self.action = action
        self.store = MemoryStore(world.clock)
        self.writer, self.reader = open_instance(self.store, world, mac=1), open_instance(self.store, world, mac=2)
        self._number = 0
        if action != "first commit":
            self.add(4)
        self.reader.poll()
        if action == "renewal":
            self.add(1)
            self._renew()

    def add(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self.world.advance(0.01)
            commit(self.writer, AddNode(f"/n{self._number}", {}))

    def _renew(self) -> None:
        self.world.advance(self.writer.settings.lease_ms / 2500)
        self.writer.maintain()

    def committed(self) -> list[int]:
        """Return all committed revisions, by their journal rows."""
        rows = self.store.scan(schema.JOURNAL, Scan(b"", None, 1000))
        return [row.revision for row in journal_row.decode(rows) if row.committed]

    def act(self) -> None:
        """Do what is interrupted."""
        if self.action == "renewal":
            self._renew()
        else:
            self.add(1)


@pytest.mark.no_cover
@pytest.mark.parametrize("later", [1, 4], ids=["in the log", "below its base"])
@pytest.mark.parametrize("action", ["commit", "renewal", "first commit"])
def test_each_id_is_in_the_log_or_below_its_base(
    world: World, action: str, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "RECENT", 2)
    points = points_of(Place(world, action).act, in_files("ids/announcements.py", "ids/decided_ids.py"))
    assert len(points) > 5
    for point in points:
        found = Place(world, action)
        interrupted_at(point, found.act)
        found.add(later)
        committed = found.committed()
        assert len(committed) >= later
        for each in (found.writer, found.reader, open_instance(found.store, world, mac=3)):
            each.poll()
            known, floor = each.journal.knows, each.journal.floor
            lost = [one for one in committed if one > floor and not known(one)]
            assert not lost, f"interrupted at {place(point)}"


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
