"""The log: committed revisions of trunk or of a branch, read from the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import WHOLE, journal_rows, whole_rows
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Scan, scan_all

BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One committed revision: its id and base as text, time in ms since 1970, message and changes."""

    revision: str
    base: str | None
    time_ms: int
    message: str
    changes: Sequence[RowChange]

    def touches(self, path: str) -> bool:
        """Return whether the revision changed anything in the subtree of ``path``."""
        return any(paths.is_at_or_below(change.path, path) for change in self.changes)


def entry_of(row: JournalRow, epoch_ms: int) -> LogEntry:
    """Return the entry of one journal row that was read with all its columns."""
    base = row.base
    return LogEntry(
        revisions.to_text(row.revision),
        None if base is None else revisions.to_text(base),
        revisions.ms_of(row.revision) + epoch_ms,
        row.message,
        row.changes,
    )


def entries(instance: Instance, ids: Sequence[int]) -> Iterator[LogEntry]:
    """Yield the entries of the given revisions, in the given order. One round trip for each 200."""
    for row in journal_rows(instance.store, ids):
        yield entry_of(row, instance.settings.epoch_ms)


def log(instance: Instance, path: str = paths.ROOT, upto: int | None = None) -> Iterator[LogEntry]:
    """Yield committed trunk revisions that touched the subtree of ``path``, newest first, from ``upto`` (None: the head).

    Memory is bounded; one round trip for each 200 journal rows. Revisions not visible in this instance are left out.
    """
    instance.poll()
    head = instance.head() if upto is None else instance.at(upto)
    scan = Scan(schema.revision_key(head.upper), None, BATCH, reverse=True, columns=WHOLE)
    for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
        if row.is_branch or not row.committed or not instance.sees(head, row.revision):
            continue
        (whole,) = whole_rows(instance.store, [row])
        entry = entry_of(whole, instance.settings.epoch_ms)
        if path == paths.ROOT or entry.touches(path):
            yield entry


class Step(NamedTuple):
    """A log entry, and the views just before and just after its revision."""

    entry: LogEntry
    before: View
    after: View


def trunk_entries(instance: Instance, first: int, view: View) -> list[LogEntry]:
    """Return the entries of a view's trunk revisions with ids from ``first`` up, in the order in which they joined."""
    scan = Scan(schema.revision_key(first), schema.revision_key(view.upper + 1), BATCH, columns=WHOLE)
    found = []
    for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
        if row.committed and not row.is_branch and instance.sees(view, row.revision):
            (whole,) = whole_rows(instance.store, [row])
            found.append(entry_of(whole, instance.settings.epoch_ms))
    found.sort(key=lambda entry: instance.journal.sort_key(revisions.from_text(entry.revision)))
    return found


def trunk_steps(instance: Instance, first: int, last: View, path: str) -> Iterator[Step]:
    """Yield the steps from the trunk revision ``first`` to ``last``, both included, that touched a subtree."""
    order = instance.journal.sort_key
    low = min([first, *instance.journal.between(instance.at(first), last)])
    for entry in trunk_entries(instance, low, last):
        revision = revisions.from_text(entry.revision)
        if order(revision) >= order(first) and (path == paths.ROOT or entry.touches(path)):
            after = instance.at(revision)
            yield Step(entry, instance.journal.previous(after), after)


def branch_steps(instance: Instance, state: BranchState, own: Sequence[int], path: str) -> Iterator[Step]:
    """Yield those of a branch's ``own`` revisions that touched a subtree. ``state`` is a later revision of the branch."""
    for entry in entries(instance, own):
        if path == paths.ROOT or entry.touches(path):
            revision = revisions.from_text(entry.revision)
            index = state.own.index(revision)
            before = instance.branch(state.own[index - 1]).view if index else state.trunk
            yield Step(entry, before, instance.branch(revision).view)
