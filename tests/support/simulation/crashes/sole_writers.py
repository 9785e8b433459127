"""Commits of a process that alone writes a row, for crashes at any call."""

from __future__ import annotations

from collections.abc import Callable

from hbasemk.errors import ConflictError, StoreNotAppliedError
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Increment, Operation, SetProperty
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from tests.support.simulation.crashes.sites import Site
from tests.support.sole_writers import let_compete, let_know


def marked(site: Site) -> int:
    """Mark the row of /a, and leave its properties as they were; return the revision of the mark."""
    return _last_of(site, None)


def marked_and_written(site: Site) -> int:
    """Mark the row of /a; then another process changes another property of it, which the first one does not see."""
    revision = marked(site)
    other = site.open(1)
    _commit(other, SetProperty("/a", "unrelated", 1))
    other.close()
    return revision


def marked_for_all(site: Site) -> int:
    """Leave a shared mark in the row of /a, and its properties as they were; return the revision of the mark."""
    return _last_of(site, 2, None)


def _last_of(site: Site, *values: int | None) -> int:
    """Set a property of /a, and then set it to each of these values, of which the first one marks the row."""
    one = site.open(1)
    revision = _commit(one, SetProperty("/a", "mark", 1))
    let_know(one, "/a", revision, Stage.MARK)
    for value in values:
        revision = _commit(one, SetProperty("/a", "mark", value))
    one.close()
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


def increment_too_late(site: Site) -> None:
    """Increment a number of /a; before the first attempt compares the mark, another process changes the number twice."""
    instance = site.acting
    announce = instance.announcements.announce_with

    def announce_later(revision: int, changes: bytes) -> bool:
        instance.announcements.announce_with = announce  # type: ignore[method-assign]
        other = site.open(1)
        for number in (5, 0):
            _commit(other, SetProperty("/a", "n", number))
        other.close()
        return announce(revision, changes)

    instance.announcements.announce_with = announce_later  # type: ignore[method-assign]
    try:
        increment_among_others(site)
    except ConflictError as error:
        # The store was away when the next attempt was due.
        raise StoreNotAppliedError(str(error)) from error
    assert instance.statistics.conflicts or instance.store.supports_transactions


def _commit(instance: Instance, operation: Operation) -> int:
    return instance.commit(lambda _: OperationList([operation]), "", retry_timeout=5, max_poll_age=0)
