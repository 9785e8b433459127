"""Serializable transactions: their reads must not have changed either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import ConflictError, Repository, Transaction
from tests.support.repositories import Instances, tree


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    """Two instances on one tree."""
    return opened.pair(lambda tx: (tx.add("/a", {"x": 1, "y": 1}), tx.add("/a/b", {"z": 1}), tx.add("/log")))


def begin(repository: Repository, isolation: Any = "serializable") -> Transaction:
    return repository.transaction(isolation=isolation)


READS: dict[str, Callable[[Transaction], Any]] = {
    "a property": lambda tx: tx.get("/a", "x"),
    "a property that is not there": lambda tx: tx.get("/a", "none"),
    "all properties": lambda tx: tx.properties("/a"),
    "by key": lambda tx: tx["/a", "x"],
    "many nodes": lambda tx: tx.load(["/a", "/a/b"]),
    "a subtree": lambda tx: tx.subtree("/a"),
    "a copy": lambda tx: tx.copy("/a", "/log/copy"),
}
UNCHANGED: dict[str, Callable[[Transaction], Any]] = {
    "a set that changes nothing": lambda tx: tx.set("/a", "x", 1),
    "an increment by nothing": lambda tx: tx.increment("/a", "x", 0),
}
"""These count as read without serializable isolation too; see test_unchanged.py."""


@pytest.mark.parametrize("read", [*READS.values(), *UNCHANGED.values()], ids=[*READS, *UNCHANGED])
def test_a_node_that_was_read_must_not_have_changed(
    two: tuple[Repository, Repository], read: Callable[[Transaction], Any]
) -> None:
    one, other = two
    tx = begin(one)
    read(tx)
    tx.add("/log/entry")
    other.run(lambda tx: (tx.set("/a", "x", 2), tx.set("/a", "none", 2)))
    with pytest.raises(ConflictError) as raised:
        tx.commit()
    assert raised.value.path == "/a"
    assert "/log/entry" not in one.refresh()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_without_serializable_the_same_commits(
    two: tuple[Repository, Repository], read: Callable[[Transaction], Any]
) -> None:
    one, other = two
    tx = begin(one, "snapshot")
    read(tx)
    tx.add("/log/entry")
    other.run(lambda tx: (tx.set("/a", "x", 2), tx.set("/a", "none", 2)))
    tx.commit()
    assert "/log/entry" in one.refresh()


CHILDREN: dict[str, Callable[[Transaction], Any]] = {
    "added": lambda tx: tx.add("/a/new"),
    "removed": lambda tx: tx.remove("/a/b"),
    "moved away": lambda tx: tx.move("/a/b", "/b"),
    "moved here": lambda tx: tx.move("/log", "/a/log"),
}


@pytest.mark.parametrize("change", CHILDREN.values(), ids=CHILDREN)
@pytest.mark.parametrize(
    "read",
    [lambda tx: tx.children("/a"), lambda tx: tx.children("/a", after="x", limit=1), lambda tx: tx.subtree("/a")],
    ids=["list", "another page", "subtree"],
)
def test_a_list_of_children_that_was_read_must_not_have_changed(
    two: tuple[Repository, Repository], read: Callable[[Transaction], Any], change: Callable[[Transaction], Any]
) -> None:
    one, other = two
    tx = begin(one)
    read(tx)
    tx.add("/entry")
    other.run(change)
    with pytest.raises(ConflictError):
        tx.commit()


def test_a_node_that_was_read_as_absent_must_still_be_absent(two: tuple[Repository, Repository]) -> None:
    one, other = two
    tx = begin(one)
    assert "/a/new" not in tx
    tx.add("/entry")
    other.run(lambda tx: tx.add("/a/new"))
    with pytest.raises(ConflictError):
        tx.commit()


def test_a_node_added_and_removed_in_the_transaction_counts_as_read_absent(two: tuple[Repository, Repository]) -> None:
    one, other = two
    tx = begin(one)
    tx.add("/a/new")
    tx.remove("/a/new")
    tx.add("/entry")
    other.run(lambda tx: tx.add("/a/new"))
    with pytest.raises(ConflictError):
        tx.commit()


def test_reads_of_children_and_of_properties_are_independent(two: tuple[Repository, Repository]) -> None:
    one, other = two
    properties, children = begin(one), begin(other)
    properties.get("/a", "x")
    properties.set("/a", "x", 2)
    children.children("/a")
    children.add("/a/new")
    properties.commit()
    children.commit()
    assert tree(one)["/a"]["x"] == 2
    assert "/a/new" in one.refresh()


def test_siblings_added_concurrently_do_not_conflict(two: tuple[Repository, Repository]) -> None:
    first, second = begin(two[0]), begin(two[1])
    first.add("/a/one")
    second.add("/a/two")
    first.commit()
    second.commit()
    assert two[0].refresh().children("/a") == ["b", "one", "two"]


def test_one_of_two_transactions_that_read_each_others_writes_commits(two: tuple[Repository, Repository]) -> None:
    first, second = begin(two[0]), begin(two[1])
    assert first.get("/a", "x") == first.get("/a", "y") == second.get("/a", "x") == second.get("/a", "y") == 1
    first.set("/a", "x", 0)
    second.set("/a", "y", 0)
    first.commit()
    with pytest.raises(ConflictError):
        second.commit()
    assert tree(two[0])["/a"] == {"x": 0, "y": 1}


def test_a_read_only_transaction_raises_if_its_reads_changed(two: tuple[Repository, Repository]) -> None:
    one, other = two
    tx = begin(one)
    tx.get("/a", "x")
    other.run(lambda tx: tx.set("/a", "x", 2))
    with pytest.raises(ConflictError, match="a commit that changes nothing conflicts with") as raised:
        tx.commit()
    assert raised.value.revision is None
    assert one.statistics.conflicts == 1


def test_a_read_only_transaction_creates_no_revision(two: tuple[Repository, Repository]) -> None:
    one, other = two
    before = one.refresh().revision
    with begin(one) as tx:
        tx.subtree("/")
    assert tx.revision == before
    assert other.refresh().revision == before


def test_run_retries_a_serializable_transaction_on_new_reads(two: tuple[Repository, Repository]) -> None:
    one, other = two
    read = []

    def change(tx: Transaction) -> None:
        read.append(tx.get("/a", "x"))
        if len(read) == 1:
            other.run(lambda tx: tx.set("/a", "x", 2))
        tx.set("/log", "seen", read[-1])

    one.run(change, isolation="serializable")
    assert read == [1, 2]
    assert tree(other)["/log"] == {"seen": 2}


def test_run_retries_a_read_only_transaction(two: tuple[Repository, Repository]) -> None:
    one, other = two
    read = []

    def look(tx: Transaction) -> None:
        read.append(tx.get("/a", "x"))
        if len(read) == 1:
            other.run(lambda tx: tx.set("/a", "x", 2))

    one.run(look, isolation="serializable")
    assert read == [1, 2]


def test_an_unknown_isolation_level_is_rejected(two: tuple[Repository, Repository]) -> None:
    with pytest.raises(ValueError, match="isolation must be .*, got 'repeatable'"):
        two[0].transaction(isolation="repeatable")  # type: ignore[arg-type]
