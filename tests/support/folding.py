"""Folds, as a process makes them when the writers of slots are dead."""

from __future__ import annotations

from hbasemk.kernel.commit import folds
from hbasemk.kernel.commit.change_source import ReadyChangeSet
from hbasemk.kernel.instance import Instance


def fold(instance: Instance, path: str, name: str) -> bool:
    """Move all totals of a property into its base; the tree stays. Return whether there were any."""
    found = instance.require(instance.head(), path).property_of(name)
    plan = folds.plan_of(path, name, found, sorted(found.totals))
    if plan is None:
        return False
    instance.commit_on(instance.head(), ReadyChangeSet(plan), folds.MESSAGE)
    return True
