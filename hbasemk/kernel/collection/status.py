"""How far the collection of old revisions has come, and what holds it back."""

from __future__ import annotations

from typing import NamedTuple

from hbasemk.kernel.collection import raising, retention
from hbasemk.kernel.collection.progress import read_progress
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence


class CollectionStatus(NamedTuple):
    """The retention in ms (None: without limit), the horizon and how far cells below it are deleted (0: nothing yet).

    ``hold`` is the branch or checkpoint that keeps the horizon from rising now; None if there is none.
    """

    retention_ms: int | None
    horizon: int
    collected: int
    hold: raising.Hold | None


def collection_status(instance: Instance) -> CollectionStatus:
    """Read the state of the collection. Some round trips, and one for each 1000 branches since the horizon."""
    found = retention.read(instance)
    horizon = fence.read_horizon(instance.store).revision
    hold = None
    if found is not None:
        wanted = raising.oldest_needed(instance, found)
        hold = next((one for one in raising.holds(instance, horizon) if one.floor < wanted), None)
    return CollectionStatus(found, horizon, read_progress(instance.store)[0].collected, hold)
