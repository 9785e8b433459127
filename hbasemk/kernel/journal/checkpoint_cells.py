"""The checkpoints in the settings row, as one instance reads and changes them (``docs/protocol.md``, section 3).

Each revision that is kept has a list of entries and a view. One atomic put writes both, by compare-and-set on the list. So all
entries of a revision share one view. The cells are removed in two steps: a compare-and-set ends the list, and an hour later
deletes remove the versions of both cells that exist then. A checkpoint that is made in between writes newer versions, which
the deletes spare.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import CheckpointError, FormatError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.checkpoint import LIST, CheckpointList, Entry, list_column, revision_of, view_column
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import BranchView
from hbasemk.kernel import settings
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal import notices
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, CellVersion, DeleteBelow, Get, NewCell, Page, Put, Scan, scan_all

PAGE: Final = 1000
BLOB_HOLD: Final = "collection of blobs"
"""The message of the entry that a collector of blobs makes for as long as it reads the references."""
BLOB_HOLD_MS: Final = 6 * 3_600_000
"""The time after which such an entry expires; a collector that dies leaves it."""
UNREAD: Final = b"unread"
"""Stands for the notice after which the lists were read."""
REMOVE_AFTER_MS: Final = 3_600_000
"""How long an expired entry and an ended list stay: the clock that set the expiry may be slightly wrong."""


class Stored(NamedTuple):
    """The two cells of one revision, read at one moment; None for each that does not exist."""

    revision: int
    listed: Cell | None
    view: Cell | None

    @property
    def list(self) -> CheckpointList:
        """The decoded list; one without entries if there is none. Raises FormatError if it is damaged."""
        return CheckpointList(0, ()) if self.listed is None else CheckpointList.decode(self.listed.value, self.revision)

    @property
    def kept(self) -> BranchView | None:
        """The decoded view; None if an earlier version wrote none. Raises FormatError if it is damaged."""
        if self.view is None:
            return None
        try:
            return BranchView.decode(self.view.value)
        except (ValueError, zlib.error):
            raise schema.damaged(
                "the view of a checkpoint must be a deflated list of at least two revision ids",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                view_column(self.revision),
            ) from None


class CheckpointCells:
    """The checkpoints of a repository. ``exist`` says whether there may have been any before the last poll."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, lease: Lease, exist: bool) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._lease = lease
        self._changes = 0
        self._listed: tuple[tuple[bytes, int], Mapping[int, bytes]] = ((UNREAD if exist else b"", 0), {})
        self._views: dict[int, tuple[int, View]] = {}

    # --- reading -----------------------------------------------------------------------------------------

    def all_lists(self) -> Iterator[Cell]:
        """Yield the cell of each list. One round trip for each 1000 checkpoints."""
        after = LIST
        while True:
            page = Page(schema.DATA, after, PAGE)
            cells = self._store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, page=page)])[0].cells
            for cell in cells:
                if not cell.qualifier.startswith(LIST):
                    return
                yield cell
            if len(cells) < PAGE:
                return
            after = cells[-1].qualifier

    def view_of(self, revision: int) -> View | None:
        """Return the view that a checkpoint keeps of a revision, or None if none does.

        Reads the lists in one round trip if a poll has noticed a change. The first use of a view takes two to four more.
        """
        read_at, listed = self._listed
        now = self._journal.checkpoints_notice, self._changes
        if read_at != now:
            cells = ((revision_of(cell.qualifier), cell.value) for cell in self.all_lists())
            listed = {one: value for one, value in cells if one is not None}
            # Another thread may add a view meanwhile.
            self._views = {one: view for one, view in list(self._views.items()) if one in listed}
            self._listed = now, listed
        data = listed.get(revision)
        if data is None:
            return None
        found = CheckpointList.decode(data, revision)
        cached = self._views.get(revision)
        if found.entries and cached is not None and cached[0] == found.digest:
            return cached[1]
        return self.read_view(revision) if found.entries and found.digest else None

    def read_view(self, revision: int) -> View | None:
        """Read the view that a checkpoint keeps of a revision now, or None if none does."""
        stored = self.read(revision)
        kept = stored.kept
        if kept is None or not stored.list.entries:
            return None
        # All of trunk up to the floor was decided before the checkpoint was made. This instance must know all of it.
        self._journal.poll()
        if kept.extent.floor > self._journal.verified:
            _, watermark = settings.read(self._store)
            if watermark is not None:
                self._journal.verify(watermark)
        view = View.of(revision, kept.extent, kept.upper)
        self._views[revision] = stored.list.digest, view
        return view

    def read(self, revision: int) -> Stored:
        """Read both cells of a revision. One round trip."""
        columns = (list_column(revision), view_column(revision))
        cells = {
            cell[:2]: cell for cell in self._store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns)])[0].cells
        }
        return Stored(revision, cells.get(columns[0]), cells.get(columns[1]))

    def missing(self, one: Extent, other: Extent) -> list[int]:
        """Return the committed revisions of trunk that one extent contains and the other lacks. Scans between the floors."""
        low, high = sorted((one.floor, other.floor))
        scan = Scan(schema.revision_key(low + 1), schema.revision_key(high + 1), PAGE, columns=(schema.COMMITTED,))
        rows = scan_all(self._store, schema.JOURNAL, scan) if low < high else ()
        between = {row.revision for row in journal_row.decode(rows) if row.committed and not row.is_branch}
        return sorted(revision for revision in between.union(one.above) if revision in one and revision not in other)

    # --- changing ----------------------------------------------------------------------------------------

    def change(
        self, revision: int, change: Callable[[Stored, bool], tuple[CheckpointList, bytes | None] | None]
    ) -> None:
        """Replace the list of a revision by compare-and-set, and its view too unless that is None.

        ``change`` computes them from what is stored, again after each failure; it returns None to leave them. Its second
        argument says whether there was an attempt before. That one may have been applied, although its answer was no: a gateway
        may have sent it twice.

        Two round trips; one more for the first list of a revision on a store without transactions. Raises CheckpointError if
        the store's clock has gone back so far that the delete of an earlier list hides the new one.
        """
        again = False
        column = list_column(revision)
        while True:
            stored = self.read(revision)
            changed = change(stored, again)
            if changed is None:
                if again:
                    self._announce()
                return
            new, view = changed
            cells = [NewCell(*column, new.encode()), NewCell(*schema.CHECKPOINTS, schema.YES)]
            if view is not None:
                cells.append(NewCell(*view_column(revision), view))
            expected = None if stored.listed is None else stored.listed.value
            put = Put(schema.SETTINGS_ROW, cells)
            again = True
            if self._store.check_and_write(schema.CLUSTER, column, expected, put):
                self._announce()
                # A list that replaces another one gets at least its timestamp. Nothing deletes a list within an hour.
                if expected is None and not self._store.supports_transactions and self.read(revision).listed is None:
                    raise _hidden(revision)
                return

    def _announce(self) -> None:
        """Make every instance, and this one, read the lists again after its next poll."""
        self._changes += 1
        notices.write(self._store, self._runtime, self._journal.checkpoints_notice)

    def latest_ms(self) -> int:
        """Return the latest time that the store's clock can show now. Two round trips if it was not measured recently."""
        self._lease.time()
        return int(self._lease.server.at_most(self._runtime.monotonic())) + 1

    def earliest_ms(self) -> int:
        """Return the earliest time that the store's clock can show now, as :meth:`latest_ms`."""
        self._lease.time()
        return int(self._lease.server.at_least(self._runtime.monotonic()))

    def shows_blob_collector(self) -> bool:
        """Return whether a collector may be reading the references to blobs now. One round trip for each 1000 checkpoints.

        A collector that died counts until its entry expires, for :data:`BLOB_HOLD_MS` at most.
        """
        cells = list(self.all_lists())
        if not cells:
            return False
        earliest, latest = self.earliest_ms(), self.latest_ms()
        entries = (entry for cell in cells for entry in _entries_of(cell) or ())
        # A user's checkpoint with this message may be kept for longer, and does not count then.
        return any(
            entry.message == BLOB_HOLD and earliest < entry.until_ms <= latest + BLOB_HOLD_MS for entry in entries
        )

    def remove_expired(self) -> None:
        """End the lists without an entry that counts, and remove those that ended an hour ago, by the store's clock.

        One round trip if there is nothing to remove. Several instances may do this at the same time.
        """
        cells = list(self.all_lists())
        latest = max(self._runtime.now_ms(), self._lease.server.at_most(self._runtime.monotonic()))
        if not any(self._is_over(cell, latest) for cell in cells):
            return
        now = self.earliest_ms()
        for cell in cells:
            revision = revision_of(cell.qualifier)
            if revision is None or not self._is_over(cell, now):
                continue
            self.change(revision, lambda stored, _: self._unexpired(stored, now))
            stored = self.read(revision)
            if (
                stored.listed is not None
                and not stored.list.entries
                and stored.listed.timestamp + REMOVE_AFTER_MS < now
            ):
                # Ranges: HBase may keep earlier versions, which a delete of the newest one alone would show again.
                ended = [one for one in (stored.listed, stored.view) if one is not None]
                gone = [CellVersion(*one[:2], one.timestamp + 1) for one in ended]
                self._store.delete_below(schema.CLUSTER, [DeleteBelow(schema.SETTINGS_ROW, gone)])

    @staticmethod
    def _unexpired(stored: Stored, now: float) -> tuple[CheckpointList, bytes | None] | None:
        found = stored.list
        kept = tuple(entry for entry in found.entries if entry.until_ms + REMOVE_AFTER_MS >= now)
        return None if len(kept) == len(found.entries) else (found._replace(entries=kept), None)

    @staticmethod
    def _is_over(cell: Cell, now: float) -> bool:
        """Return whether there is something to remove: an expired entry, or a list that ended long ago."""
        entries = _entries_of(cell)
        if entries is None:
            return False
        if not entries:
            return cell.timestamp + REMOVE_AFTER_MS < now
        return any(entry.until_ms + REMOVE_AFTER_MS < now for entry in entries)


def _entries_of(cell: Cell) -> Sequence[Entry] | None:
    """Return the entries of a list; None if it is damaged, which the integrity check reports: the others must still count."""
    revision = revision_of(cell.qualifier)
    try:
        return None if revision is None else CheckpointList.decode(cell.value, revision).entries
    except FormatError:
        return None


def _hidden(revision: int) -> CheckpointError:
    text = revisions.to_text(revision)
    return CheckpointError(
        f"the checkpoint of revision {text} was written, but the store does not show it: an earlier checkpoint of this revision "
        "was removed, and the store's clock has gone back since, by more than an hour. No checkpoint keeps the revision. Take "
        "one of a newer revision, or correct the store's clock and try again.",
        revision=text,
    )
