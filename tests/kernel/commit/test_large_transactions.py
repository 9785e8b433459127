"""On SQLite a commit of many new nodes is one transaction; one that reads back many rows is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.one_transaction import READ_BACK_ROWS
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.sqlite.store import BATCH_ROWS, SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance


class Place:
    """An instance on a SQLite file, and the calls that write nodes and the journal during a commit."""

    def __init__(self, path: Path, world: World) -> None:
        self.store = FaultyStore(SqliteStore(str(path), clock=world.clock))
        self.instance: Instance = open_instance(self.store, world, mac=1)

    def commit(self, operations: Sequence[Operation]) -> list[str]:
        """Commit, and return the names of the calls that wrote."""
        writes: list[str] = []

        def record(call: Call) -> None:
            if "write" in call.method and call.table in (schema.NODES, schema.JOURNAL):
                writes.append(call.method)

        self.store.before = record
        self.instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=60)
        self.store.before = None
        return writes


@pytest.fixture
def place(tmp_path: Path, world: World) -> Place:
    return Place(tmp_path / "x.db", world)


def children(count: int) -> list[Operation]:
    return [AddNode(f"/{number}", {"n": number}) for number in range(count)]


def test_many_new_nodes_are_one_transaction(place: Place) -> None:
    assert place.commit(children(10_000)) == ["write_if"]
    assert len(place.instance.reader.children(place.instance.head(), "/")) == 10_000


def test_more_new_nodes_take_several_calls(place: Place) -> None:
    assert len(place.commit(children(BATCH_ROWS))) > 1
    assert len(place.instance.reader.children(place.instance.head(), "/")) == BATCH_ROWS


def test_one_transaction_reads_back_a_bounded_number_of_rows(place: Place) -> None:
    place.commit(children(READ_BACK_ROWS + 1))
    sets: list[Operation] = [SetProperty(f"/{number}", "n", -1) for number in range(READ_BACK_ROWS + 1)]
    assert place.commit(sets[1:]) == ["write_if"]
    assert len(place.commit([SetProperty(path, name, -2) for path, name, _ in sets])) > 1
    head = place.instance.head()
    assert {place.instance.reader.require(head, f"/{number}").properties["n"] for number in (0, READ_BACK_ROWS)} == {-2}
