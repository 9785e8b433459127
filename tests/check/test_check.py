"""The integrity check reports every kind of damage with its path and revision, and repairs what is repairable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk.check.problem import BELOW_WATERMARK, DEAD, INCOMPLETE, LOG, OFF_CLOCK, UNANNOUNCED
from hbasemk.format import schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.corruptions import CASES
from tests.support.corruptions.case import Case
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables


@pytest.fixture(params=["memory", "sqlite"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """A repository in a world whose clock the test controls."""
    world = World()
    store: Store
    if request.param == "memory":
        store = MemoryStore(world.clock)
    else:
        store = SqliteStore(str(tmp_path / "content.db"), clock=world.clock)

    def opened(mac: int) -> Instance:
        return open_instance(store, world, mac=mac, seed=mac)

    yield Tables(store, opened, world.advance, world.clock)
    store.close()


def is_no_damage(tables: Tables, case: Case) -> bool:
    """Return whether the store allows this: one that orders all writes has no logs, and no clock limits its ids."""
    return case.kind in {LOG, OFF_CLOCK, UNANNOUNCED} and tables.store.supports_transactions


@pytest.mark.parametrize("name", CASES)
def test_damage_is_named(tables: Tables, name: str) -> None:
    case = CASES[name]
    assert tables.found() == []
    where = case.damage(tables, "/damaged")
    tables.wait(60)
    # Damage that prevents opening the repository is found by an instance that opened it before.
    looking = tables.instance if case.alone else None
    assert ((case.kind, *where) in tables.found(looking)) != is_no_damage(tables, case)


@pytest.mark.parametrize("below_watermark", [False, True])
def test_a_revision_that_cannot_be_aborted_is_not_repairable(tables: Tables, below_watermark: bool) -> None:
    revision = tables.commit(AddNode("/a", {}))
    if below_watermark:
        tables.watermark()
    tables.remove(schema.JOURNAL, schema.revision_key(revision), schema.COMMITTED)
    tables.wait(60)
    problems = tables.problems()
    assert {INCOMPLETE, BELOW_WATERMARK if below_watermark else DEAD} <= {one.kind for one in problems}
    assert not any(one.repairable for one in problems)


REPAIRED = [name for name, case in CASES.items() if case.repaired]


@pytest.mark.parametrize("name", REPAIRED)
def test_repairable_damage_is_repaired(tables: Tables, name: str) -> None:
    kind, *where = CASES[name].kind, *CASES[name].damage(tables, "/damaged")
    tables.wait(60)
    found = [one for one in tables.problems() if (one.kind, one.path, one.revision) == (kind, *where)]
    assert all(one.repairable for one in found)
    assert (not found) is is_no_damage(tables, CASES[name])
    if not found:
        return
    done = tables.repair()
    print(done)
    assert any(done)
    assert tables.problems() == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.repaired and not case.alone])
def test_unrepairable_damage_is_left_alone(tables: Tables, name: str) -> None:
    case = CASES[name]
    where = case.damage(tables, "/damaged")
    tables.wait(60)
    found = [one for one in tables.problems() if (one.kind, one.path, one.revision) == (case.kind, *where)]
    assert not any(one.repairable for one in found)
    tables.repair()
    assert ((case.kind, *where) in tables.found()) != is_no_damage(tables, case)
