"""``get_revision_history`` and ``get_journal``: revisions as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

from hbasemk import jsop
from hbasemk.errors import BranchError, RevisionCollectedError
from hbasemk.format import paths, revisions
from hbasemk.jsop import JsonBuilder
from hbasemk.kernel import diff, log
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.log import LogEntry, Step
from hbasemk.microkernel.jsop_diff import subtree_operations

JournalEntry: TypeAlias = tuple[LogEntry, str | None, str | None]
"""A log entry, its changes as JSOP, and its branch's base; None for what the result does not have."""


def history(instance: Instance, since_ms: int, limit: int, path: str) -> str:
    """Return the revisions since a time that changed a subtree, oldest first, as JSON."""
    most = sys.maxsize if limit < 0 else min(limit, sys.maxsize)
    found = log.trunk_entries_since(instance, since_ms, max(1, most))
    touching = (entry for entry in found if path == paths.ROOT or entry.touches(path))
    return _write((entry, None, None) for entry in islice(touching, most))


def journal(instance: Instance, first: int, last: int, path: str) -> str:
    """Return the revisions from ``first`` to ``last``, both included, as JSON, each with its changes as JSOP.

    The result is empty if they are not in order. A branch's revisions also have the trunk revision that it is based on.
    Raises BranchError unless the revisions lead along trunk, from trunk to a branch, or along one branch, and
    RevisionCollectedError if the snapshot before one of them has been collected.
    """
    rows: list[JournalEntry] = []
    if revisions.is_branch(first):
        if not revisions.is_branch(last):
            raise BranchError(
                f"a journal cannot lead from the branch revision {revisions.to_text(first)} to a trunk revision; expected two "
                "revisions of trunk, of one branch, or from trunk to a branch",
                revision=revisions.to_text(first),
            )
        state = instance.branch(last)
        own = state.own
        if first not in own and last in instance.branch(first).own:
            return _write(rows)
        if first not in own:
            raise BranchError(
                f"{revisions.to_text(first)} is not a revision of the branch that leads to {revisions.to_text(last)}; expected "
                "an earlier revision of the same branch",
                revision=revisions.to_text(first),
            )
        steps = log.branch_steps(instance, state, own[own.index(first) :], path)
        rows += _with_changes(instance, steps, path, revisions.to_text(state.base))
    elif revisions.is_branch(last):
        state = instance.branch(last)
        rows += _with_changes(instance, log.trunk_steps(instance, first, state.trunk, path), path)
        # If ``first`` is later than the branch's base, the journal has only the branch's revisions after ``first``.
        before = 0 if instance.sees(state.trunk, first) else first
        steps = log.branch_steps(instance, state, [one for one in state.own[1:] if one > before], path)
        rows += _with_changes(instance, steps, path, revisions.to_text(state.base))
    else:
        rows += _with_changes(instance, log.trunk_steps(instance, first, instance.at(last), path), path)
    return _write(rows)


def _with_changes(instance: Instance, steps: Iterable[Step], path: str, base: str | None = None) -> list[JournalEntry]:
    """Return the entries of steps, each with its changes in the subtree ``path`` as JSOP."""
    rows: list[JournalEntry] = []
    for entry, before, after in steps:
        touched = [change.path for change in entry.changes if paths.is_at_or_below(change.path, path)]
        try:
            changes = jsop.write(
                subtree_operations(instance, before, diff.of_paths(instance, before, after, touched), path)
            )
        except RevisionCollectedError as error:
            raise _no_changes(entry, error) from error
        rows.append((entry, changes, base))
    return rows


def _no_changes(entry: LogEntry, error: RevisionCollectedError) -> RevisionCollectedError:
    """Return the error for a revision that may be readable itself, although the snapshot before it is not."""
    return RevisionCollectedError(
        f"the changes of revision {entry.revision} can no longer be shown: the snapshot before it is older than the retention "
        "of the repository, and parts of it have been deleted. Begin the journal after this revision, or use a diff from "
        f"{error.oldest}, the oldest snapshot that can be read.",
        revision=entry.revision,
        oldest=error.oldest,
    )


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
