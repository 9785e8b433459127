"""Whether a change set leaves the tree as it was, though nodes in it went and came back."""

from __future__ import annotations

from collections.abc import Iterable

from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.staging import StagedNode


def is_noop(nodes: Iterable[StagedNode]) -> bool:
    """Whether each node is there as before with the same properties, or is as little there as before."""
    return all(
        node.all_encoded() == node.base.encoded if node.exists and node.base is not None else _nowhere(node)
        for node in nodes
    )


def _nowhere(node: StagedNode) -> bool:
    return not node.exists and node.base is None


def without_noop(plan: ChangeSet) -> ChangeSet:
    """The change set itself; without an effect, one that writes nothing and relies on what it would have.

    So it meets whoever changed what it put back, but makes no revision.
    """
    return ChangeSet(plan.rows, [], [], plan.reads) if is_noop(plan.after) else plan
