"""The journal of one instance: what its views contain, by the revisions known here and the rows of the journal table.

See ``docs/protocol.md``, section 3. ``known_revisions.py`` keeps the sequence; ``polled_revisions.py`` extends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from hbasemk.errors import RevisionCollectedError, UnknownRevisionError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.extent import Extent
from hbasemk.kernel.journal.fence import read_trim_level, unrecorded
from hbasemk.kernel.journal.polled_revisions import PolledRevisions
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sequence import extent_of, view_up_to
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Scan, scan_all

SCAN_BATCH: Final = 1000


class Journal(PolledRevisions):
    """Answers about views that also need the bounds of polls, or the table of the journal for what is no longer kept."""

    # --- one revision ------------------------------------------------------------------------------------

    def find(self, revision: int) -> View:
        """Return the view of a trunk revision, polling for it if it is not known yet (section 3).

        Raises UnknownRevisionError if no poll can find it, and RevisionCollectedError if its row may have been deleted.
        """
        view = self.view_of(revision)
        if view is None and revision == self._origin:
            with self._lock:
                return view_up_to(revision) if self._sequence.begin else self._view_at(-1)
        if view is None and not revisions.is_branch(revision):
            if revision > self._sequence.top:
                self.poll()
                view = self.view_of(revision)
            if view is None and revision <= self._sequence.top and self._is_committed(revision):
                view = view_up_to(revision)
        if view is None:
            if self.is_trimmed(revision):
                raise self.collected(view_up_to(revision))
            text = revisions.to_text(revision)
            raise UnknownRevisionError(
                f"revision {text} is not known in the repository at {self._store.location}: it was never committed on "
                "trunk, belongs to another repository, or has been collected",
                revision=text,
            )
        return view

    def _is_committed(self, revision: int) -> bool:
        (row,) = journal_rows(self._store, [revision], columns=(schema.COMMITTED,))
        return row.committed and revision not in self._sequence.hidden

    # --- two views ---------------------------------------------------------------------------------------

    def since(self, view: View) -> list[int]:
        """Return the revisions that became visible here after the view, in sequence order.

        No round trip while the view's position is kept. Otherwise the journal table supplies the dropped revisions, in
        the order of their ids.
        """
        sequence = self._sequence
        if sequence.keeps(view):
            return sequence.after(view.position)
        low, high = self.unkept_range(view, self._head)
        dropped = list(self._committed_between(low, high)) if low < high else []
        if low < high:
            self.require_recorded(low)
        kept = sequence.positions
        return [
            *(revision for revision in dropped if revision not in kept and not sequence.sees(view, revision)),
            *(revision for revision in sequence if not sequence.sees(view, revision)),
        ]

    def are_equal(self, one: View, other: View) -> bool:
        """Return whether two views are of the same revision and contain the same revisions.

        No round trip, except for what the sequence no longer keeps; a scan of the journal table then. False if its rows may
        have been deleted: one of the views is no longer readable.
        """
        if one == other:
            return True
        if one.revision != other.revision or one.own != other.own or self.between(one, other):
            return False
        listed = [revision for view in (one, other) if view.extent is not None for revision in view.extent.above]
        if any(self.sees(one, revision) != self.sees(other, revision) for revision in listed):
            return False
        low, high = self.unkept_range(one, other)
        if low >= high:
            return True
        rows = self._committed_between(low, high)
        equal = not any(self.sees(one, revision) != self.sees(other, revision) for revision in rows)
        return equal and not self.is_trimmed(low)

    def unkept_range(self, one: View, other: View) -> tuple[int, int]:
        """Return the range of ids below the sequence in which two views may differ (empty: low >= high)."""
        sequence = self._sequence
        if sequence.keeps(one) and sequence.keeps(other):
            return sequence.floor + 1, sequence.floor + 1
        low = min(self.complete_up_to(one), self.complete_up_to(other))
        return low + 1, min(sequence.floor, max(one.upper, other.upper)) + 1

    def complete_up_to(self, view: View) -> int:
        """Return an id up to which the view contains all of trunk that is visible here."""
        return self.low_bound_for(view) - 1 if view.extent is None else view.extent.floor

    def _committed_between(self, low: int, high: int) -> Iterator[int]:
        """Yield the committed trunk revisions from ``low`` up to but not including ``high``, from the journal table."""
        flags = (schema.COMMITTED, schema.ABORT)
        scan = Scan(schema.revision_key(low), schema.revision_key(high), SCAN_BATCH, columns=flags)
        rows = journal_row.decode(scan_all(self._store, schema.JOURNAL, scan))
        return (row.revision for row in rows if row.committed and not row.is_branch)

    # --- the horizon -------------------------------------------------------------------------------------

    def is_surely_readable(self, view: View) -> bool:
        """Return whether nothing that the view needs has been deleted up to now, as far as this instance knows.

        No round trip. If False, :meth:`require_readable` finds out.
        """
        fence = self.fence
        if not fence.is_trusted:
            return False
        horizon = fence.horizon
        if not horizon or fence.has_passed(view):
            return True
        if self.complete_up_to(view) < horizon:
            return False
        fence.passes(view, horizon)
        return True

    def require_readable(self, view: View) -> None:
        """Raise RevisionCollectedError if a collector may have deleted what the view contains before it was read.

        Raises UnknownRevisionError if a sweep may have deleted the branch of the view.

        Call it after a read, before its result is used. No round trip while polls go on, else one; two if the horizon has
        passed what this instance knows to be decided. More for the view of a branch.
        """
        self.require_above_horizon(view)
        if view.own and self.require_branch is not None:
            self.require_branch(view)

    def require_above_horizon(self, view: View) -> None:
        """As :meth:`require_readable`, for a view of which it is known that no sweep has deleted parts."""
        if self.is_surely_readable(view):
            return
        if self.complete_up_to(view) < self.fence.refresh():
            # A poll reads that everything up to the horizon is decided, and what of it this instance lacked.
            self.poll()
            if self.complete_up_to(view) < self.fence.horizon:
                raise self.collected(view)

    def current_horizon(self) -> int:
        """Return a horizon such that deletion for a later one has not begun. No round trip while polls go on, else one."""
        return self.fence.horizon if self.fence.is_trusted else self.fence.refresh()

    def collected(self, view: View) -> RevisionCollectedError:
        """Return the error for a view of which parts may have been deleted."""
        horizon = self.fence.horizon
        text, oldest = revisions.to_text(view.revision), revisions.to_text(horizon)
        if view.revision < horizon:
            what = f"is older than the retention of the repository at {self._store.location}, and"
        else:
            what = f"does not have all revisions up to {oldest}: some became visible here later. So it counts as older, and"
        return RevisionCollectedError(
            f"the snapshot at revision {text} {what} parts of it have been deleted; the oldest snapshot that can be read is "
            f"{oldest}, with all revisions up to there. Use a newer one, such as the head. A longer retention, a checkpoint or a "
            "branch keeps snapshots readable.",
            revision=text,
            oldest=oldest,
        )

    def is_trimmed(self, revision: int) -> bool:
        """Return whether the journal row of a revision may have been deleted up to now. Call it after the row was read.

        No round trip for a revision above a horizon that this instance trusts; up to two otherwise.
        """
        # A collector deletes rows only below a horizon that all readers know.
        horizon = self.current_horizon()
        if not horizon or revision > horizon:
            return False
        # A collector deletes rows of branches when the horizon passes them.
        return revisions.is_branch(revision) or revision <= read_trim_level(self._store).revision

    def require_recorded(self, revision: int) -> None:
        """Raise RevisionCollectedError if the journal row of a revision may have been deleted; see :meth:`is_trimmed`."""
        if self.is_trimmed(revision):
            raise unrecorded(self._store, revision)

    # --- the contents of a view --------------------------------------------------------------------------

    def low_bound_for(self, view: View) -> int:
        """Return the id below which the view contains every revision that is or can be committed (step 7).

        The result does not depend on a clock.
        """
        # Read the bound first: no revision that joins the sequence afterwards has a lower id.
        low = self._verified + 1
        sequence = self._sequence
        if sequence.keeps(view):
            return min([low, *sequence.after(view.position)])
        return min(low, extent_of(view).floor + 1)

    def contents(self, view: View) -> Extent:
        """Return the extent of a trunk view, with the highest possible floor."""
        sequence = self._sequence
        if sequence.keeps(view):
            floor = self.low_bound_for(view) - 1
            return Extent(floor, sequence.above(floor, view.position))
        return extent_of(view)

    def known_from(self, first: int, view: View) -> tuple[int, list[int]]:
        """Return the revisions of a trunk view with ids from ``first`` up that are known without the table.

        They are in sequence order. The view's other revisions come before them, in the order of their ids, which are at most
        the id that is returned with the list.
        """
        sequence = self._sequence
        above = () if sequence.keeps(view) else extent_of(view).above
        dropped = [one for one in above if one > sequence.floor and one not in sequence.positions]
        known = [*dropped, *(one for one in sequence if sequence.sees(view, one))]
        return sequence.floor, [one for one in known if one >= first]

    # --- for feeds (feed.py) -----------------------------------------------------------------------------

    def extent(self, view: View, slack: int) -> Extent:
        """Return the extent of a trunk view, with a floor ``slack`` below the highest possible one.

        A floor that the watermark guarantees needs no slack.
        """
        floor, above = self.contents(view)
        sequence = self._sequence
        lower = min(floor, max(sequence.floor, floor - slack))
        listed = [revision for revision in sequence if lower < revision <= floor and sequence.sees(view, revision)]
        return Extent.of(lower, [*above, *listed])

    def floor_at(self, position: int, slack: int) -> int | None:
        """Return an id up to which all that is or can be committed has at most this position; None as in :meth:`later`.

        The id is ``slack`` below the low bound, except where the watermark guarantees it.
        """
        # Read the bound first: no revision that joins the sequence afterwards has a lower id.
        low = self.low_bound
        sequence = self._sequence
        if position < sequence.begin - 1:
            return None
        return max(sequence.floor, min([low - slack, *sequence.after(position)]) - 1)

    def committed(self, low: int, high: int) -> tuple[list[int], int]:
        """Return the committed trunk revisions above ``low``, and the id up to which the list is complete.

        That id is ``high``, or lower if there are many revisions. Both must be at most :attr:`floor`. One round trip.
        Raises RevisionCollectedError if some of their rows may have been deleted.
        """
        scan = Scan(
            schema.revision_key(low + 1), schema.revision_key(high + 1), SCAN_BATCH, columns=(schema.COMMITTED,)
        )
        rows = list(islice(journal_row.decode(scan_all(self._store, schema.JOURNAL, scan)), SCAN_BATCH))
        self.require_recorded(low + 1)
        covered = high if len(rows) < SCAN_BATCH else rows[-1].revision
        return [row.revision for row in rows if row.committed and not row.is_branch], covered
