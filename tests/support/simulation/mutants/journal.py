"""What an instance knows of the journal: views, polls and their bounds (sections 3 and 5)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format.extent import Extent
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.log_poller import LogPoller
from hbasemk.kernel.journal.news import News
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.journal.view import View


def bound_too_high(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound_for", lambda self, _: self.highest_seen + 1)


def bound_without_later_arrivals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound_for", lambda self, _: self.low_bound)


def read_back_down_to_an_estimate(patch: pytest.MonkeyPatch) -> None:
    original = Journal.low_bound_for
    patch.setattr(Journal, "low_bound_for", lambda self, snapshot: max(original(self, snapshot), self.low_bound))


def arrivals_out_of_order(patch: pytest.MonkeyPatch) -> None:
    read = LogPoller.read

    def backwards(self: LogPoller, *arguments: Any) -> News:
        news = read(self, *arguments)
        news.committed.reverse()
        return news

    patch.setattr(LogPoller, "read", backwards)


def everything_below_the_head_is_visible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "sees", lambda _, snapshot, version: version <= snapshot.upper)
    patch.setattr(Journal, "unseen", lambda _, snapshot, versions: [one for one in versions if one > snapshot.upper])


def held_snapshots_bounded_by_an_estimate(patch: pytest.MonkeyPatch) -> None:
    original = Journal.contents

    def contents(self: Journal, view: View) -> Extent:
        floor, above = original(self, view)
        return Extent(max(floor, self.low_bound - 1), above)

    patch.setattr(Journal, "contents", contents)


def held_snapshots_without_revisions_above(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.store_extents

    def store_extents(self: RevisionSequence, pins: Any, low_bound: int) -> None:
        original(self, pins, low_bound)
        for pin in pins.values():
            pin.extent = Extent(pin.extent[0])

    patch.setattr(RevisionSequence, "store_extents", store_extents)


def held_snapshots_with_too_many_revisions(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.store_extents

    def store_extents(self: RevisionSequence, pins: Any, low_bound: int) -> None:
        original(self, pins, low_bound)
        for pin in pins.values():
            pin.extent = Extent(self.last_at(len(self) - 1)[1], pin.extent[1])

    patch.setattr(RevisionSequence, "store_extents", store_extents)
