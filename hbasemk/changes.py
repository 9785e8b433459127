"""Differences between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hbasemk import arguments
from hbasemk.format import paths
from hbasemk.format.changes import ADDED, CHANGED, REMOVED
from hbasemk.format.node import decode_properties
from hbasemk.format.values import Value
from hbasemk.kernel import diff as kernel_diff
from hbasemk.snapshot import Snapshot, instance_of_snapshot, view_of


@dataclass(frozen=True, slots=True)
class Change:
    """One node that differs between two snapshots, with its properties in each; None where the node does not exist."""

    path: str
    before: dict[str, Value] | None
    after: dict[str, Value] | None
    __hash__ = None  # type: ignore[assignment]  # a frozen dataclass has one, but the dicts have none

    @property
    def kind(self) -> str:
        """Return ``"added"``, ``"removed"`` or ``"changed"``, the words of :attr:`RowChange.kind` too."""
        if self.before is None:
            return ADDED
        return REMOVED if self.after is None else CHANGED


def diff(before: Snapshot, after: Snapshot, path: str = paths.ROOT) -> Iterator[Change]:
    """Return the nodes at or below ``path`` that differ between two snapshots, parents before children.

    ``before`` and ``after`` are snapshots of one Repository object, in either order.

    The cost depends on the changes between the two, not on the size of the tree. Raises InvalidValueError for snapshots of
    two Repository objects.
    """
    instance = instance_of_snapshot(arguments.instance(after, Snapshot, "after"))
    old_view, new_view = view_of(instance, before, "before"), view_of(instance, after, "after")
    found = kernel_diff.diff(instance, old_view, new_view, arguments.path(path))
    return (
        Change(
            one,
            None if old is None else decode_properties(one, old.encoded),
            None if new is None else decode_properties(one, new.encoded),
        )
        for one, old, new in found
    )
