"""The tables match docs/table-format.md: happybase reads them through Thrift1, without any code of hbasemk."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hbasemk
from hbasemk import BlobRef, Json
from tests.support.examples import definitions
from tests.support.hbase import HBase
from tests.support.repositories import Checked

pytestmark = pytest.mark.integration

PROPERTIES = {
    "string": "tré\U0001f600",
    "integer": -300,
    "float": 1.5,
    "no": False,
    "yes": True,
    "blob": BlobRef("ab" * 32),
    "json": Json("1.10"),
    "bytes": b"\x00\xff",
    "array": ["a", 1],
}
STORED = {
    "string": b"\x01" + "tré\U0001f600".encode(),
    "integer": b"\x02" + (-300).to_bytes(2, "big", signed=True),
    "float": b"\x03" + struct.pack(">d", 1.5),
    "no": b"\x04",
    "yes": b"\x05",
    "blob": b"\x06" + b"ab" * 32,
    "json": b"\x071.10",
    "bytes": b"\x08\x00\xff",
    "array": b"\x09" + b"\0\0\0\x02\x01a" + b"\0\0\0\x02\x02\x01",
}


@pytest.fixture
def prefix(hbase: HBase, checked: Checked) -> str:
    made = hbase.new_prefix()
    checked(hbase.url(made))
    return made


@pytest.fixture
def happy(hbase: HBase, prefix: str) -> Iterator[Any]:
    if hbase.thrift1 is None:
        pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
    happybase = pytest.importorskip("happybase")
    connection = happybase.Connection(hbase.host, hbase.thrift1, table_prefix=prefix.rstrip("_"))
    yield connection
    connection.close()


def test_nodes_and_journal_are_as_documented(hbase: HBase, prefix: str, happy: Any) -> None:
    with hbasemk.connect(hbase.url(prefix), poll_interval=0) as repo:
        with repo.transaction("made for reading") as first:
            first.add("/parent")
            first.add("/parent/näme", PROPERTIES)
        with repo.transaction() as second:
            second.set("/parent/näme", "string", "new")
            second.unset("/parent/näme", "yes")
        with repo.transaction() as third:
            third.remove("/parent/näme")
        ids = [int(tx.revision or "", 16) for tx in (first, second, third)]

    nodes, journal = happy.table("nodes"), happy.table("journal")
    key = b"\x00\x02" + "/parent/näme".encode()
    row = dict(nodes.row(key, include_timestamp=True))

    # One row per node: a cell's timestamp is the revision that wrote it, and only what changed is written.
    for name, stored in STORED.items():
        versions = nodes.cells(key, b"d:\x01" + name.encode(), versions=10, include_timestamp=True)
        expected = [(stored, ids[0])]
        if name == "string":
            expected.insert(0, (b"\x01new", ids[1]))
        if name == "yes":
            expected.insert(0, (b"\x00", ids[1]))
        assert versions == expected
    assert nodes.cells(key, b"d:\x00deleted", versions=10, include_timestamp=True) == [
        (b"\x01", ids[2]),
        (b"\x00", ids[0]),
    ]
    assert [at for _, at in nodes.cells(key, b"d:\x00lastRevision", versions=10, include_timestamp=True)] == ids[::-1]
    assert row[b"d:\x00deleted"] == (b"\x01", ids[2])

    # One column per child in the parent's row.
    parent = b"\x00\x01/parent"
    assert nodes.cells(parent, "c:näme".encode(), versions=10, include_timestamp=True) == [
        (b"\x00", ids[2]),
        (b"\x01", ids[0]),
    ]
    assert [found for found, _ in nodes.scan(row_prefix=b"\x00\x01/")] == [parent]

    # One row per revision, whose cells carry the server's time.
    row = journal.row(ids[0].to_bytes(8, "big"), include_timestamp=True)
    assert row[b"d:committed"][0] == b"\x01"
    assert row[b"d:abort"][0] == b"\x00"
    assert row[b"d:message"][0] == b"made for reading"
    assert len(row[b"d:nonce"][0]) == 16
    assert int.from_bytes(row[b"d:base"][0], "big") < ids[0]
    assert row[b"d:changes"][0].startswith(b"\x01[[")
    assert all(at < 2**42 for _, at in row.values())
    committed = [found for found, data in journal.scan() if data[b"d:committed"] == b"\x01"]
    assert committed[-3:] == [revision.to_bytes(8, "big") for revision in ids]


def test_an_aborted_revision_leaves_its_journal_row_and_no_cell(hbase: HBase, prefix: str, happy: Any) -> None:
    with hbasemk.connect(hbase.url(prefix), poll_interval=0) as repo:
        with repo.transaction() as tx:
            tx.add("/a", {"p": 0})
        base = repo.head
        with repo.transaction() as tx:
            tx.set("/a", "p", 1)
        loser = repo.transaction(base=base)
        loser.set("/a", "p", 2)
        with pytest.raises(hbasemk.ConflictError) as caught:
            loser.commit()
    lost = int(caught.value.revision, 16)
    row = happy.table("journal").row(lost.to_bytes(8, "big"))
    assert (row[b"d:committed"], row[b"d:abort"], row[b"d:swept"]) == (b"\x00", b"\x01", b"\x01")
    versions = happy.table("nodes").cells(b"\x00\x01/a", b"d:\x01p", versions=10, include_timestamp=True)
    assert [value for value, _ in versions] == [b"\x02\x01", b"\x02\x00"]
    assert lost not in [at for _, at in versions]


def test_the_tables_keep_all_versions_and_the_lease_is_documented(hbase: HBase, prefix: str, happy: Any) -> None:
    with hbasemk.connect(hbase.url(prefix), poll_interval=0) as repo:
        with repo.transaction() as tx:
            tx.add("/a")
        revision = int(tx.revision or "", 16)
        families = happy.table("nodes").families()
        assert {family: descriptor["max_versions"] for family, descriptor in families.items()} == {
            b"c": 2**31 - 1,
            b"d": 2**31 - 1,
        }
        cluster = happy.table("cluster")
        machine = (revision >> 8 & 0xFFFF).to_bytes(2, "big")
        assert b"d:lease" in cluster.row(machine)
        settings = cluster.row(b"settings")
        assert settings[b"d:settings"].startswith(b'{"format": 4')
        assert len(settings[b"d:watermark"]) == 8


def test_the_documented_reader_reads_every_revision(hbase: HBase, prefix: str, happy: Any) -> None:
    page = definitions(Path(__file__).parents[2] / "docs" / "table-format.md")
    snapshots: dict[str, dict[str, Any]] = {}
    with hbasemk.connect(hbase.url(prefix), poll_interval=0) as repo:
        for change in (
            lambda tx: tx.add("/a", {"p": 1, "q": ["x", 2.5]}),
            lambda tx: tx.add("/a/b"),
            lambda tx: tx.set("/a", "p", "new"),
            lambda tx: tx.unset("/a", "q"),
            lambda tx: tx.remove("/a"),
            lambda tx: tx.add("/a", {"r": True}),
        ):
            repo.run(change)
            snapshots[repo.head.revision] = {node.path: (dict(node), node.children) for node in repo.head.walk()}
        row, committed = page["on_hbase"](happy)
        for revision, expected in snapshots.items():
            is_visible = page["read_view"](row, committed, int(revision, 16))
            found = {path: page["read_node"](row, is_visible, path) for path in ("/", "/a", "/a/b")}
            assert found == {path: expected.get(path) for path in found}, revision
