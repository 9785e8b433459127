"""Adjusts that a crash can stop at any call, with their preparation."""

from __future__ import annotations

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, SetProperty
from tests.support import folding
from tests.support.branches import commit_on_branch
from tests.support.simulation.crashes.sites import Site

SEVERAL: list[Operation] = [
    Adjust("/a", "n", 5),
    Adjust("/a/b", "q", 0.5),
    Adjust("/a/b/c", "first", -1),
    AddNode("/a/new", {}),
    SetProperty("/other", "x", 1),
]


def branch_that_adjusts(site: Site) -> tuple[int, int]:
    """Create a branch with adjusts of its own, and adjust and set the same properties on trunk."""
    one = site.open(1)
    root = one.branches.begin(one.head())
    head = commit_on_branch(one, root, [Adjust("/a", "n", 5), Adjust("/a/b", "q", 0.5)])
    head = commit_on_branch(one, head, [Adjust("/a", "n", 1), Adjust("/a/b/c", "first", -1)])
    for operations in ([Adjust("/a", "n", 100), Adjust("/a/b/c", "first", 7)], [SetProperty("/a/b", "q", 10)]):
        one.commit(lambda _, made=operations: OperationList(made), "", retry_timeout=1, max_poll_age=0)  # type: ignore[misc]
    one.close()
    return root, head


def adjusted(site: Site) -> int:
    """Adjust a property, so that it has two slots; return the revision."""
    for mac in (1, 3):
        one = site.open(mac)
        found = one.commit(lambda _: OperationList([Adjust("/a", "n", 5)]), "", retry_timeout=1, max_poll_age=0)
        one.close()
    return found


def adjusted_since(site: Site) -> int:
    """Adjust after a base; return the base."""
    one = site.open(1)
    base = one.head().revision
    one.close()
    adjusted(site)
    return base


def fold(site: Site) -> None:
    """Move all totals of a property into its base; the tree stays."""
    instance = site.acting
    instance.poll()
    folding.fold(instance, "/a", "n")
