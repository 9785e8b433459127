"""Nodes and properties of the repository that the file of a JSON import does not contain."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hbasemk import Transaction, connect
from hbasemk.transfer.summary import SHOWN
from tests.support.imports import changed
from tests.support.json_exports import bring_in, stored

SURPLUS = "is in the tree, but not in the file; the import leaves it there"


def add_nodes(tx: Transaction) -> None:
    tx.add("/extra")
    tx.add("/extra/below")
    tx.add("/wide/1!", {"n": 1})
    tx.add("/a/y/deep/er", {"n": 1})
    tx.add("/bare/x")


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_nodes_that_the_file_does_not_contain_stay_and_are_differences(
    old: str, new: str, file: Path, batch: int
) -> None:
    bring_in(new, file)
    changed(new, add_nodes)

    result = bring_in(new, file, batch=batch)

    assert result.differences.count == 4
    assert sorted(result.differences.first) == [
        f"{path}: {SURPLUS}" for path in ("/a/y/deep/er", "/bare/x", "/extra", "/wide/1!")
    ]
    assert stored(new).keys() - stored(old).keys() == {"/a/y/deep/er", "/bare/x", "/extra", "/extra/below", "/wide/1!"}


def test_each_surplus_child_counts_and_the_first_ones_are_listed(new: str, file: Path) -> None:
    bring_in(new, file)
    changed(new, lambda tx: [tx.add(f"/bare/{number:03}") for number in range(SHOWN + 10)])

    found = bring_in(new, file).differences

    assert (found.count, found.first) == (SHOWN + 10, [f"/bare/{number:03}: {SURPLUS}" for number in range(SHOWN)])


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_only_nodes_below_the_target_are_surplus(new: str, batch: int) -> None:
    text = b'{"children": {"z": {"children": {"c": {}, "b": {}}}, "a!": {"children": {"z": {}}}, "a": {}, "caf\\udce9": {}}}'
    with connect(new) as repository:
        repository.run(lambda tx: [tx.add("/far"), tx.add("/far/a"), tx.add("/far/a!"), tx.add("/far/b"), tx.add("/z")])

    for at in ("/far/a", "/other"):
        assert bring_in(new, io.BytesIO(text), at, batch=batch).differences.count == 0


def test_changes_during_the_import_are_differences(new: str, file: Path) -> None:
    def change(tx: Transaction) -> None:
        tx.set("/bare", "surplus", 1)
        tx.add("/bare/x")
        tx.remove("/wide/7")
        tx.remove("/a")
        tx.add("/a", {"zeta": 1, "alpha": "/a", "children": "a property"})
        tx.add("/a/other")

    result = bring_in(new, file, batch=1000, on_progress=lambda *_: changed(new, change))

    assert sorted(result.differences.first) == [
        f"/a/other: {SURPLUS}",
        "/a/y/deep: is not there",
        "/a/y: is not there",
        "/a/z: is not there",
        f"/bare/x: {SURPLUS}",
        "/bare: surplus",
        "/wide/7: is not there",
    ]
    assert result.differences.count == 7
