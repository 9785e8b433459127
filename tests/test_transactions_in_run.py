"""What a function may do with the transaction that ``run`` passes to it, and when a transaction reads its values."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk import (
    ClosedError,
    ConflictError,
    HbasemkError,
    InvalidPathError,
    InvalidValueError,
    LimitError,
    NodeNotFoundError,
    Repository,
    Transaction,
)
from hbasemk.format import limits
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from hbasemk.transaction import source_of


@pytest.fixture
def repo(real_store: MemoryStore) -> Iterator[Repository]:
    with Repository(real_store, poll_interval=0) as made:
        yield made


def committed(tx: Transaction) -> None:
    tx.increment("/a", "n")
    tx.commit()


def within(tx: Transaction) -> None:
    with tx:
        tx.increment("/a", "n")


@pytest.mark.parametrize("change", [committed, within])
@pytest.mark.parametrize("on_branch", [False, True])
def test_a_function_that_commits_its_transaction_changes_nothing(
    repo: Repository, change: Callable[[Transaction], None], on_branch: bool
) -> None:
    repo.run(lambda tx: tx.add("/a", {"n": 0}))
    before = repo.head
    branch = repo.branch()
    run: Any = branch.run if on_branch else repo.run
    with pytest.raises(ClosedError, match=r"run\(\) commits this transaction when its function returns"):
        run(change)
    assert repo.refresh() == before
    assert branch.head["/a"]["n"] == 0


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("given", [[1], bytearray(b"x"), memoryview(bytearray(b"x"))])
def test_a_transaction_keeps_the_values_that_it_was_given(repo: Repository, given: Any, add: bool) -> None:
    wanted = list(given) if isinstance(given, list) else bytes(given)
    with repo.transaction() as tx:
        if add:
            tx.add("/a", {"p": given})
        else:
            tx.add("/a")
            tx.set("/a", "p", given)
        given[0] = 5
    assert repo.head["/a"]["p"] == wanted


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_transaction_keeps_the_buffers_in_a_list(
    repo: Repository, kind: type[list[Any]] | type[tuple[Any, ...]]
) -> None:
    buffer = bytearray(b"x")
    with repo.transaction() as tx:
        tx.add("/a", {"p": kind([buffer])})
        tx.set("/", "p", kind([1, memoryview(buffer)]))  # type: ignore[arg-type]
        buffer[0] = 5
    assert repo.head["/a"]["p"] == [b"x"]
    assert repo.head["/"]["p"] == [1, b"x"]


def test_an_update_with_a_wrong_name_changes_nothing(repo: Repository) -> None:
    repo.run(lambda tx: tx.add("/a"))
    with repo.transaction() as tx:
        wrong: Any = {"x": 1, 5: 2}
        with pytest.raises(TypeError, match="the name of a property of '/a' must be a str, got 5"):
            tx.update("/a", wrong)
    assert dict(repo.head["/a"]) == {}


def test_an_update_of_a_missing_node_is_an_error_even_without_properties(repo: Repository) -> None:
    for properties in ({}, {"p": 1}):
        with pytest.raises(NodeNotFoundError, match="there is no node at /missing"):
            repo.run(lambda tx: tx.update("/missing", properties))  # noqa: B023
        with pytest.raises(NodeNotFoundError, match="there is no node at /missing"), repo.transaction() as tx:
            tx.add("/lost")
            tx.update("/missing", properties)
    with repo.transaction() as tx:
        tx.add("/new")
        tx.update("/new", {})
        tx.update("/none", {}, if_version=None)
    assert repo.head["/new"] == {}
    assert "/lost" not in repo.head


def test_an_update_without_properties_is_a_read_of_a_serializable_transaction(repo: Repository) -> None:
    repo.run(lambda tx: tx.add("/needed"))
    with pytest.raises(ConflictError), repo.transaction(isolation="serializable") as tx:
        tx.update("/needed", {})
        tx.add("/new")
        repo.run(lambda other: other.remove("/needed"))
    assert "/new" not in repo.head


def test_an_update_without_properties_makes_no_call_before_the_commit(real_store: MemoryStore) -> None:
    store = CountingStore(real_store)
    with Repository(store, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        with Repository(store, poll_interval=0, owns_store=False) as other, other.transaction() as tx:
            store.take()
            tx.update("/a", {})
            assert not store.take()


@pytest.mark.parametrize("checks", [{}, {"if_version": None}], ids=["any version", "no node"])
@pytest.mark.parametrize("nested", [False, True])
def test_an_update_with_a_value_that_raises_changes_nothing(
    repo: Repository, nested: bool, checks: dict[str, None]
) -> None:
    """The caller may catch the error and commit the other changes."""
    released = memoryview(b"x")
    released.release()
    wrong: Any = {"first": 1, "second": [released] if nested else released}
    repo.run(lambda tx: tx.add("/a"))
    with repo.transaction() as tx:
        with pytest.raises(ValueError, match="released memoryview"):
            tx.update("/a", wrong, **checks)
        tx.set("/", "other", 1)
    assert dict(repo.head["/a"]) == {}
    assert dict(repo.head["/"]) == {"other": 1}


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({5: 1}, TypeError, "the name of a property of '/a' must be a str, got 5"),
        ({"a/b": 1}, InvalidPathError, "a property of '/a' cannot have this name: 'a/b' is not a valid name"),
        ({"good": 1, "wrong": {}}, InvalidValueError, "property 'wrong' of '/a': a property cannot hold dict"),
        ({"large": b"x" * limits.MAX_VALUE}, LimitError, "property 'large' of '/a'"),
        ({"wide": "é" * (limits.MAX_VALUE // 2)}, LimitError, "property 'wide' of '/a': a str of .* bytes in UTF-8"),
    ],
)
def test_add_refuses_wrong_names_and_values_at_once(
    repo: Repository, properties: Any, error: type[Exception], message: str
) -> None:
    """The caller sees the line that is wrong, and the transaction goes on without it."""
    with repo.transaction() as tx:
        with pytest.raises(error, match=message):
            tx.add("/a", properties)
        tx.add("/b")
    assert repo.head.children("/") == ["b"]


def test_a_commit_that_is_staged_again_begins_with_the_properties_that_were_given(repo: Repository) -> None:
    with repo.transaction() as tx:
        tx.add("/a", {"n": 1})
        tx.increment("/a", "n")
        source = source_of(tx)
        reader, view = instance_of(repo).reader, instance_of(repo).head()
        first, second = (source.stage(reader, view).after for _ in range(2))
    assert [node.all_encoded() for node in first] == [node.all_encoded() for node in second]


def test_a_view_of_wide_elements_is_measured_in_bytes(repo: Repository) -> None:
    wide = memoryview(array("d", [0.0]) * (limits.MAX_VALUE // 8 + 1))
    with repo.transaction() as tx, pytest.raises(LimitError, match="bytes are more than"):
        tx.add("/a", {"p": wide})


CALLS: dict[str, Callable[[Transaction], object]] = {
    "path": lambda tx: tx.remove("a"),
    "name": lambda tx: tx.update("/a", {"p": 1, "x/y": 2}),
    "value of add": lambda tx: tx.add("/b", {"p": 1, "q": [[1]]}),
    "number": lambda tx: tx.adjust("/a", "n", float("nan")),
    "version": lambda tx: tx.set("/a", "p", 1, if_version="x"),
    "read of no node": lambda tx: tx["/b", "p"],
    "read of no property": lambda tx: tx["/a", "p"],
    "list of no node": lambda tx: tx.children("/b"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_raises_at_once_leaves_the_transaction_as_it_was(
    repo: Repository, call: Callable[[Transaction], object]
) -> None:
    repo.run(lambda tx: tx.add("/a"))
    with repo.transaction() as tx:
        tx.set("/a", "n", 1)
        with pytest.raises(HbasemkError):
            call(tx)
    assert dict(repo.head["/a"]) == {"n": 1}
    assert repo.head.children("/") == ["a"]


LATER: dict[str, Callable[[Transaction], object]] = {
    "value of set": lambda tx: tx.set("/a", "p", [[1]]),
    "node that exists": lambda tx: tx.add("/a"),
    "no node": lambda tx: tx.set("/b", "p", 1),
    "move below itself": lambda tx: tx.move("/a", "/a/b"),
}


@pytest.mark.parametrize("change", LATER.values(), ids=LATER)
def test_after_an_invalid_change_reads_and_the_commit_raise_its_error(
    repo: Repository, change: Callable[[Transaction], object]
) -> None:
    repo.run(lambda tx: tx.add("/a"))
    tx = repo.transaction()
    tx.set("/a", "n", 1)
    change(tx)
    with pytest.raises(HbasemkError) as first:
        tx.exists("/")
    tx.set("/a", "n", 2)
    for later in (lambda: tx.children("/"), tx.commit):
        with pytest.raises(type(first.value)) as again:
            later()
        assert str(again.value) == str(first.value)
    assert dict(repo.head["/a"]) == {}
