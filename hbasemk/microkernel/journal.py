"""``get_revision_history`` and ``get_journal``: revisions as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from hbasemk.errors import BranchError
from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.jsop import JsonBuilder
from hbasemk.kernel import diff
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import WHOLE, journal_rows, whole_rows
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.log import LogEntry, entry_of
from hbasemk.microkernel.jsop_diff import to_jsop
from hbasemk.store.abc import Scan, scan_all

BATCH = 200

JournalEntry: TypeAlias = tuple[LogEntry, str | None, str | None]
"""A log entry, its changes as JSOP, and its branch's base; None for what the result does not have."""


def trunk_entries(instance: Instance, first: int, head: View) -> list[LogEntry]:
    """Return the log entries of a view's trunk revisions with ids from ``first`` up, in the order in which they joined."""
    scan = Scan(schema.revision_key(first), schema.revision_key(head.upper + 1), BATCH, columns=WHOLE)
    entries = []
    for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
        if row.committed and not row.is_branch and instance.journal.sees(head, row.revision):
            (whole,) = whole_rows(instance.store, [row])
            entries.append(entry_of(whole, instance.settings.epoch_ms))
    entries.sort(key=lambda entry: instance.journal.sort_key(int(entry.revision, 16)))
    return entries


def history(instance: Instance, since_ms: int, limit: int, path: str) -> str:
    """Return the revisions since a time that changed a subtree, oldest first, as JSON."""
    ms = max(0, since_ms - instance.settings.epoch_ms)
    first = revisions.pack(min(ms, revisions.MAX_MS), 0, 0)
    entries = [
        entry for entry in trunk_entries(instance, first, instance.head()) if path == paths.ROOT or entry.touches(path)
    ]
    return _write((entry, None, None) for entry in (entries if limit < 0 else entries[:limit]))


def journal(instance: Instance, first: int, last: int, path: str) -> str:
    """Return the revisions from ``first`` to ``last``, both included, as JSON, each with its changes as JSOP.

    The result is empty if they are not in order. A branch's revisions also have the trunk revision that it is based on.
    Raises BranchError unless the revisions lead along trunk, from trunk to a branch, or along one branch.
    """
    rows: list[JournalEntry] = []
    if revisions.is_branch(first):
        if not revisions.is_branch(last):
            raise BranchError(
                f"a journal cannot lead from the branch revision {revisions.to_text(first)} to a trunk revision; expected two "
                "revisions of trunk, of one branch, or from trunk to a branch",
                revision=revisions.to_text(first),
            )
        own = instance.branches.find(last).own
        if first not in own and last in instance.branches.find(first).own:
            return _write(rows)
        if first not in own:
            raise BranchError(
                f"{revisions.to_text(first)} is not a revision of the branch that leads to {revisions.to_text(last)}; expected "
                "an earlier revision of the same branch",
                revision=revisions.to_text(first),
            )
        rows += _branch(instance, last, own[own.index(first) :], path)
    elif revisions.is_branch(last):
        state = instance.branches.find(last)
        rows += _trunk(instance, first, instance.at(state.base), path)
        # If ``first`` is later than the branch's base, the journal has only the branch's revisions after ``first``.
        before = 0 if instance.journal.sees(state.trunk, first) else first
        rows += _branch(instance, last, [revision for revision in state.own[1:] if revision > before], path)
    else:
        rows += _trunk(instance, first, instance.at(last), path)
    return _write(rows)


def _trunk(instance: Instance, first: int, last: View, path: str) -> list[JournalEntry]:
    begin = instance.at(first)
    order = instance.journal.sort_key
    low = min([first, *instance.journal.between(begin, last)])
    rows: list[JournalEntry] = []
    for entry in trunk_entries(instance, low, last):
        revision = int(entry.revision, 16)
        if order(revision) < order(first) or not (path == paths.ROOT or entry.touches(path)):
            continue
        after = instance.at(revision)
        rows.append((entry, _changes(instance, instance.journal.previous(after), after, entry, path), None))
    return rows


def _branch(instance: Instance, last: int, own: Sequence[int], path: str) -> list[JournalEntry]:
    state = instance.branches.find(last)
    rows: list[JournalEntry] = []
    for row in journal_rows(instance.store, own):
        entry = entry_of(row, instance.settings.epoch_ms)
        if not (path == paths.ROOT or entry.touches(path)):
            continue
        index = state.own.index(row.revision)
        before = instance.branches.find(state.own[index - 1]).view if index else state.trunk
        after = instance.branches.find(row.revision).view
        rows.append((entry, _changes(instance, before, after, entry, path), revisions.to_text(state.base)))
    return rows


def _changes(instance: Instance, before: View, after: View, entry: LogEntry, path: str) -> str:
    touched = [change.path for change in entry.changes if paths.is_at_or_below(change.path, path)]
    return to_jsop(diff.of_paths(instance, before, after, touched))


def _write(rows: Iterable[JournalEntry]) -> str:
    builder = JsonBuilder()
    builder.begin_array()
    for entry, changes, base in rows:
        builder.begin_object()
        builder.value(entry.revision, "id")
        builder.value(entry.time_ms, "ts")
        builder.value(entry.message, "msg")
        if changes is not None:
            builder.value(changes, "changes")
        if base is not None:
            builder.value(base, "branchRootId")
        builder.end()
    builder.end()
    return builder.text()
