"""Commits of a process that alone writes a row, for crashes at any call."""

from __future__ import annotations

from collections.abc import Callable

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Increment, Operation, SetProperty
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from tests.support.simulation.crashes.sites import Site
from tests.support.sole_writers import let_compete, let_know


def marked(site: Site) -> int:
    """Mark the row of /a, and leave its properties as they were; return the revision of the mark."""
    one = site.open(1)
    let_know(one, "/a", _commit(one, SetProperty("/a", "mark", 1)), Stage.MARK)
    revision = _commit(one, SetProperty("/a", "mark", None))
    one.close()
    return revision


def marked_and_written(site: Site) -> int:
    """Mark the row of /a; then another process changes another property of it, which the first one does not see."""
    revision = marked(site)
    other = site.open(1)
    _commit(other, SetProperty("/a", "unrelated", 1))
    other.close()
    return revision


def set_as(stage: Stage, *, sees_all: bool = True) -> Callable[[Site], None]:
    """Set a property of /a in a stage, as the process that has marked the row.

    Unless it ``sees_all``, it knows nothing that was committed after the mark.
    """

    def act(site: Site) -> None:
        instance = site.acting
        let_know(instance, "/a", site.state, stage)
        change = SetProperty("/a", "p", "new")
        if sees_all:
            _commit(instance, change)
        else:
            instance.commit_on(instance.at(site.state), OperationList([change]), "")

    return act


def increment_among_others(site: Site) -> None:
    """Increment a number of /a over which other processes compete."""
    let_compete(site.acting, "/a", "n")
    _commit(site.acting, Increment("/a", "n", 1))


def _commit(instance: Instance, operation: Operation) -> int:
    return instance.commit(lambda _: OperationList([operation]), "", retry_timeout=5, max_poll_age=0)
