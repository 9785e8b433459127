"""How far the collection of old revisions has come, and what holds it back."""

from __future__ import annotations

from typing import NamedTuple

from hbasemk.errors import ClockSkewError
from hbasemk.format import revisions
from hbasemk.kernel.collection import raising, retention
from hbasemk.kernel.collection.progress import read_progress
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence


class CollectionStatus(NamedTuple):
    """The retention in ms (None: without limit), the horizon and how far cells below it are deleted (0: nothing yet).

    ``hold`` is the branch or checkpoint that keeps the horizon from rising now; None if there is none. ``behind_ms`` is the id
    time from the horizon to where the retention alone would put it. ``problem`` says why nothing can be collected, else None.
    """

    retention_ms: int | None
    horizon: int
    collected: int
    hold: raising.Hold | None = None
    behind_ms: int = 0
    problem: str | None = None


def collection_status(instance: Instance) -> CollectionStatus:
    """Read the state of the collection. Some round trips, and one for each 1000 branches since the horizon."""
    found = retention.read(instance)
    horizon = fence.read_horizon(instance.store).revision
    status = CollectionStatus(found, horizon, read_progress(instance.store)[0].collected)
    if found is None:
        return status
    try:
        wanted = raising.oldest_needed(instance, found)
    except ClockSkewError as error:
        return status._replace(problem=error.message)
    hold = raising.first_hold(instance, horizon, wanted)
    newest = raising.committed_up_to(instance, wanted, horizon)
    begun = revisions.ms_of(horizon or instance.settings.root_revision)
    return status._replace(hold=hold, behind_ms=0 if newest is None else revisions.ms_of(newest) - begun)
