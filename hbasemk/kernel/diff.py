"""The difference between two views, computed from the journal's changes.

The cost depends on what changed between the two views, not on the size of the tree. The journal rows of the revisions in
only one of the views name the nodes that can differ, and only those are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.node import NodeState
from hbasemk.kernel.batches import batched
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import WHOLE, journal_rows, whole_rows
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Scan, scan_all

BATCH: Final = 200


class NodeChange(NamedTuple):
    """One node that differs, with its state in either view; None if it does not exist there."""

    path: str
    before: NodeState | None
    after: NodeState | None


def with_exact_base(instance: Instance, before: View, after: View) -> tuple[View, View]:
    """Return two views; if one is of the base of the other, which is a branch, return the view on which the branch is based.

    An instance may read another view by the id of the base.
    """
    if revisions.is_branch(after.revision) and (state := instance.branch(after.revision)).base == before.revision:
        return state.trunk, after
    if revisions.is_branch(before.revision) and (state := instance.branch(before.revision)).base == after.revision:
        return before, state.trunk
    return before, after


def diff(
    instance: Instance,
    before: View,
    after: View,
    path: str = paths.ROOT,
    depth: int | None = None,
    shows: Callable[[NodeChange], bool] | None = None,
) -> Iterator[NodeChange]:
    """Yield every node at or below ``path`` whose existence or properties differ, ordered by depth and path.

    A node that was removed and added again with the same properties does not differ. ``depth`` limits the levels below
    ``path`` (None: all), as in :func:`_up_to`. A node represents others only if it ``shows``, or if no other node does.
    """
    touched = {one for one in _touched(instance, before, after) if paths.is_at_or_below(one, path)}
    if depth is None:
        return of_paths(instance, before, after, touched)
    return _up_to(instance, before, after, touched, paths.depth(path) + depth, shows or (lambda _: True))


def of_paths(instance: Instance, before: View, after: View, touched: Iterable[str]) -> Iterator[NodeChange]:
    """Yield those of the given nodes that differ."""
    return (one for one in _pairs(instance, before, after, touched) if _differ(one.before, one.after))


def _up_to(
    instance: Instance,
    before: View,
    after: View,
    touched: set[str],
    limit: int,
    shows: Callable[[NodeChange], bool],
) -> Iterator[NodeChange]:
    """Yield the differing nodes down to the level ``limit``, and the nodes that represent deeper differences.

    The next level's nodes come too, unless their parent was added or removed: then they belong to its subtree. For a node
    of that level that both views contain, one differing node below it comes, if there is any: one that ``shows``, if possible.
    The cost depends on what the result contains, and on the touched nodes that do not differ, or do not show.
    """
    replaced: set[str] = set()
    for level in (
        [one for one in touched if paths.depth(one) <= limit],
        [one for one in touched if paths.depth(one) == limit + 1],
    ):
        for change in _pairs(instance, before, after, [one for one in level if _parent(one) not in replaced]):
            if change.before is None or change.after is None:
                replaced.add(change.path)
            if _differ(change.before, change.after):
                yield change
    deeper: dict[str, list[str]] = {}
    for one in sorted(touched):
        if paths.depth(one) > limit + 1:
            top = paths.ancestor(one, limit + 1)
            if top not in replaced and _parent(top) not in replaced:
                deeper.setdefault(top, []).append(one)
    unseen: dict[str, NodeChange] = {}
    size = 1
    while deeper:
        differing = {
            change.path: change
            for change in of_paths(instance, before, after, [one for below in deeper.values() for one in below[:size]])
        }
        left: dict[str, list[str]] = {}
        for top, below in deeper.items():
            found = [differing[one] for one in below[:size] if one in differing]
            first = next(filter(shows, found), None)
            if first is not None:
                yield first
                continue
            unseen.update((top, one) for one in found[:1])
            if len(below) > size:
                left[top] = below[size:]
            elif top in unseen:
                yield unseen[top]
        deeper = left
        size *= 2


def _parent(path: str) -> str | None:
    return None if path == paths.ROOT else paths.parent(path)


def _pairs(instance: Instance, before: View, after: View, touched: Iterable[str]) -> Iterator[NodeChange]:
    """Yield the states of the given nodes in both views, ordered by depth and path."""
    reader = instance.reader
    for part in batched(sorted(set(touched), key=paths.key), instance.store.batch_rows):
        yield from map(NodeChange, part, reader.each(before, part), reader.each(after, part))


def walk(instance: Instance, before: View, after: View, path: str = paths.ROOT) -> Iterator[NodeChange]:
    """Compute the same as :func:`diff` by comparing the trees level by level. Tests use it to verify :func:`diff`."""

    def levels(view: View) -> Iterator[dict[str, NodeState]]:
        top = instance.reader.node(view, path)
        yield {} if top is None else {path: top}
        level: dict[str, NodeState] = {}
        depth = paths.depth(path) + 1
        for batch in instance.reader.levels(view, path):
            for state in batch:
                while paths.depth(state.path) > depth:
                    yield level
                    level, depth = {}, depth + 1
                level[state.path] = state
        yield level
        while True:
            yield {}

    for old, new in zip(levels(before), levels(after), strict=False):
        if not old and not new:
            return
        for one in sorted({*old, *new}, key=paths.key):
            if _differ(old.get(one), new.get(one)):
                yield NodeChange(one, old.get(one), new.get(one))


def _differ(old: NodeState | None, new: NodeState | None) -> bool:
    if old is None or new is None:
        return old is not new
    return old.encoded != new.encoded


def _touched(instance: Instance, before: View, after: View) -> set[str]:
    """Return the paths that the revisions in only one of the views touch."""
    ids = instance.journal.between(before, after)
    ids += sorted({revision for revision in before.own ^ after.own if revisions.is_branch(revision)})
    touched: set[str] = set()
    for row in journal_rows(instance.store, ids):
        touched.update(change.path for change in row.changes)
    low, high = instance.journal.unkept_range(before, after)
    if low < high:
        start, stop = schema.revision_key(low), schema.revision_key(high)
        scan = Scan(start, stop, BATCH, columns=WHOLE)
        for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
            if not row.is_branch and row.committed:
                (whole,) = whole_rows(instance.store, [row])
                touched.update(change.path for change in whole.changes)
    # Rows up to the horizon may be deleted. A view that is readable needs none of them.
    for view in (before, after):
        instance.journal.require_readable(view)
    return touched
