"""Layouts of tables in HBase: what is compared, what errors name, and when nothing is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hbasemk
from hbasemk.errors import InvalidValueError, SchemaVersionError, StoreError
from hbasemk.format import paths, schema
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.gateway import idl
from tests.support.gateway import Close, FakeGateway, fake_gateway

Answer = Callable[[str, Any, Any], None]


class Tables:
    """What a fake gateway answers about tables: ``regions`` are their first keys by table, None if they do not exist."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway
        self.regions: dict[bytes, list[bytes]] | None = None
        self.url = f"hbase://127.0.0.1:{gateway.port}/?prefix=x_&timeout=5"
        usual = gateway._reply

        def reply(method: str, request: Any) -> Any:
            answer = usual(method, request)
            self.answer(method, request, answer)
            return answer

        gateway._reply = reply  # type: ignore[method-assign]

    def answer(self, method: str, request: Any, answer: Any) -> None:
        """Change the answer to a call."""
        if method == "get":
            answer.success = idl.Result(request.what.row, [])
        if self.regions is None:
            if method == "get":
                answer.success = None
                answer.error = idl.HBaseError(request.table.decode())
        elif method == "getTableDescriptors":
            answer.success = [idl.TableDescriptor(name, []) for name in request.tables]
        elif method == "getAllRegionLocations":
            starts = [b"", *self.regions.get(request.table, [])]
            answer.success = [idl.RegionLocation(idl.Region(start)) for start in starts]

    def called(self) -> set[str]:
        """Return the methods that were called."""
        return {one.method for one in self.gateway.received}


@pytest.fixture
def tables() -> Iterator[Tables]:
    with fake_gateway() as gateway:
        yield Tables(gateway)


@pytest.mark.parametrize("layout", [{}, {"splits": ["/b"]}, {"compression": "GZ"}], ids=["plain", "splits", "codec"])
def test_several_schema_numbers_without_0_create_no_table(tables: Tables, layout: dict[str, Any]) -> None:
    with pytest.raises(SchemaVersionError, match="Nothing was created"):
        hbasemk.connect(tables.url, schema_version=range(1, 5), **layout)
    assert tables.called() == {"get"}


@pytest.mark.parametrize(
    ("regions", "missing"),
    [
        ({}, "table 'x_nodes' exists, and no region of it begins at the path /b"),
        ({b"x_nodes": [paths.key("/b")]}, "table 'x_nodes' exists, and no region of it begins at the path /b/é"),
        (
            {b"x_nodes": [paths.key(path) for path in ("/b", "/b/é")]},
            "table 'x_blobs' exists, and no region of it begins at the hash 5555",
        ),
    ],
    ids=["no path", "one path", "no hash"],
)
def test_a_missing_region_is_named_by_its_path(tables: Tables, regions: dict[bytes, list[bytes]], missing: str) -> None:
    r"""It was named by its row key: b'\x00\x01/b'."""
    tables.regions = regions
    with pytest.raises(InvalidValueError) as raised:
        hbasemk.connect(tables.url, splits=["/b/é", "/b"])
    assert f"{missing}. It was not changed: leave out the option" in str(raised.value)
    assert "createTable" not in tables.called()


@pytest.mark.parametrize("prefix", ["p" * 300, "n" * 100 + ":" + "p" * 43], ids=["long", "with a namespace"])
def test_no_table_with_a_very_long_name_is_created(tables: Tables, prefix: str) -> None:
    """A master of HBase tried forever to create it, and the call waited for two minutes."""
    url = tables.url.replace("x_", prefix)
    with pytest.raises(InvalidValueError, match=f"has {len(prefix)} characters.* at most 150 .* a shorter prefix"):
        hbasemk.connect(url)
    assert "createTable" not in tables.called()


@pytest.mark.parametrize(
    ("prefix", "is_new"),
    [("p" * 143, True), ("n" * 100 + ":" + "p" * 42, True), ("p" * 240, False)],
    ids=["longest", "with a namespace", "longer, and exists"],
)
def test_tables_with_long_names_are_used(gateway: FakeGateway, prefix: str, is_new: bool) -> None:
    store = HBaseStore([Address("127.0.0.1", gateway.port)], prefix=prefix)
    usual = gateway._reply

    def reply(method: str, request: Any) -> Any:
        answer = usual(method, request)
        if method == "getTableDescriptors" and not is_new:
            answer.success = [idl.TableDescriptor(name, []) for name in request.tables]
        elif method == "createTable":
            raise Close
        return answer

    gateway._reply = reply  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        store.create_tables(schema.TABLES)
    assert ("createTable" in {one.method for one in gateway.received}) == is_new
    store.close()
