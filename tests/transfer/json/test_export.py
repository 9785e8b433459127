"""The export as JSON reads nodes and lists of children in batches."""

from __future__ import annotations

import json

from hbasemk import Repository
from hbasemk.testing.wrapped import CountingStore
from hbasemk.transfer.json import exporter
from tests.support.repositories import Instances


def _fill(repository: Repository) -> None:
    repository.run(lambda tx: [tx.add("/a"), *(tx.add(f"/a/{number}", {"v": number}) for number in range(700))])
    repository.run(lambda tx: [tx.add(f"/a/{top}/{number}") for top in (3, 30, 300) for number in range(5)])
    repository.run(lambda tx: [tx.add("/wide"), *(tx.add(f"/wide/{number}") for number in range(1_300))])


def test_an_export_takes_few_calls(opened: Instances) -> None:
    _fill(opened())
    store = CountingStore(opened.new_store())
    repository = opened(store)
    store.take()
    exported = json.loads("".join(exporter.export_json(repository.head, "/")))
    assert sum(store.take().values()) <= 40
    assert len(exported["children"]["a"]["children"]) == 700
    assert list(exported["children"]["a"]["children"]["300"]["children"]) == list("01234")
    assert len(exported["children"]["wide"]["children"]) == 1_300
