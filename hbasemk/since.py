"""Where a watch begins: the revisions that precede ``since``."""

from __future__ import annotations

from hbasemk.errors import BranchError, InvalidValueError
from hbasemk.format import revisions
from hbasemk.format.extent import Extent
from hbasemk.kernel import feed
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import resume_token
from hbasemk.snapshot import Snapshot, instance_of_snapshot, view_of


def extent_before(since: str | Snapshot | None, instance: Instance) -> Extent:
    """Return the extent that a watch omits because it precedes ``since``; None is the head.

    Raises what :meth:`hbasemk.Repository.watch` says.
    """
    if isinstance(since, str) and len(since) != revisions.TEXT_LENGTH:
        extent = resume_token.from_text(since, instance.settings, instance.location)
        feed.require_committed(instance, extent)
        return extent
    if since is None:
        return feed.extent_of(instance, instance.head())
    if isinstance(since, str):
        since = Snapshot(instance, instance.at(revisions.from_text(since)))
    source = instance_of_snapshot(since)
    if source.settings != instance.settings:
        raise InvalidValueError(
            f"the snapshot {since.revision} is of the repository at {source.location}; a watch on {instance.location} needs "
            "one of the same repository"
        )
    view = view_of(source, since)
    if revisions.is_branch(view.revision):
        raise BranchError(
            f"a watch shows trunk revisions, and {since.revision} is a branch's; give a trunk revision",
            revision=since.revision,
        )
    return feed.extent_of(source, view)
