"""Actions on branches that a crash can stop at any call, with their preparation and the views of their result."""

from __future__ import annotations

from typing import Any

from hbasemk import BranchError, ConflictError
from hbasemk.format.branch_head import ABANDONED, REBASED
from hbasemk.kernel.branches import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS
from tests.support.branches import commit_on_branch
from tests.support.runtime import open_instance
from tests.support.simulation.crashes.sites import Died, Site, Steps, tree


def branch(site: Site) -> tuple[int, int]:
    """Create a branch with one commit; return its first and its newest revision."""
    one = site.open(1)
    root = one.branches.begin(one.head())
    head = commit_on_branch(one, root, [SetProperty("/a", "p", "branch"), AddNode("/a/branch", {})])
    one.close()
    return root, head


def long_branch(site: Site) -> tuple[int, int, int]:
    root, first = branch(site)
    one = site.open(1)
    head = commit_on_branch(one, first, [RemoveNode("/a/b")])
    one.close()
    return root, first, head


def branch_behind(site: Site) -> tuple[int, int]:
    found = branch(site)
    one = site.open(1)
    one.commit(lambda _: OperationList([SetProperty("/other", "x", 1)]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return found


def branch_head(site: Site, instance: Any) -> Any:
    """Return trunk and the branch's tree at its newest revision, or that of the branch it was rebased to."""
    head = instance.branches._heads.read(site.state[0])
    if head.how == REBASED:
        return tree(instance), "rebased", tree(instance, instance.at(head.into))
    return tree(instance), head.how or tree(instance, instance.at(head.newest))


def old_branch(site: Site) -> tuple[int, int, int]:
    """Create a branch that received no commit for a day."""
    found = long_branch(site)
    site.world.advance(24 * 3600 + 60)
    return found


def abandoned(site: Site) -> tuple[int, int, int]:
    """Create a branch that the hourly maintenance abandoned an hour ago."""
    found = old_branch(site)
    one = site.open(1)
    sweep_hourly(one)
    one.close()
    site.world.advance(3600 + 60)
    return found


def branch_exists(site: Site, instance: Any) -> Any:
    return tree(instance), instance.branches._heads.read(site.state[0]).how == ABANDONED


def merged(site: Site, instance: Any) -> Any:
    """Return trunk: a merge commits there first, and closes the branch afterwards."""
    return tree(instance)


def conflicting_merge(site: Site) -> None:
    try:
        site.acting.branches.merge(site.state[1], "")
    except ConflictError:
        return
    raise AssertionError("a merge that conflicts got through")


def branch_that_conflicts(site: Site) -> tuple[int, int]:
    found = branch(site)
    one = site.open(1)
    one.commit(lambda _: OperationList([SetProperty("/a", "p", "won")]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return found


def branch_that_is_merged(site: Site) -> tuple[int, int]:
    found = branch_behind(site)
    one = site.open(1)
    one.branches.merge(found[1], "")
    one.close()
    return found


def left_on_branch(site: Site) -> tuple[int, int]:
    """Create a branch behind trunk whose writer died just before its commit, made step by step, became the head."""
    found = branch_behind(site)
    steps = Steps(site.store)
    one = open_instance(steps, site.world, mac=0x21, seed=77)
    one.branches._transactions.fits = lambda *_: False  # type: ignore[method-assign]
    one.clock.next(0)
    steps.log.clear()
    steps.fail(3, "died", "write nodes")
    try:
        commit_on_branch(one, found[1], [SetProperty("/a", "p", "left"), AddNode("/a/left", {}), RemoveNode("/a/b")])
    except Died:
        # Everything but the last step is done.
        assert steps.log[-4:] == ["write nodes"] * 4, steps.log
    site.world.advance(16)
    return found


def branch_with_markers(site: Site) -> tuple[int, int]:
    """Create a rebased branch with markers and later commits; trunk has changed the same again."""
    found = branch_that_conflicts(site)
    one = site.open(1)
    head = rebase.rebase(one.branches, found[1], one.head(), "")
    state = one.branches.find(head)
    assert one.branches.markers(state) == ["/a/:conflict"]
    head = commit_on_branch(one, head, [SetProperty("/a", "p", "mine again"), SetProperty("/a", "n", 7)])
    one.commit(
        lambda _: OperationList([SetProperty("/a", "p", "won again"), SetProperty("/a", "n", 8)]),
        "",
        retry_timeout=1,
        max_poll_age=0,
    )
    one.close()
    return state.root, head


def sweep_all(site: Site) -> None:
    site.acting.branches.sweep(0)


def sweep_hourly(instance: Any) -> None:
    """Sweep as the hourly maintenance does."""
    instance.branches.sweep(BRANCH_RETENTION_MS)


def rebase_on_head(site: Site) -> None:
    rebase.rebase(site.acting.branches, site.state[1], site.acting.head(), "")


def late_on_branch(site: Site) -> None:
    """Commit to a branch that another instance advanced meanwhile: rolled back, with an error."""
    branches = site.acting.branches
    require_head = branches.require_head

    def at_first(revision: int) -> Any:
        branches.require_head = require_head  # type: ignore[method-assign]
        return branches._revisions.find_cached(revision)

    branches.require_head = at_first  # type: ignore[method-assign]
    try:
        commit_on_branch(site.acting, site.state[1], [SetProperty("/a", "p", "late"), AddNode("/a/late", {})])
    except BranchError:
        return
    raise AssertionError("a branch has become two")
