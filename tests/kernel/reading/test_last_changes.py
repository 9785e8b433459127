"""Two subtrees have equal tokens only if they are equal, also after the recording of changes has begun again."""

from __future__ import annotations

from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.last_changes import LastChanges
from tests.support.runtime import TestRuntime, World


def _at(position: int) -> View:
    return View(1000 + position, position, 1000 + position)


def _changes(position: int, *paths: str) -> Arrival:
    return Arrival(1000 + position, position, [RowChange(path, CHANGED, ["n"]) for path in paths])


def test_of_revisions_that_join_together_none_is_recorded_after_the_recording_has_ended(world: World) -> None:
    changes = LastChanges(TestRuntime(world), 2, 0)
    changes.token(_at(0), "/p")
    # The first of them exceeds the number of recorded paths, so the recording ends.
    changes.arrived([_changes(1, "/x", "/y", "/z"), _changes(2, "/p")])
    changes.arrived([_changes(3, "/p")])
    assert changes.token(_at(2), "/p") != changes.token(_at(3), "/p")
