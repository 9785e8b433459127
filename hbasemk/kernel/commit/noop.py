"""Change sets without a net effect, even if they remove nodes and add them again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hbasemk.format.node import NodeState
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.staged_node import StagedNode


def is_noop(nodes: Iterable[StagedNode]) -> bool:
    """Return whether every node exists with the same properties as before, or is absent as before."""
    return all(
        _is_same(node, node.base) if node.exists and node.base is not None else _is_absent(node) for node in nodes
    )


def _is_same(node: StagedNode, base: NodeState) -> bool:
    # An adjust by a tiny amount changes the sum even if the rounded value stays; so does a set to the value that is shown.
    if not node.is_new:
        return not node.adjusted and not node.written
    after = node.all_adjusted()
    return node.all_encoded(after) == base.encoded and all(
        node.property_after(name, 0).without_totals() == base.property_of(name).without_totals()
        for name in {**(after or {}), **(base.adjusted or {})}
    )


def _is_absent(node: StagedNode) -> bool:
    return not node.exists and node.base is None


def without_noop(plan: ChangeSet) -> ChangeSet:
    """Return the change set, or one that writes nothing if it has no net effect.

    The latter keeps the dependencies: it conflicts with concurrent changes of what it restored, but creates no revision.
    """
    return replace(plan, changes=[], after=[], unchanged=[]) if is_noop(plan.after) else plan
