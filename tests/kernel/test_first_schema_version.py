"""The schema number with which a repository is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hbasemk import SchemaVersionError, Settings, connect
from hbasemk.format import schema
from hbasemk.kernel import schema_change, schema_version
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.repositories import Instances
from tests.support.runtime import TestRuntime, World

SETTINGS = Settings(lease_ms=2_000, max_clock_skew_ms=1_000)


def accepting(store: Any, world: World, accepted: Any, mac: int) -> Instance:
    return Instance.open(store, TestRuntime(world, mac=mac, seed=mac), wanted=SETTINGS, accepted=accepted)


@pytest.mark.parametrize(
    ("accepted", "number"),
    [(None, 0), (0, 0), (3, 3), (range(3, 4), 3), (range(2), 0), (range(4, -1, -2), 0), (2**63 - 1, 2**63 - 1)],
)
def test_a_new_repository_begins_with_the_number_that_its_creator_names(
    opened: Instances, accepted: Any, number: int
) -> None:
    repo = opened(schema_version=accepted, settings=SETTINGS)
    assert repo.schema_version == opened(schema_version=number).schema_version == number
    repo.run(lambda tx: tx.add("/a"))
    with pytest.raises(SchemaVersionError):
        opened(schema_version=1)
    repo.set_schema_version(1, expected=number)
    opened(schema_version=1).run(lambda tx: tx.add("/b"))


def test_an_existing_repository_keeps_its_number(opened: Instances) -> None:
    opened()
    for accepted in (3, range(1, 5)):
        with pytest.raises(SchemaVersionError, match="has the schema number 0, and this process accepts"):
            opened(schema_version=accepted)
    assert opened().schema_version == 0


@pytest.mark.parametrize("accepted", [range(1, 5), range(5, 0, -1), range(1, 2**63)])
def test_several_numbers_without_0_create_nothing(url: str, tmp_path: Path, accepted: range) -> None:
    with pytest.raises(SchemaVersionError, match="begins with the schema number 0, .* Nothing was created") as caught:
        connect(url, schema_version=accepted)
    assert (caught.value.found, caught.value.expected) == (0, accepted)
    assert list(tmp_path.iterdir()) == []
    with connect(url, schema_version=2) as repo:
        assert repo.schema_version == 2
    connect(url, schema_version=accepted).close()


@pytest.mark.parametrize("transactions", [False, True])
def test_of_two_that_create_it_with_different_numbers_only_one_opens_it(world: World, transactions: bool) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    faulty = FaultyStore(store)

    def create_first(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            faulty.before = None
            accepting(store, world, 2, 2)

    faulty.before = create_first
    with pytest.raises(SchemaVersionError, match="has the schema number 2, and this process accepts 3"):
        accepting(faulty, world, 3, 1)
    assert schema_version.read(store) == 2
    world.was_opened(store)


def test_a_lost_reply_does_not_change_the_number_that_was_set_since(world: World, store: MemoryStore) -> None:
    faulty = FaultyStore(store)

    def lose(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.CLUSTER):
            faulty.after = None
            schema_change.change(accepting(store, world, None, 2), 4, 3)
            raise lost_reply(call)

    faulty.after = lose
    with pytest.raises(SchemaVersionError, match="has the schema number 4"):
        accepting(faulty, world, 3, 1)
    assert schema_version.read(store) == 4
