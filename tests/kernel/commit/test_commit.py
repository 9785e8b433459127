"""Commits: conflicts by column, roll-back, retry, and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hbasemk import (
    ConflictError,
    InvalidChangeError,
    LimitError,
    NodeDeletedError,
    NodeExistsError,
    NodeNotFoundError,
    Transaction,
    VersionMismatchError,
)
from hbasemk.repository import instance_of
from tests.support.repositories import Instances, tree

OPERATIONS = {
    "set": lambda tx: tx.set("/a", "p", 1),
    "set other": lambda tx: tx.set("/a", "q", 1),
    "unset": lambda tx: tx.unset("/a", "r"),
    "increment": lambda tx: tx.increment("/a", "n", 1),
    "add child": lambda tx: tx.add("/a/new"),
    "add sibling": lambda tx: tx.add("/a/new2"),
    "remove child": lambda tx: tx.remove("/a/b"),
    "remove": lambda tx: tx.remove("/a"),
    "change child": lambda tx: tx.set("/a/b", "p", 1),
    "add grandchild": lambda tx: tx.add("/a/b/new"),
    "move away": lambda tx: tx.move("/a/b", "/z"),
    "copy away": lambda tx: tx.copy("/a/b", "/y"),
    "remove and add": lambda tx: (tx.remove("/a/b"), tx.add("/a/b", {"again": True})),
}

# The pairs of concurrent changes of which only one may commit; both must commit in every other pair.
CONFLICTS = {
    frozenset(pair)
    for pair in [
        ("add child",),
        ("add grandchild",),
        ("add sibling",),
        ("change child",),
        ("copy away",),
        ("increment",),
        ("move away",),
        ("remove child",),
        ("remove",),
        ("remove and add",),
        ("set",),
        ("set other",),
        ("unset",),
        *(("remove", other) for other in OPERATIONS if other != "copy away"),
        *(
            (gone, other)
            for gone in ("remove child", "move away", "remove and add")
            for other in ("change child", "add grandchild", "remove child", "move away", "remove and add")
        ),
    ]
}


def begin(repository) -> None:  # type: ignore[no-untyped-def]
    with repository.transaction() as tx:
        tx.add("/a", {"r": 0, "n": 0})
        tx.add("/a/b", {"x": 1})
        tx.add("/a/b/c", {"y": 1})


@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("first", OPERATIONS)
def test_two_concurrent_changes_conflict_exactly_as_specified(opened: Instances, first: str, second: str) -> None:
    one, two = opened(), opened()
    begin(one)
    two.refresh()
    left, right = one.transaction(base=one.head), two.transaction(base=two.head)
    OPERATIONS[first](left)
    OPERATIONS[second](right)
    left.commit()
    if frozenset({first, second}) in CONFLICTS:
        before = tree(one)
        with pytest.raises(ConflictError) as caught:
            right.commit()
        assert caught.value.other == left.revision
        assert caught.value.path
        assert tree(two) == before
    else:
        right.commit()
    assert tree(one) == tree(two)


def test_a_commit_does_not_depend_on_plain_reads(opened: Instances) -> None:
    one, two = opened(), opened()
    begin(one)
    two.refresh()
    reader = two.transaction(base=two.head)
    assert reader["/a", "n"] == 0
    reader.set("/a/b", "seen", 0)
    one.run(lambda tx: tx.increment("/a", "n"))
    reader.commit()
    assert tree(one)["/a/b"]["seen"] == 0


def test_run_retries_until_it_commits(opened: Instances) -> None:
    repositories = [opened() for _ in range(4)]
    repositories[0].run(lambda tx: tx.add("/c"))
    counts = [0] * len(repositories)

    def work(number: int) -> None:
        for _ in range(25):
            repositories[number].run(lambda tx: tx.increment("/c", "n", 1))
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(repositories))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [25] * 4
    assert {repository.refresh()["/c"]["n"] for repository in repositories} == {100}


def test_threads_of_one_instance_conflict_like_processes(opened: Instances) -> None:
    repository = opened()
    repository.run(lambda tx: tx.add("/c"))
    threads = [
        threading.Thread(target=lambda: [repository.run(lambda tx: tx.increment("/c", "n")) for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repository.refresh()["/c"]["n"] == 80


def test_a_commit_on_an_older_base_merges_without_a_conflict(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    base = repository.head
    for number in range(5):
        repository.run(lambda tx, number=number: tx.set("/a", f"other{number}", number))
    with repository.transaction(base=base) as tx:
        tx.set("/a", "p", "late")
    assert repository.head["/a"]["p"] == "late"
    assert repository.head["/a"]["other4"] == 4
    with pytest.raises(ConflictError), repository.transaction(base=base) as tx:
        tx.set("/a", "other2", "late")


def test_an_older_base_works_from_an_instance_that_began_later(opened: Instances) -> None:
    first = opened()
    begin(first)
    base = first.head.revision
    first.run(lambda tx: tx.set("/a", "p", 1))
    instance_of(first).recovery.advance()
    later = opened()
    old = later.at(base)
    assert "p" not in old["/a"]
    with pytest.raises(ConflictError), later.transaction(base=old) as tx:
        tx.set("/a", "p", 2)
    with later.transaction(base=old) as tx:
        tx.set("/a", "q", 2)
    assert dict(first.refresh()["/a"]) == {"r": 0, "n": 0, "p": 1, "q": 2}


def test_a_transaction_without_changes_creates_no_revision(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    head = repository.head.revision

    def nothing(tx: Transaction) -> None:
        tx.set("/a", "n", 0)
        tx.unset("/a", "never")
        tx.add("/t")
        tx.remove("/t")

    repository.run(nothing)
    with repository.transaction():
        pass
    assert repository.refresh().revision == head


def test_an_exception_in_the_block_commits_nothing(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    before = tree(repository)
    with pytest.raises(RuntimeError), repository.transaction() as tx:
        tx.set("/a", "p", 1)
        raise RuntimeError
    assert tree(repository) == before


def wrong(*steps):  # type: ignore[no-untyped-def]
    def change(tx: Transaction) -> None:
        for name, *arguments in steps:
            getattr(tx, name)(*arguments)

    return change


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (wrong(("add", "/a")), NodeExistsError),
        (wrong(("add", "/")), NodeExistsError),
        (wrong(("add", "/x/y")), NodeNotFoundError),
        (wrong(("add", "/x"), ("add", "/x")), NodeExistsError),
        (wrong(("set", "/x", "p", 1)), NodeNotFoundError),
        (wrong(("remove", "/a"), ("set", "/a", "p", 1)), NodeNotFoundError),
        (wrong(("remove", "/x")), NodeNotFoundError),
        (wrong(("remove", "/")), InvalidChangeError),
        (wrong(("move", "/", "/x")), InvalidChangeError),
        (wrong(("move", "/a", "/a")), InvalidChangeError),
        (wrong(("move", "/a", "/a/b/c/d")), InvalidChangeError),
        (wrong(("move", "/a", "/x/y")), NodeNotFoundError),
        (wrong(("copy", "/x", "/y")), NodeNotFoundError),
        (wrong(("copy", "/a", "/a/b")), NodeExistsError),
        (wrong(("set", "/a", "s", "text"), ("increment", "/a", "s")), InvalidChangeError),
        (wrong(("increment", "/a", "n", "1")), TypeError),
    ],
)
def test_an_invalid_change_raises_and_changes_nothing(opened: Instances, change, error) -> None:  # type: ignore[no-untyped-def]
    repository = opened()
    begin(repository)
    before = tree(repository)
    with pytest.raises(error):
        repository.run(change)
    assert tree(repository) == before
    with pytest.raises(error), repository.transaction() as tx:
        change(tx)
    assert tree(repository) == before


def test_the_error_for_a_missing_node_names_the_revision_that_deleted_it(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    with repository.transaction() as tx:
        tx.remove("/a")
    with pytest.raises(NodeDeletedError) as caught:
        repository.head["/a/b"]
    assert caught.value.deleted_in == tx.revision
    with pytest.raises(NodeNotFoundError) as never:
        repository.head["/never"]
    assert not isinstance(never.value, NodeDeletedError)


def test_a_change_refused_by_an_old_head_is_tried_on_the_newest(opened: Instances) -> None:
    one, two = opened(), opened()
    two.refresh()
    begin(one)
    instance_of(two).journal._polled_at = float("inf")  # as if the background had just polled
    two.run(lambda tx: tx.set("/a", "p", 1))
    assert tree(one)["/a"]["p"] == 1


def test_moves_and_copies_include_earlier_changes_in_the_subtree(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    with repository.transaction() as tx:
        tx.set("/a/b/c", "y", 2)
        tx.add("/a/b/new", {"z": 3})
        tx.move("/a/b", "/moved")
        tx.copy("/moved", "/moved/copy")
        tx.remove("/moved/c")
        tx.add("/a/b", {"fresh": True})
    assert tree(repository) == {
        "/": {},
        "/a": {"r": 0, "n": 0},
        "/a/b": {"fresh": True},
        "/moved": {"x": 1},
        "/moved/new": {"z": 3},
        "/moved/copy": {"x": 1},
        "/moved/copy/c": {"y": 2},
        "/moved/copy/new": {"z": 3},
    }


def test_a_node_that_is_added_again_starts_empty(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    repository.run(lambda tx: tx.remove("/a"))
    repository.run(lambda tx: tx.add("/a"))
    assert tree(repository) == {"/": {}, "/a": {}}
    assert repository.head["/a"].children == []
    repository.run(lambda tx: (tx.remove("/a"), tx.add("/a", {"k": 1}), tx.add("/a/c")))
    assert tree(repository) == {"/": {}, "/a": {"k": 1}, "/a/c": {}}
    assert repository.head["/a"].children == ["c"]


def test_a_transaction_shows_its_own_changes(opened: Instances) -> None:
    repository = opened()
    begin(repository)
    with repository.transaction() as tx:
        assert tx["/a", "n"] == 0
        tx.increment("/a", "n", 2)
        tx.add("/a/new", {"k": "v"})
        tx.remove("/a/b/c")
        assert tx["/a", "n"] == 2
        assert tx.get("/a/new", "k") == "v"
        assert tx.get("/a/none", "k", "-") == "-"
        assert tx.children("/a") == ["b", "new"]
        assert tx.children("/a/b") == []
        assert "/a/b/c" not in tx
        assert tx.properties("/a") == {"r": 0, "n": 2}
        tx.increment("/a", "n", 0.5)
    assert repository.head["/a"]["n"] == 2.5


def test_pages_of_children_show_the_changes_of_the_transaction(opened: Instances) -> None:
    repository = opened()
    names = ["b", "c", "d", "e", "f", "é", "\uffff", "😀"]  # in the order of their UTF-8 bytes
    repository.run(lambda tx: (tx.add("/w"), *(tx.add(f"/w/{name}", {}) for name in names), tx.add("/w/b/below")))
    with repository.transaction() as tx:
        assert tx.children("/w", after="c", limit=3) == ["d", "e", "f"]
        for name in ("b", "d", "e"):
            tx.remove(f"/w/{name}")
        tx.add("/w/e")
        tx.move("/w/f", "/w/a")
        tx.add("/w/cc")
        tx.copy("/w/a", "/w/g")
        tx.add("/w/gone")
        tx.remove("/w/gone")
        tx.add("/w/a/new")
        expected = ["a", "c", "cc", "e", "g", "é", "\uffff", "😀"]
        assert tx.children("/w") == expected
        for after in (None, "", "a", "b", "bb", "d", "e", "f", "g", "z", "\ue000", "😀", "not/a/name"):
            rest = [name for name in expected if after is None or name.encode() > after.encode()]
            assert tx.children("/w", after) == rest
            for limit in range(10):
                assert tx.children("/w", after=after, limit=limit) == rest[:limit]
        assert tx.children("/w/a", limit=1) == ["new"]
        assert tx.children("/w/c", limit=1) == []
        with pytest.raises(NodeNotFoundError):
            tx.children("/w/b", limit=0)
    assert [repository.head.children("/w", limit=limit) for limit in (2, 9)] == [expected[:2], expected]


@pytest.mark.slow
def test_a_large_commit_is_one_revision(opened: Instances) -> None:
    one, two = opened(), opened()
    with one.transaction() as tx:
        tx.add("/big")
        for number in range(5000):
            tx.add(f"/big/{number}", {"n": number, "text": "x"})
    assert len(two.refresh().children("/big")) == 5000
    assert two.head["/big/4999"].created == two.head["/big"].created == tx.revision
    two.run(lambda t: t.remove("/big"))
    assert tree(one) == {"/": {}}


def test_an_oversized_commit_writes_nothing(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 10**400, "real": 1.5}))
    before = repo.head.revision
    with pytest.raises(InvalidChangeError, match=r"by 1\.5: its value is an integer too large to convert to a float"):
        repo.run(lambda tx: tx.increment("/a", "n", 1.5))
    with pytest.raises(InvalidChangeError, match="the amount is an integer too large to convert to a float"):
        repo.run(lambda tx: tx.increment("/a", "real", 10**400))
    with pytest.raises(LimitError, match="65537 bytes"):
        repo.run(lambda tx: tx.set("/a", "n", 1), "m" * 65_537)
    assert not instance_of(repo).outcomes.deferred
    assert repo.refresh().revision == before
    repo.run(lambda tx: tx.set("/a", "n", 1), "m" * 65_536)
    assert next(repo.log()).message == "m" * 65_536


@pytest.mark.parametrize(
    ("losing", "winning", "column"),
    [
        (lambda tx: tx.set("/a/b", "n", 1), lambda tx: tx.remove("/a"), "existence"),
        (lambda tx: tx.remove("/a"), lambda tx: tx.add("/a/b/c"), "content"),
    ],
    ids=["change of a removed node", "removal of a changed node"],
)
def test_a_conflict_over_the_life_of_a_node_says_so(
    opened: Instances, losing: Callable[[Transaction], None], winning: Callable[[Transaction], None], column: str
) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: (tx.add("/a"), tx.add("/a/b")))
    two.refresh()
    changing = two.transaction(base=two.head)
    losing(changing)
    one.run(winning)
    with pytest.raises(ConflictError, match=rf"over {column} of /a/b; the commit was rolled back") as caught:
        changing.commit()
    assert (caught.value.path, caught.value.column) == ("/a/b", column)


def test_a_conflict_with_an_adjust_names_the_property(opened: Instances) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: tx.add("/a", {"n": 1}))
    two.refresh()
    incrementing = two.transaction(base=two.head)
    incrementing.increment("/a", "n")
    one.adjust("/a", "n", 1)
    with pytest.raises(ConflictError, match=r"over property 'n' of /a; the commit was rolled back") as caught:
        incrementing.commit()
    assert (caught.value.path, caught.value.column) == ("/a", "property 'n'")


def test_a_version_mismatch_names_the_version(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a"))
    with pytest.raises(VersionMismatchError) as caught:
        repo.run(lambda tx: tx.set("/a", "n", 1, if_version=None))
    assert (caught.value.path, caught.value.column, caught.value.revision) == ("/a", "version", None)
