"""Commits to trunk, with and without conflicts, for crashes at any call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hbasemk import ConflictError, VersionMismatchError
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import (
    AddNode,
    Expect,
    Operation,
    RemoveNode,
    SetProperty,
)
from hbasemk.transaction import Transaction
from tests.support.simulation.crashes.sites import Site


def commit(operations: list[Operation]) -> Callable[[Site], Any]:
    return lambda site: site.acting.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def on_base(operations: list[Operation]) -> Callable[[Site], Any]:
    return lambda site: site.acting.commit_on(site.acting.at(site.state), OperationList(operations), "")


def after_others(site: Site) -> int:
    """Create an old base, followed by an unrelated commit."""
    one = site.open(1)
    base = one.head().revision
    one.commit(
        lambda _: OperationList([SetProperty("/other", "x", 1), SetProperty("/a", "unrelated", 1)]),
        "",
        retry_timeout=1,
        max_poll_age=0,
    )
    one.close()
    return base


def after_a_winner(site: Site) -> int:
    one = site.open(1)
    base = one.head().revision
    one.commit(lambda _: OperationList([SetProperty("/a", "p", "won")]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return base


def lose(site: Site) -> None:
    """Commit with a conflict: rolled back completely, with an error."""
    try:
        on_base([SetProperty("/a", "p", "new"), AddNode("/a/new", {}), RemoveNode("/a/b")])(site)
    except ConflictError:
        return
    raise AssertionError("two that conflict both got through")


def expecting(site: Site) -> None:
    """Commit with the version of another node, the version of a changed node, and the absence of a third one."""

    def make(view: Any) -> OperationList:
        nodes = site.acting.nodes(view, ["/a", "/other"])
        expected = [Expect(path, node.version) for path, node in nodes.items() if node is not None]
        return OperationList([*expected, Expect("/none", None), SetProperty("/a", "p", "new"), AddNode("/a/new", {})])

    site.acting.commit(make, "", retry_timeout=5, max_poll_age=0)


def lose_expectation(site: Site) -> None:
    """Commit with the version of a node that another commit has changed: rolled back completely, with an error."""
    node = site.acting.require(site.acting.at(site.state), "/a")
    try:
        on_base([Expect("/a", node.version), SetProperty("/other", "p", "new"), AddNode("/other/new", {})])(site)
    except VersionMismatchError:
        return
    raise AssertionError("the commit got through although its expected version had changed")


def serializable(site: Site) -> None:
    tx = Transaction(site.acting, site.acting.head(), "", "serializable")
    assert tx.children("/a") == ["b"]
    tx.set("/a/b", "q", tx.get("/a", "n"))
    tx.add("/a/s", {})
    tx.commit()


def listed(site: Site) -> int:
    """Change only the list of children, of everything that a transaction on the base reads."""
    one = site.open(1)
    base = one.head().revision
    one.commit(lambda _: OperationList([AddNode("/a/since", {})]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return base


def list_and_set(site: Site, base: int | None = None) -> None:
    """Write the number of listed children to another node."""
    tx = Transaction(site.acting, site.acting.head() if base is None else site.acting.at(base), "", "serializable")
    tx.set("/other", "count", len(tx.children("/a")))
    tx.commit()


def lose_by_a_list(site: Site) -> None:
    try:
        list_and_set(site, site.state)
    except ConflictError as error:
        assert (error.path, error.column) == ("/a", "child 'since'"), error
        return
    raise AssertionError("a transaction that missed a child got through")
