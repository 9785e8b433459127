"""What a branch still has to do after a part of it was merged: its net effect without that of this part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hbasemk.format.exact import Exact
from hbasemk.kernel.commit.staged_node import StagedNode


def without(merged: Iterable[StagedNode], effect: Sequence[StagedNode]) -> list[StagedNode]:
    """Return a net effect without what it has in common with the net effect of an earlier, merged revision of the branch.

    Both begin at the same view of trunk. A node that the branch has added, removed or added again stays as a whole, unless it is
    the same in both. The properties of any other node are left out one by one.
    """
    left = {node.path: node for node in effect}
    for done in merged:
        node = left.get(done.path)
        if node is None:
            # A node that the branch has added and removed again has no number to adjust.
            if done.adjusted and not done.is_new:
                node = left[done.path] = StagedNode(done.path, done.base)
                _leave_out_adjusts(done, node)
        elif _is_whole(done) or _is_whole(node):
            if _is_same(done, node):
                del left[done.path]
            else:
                _leave_out_adjusts(done, node)
        else:
            _leave_out_properties(done, node)
            if not (node.written or node.adjusted or node.repeated):
                del left[done.path]
    return list(left.values())


def adjusts(merged: Iterable[StagedNode]) -> dict[tuple[str, str], Exact]:
    """Return the amounts by which an earlier, merged revision of the branch has adjusted properties, by path and name.

    Trunk has these adjusts, and the branch knows them: a later set of the branch has seen them.
    """
    return {(node.path, name): by for node in merged for name, by in (node.adjusted or {}).items()}


def _is_whole(node: StagedNode) -> bool:
    return node.is_new or not node.exists or node.base is None


def _is_same(done: StagedNode, node: StagedNode) -> bool:
    return (
        done.exists == node.exists
        and done.is_new == node.is_new
        and done.written == node.written
        and done.child_writes == node.child_writes
        and (done.adjusted or {}) == (node.adjusted or {})
    )


def _leave_out_properties(done: StagedNode, node: StagedNode) -> None:
    for name, data in done.written.items():
        if name in node.written and node.written[name] == data:
            del node.written[name]
    for name in done.repeated or ():
        if node.repeated is not None:
            node.repeated.pop(name, None)
    _leave_out_adjusts(done, node)


def _leave_out_adjusts(done: StagedNode, node: StagedNode) -> None:
    for name, by in (done.adjusted or {}).items():
        is_there = node.exists and name not in node.written and node.property_of(name).plain is not None
        if is_there or name in node.slot_adjusts:
            node.adjust(name, -by)
