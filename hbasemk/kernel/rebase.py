"""Rebasing a branch: its net effect on a newer view of trunk, with markers where both sides changed the same.

Conflicts do not raise: trunk's side is taken, and the node that owns the conflict gets a child ``:conflict``, below
which the kind of the conflict holds the branch's value, or, where the branch deleted, what it deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hbasemk.kernel import changeset, operations, paths
from hbasemk.kernel.branch import MARKER, Branches, BranchState
from hbasemk.kernel.changeset import ChangeSet
from hbasemk.kernel.node import NodeState
from hbasemk.kernel.reader import Reader
from hbasemk.kernel.snapshot import Snapshot
from hbasemk.kernel.staging import StagedNode, Staging
from hbasemk.kernel.values import decode

ADD_EXISTING_PROPERTY: Final = "addExistingProperty"
DELETE_DELETED_PROPERTY: Final = "deleteDeletedProperty"
DELETE_CHANGED_PROPERTY: Final = "deleteChangedProperty"
CHANGE_DELETED_PROPERTY: Final = "changeDeletedProperty"
CHANGE_CHANGED_PROPERTY: Final = "changeChangedProperty"
ADD_EXISTING_NODE: Final = "addExistingNode"
DELETE_DELETED_NODE: Final = "deleteDeletedNode"
DELETE_CHANGED_NODE: Final = "deleteChangedNode"
CHANGE_DELETED_NODE: Final = "changeDeletedNode"


def rebase(branches: Branches, reader: Reader, on: int, base: Snapshot, message: str) -> int:
    """Move a branch to another trunk snapshot; returns its newest revision there, or ``on`` if it stands there already.

    The branch goes on as a new one; the old one takes no more commits. Raises BranchError when ``on`` is not the newest.
    """
    state = branches.require_head(on)
    if state.base == base.revision:
        return on
    root = branches.begin(base, message)
    made = branches.commit(root, lambda snapshot: _Rebase(reader, state, branches, snapshot).run(), message)
    branches.close_rebased(state, on, made)
    return made


class _Rebase:
    """One rebase. ``target`` is the new branch's first snapshot, trunk's state that the effect is applied to."""

    def __init__(self, reader: Reader, state: BranchState, branches: Branches, target: Snapshot) -> None:
        self._reader = reader
        self._state = state
        self._target = target
        self._staging = Staging(reader, target)
        self._effect = {node.path: node for node in branches.net_effect(state)}
        # Subtrees that a marker has dealt with as a whole.
        self._settled: list[str] = []

    def run(self) -> ChangeSet:
        ordered = sorted(self._effect, key=paths.key)
        self._staging.load([path for one in ordered for path in (one, *_above(one))])
        for path in ordered:
            if any(paths.is_at_or_below(path, one) for one in self._settled):
                continue
            node = self._effect[path]
            if not node.exists:
                self._removed(node)
            elif node.base is None:
                self._added(node)
            elif node.fresh:
                self._renewed(node)
            else:
                self._changed(node)
        return changeset.build(self._staging)

    # --- nodes -------------------------------------------------------------------------------------------

    def _removed(self, node: StagedNode) -> None:
        path = node.path
        if self._is_effect_of(paths.parent(path), removed=True):
            return
        self._settled.append(path)
        if self._owner_gone(path):
            return
        before = self._subtree(self._state.trunk, path)
        if self._staging.find(path) is None:
            self._mark_node(DELETE_DELETED_NODE, path, before)
        elif before != self._subtree(self._target, path):
            self._mark_node(DELETE_CHANGED_NODE, path, before)
        else:
            self._staging.apply([operations.RemoveNode(path)])

    def _added(self, node: StagedNode) -> None:
        path = node.path
        if self._owner_gone(path):
            return
        if self._reader.node(self._target, path) is not None:
            mine = self._subtree(self._state.snapshot, path)
            self._settled.append(path)
            if mine != self._subtree(self._target, path):
                self._mark_node(ADD_EXISTING_NODE, path, mine)
            return
        self._staging.apply([_add(path, node.all_encoded())])

    def _renewed(self, node: StagedNode) -> None:
        """Removed and added again on the branch: both must be possible."""
        path = node.path
        if self._owner_gone(path):
            return
        self._settled.append(path)
        mine = self._subtree(self._state.snapshot, path)
        before = self._subtree(self._state.trunk, path)
        if self._staging.find(path) is None:
            self._mark_node(CHANGE_DELETED_NODE, path, mine)
        elif before != self._subtree(self._target, path):
            self._mark_node(DELETE_CHANGED_NODE, path, before)
        else:
            self._staging.apply([operations.RemoveNode(path)])
            self._staging.apply([_add(one, encoded) for one, encoded in mine.items()])

    def _changed(self, node: StagedNode) -> None:
        path = node.path
        if self._owner_gone(path):
            return
        if self._staging.find(path) is None:
            self._settled.append(path)
            self._mark_node(CHANGE_DELETED_NODE, path, self._subtree(self._state.snapshot, path))
            return
        assert node.base is not None
        theirs = self._reader.node(self._target, path)
        current = {} if theirs is None else theirs.encoded
        for name, mine in node.written.items():
            self._property(path, name, node.base.encoded.get(name), mine, current.get(name))

    # --- properties --------------------------------------------------------------------------------------

    def _property(self, path: str, name: str, base: bytes | None, mine: bytes | None, theirs: bytes | None) -> None:
        if theirs == base:
            value = None if mine is None else decode(mine)
            self._staging.apply([operations.SetProperty(path, name, value)])
        elif mine is None:
            assert base is not None
            kind = DELETE_DELETED_PROPERTY if theirs is None else DELETE_CHANGED_PROPERTY
            self._mark_property(kind, path, name, base)
        elif theirs == mine:
            return
        elif base is None:
            self._mark_property(ADD_EXISTING_PROPERTY, path, name, mine)
        elif theirs is None:
            self._mark_property(CHANGE_DELETED_PROPERTY, path, name, mine)
        else:
            self._mark_property(CHANGE_CHANGED_PROPERTY, path, name, mine)

    # --- helpers -----------------------------------------------------------------------------------------

    def _is_effect_of(self, path: str, *, removed: bool) -> bool:
        above = self._effect.get(path)
        return above is not None and above.exists is not removed

    def _owner_gone(self, path: str) -> bool:
        """Whether trunk removed an ancestor; then the topmost such one is a changed node that was deleted."""
        for above in reversed(list(_above(path))):
            if self._staging.find(above) is None:
                self._settled.append(above)
                if self._reader.node(self._state.trunk, above) is not None:
                    self._mark_node(CHANGE_DELETED_NODE, above, self._subtree(self._state.snapshot, above))
                return True
        return False

    def _subtree(self, snapshot: Snapshot, path: str) -> dict[str, dict[str, bytes]]:
        """The stored properties of a node and of everything below it, parents first."""
        top = self._reader.node(snapshot, path)
        if top is None:
            return {}
        states: Iterable[NodeState] = [top]
        found = {one.path: one.encoded for one in states}
        for batch in self._reader.levels(snapshot, path):
            found.update({one.path: one.encoded for one in batch})
        return found

    def _mark_property(self, kind: str, path: str, name: str, data: bytes) -> None:
        marker = self._marker(path, kind)
        self._staging.apply([operations.SetProperty(marker, name, decode(data))])

    def _mark_node(self, kind: str, path: str, subtree: dict[str, dict[str, bytes]]) -> None:
        into = paths.join(self._marker(paths.parent(path), kind), paths.name(path))
        if self._staging.find(into) is not None:
            self._staging.apply([operations.RemoveNode(into)])
        self._staging.apply([_add(paths.rebase(one, path, into), encoded) for one, encoded in subtree.items()])

    def _marker(self, path: str, kind: str) -> str:
        marker = paths.join(path, MARKER)
        holder = paths.join(marker, kind)
        for one in (marker, holder):
            if self._staging.find(one) is None:
                self._staging.apply([operations.AddNode(one, {})])
        return holder


def _above(path: str) -> Iterable[str]:
    while path != paths.ROOT:
        path = paths.parent(path)
        yield path


def _add(path: str, encoded: dict[str, bytes]) -> operations.AddNode:
    return operations.AddNode(path, {name: decode(data) for name, data in encoded.items()})
