"""The log: committed revisions of trunk or of a branch, read from the journal."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from hbasemk.errors import RevisionCollectedError
from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.changes import FOLDED, RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.moments import moment
from hbasemk.kernel.batches import growing
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import WHOLE, first_parts, journal_rows, whole_rows
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.subtree_revisions import SubtreeRevisions
from hbasemk.store.abc import Scan, scan_all

BATCH: Final = 200
FIRST_BATCH: Final = 20
"""The first rows of a log. Most callers read few entries; each later batch is twice as large, up to ``BATCH`` rows."""
HEAD_START: Final = 4
"""The number of calls for the rows of a subtree before the log begins to read the journal, too."""
_PATH: Final = attrgetter("path")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One committed revision: its id and base as text, time in ms since 1970, message and changes.

    ``changes`` has an entry for each node that the revision changed, also outside the path of a log or a watch, sorted by path.
    ``base`` names the snapshot on which the revision was built, as its writer saw it; None for the first revision. On HBase,
    ``repo.at(base)`` may lack a part of that snapshot in another process, so do not take the old values from there: see
    "Reading" in the guide.
    """

    revision: str
    base: str | None
    time_ms: int
    message: str
    changes: Sequence[RowChange]
    __hash__ = None  # type: ignore[assignment]  # a frozen dataclass has one, but the list has none

    @property
    def time(self) -> datetime.datetime:
        """The time in the revision's id, in UTC, as :attr:`Snapshot.time`."""
        return moment(self.time_ms)

    def touches(self, path: str) -> bool:
        """Return whether the revision changed anything in the subtree of ``path``.

        The first revision, which has no base, touches only ``/``: it creates this node.
        """
        if self.base is None:
            return path == paths.ROOT
        return any(paths.is_at_or_below(change.path, path) for change in self.changes)

    @property
    def is_fold(self) -> bool:
        """Whether the revision only changed how an adjusted property is stored; logs and watches leave it out."""
        return len(self.changes) == 1 and self.changes[0].kind == FOLDED


def entry_of(row: JournalRow, epoch_ms: int) -> LogEntry:
    """Return the entry of one journal row that was read with all its columns."""
    base = row.base
    return LogEntry(
        revisions.to_text(row.revision),
        None if base is None else revisions.to_text(base),
        revisions.ms_of(row.revision) + epoch_ms,
        row.message,
        sorted(row.changes, key=_PATH),  # the order in the row depends on the store
    )


def entries(instance: Instance, ids: Sequence[int]) -> Iterator[LogEntry]:
    """Yield the entries of the given revisions, in the given order. One round trip for each 200.

    Raises RevisionCollectedError if a row has been deleted.
    """
    for row in journal_rows(instance.store, ids):
        if not row.cells:
            instance.journal.require_recorded(row.revision)
        yield entry_of(row, instance.settings.epoch_ms)


def log(instance: Instance, path: str = paths.ROOT, upto: int | View | None = None) -> Iterator[LogEntry]:
    """Yield committed revisions that touched the subtree of ``path``, newest first, from ``upto`` (None: the head).

    If ``upto`` is a revision or view of a branch, these are the branch's revisions up to it, and then those of its view of
    trunk. A view by time may contain more than the view of its revision.

    Memory is bounded; one round trip for each 200 journal rows, and for the first 20, 40 and 80. Folds, and revisions that
    are not visible in this instance, are left out. The log ends with the oldest revision that can be read: older versions of
    rows may be deleted.

    Two searches take turns, and the cheaper one decides the cost: down the journal, and through the rows of the subtree,
    whose versions name the revisions (:mod:`~hbasemk.kernel.subtree_revisions`). A path that never existed costs a poll and
    one round trip.
    """
    instance.poll()
    if isinstance(upto, View):
        instance.journal.require_readable(upto)
        head = upto
    else:
        head = instance.head() if upto is None else instance.at(upto)
    if revisions.is_branch(head.revision):
        branch = instance.branch(head.revision)
        yield from (entry for entry in entries(instance, branch.own[::-1]) if entry.touches(path))
        head = branch.trunk
    with suppress(RevisionCollectedError):  # A collector has deleted the rest meanwhile.
        yield from _trunk_log(instance, path, head)


def _trunk_log(instance: Instance, path: str, head: View) -> Iterator[LogEntry]:
    """Yield the entries of a view of trunk that touched a subtree, newest first."""
    if path == paths.ROOT:
        yield from _whole_entries(instance, head, _down(instance, head, instance.journal.current_horizon()))
        return
    subtree = SubtreeRevisions(instance.store, path, head.upper + 1)
    complete = False
    for _ in range(HEAD_START):
        complete = subtree.step()
    below = head.upper + 1
    if not complete:
        # Below the horizon, rows may lack versions.
        oldest = max(instance.journal.current_horizon(), subtree.oldest or 0)
        for number, row in enumerate(_down(instance, head, oldest), start=1):
            below = row.revision
            yield from (entry for entry in _whole_entries(instance, head, (row,)) if entry.touches(path))
            if number % BATCH == 0 and subtree.step():
                break
        else:
            # Only the revision at the horizon may be left.
            below = oldest
    # After the reads: no version of a later revision has been deleted. The revision at the horizon itself may lack some.
    horizon = instance.journal.current_horizon()
    touched = {one for one in subtree.ids if one > horizon} | ({horizon} if horizon else set())
    ids = sorted((one for one in touched if one < below and instance.sees(head, one)), reverse=True)
    for one in journal_rows(instance.store, ids):
        if _is_visible(instance, head, one) and (one.revision != horizon or entry_of(one, 0).touches(path)):
            entry = entry_of(one, instance.settings.epoch_ms)
            if not entry.is_fold:
                yield entry


def _down(instance: Instance, view: View, oldest: int | None) -> Iterator[JournalRow]:
    """Yield the journal rows from a view's highest id down to ``oldest`` (0, None: the first), without further chunks."""
    stop = schema.revision_key(oldest - 1) if oldest else None
    scan = Scan(schema.revision_key(view.upper), stop, BATCH, reverse=True, columns=WHOLE)
    return journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan, FIRST_BATCH))


def _whole_entries(instance: Instance, view: View, rows: Iterable[JournalRow]) -> Iterator[LogEntry]:
    """Yield the entries of the rows that are visible in a view, without folds."""
    visible = (row for row in rows if _is_visible(instance, view, row))
    found = (entry_of(row, instance.settings.epoch_ms) for row in whole_rows(instance.store, visible))
    return (entry for entry in found if not entry.is_fold)


def _is_visible(instance: Instance, view: View, row: JournalRow) -> bool:
    return row.committed and not row.is_branch and instance.sees(view, row.revision)


class Step(NamedTuple):
    """A log entry, and the views just before and just after its revision."""

    entry: LogEntry
    before: View
    after: View


def trunk_entries_since(instance: Instance, since_ms: int, first_batch: int = BATCH) -> Iterator[LogEntry]:
    """Yield the entries of the head's trunk revisions since a time (ms since 1970), as :func:`trunk_entries`."""
    ms = max(0, since_ms - instance.settings.epoch_ms)
    return trunk_entries(instance, revisions.pack(min(ms, revisions.MAX_MS), 0, 0), instance.head(), first_batch)


def trunk_entries(instance: Instance, first: int, view: View, first_batch: int = BATCH) -> Iterator[LogEntry]:
    """Yield the entries of a view's trunk revisions with ids from ``first`` up, in the order in which they joined.

    The first round trip reads ``first_batch`` rows, each later one twice as many, at most 200.
    """
    floor, known = instance.journal.known_from(first, view)
    if first <= floor:
        scan = Scan(schema.revision_key(first), schema.revision_key(min(floor, view.upper) + 1), BATCH, columns=WHOLE)
        rows = journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan, first_batch))
        apart = set(known)
        yield from _whole_entries(instance, view, (row for row in rows if row.revision not in apart))
    for part in growing(known, first_batch, BATCH):
        yield from _whole_entries(instance, view, first_parts(instance.store, part))


def trunk_steps(instance: Instance, first: int, last: View, path: str) -> Iterator[Step]:
    """Yield the steps from the trunk revision ``first`` to ``last``, both included, that touched a subtree.

    Raises RevisionCollectedError if some of their rows may have been deleted.
    """
    order = instance.journal.sort_key
    low = min([first, *instance.journal.between(instance.journal.find(first), last)])
    entries_up = list(trunk_entries(instance, low, last))
    instance.journal.require_recorded(low)
    for entry in entries_up:
        revision = revisions.from_text(entry.revision)
        if order(revision) >= order(first) and (path == paths.ROOT or entry.touches(path)):
            # In the order of this instance, also where a checkpoint keeps another view of the revision.
            after = instance.journal.find(revision)
            yield Step(entry, instance.journal.previous(after), after)


def branch_steps(instance: Instance, state: BranchState, own: Sequence[int], path: str) -> Iterator[Step]:
    """Yield those of a branch's ``own`` revisions that touched a subtree. ``state`` is a later revision of the branch."""
    for entry in entries(instance, own):
        if path == paths.ROOT or entry.touches(path):
            revision = revisions.from_text(entry.revision)
            index = state.own.index(revision)
            before = instance.branch(state.own[index - 1]).view if index else state.trunk
            yield Step(entry, before, instance.branch(revision).view)
