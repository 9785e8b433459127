"""Commits that expect the versions of nodes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import (
    ConflictError,
    InvalidChangeError,
    InvalidPathError,
    InvalidValueError,
    Repository,
    Transaction,
    VersionMismatchError,
)
from hbasemk.repository import instance_of
from tests.support.repositories import Instances
from tests.support.simulation.mutants import read_back
from tests.support.versions import UNKNOWN, Change, pair_with_nodes, version


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    return pair_with_nodes(opened)


def removed(tx: Transaction) -> None:
    tx.remove("/a")


def renewed(tx: Transaction) -> None:
    tx.remove("/a")
    tx.add("/a", {"p": 1, "q": 1})


GUARDED: dict[str, Callable[[Transaction, Any], object]] = {
    "expect": lambda tx, v: (tx.expect("/a", v), tx.set("/c", "p", 2)),
    "expect alone": lambda tx, v: tx.expect("/a", v),
    "set": lambda tx, v: tx.set("/a", "new", 2, if_version=v),
    "unset": lambda tx, v: tx.unset("/a", "q", if_version=v),
    "update": lambda tx, v: tx.update("/a", {"new": 1}, if_version=v),
    "update nothing": lambda tx, v: tx.update("/a", {}, if_version=v),
    "remove": lambda tx, v: tx.remove("/a", if_version=v),
    "move": lambda tx, v: tx.move("/a", "/moved", if_version=v),
}
OTHERS: dict[str, Change] = {
    "set": lambda tx: tx.set("/a", "p", 2),
    "unset": lambda tx: tx.unset("/a", "p"),
    "remove": removed,
    "renew": renewed,
    "move": lambda tx: tx.move("/a", "/elsewhere"),
}


@pytest.mark.parametrize("name", GUARDED)
def test_the_right_version_commits(two: tuple[Repository, Repository], name: str) -> None:
    first, second = two
    first.run(lambda tx: GUARDED[name](tx, version(second, "/a")))
    assert (version(second, "/a") == version(first, "/a")) or name in ("remove", "move")


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", GUARDED)
def test_a_change_before_the_snapshot_is_found_by_staging(
    two: tuple[Repository, Repository], name: str, other: str
) -> None:
    first, second = two
    old = version(first, "/a")
    second.run(OTHERS[other])
    now = version(first, "/a")
    before = first.head.revision
    for make in (lambda: first.run(lambda tx: GUARDED[name](tx, old)), lambda: commit(first, GUARDED[name], old)):
        with pytest.raises(VersionMismatchError) as caught:
            make()
        error = caught.value
        assert isinstance(error, ConflictError)
        assert (error.path, error.expected, error.found) == ("/a", old, now)
        assert error.other == before
        assert str(old) in str(error)
    assert first.refresh().revision == before
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.path, copy.expected, copy.found) == ("/a", old, now)


def commit(repo: Repository, change: Callable[[Transaction, Any], object], expected: str | None) -> None:
    with repo.transaction() as tx:
        change(tx, expected)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", GUARDED)
def test_a_change_after_the_snapshot_is_found_by_the_read_back(
    two: tuple[Repository, Repository], name: str, other: str
) -> None:
    first, second = two
    base = first.head
    old = base["/a"].version
    second.run(OTHERS[other])
    with pytest.raises(VersionMismatchError) as caught, first.transaction(base=base) as tx:
        GUARDED[name](tx, old)
    assert (caught.value.path, caught.value.expected) == ("/a", old)
    assert caught.value.found == version(second, "/a") != old
    assert caught.value.other != base.revision
    assert first.head["/c"]["p"] == 1


def test_children_of_an_expected_node_may_change(two: tuple[Repository, Repository]) -> None:
    first, second = two
    base = first.head
    second.run(lambda tx: (tx.add("/a/new"), tx.set("/a/b", "p", 5)))
    with first.transaction(base=base) as tx:
        tx.expect("/a", base["/a"].version)
        tx.set("/c", "p", 2)
    assert version(second, "/c") == version(first, "/c")


def test_no_node_can_be_expected(two: tuple[Repository, Repository]) -> None:
    first, second = two
    base = first.head
    with first.transaction(base=base) as tx:
        tx.expect("/new", None)
        tx.expect("/new/deep", None)
        tx.set("/c", "p", 2)
    second.run(lambda tx: tx.add("/new"))
    with pytest.raises(VersionMismatchError) as caught, first.transaction(base=base) as tx:
        tx.expect("/new", None)
        tx.set("/a", "p", 2)
    assert (caught.value.path, caught.value.expected, caught.value.found) == ("/new", None, version(second, "/new"))
    with pytest.raises(VersionMismatchError, match="no node was expected there"):
        first.run(lambda tx: tx.expect("/new", None))
    first.run(lambda tx: (tx.expect("/other", None), tx.add("/other")))
    assert version(second, "/other") is not None


def test_the_snapshot_counts_not_what_the_transaction_did_before(two: tuple[Repository, Repository]) -> None:
    first, _ = two
    old = version(first, "/a")
    assert old is not None

    def change(tx: Transaction) -> None:
        tx.set("/a", "p", 7, if_version=old)
        tx.set("/a", "q", 7, if_version=old)
        tx.move("/a", "/moved", if_version=old)
        tx.add("/a", {"again": True})
        tx.expect("/a", old)

    first.run(change)
    assert first.head["/moved"]["q"] == 7


def test_two_crosswise_expectations_never_both_commit(two: tuple[Repository, Repository]) -> None:
    first, second = two
    bases = first.head, second.head
    committed = 0
    for repo, base, mine, other in ((first, bases[0], "/a", "/c"), (second, bases[1], "/c", "/a")):
        try:
            with repo.transaction(base=base) as tx:
                tx.expect(other, base[other].version)
                tx.set(mine, "p", 2)
            committed += 1
        except VersionMismatchError as error:
            assert error.path == other
    assert committed == 1


def test_run_does_not_repeat_a_mismatch_but_asks_the_newest_head(two: tuple[Repository, Repository]) -> None:
    first, second = two
    second.run(lambda tx: tx.set("/a", "p", 2))
    newest = version(second, "/a")
    instance_of(first).max_poll_age = 1000.0
    # The head of the first instance is old; the version is not.
    first.run(lambda tx: tx.set("/a", "p", 3, if_version=newest))
    calls = []
    with pytest.raises(VersionMismatchError):
        first.run(lambda tx: (calls.append(1), tx.set("/a", "p", 4, if_version=newest)))
    assert len(calls) == 1


def test_of_many_that_expect_one_version_exactly_one_commits(opened: Instances) -> None:
    first = opened(poll_interval=0.2)
    first.run(lambda tx: tx.add("/a", {"n": 0}))
    token = first.head["/a"].version
    repos = [opened(poll_interval=0.2) for _ in range(4)]
    results: list[str] = []

    def work(repo: Repository, number: int) -> None:
        try:
            repo.run(lambda tx: tx.set("/a", "n", number, if_version=token))
            results.append("committed")
        except VersionMismatchError as error:
            assert error.found != token
            results.append("mismatch")

    threads = [threading.Thread(target=work, args=(repo, number + 1)) for number, repo in enumerate(repos)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["committed", "mismatch", "mismatch", "mismatch"]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_mismatch_shows_at_the_next_read_and_fails_the_transaction(
    two: tuple[Repository, Repository], isolation: Any
) -> None:
    first, _ = two
    tx = first.transaction(isolation=isolation)
    tx.expect("/a", UNKNOWN)
    for _ in range(2):
        with pytest.raises(VersionMismatchError):
            tx.get("/a", "p")
    with pytest.raises(VersionMismatchError):
        tx.commit()


def test_a_serializable_transaction_may_expect_too(two: tuple[Repository, Repository]) -> None:
    first, second = two
    base = first.head
    tx = first.transaction(base=base, isolation="serializable")
    assert tx.get("/c", "p") == 1
    tx.expect("/a", base["/a"].version)
    tx.add("/new")
    second.run(lambda tx: tx.set("/a", "p", 2))
    with pytest.raises(VersionMismatchError, match="/a"):
        tx.commit()
    tx = first.transaction(base=base, isolation="serializable")
    assert tx.get("/a", "p") == 1
    tx.expect("/c", base["/c"].version)
    tx.add("/new")
    with pytest.raises(ConflictError) as caught:
        tx.commit()
    # What was read has changed, and the expected version has not.
    assert type(caught.value) is ConflictError


def test_on_a_branch_the_branch_decides(two: tuple[Repository, Repository]) -> None:
    first, second = two
    branch = first.branch()
    old = branch.head["/a"].version
    second.run(lambda tx: tx.set("/a", "q", 9))
    branch.run(lambda tx: tx.set("/a", "p", 2, if_version=old))
    with pytest.raises(VersionMismatchError) as caught:
        branch.run(lambda tx: tx.set("/a", "p", 3, if_version=old))
    assert caught.value.found == branch.head["/a"].version
    branch.run(lambda tx: tx.expect("/new", None))
    branch.run(lambda tx: tx.set("/a", "p", 3, if_version=branch.head["/a"].version))
    branch.merge()
    assert dict(first.refresh()["/a"]) == {"p": 3, "q": 9}


def test_a_merge_is_a_change_like_any_other(two: tuple[Repository, Repository]) -> None:
    first, second = two
    branch = first.branch()
    branch.run(lambda tx: tx.set("/a", "p", 2))
    base = second.head
    branch.merge()
    with pytest.raises(VersionMismatchError) as caught, second.transaction(base=base) as tx:
        tx.set("/a", "q", 3, if_version=base["/a"].version)
    assert caught.value.found == version(first, "/a")


def test_a_version_of_trunks_head_in_place_of_the_branchs_is_found(
    two: tuple[Repository, Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_back.versions_of_the_head_expected(monkeypatch)
    with pytest.raises((VersionMismatchError, AssertionError, pytest.fail.Exception)):
        test_on_a_branch_the_branch_decides(two)


@pytest.mark.parametrize("bad", ["", "x", "0" * 23, "0" * 25, "G" * 24, "A" * 24, " " + "0" * 23, "0" * 24 + "\n"])
def test_a_text_that_is_no_version_is_refused_at_once(two: tuple[Repository, Repository], bad: str) -> None:
    first, _ = two
    with first.transaction() as tx:
        for name, call in (
            ("version", lambda: tx.expect("/a", bad)),
            ("if_version", lambda: tx.set("/a", "p", 2, if_version=bad)),
            ("if_version", lambda: tx.unset("/a", "p", if_version=bad)),
            ("if_version", lambda: tx.update("/a", {"p": 2}, if_version=bad)),
            ("if_version", lambda: tx.adjust("/a", "p", 1, if_version=bad)),
            ("if_version", lambda: tx.remove("/a", if_version=bad)),
            ("if_version", lambda: tx.move("/a", "/b", if_version=bad)),
        ):
            with pytest.raises(
                InvalidValueError, match=f"^{name} must be the version of a node, 24 hexadecimal digits"
            ):
                call()
    assert first.head["/a"]["p"] == 1


def test_a_refused_change_expects_nothing(two: tuple[Repository, Repository]) -> None:
    first, _ = two
    with first.transaction() as tx:
        for call in (
            lambda: tx.set("/a", "x/y", 1, if_version=UNKNOWN),
            lambda: tx.update("/a", {"x/y": 1}, if_version=UNKNOWN),
            lambda: tx.adjust("/a", "x/y", 1, if_version=UNKNOWN),
            lambda: tx.move("/a", "/b/", if_version=UNKNOWN),
        ):
            with pytest.raises(InvalidPathError):
                call()
        tx.set("/a", "p", 2)
    assert first.head["/a"]["p"] == 2


def test_other_bad_expectations_are_refused_at_once(two: tuple[Repository, Repository]) -> None:
    first, _ = two
    right = version(first, "/a")
    with first.transaction() as tx:
        with pytest.raises(TypeError, match="if_version must be the version of a node, or None, got 5"):
            tx.set("/a", "p", 2, if_version=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidPathError):
            tx.expect("a", None)
        tx.expect("/a", right)
        tx.expect("/a", right)
        for other in (None, UNKNOWN):
            with pytest.raises(InvalidChangeError, match=f"expects version {right} of /a already"):
                tx.expect("/a", other)
            with pytest.raises(InvalidChangeError, match=f"expects version {right} of /a already"):
                tx.remove("/a", if_version=other)
    with pytest.raises(VersionMismatchError, match=f"has version {right} in revision .*, but version {UNKNOWN}"):
        first.run(lambda tx: tx.expect("/a", UNKNOWN))
    with pytest.raises(VersionMismatchError, match=f"no node at /none in revision .*, but its version .* {UNKNOWN}"):
        first.run(lambda tx: tx.set("/none", "p", 1, if_version=UNKNOWN))


def test_an_adjust_by_one_call_expects_a_version(two: tuple[Repository, Repository]) -> None:
    first, other = two
    right = version(first, "/a")
    revision = first.adjust("/a", "p", 2, "two", if_version=right)
    assert first.at(revision)["/a"]["p"] == 3
    for stale in (right, None):
        with pytest.raises(VersionMismatchError) as caught:
            other.adjust("/a", "p", 2, if_version=stale)
        assert (caught.value.expected, caught.value.found) == (stale, version(other, "/a"))
    with pytest.raises(VersionMismatchError):
        first.adjust("/a", "p", 0, if_version=right)
    assert other.head["/a"]["p"] == 3
