"""Commits that are large in nodes and in bytes, on a real HBase."""

from __future__ import annotations

import random

import pytest

import hbasemk
from hbasemk.format import changes
from hbasemk.store.hbase import HBaseStore
from tests.support.hbase import HBase
from tests.support.repositories import Checked

NODES = 12_000
LARGE = 300_000
pytestmark = pytest.mark.integration


def test_many_nodes_and_many_bytes_in_one_commit(
    hbase: HBase, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The changes then follow the row that begins the revision, like those of 200,000 nodes.
    monkeypatch.setattr(changes, "INLINE", 10_000)
    monkeypatch.setattr(HBaseStore, "batch_bytes", 1_000_000)
    url = checked(hbase.url(hbase.new_prefix()))
    chance = random.Random(7)
    names = [f"{chance.getrandbits(64):x}" for _ in range(NODES)]
    with hbasemk.connect(url, poll_interval=0) as one, hbasemk.connect(url, poll_interval=0) as other:
        assert isinstance(one.store, HBaseStore)

        def add(tx: hbasemk.Transaction) -> None:
            tx.add("/top")
            for number, name in enumerate(names):
                tx.add(f"/top/{name}", {"n": number})

        one.run(add)
        assert other.refresh().child_count("/top") == NODES
        assert other.head[f"/top/{names[7]}"]["n"] == 7
        assert len(next(iter(other.log())).changes) == NODES + 2
        one.run(lambda tx: tx.move("/top", "/moved"))
        other.run(lambda tx: tx.remove("/moved"))
        one.run(lambda tx: [tx.add(f"/{number}", {"large": bytes([number]) * LARGE}) for number in range(40)] and None)
        assert other.refresh()["/39"]["large"] == bytes([39]) * LARGE
        one.run(lambda tx: [tx.remove(f"/{number}") for number in range(40)] and None)
        assert other.refresh().children("/") == []
