"""Ids of revisions whose writer does not go on."""

from __future__ import annotations

from hbasemk.kernel.instance import Instance


def make_id(instance: Instance, above: int = 0) -> int:
    """Make the id of a trunk revision; announce it if the store does not order all writes."""
    revision = instance.announcements.next(above, [])
    if not instance.store.supports_transactions:
        instance.announcements.announce(revision)
    return revision
