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
from hbasemk.snapshot import OTHERS_SNAPSHOT, Snapshot


@dataclass(frozen=True, slots=True)
class Change:
    """One node that differs between two snapshots, with its properties in each; None where the node does not exist."""

    path: str
    before: dict[str, Value] | None
    after: dict[str, Value] | None

    @property
    def kind(self) -> str:
        """Return ``"added"``, ``"removed"`` or ``"changed"``, the words of :attr:`RowChange.kind` too."""
        if self.before is None:
            return ADDED
        return REMOVED if self.after is None else CHANGED


def diff(before: Snapshot, after: Snapshot, path: str = paths.ROOT) -> Iterator[Change]:
    """Return the nodes at or below ``path`` that differ between two snapshots of one repository, parents before children.

    Costs what changed between the two, not the tree. Raises ValueError for snapshots of two Repository objects.
    """
    arguments.instance(before, Snapshot, "before")
    arguments.instance(after, Snapshot, "after")
    arguments.path(path)
    if before.instance is not after.instance:
        raise ValueError(OTHERS_SNAPSHOT.format(before.revision))
    return _diff(before, after, path)


def _diff(before: Snapshot, after: Snapshot, path: str) -> Iterator[Change]:
    found = kernel_diff.diff(after.instance, before.prefix, after.prefix, path)
    for one, old, new in found:
        yield Change(
            one,
            None if old is None else decode_properties(one, old.encoded),
            None if new is None else decode_properties(one, new.encoded),
        )
