"""A value that may refer to a blob and cannot be decoded: the run ends, and its error says where the value is."""

from __future__ import annotations

import io

import pytest

from hbasemk import FormatError
from hbasemk.format import paths, schema, values
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.older import commit
from tests.support.runtime import World, open_instance


def test_a_damaged_array_ends_a_collection_of_blobs_with_its_place(world: World) -> None:
    store = MemoryStore(world.clock)
    instance = open_instance(store, world)
    instance.blobs.write(io.BytesIO(b"content"))
    revision = commit(instance, AddNode("/a", {"l": [1, 2]}))
    for hours in range(3):
        world.advance(8000)
        commit(instance, AddNode(f"/b{hours}", {}))
        instance.maintain()
    column = schema.property_column("l")
    store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*column, b"\x09\0\0\0\x09a", revision)])])
    with pytest.raises(FormatError, match=r"table 'nodes', row b'.*/a', column d:b'\\x01l'") as caught:
        Collector(instance).run(60_000, blobs=True)
    assert (caught.value.table, caught.value.column) == (schema.NODES, column)  # type: ignore[attr-defined]
    store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*column, values.encode([1, 2]), revision)])])
