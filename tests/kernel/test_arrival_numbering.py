"""The upgrade of SQLite files without arrival numbers, which an older version made: nothing is lost, whatever interrupts it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hbasemk import FormatError
from hbasemk.format import journal_row, schema
from hbasemk.kernel import settings as kernel_settings
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.upgrade import Upgraded, upgrade
from hbasemk.store.abc import Get, Store
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.failing import Died
from tests.support.older import COMMITTED, KEPT, OVER, SETTINGS, remove_arrivals, set_format, write
from tests.support.runtime import TestRuntime, World, open_instance


class OldFile:
    """A file of format 1: commits, a branch, and one pending revision of a writer whose lease has just ended."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self.stores: list[SqliteStore] = []
        writer = Instance.open(self.store(), TestRuntime(world), wanted=SETTINGS)
        self.written = write(writer)
        self.close()
        store = self.store()
        set_format(store, 1)
        self.close()
        remove_arrivals(path)

    def store(self) -> SqliteStore:
        """Return one more store on the file."""
        self.stores.append(SqliteStore(str(self.path), clock=self.world.clock))
        return self.stores[-1]

    def close(self) -> None:
        """Close all stores."""
        for store in self.stores:
            store.close()
        self.stores = []

    def upgrade(self, store: Store | None = None) -> Upgraded:
        self.said: list[str] = []
        return upgrade(store or self.store(), TestRuntime(self.world, mac=0x77), self.said.append)

    def is_whole(self) -> None:
        """Raise AssertionError unless a new instance reads everything and may commit."""
        # The world checks this repository at the end, and closes the store.
        instance = open_instance(SqliteStore(str(self.path), clock=self.world.clock), self.world, mac=0x99)
        assert instance.settings.format == kernel_settings.FORMAT_WITH_ORDER
        assert not instance.journal.pending
        assert instance.outcomes.of(self.written.pending) is journal_row.Outcome.ABORTED
        self.written.check(instance)
        other = Instance.open(self.store(), TestRuntime(self.world, mac=0x98))
        assert other.reader.require(other.head(), "/n1").properties == {"v": "new"}
        assert list(other.journal) == list(instance.journal)


def contents(path: Path) -> list[str]:
    """Return everything in a file."""
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


@pytest.fixture
def old(world: World, tmp_path: Path) -> Iterator[OldFile]:
    made = OldFile(world, tmp_path / "content.db")
    yield made
    made.close()


def test_an_upgraded_file_shows_all_revisions_and_takes_new_ones(old: OldFile, world: World) -> None:
    with pytest.raises(FormatError, match="hbasemk upgrade"):
        Instance.open(old.store(), TestRuntime(world), create=False)
    world.advance(OVER)
    done = old.upgrade()
    # The first revision is the watermark; the branch has two rows.
    assert done == Upgraded(1, 2, COMMITTED + 3, 1)
    assert old.said == []
    old.is_whole()


def test_the_upgrade_keeps_all_other_settings(old: OldFile, world: World) -> None:
    world.advance(OVER)
    old.upgrade()
    store = old.store()
    store.verify(schema.TABLES)
    (cell,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.SETTINGS,))])[0].cells
    fields = json.loads(cell.value)
    assert (fields["format"], fields["leaseMs"], fields["kept"]) == (2, 2_000, KEPT)
    assert "upgrade" not in fields


def test_an_upgraded_file_is_not_changed_again(old: OldFile, world: World) -> None:
    world.advance(OVER)
    old.upgrade()
    before = contents(old.path)
    assert old.upgrade() == Upgraded(2, 2)
    assert contents(old.path) == before


# --- interruptions ---------------------------------------------------------------------------------------


def calls_of(old: OldFile) -> int:
    """Return the number of store calls of an upgrade, made on a copy of the file."""
    copy = old.path.with_name("copy.db")
    shutil.copy(old.path, copy)
    with closing(SqliteStore(str(copy), clock=old.world.clock)) as store:
        counting = CountingStore(store)
        old.upgrade(counting)
        return len(counting.calls)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_upgrade_killed_at_any_call_leaves_an_old_file_or_a_new_one(world: World, tmp_path: Path, when: str) -> None:
    total, number, olds = None, 0, []
    formats: list[int] = []
    while total is None or number < total:
        old = OldFile(world, tmp_path / f"{number}.db")
        olds.append(old)
        world.advance(OVER)
        total = total or calls_of(old)
        store = FaultyStore(old.store())
        left = number

        def die(_: Call) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        setattr(store, when, die)
        with pytest.raises(Died):
            old.upgrade(store)
        found, _ = kernel_settings.read(old.store(), any_format=True)
        assert found is not None
        formats.append(found.format)
        assert old.upgrade().before == found.format
        old.is_whole()
        number += 1
    assert number > COMMITTED + 5
    # Only the last calls find the new format: the one that writes it, and one that looks for older processes.
    assert formats == sorted(formats)
    assert formats.count(2) == (1 if when == "before" else 2)
    for one in olds:
        one.close()


def test_lost_replies_do_not_harm(old: OldFile, world: World) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    seen: set[int] = set()
    count = 0

    def lose(call: Call) -> None:
        nonlocal count
        count += 1
        # Each second call is a retry.
        if count % 2 and call.method in {"check_and_write", "write_if"}:
            seen.add(count)
            raise lost_reply(call)

    store.after = lose
    assert old.upgrade(store).after == 2
    assert len(seen) > COMMITTED
    old.is_whole()


def test_of_two_upgrades_at_once_the_one_that_began_last_completes(old: OldFile, world: World) -> None:
    world.advance(OVER)
    store = FaultyStore(old.store())
    nested: list[Upgraded] = []
    count = 0

    def other(call: Call) -> None:
        nonlocal count
        if call.method == "write_if":
            count += 1
            if count == 4:
                nested.append(old.upgrade())

    store.before = other
    with pytest.raises(FormatError, match="another process upgrades"):
        old.upgrade(store)
    assert nested[0].after == 2
    assert count == 4
    old.is_whole()
