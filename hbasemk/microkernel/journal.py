"""``get_revision_history`` and ``get_journal``: revisions as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hbasemk.errors import BranchError
from hbasemk.format import paths, revisions, schema
from hbasemk.jsop import JsonBuilder
from hbasemk.kernel import diff
from hbasemk.kernel.batches import WHOLE, journal_rows, whole_rows
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.outcomes import Outcome, outcome_of
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.log import LogEntry, entry_of
from hbasemk.microkernel.jsop_diff import tell
from hbasemk.store.abc import Scan, scan_all

BATCH = 200


def trunk_entries(instance: Instance, first: int, head: View) -> list[LogEntry]:
    """The committed trunk revisions in a snapshot from the id ``first`` up, in the order in which they joined."""
    scan = Scan(schema.revision_key(first), schema.revision_key(head.upper + 1), BATCH, columns=WHOLE)
    found = []
    for row in scan_all(instance.store, schema.JOURNAL, scan):
        made = int.from_bytes(row.key, "big")
        committed = not revisions.is_branch(made) and outcome_of(row) is Outcome.COMMITTED
        if committed and instance.journal.sees(head, made):
            (whole,) = whole_rows(instance.store, instance.runtime, [row])
            found.append(entry_of(whole, instance.settings.epoch_ms))
    found.sort(key=lambda entry: instance.journal.sort_key(int(entry.revision, 16)))
    return found


def history(instance: Instance, since_ms: int, limit: int, path: str) -> str:
    """The revisions since a time that touch a subtree, oldest first."""
    ms = max(0, since_ms - instance.settings.epoch_ms)
    first = revisions.pack(min(ms, revisions.MAX_MS), 0, 0)
    found = [
        entry for entry in trunk_entries(instance, first, instance.head()) if path == paths.ROOT or entry.touches(path)
    ]
    return _write((entry, None, None) for entry in (found if limit < 0 else found[:limit]))


def journal(instance: Instance, first: int, last: int, path: str) -> str:
    """The revisions from one to another, both included, each with its changes as JSOP; none when they are not in order.

    Those of a branch tell the trunk revision that it is based on as well.
    Raises BranchError for a way that does not lead along trunk, from trunk to a branch, or along one branch.
    """
    told: list[tuple[LogEntry, str | None, str | None]] = []
    if revisions.is_branch(first):
        if not revisions.is_branch(last):
            raise BranchError(
                "a journal leads along trunk, from trunk to a branch, or along one branch, not from a branch to trunk",
                revision=revisions.to_text(first),
            )
        own = instance.branches.find(last).own
        if first not in own and last in instance.branches.find(first).own:
            return _write(told)
        if first not in own:
            raise BranchError(
                f"{revisions.to_text(first)} is no revision of the branch that leads to {revisions.to_text(last)}",
                revision=revisions.to_text(first),
            )
        told += _branch(instance, last, own[own.index(first) :], path)
    elif revisions.is_branch(last):
        state = instance.branches.find(last)
        told += _trunk(instance, first, instance.at(state.base), path)
        # What trunk did after the branch's base is not on the way: then only what came later on the branch is.
        before = 0 if instance.journal.sees(state.trunk, first) else first
        told += _branch(instance, last, [made for made in state.own[1:] if made > before], path)
    else:
        told += _trunk(instance, first, instance.at(last), path)
    return _write(told)


def _trunk(instance: Instance, first: int, last: View, path: str) -> list[tuple[LogEntry, str | None, str | None]]:
    begin = instance.at(first)
    order = instance.journal.sort_key
    low = min([first, *instance.journal.between(begin, last)])
    told: list[tuple[LogEntry, str | None, str | None]] = []
    for entry in trunk_entries(instance, low, last):
        made = int(entry.revision, 16)
        if order(made) < order(first) or not (path == paths.ROOT or entry.touches(path)):
            continue
        after = instance.at(made)
        told.append((entry, _changes(instance, instance.journal.previous(after), after, entry, path), None))
    return told


def _branch(
    instance: Instance, last: int, own: Sequence[int], path: str
) -> list[tuple[LogEntry, str | None, str | None]]:
    state = instance.branches.find(last)
    told: list[tuple[LogEntry, str | None, str | None]] = []
    for row in journal_rows(instance.store, instance.runtime, own):
        entry = entry_of(row, instance.settings.epoch_ms)
        made = int(entry.revision, 16)
        if not (path == paths.ROOT or entry.touches(path)):
            continue
        at = state.own.index(made)
        before = instance.branches.find(state.own[at - 1]).snapshot if at else state.trunk
        after = instance.branches.find(made).snapshot
        told.append((entry, _changes(instance, before, after, entry, path), revisions.to_text(state.base)))
    return told


def _changes(instance: Instance, before: View, after: View, entry: LogEntry, path: str) -> str:
    touched = [change.path for change in entry.changes if paths.is_at_or_below(change.path, path)]
    return tell(diff.of_paths(instance, before, after, touched))


def _write(told: Iterable[tuple[LogEntry, str | None, str | None]]) -> str:
    builder = JsonBuilder()
    builder.begin_array()
    for entry, changes, base in told:
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
