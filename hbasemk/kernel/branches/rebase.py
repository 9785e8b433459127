"""Rebase: apply a branch's net effect to a newer view of trunk, with markers where both sides changed the same.

Conflicts do not raise an error. Trunk's side wins, and the node with the conflict gets a child ``:conflict``. Below it, a
node named after the kind of conflict holds the branch's value, or the value or subtree that the branch deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

from hbasemk.errors import BranchError
from hbasemk.format import paths, schema
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.exact import Exact
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.node import NodeState, exact_number
from hbasemk.kernel.branches import merged_part
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.branches.conflict_markers import ConflictMarkers
from hbasemk.kernel.commit import change_set, operations
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import Prediction
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader

ADD_EXISTING_PROPERTY: Final = "addExistingProperty"
DELETE_DELETED_PROPERTY: Final = "deleteDeletedProperty"
DELETE_CHANGED_PROPERTY: Final = "deleteChangedProperty"
DELETE_ADDED_PROPERTY: Final = "deleteAddedProperty"
CHANGE_DELETED_PROPERTY: Final = "changeDeletedProperty"
CHANGE_CHANGED_PROPERTY: Final = "changeChangedProperty"
ADD_EXISTING_NODE: Final = "addExistingNode"
DELETE_DELETED_NODE: Final = "deleteDeletedNode"
DELETE_CHANGED_NODE: Final = "deleteChangedNode"
CHANGE_DELETED_NODE: Final = "changeDeletedNode"


def rebase(branches: Branches, revision: int, base: View, message: str | None = None) -> int:
    """Move a branch to another view of trunk; return its newest revision there, or ``revision`` if it is already there.

    ``message`` is that of the branch from then on (None: as before).
    The branch continues as a new branch; the old one takes no more commits. Raises BranchError if ``revision`` is not the
    newest, even if a concurrent commit shows it only at the end; the branch is then unchanged.
    """
    with branches.retry_timeout():
        return _rebase(branches, revision, base, message)


def _rebase(branches: Branches, revision: int, base: View, message: str | None) -> int:
    expected = branches.expected_head_row(revision)
    state, row = expected or branches.begun_head_row(revision)
    branches.require_begun(row)
    message = row.message if message is None else message
    if state.base == base.revision and not branches.lacks(state, base):
        if expected is not None:
            branches.require_head(revision)
        return revision
    try:
        effect = branches.net_effect(state)
        if expected is not None and not effect:
            # It may make no claim, which would check the head.
            _, row = branches.require_head_row(revision)
        rebased = None
        if branches.may_rebase_at_once(row, len(effect)):
            rebased = branches.rebase_at_once(state, revision, base, _RebasedEffect(state, effect), message)
        return _in_steps(branches, state, revision, row, base, effect, message) if rebased is None else rebased
    except BranchError:
        # Another process may have ended the branch; then its state is the reason.
        branches.require_head(revision)
        raise


def _in_steps(
    branches: Branches,
    state: BranchState,
    revision: int,
    row: JournalRow,
    base: View,
    effect: list[StagedNode],
    message: str,
) -> int:
    # A branch without effect may have reverted what a merge of a part of it has committed.
    claims = bool(effect) or row.branch_claim is not None
    root, merged = branches.begin_rebase(state, revision, row, base, message, claims=claims)
    try:
        # A sweep moves the head before it deletes anything. So the end of the old branch, which fails if the head has moved,
        # shows that the effect was read completely.
        if branches.heads_return:
            # A reset that has not seen the claim may still move the head back.
            branches.require_head(revision)
        done = merged or ()
        rest = _RebasedEffect(state, merged_part.without(done, effect), merged_part.adjusts(done))
        rebased = branches.commit(root, rest, message)
    except BaseException:
        branches.give_up(root)
        raise
    branches.close_rebased(state, revision, root, rebased, has_claim=claims and merged is None)
    return rebased


class _RebasedEffect:
    """The net effect of a branch, as a source of changes of another branch.

    ``merged`` are the adjusts of the branch that trunk has already, by path and name.
    """

    def __init__(
        self, state: BranchState, effect: list[StagedNode], merged: Mapping[tuple[str, str], Exact] | None = None
    ) -> None:
        self.state = state
        self.effect = effect
        self.merged = merged or {}

    def predict(self, _: int, /) -> Prediction | None:
        """Return None: what a rebase touches depends on both sides."""
        return None

    def stage(self, reader: Reader, view: View, _absent: Collection[str] = (), /) -> ChangeSet:
        """Apply the effect to the view, with markers."""
        return _Rebase(reader, self, view).run()


class _Rebase:
    """One rebase. ``target`` is the first view of the new branch, to which the effect is applied."""

    def __init__(self, reader: Reader, source: _RebasedEffect, target: View) -> None:
        self._reader = reader
        self._state = source.state
        self._target = target
        self._staging = Staging(reader, target)
        self._effect = {node.path: node for node in source.effect}
        self._merged = source.merged
        self._markers = ConflictMarkers(self._staging, self._effect)
        # The roots of subtrees that are handled as a whole.
        self._handled: set[str] = set()
        # Properties with the name of a child that a later step may remove.
        self._postponed: list[tuple[str, str, Adjusted]] = []

    def run(self) -> ChangeSet:
        ordered = sorted(self._effect, key=paths.key)
        self._staging.load(self._needed())
        for path in ordered:
            if self._handled and (path in self._handled or any(one in self._handled for one in _above(path))):
                continue
            node = self._effect[path]
            if not node.exists:
                self._removed(node)
            elif node.base is None:
                self._added(node)
            elif node.is_new:
                self._renewed(node)
            else:
                self._changed(node)
        for path, name, mine in self._postponed:
            if self._staging.child(path, name) is None:
                self._staging.apply(_set_exactly(path, name, mine))
            else:
                self._markers.add_property(ADD_EXISTING_PROPERTY, path, name, _value(mine))
        return change_set.build(self._staging)

    def _needed(self) -> list[str]:
        """Return the paths to load: those of the effect, their ancestors, and children with the names of new properties."""
        needed: dict[str, None] = {}
        for path, node in self._effect.items():
            above = path
            while above not in needed:
                needed[above] = None
                if above != paths.ROOT:
                    above = paths.parent(above)
            if node.exists and node.base is not None and not node.is_new:
                base = node.base.encoded
                new = [name for name, data in node.written.items() if data is not None and name not in base]
                children = (paths.join(path, name) for name in (*new, *node.created))
                needed.update((child, None) for child in children if paths.is_path(child))
        return list(needed)

    # --- nodes -------------------------------------------------------------------------------------------

    def _removed(self, node: StagedNode) -> None:
        path = node.path
        if self._is_effect_of(paths.parent(path), removed=True):
            return
        self._handled.add(path)
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
        there = self._staging.find(path)
        if there is not None and there.base is None:
            # An earlier rebase created the same marker as this one: merge them; the newer values stay.
            for name in node.all_encoded():
                if there.encoded(name) is None:
                    self._set_new(node, name)
            return
        above = self._staging.find(paths.parent(path))
        assert above is not None
        if there is None and above.encoded(paths.name(path)) is None:
            adjusted = node.all_adjusted()
            self._staging.apply(_add_exactly(path, node.all_encoded(adjusted), adjusted))
            return
        self._handled.add(path)
        mine = self._subtree(self._state.view, path)
        if there is None or mine != self._subtree(self._target, path):
            self._mark_node(ADD_EXISTING_NODE, path, mine)

    def _renewed(self, node: StagedNode) -> None:
        """Apply a removal and a new addition of the same node; both must be possible."""
        path = node.path
        if self._owner_gone(path):
            return
        self._handled.add(path)
        mine = self._states(self._state.view, path)
        before = self._subtree(self._state.trunk, path)
        if self._staging.find(path) is None:
            self._mark_node(CHANGE_DELETED_NODE, path, _encoded(mine))
        elif before != self._subtree(self._target, path):
            self._mark_node(DELETE_CHANGED_NODE, path, before)
            self._mark_node(ADD_EXISTING_NODE, path, _encoded(mine))
        else:
            self._staging.apply([operations.RemoveNode(path)])
            added = (_add_exactly(one.path, one.encoded, one.adjusted) for one in mine)
            self._staging.apply([*chain.from_iterable(added)])

    def _changed(self, node: StagedNode) -> None:
        path = node.path
        if self._owner_gone(path):
            return
        there = self._staging.find(path)
        if there is None:
            self._handled.add(path)
            self._mark_node(CHANGE_DELETED_NODE, path, self._subtree(self._state.view, path))
            return
        assert node.base is not None
        for name in dict.fromkeys((*node.written, *(node.repeated or ()))):
            self._property(node, name, there)
        for name in node.slot_adjusts:
            if name not in (node.repeated or ()):
                self._adjusted(node, name, there.property_of(name))

    # --- properties --------------------------------------------------------------------------------------

    def _property(self, node: StagedNode, name: str, there: StagedNode) -> None:
        """Apply a set or a repeated value. It keeps the adjusts of trunk, of which the branch knew nothing."""
        path, view, target = node.path, node.property_of(name), there.property_of(name)
        base, mine, theirs = view.value(), node.encoded(name), target.value()
        is_only_adjusted = _is_same_set(node.base, there.base, name)
        if is_only_adjusted or target.has_value_of(view):
            if base is None and mine is not None:
                self._set_new(node, name)
                return
            by = (node.adjusted or {}).get(name, 0)
            if name in node.written:
                plain = node.written[name]
                self._staging.apply([operations.SetEncoded(path, name, plain)])
                if is_only_adjusted and plain is not None and exact_number(path, name, plain) is not None:
                    by += target.sum - view.sum - self._merged.get((path, name), 0)
            else:
                # A set to the value that trunk shows would round the adjusts of trunk.
                self._repeat(path, name)
            if by:
                self._staging.apply([operations.AdjustExact(path, name, by)])
        elif mine is None:
            if base is not None:
                kind = DELETE_DELETED_PROPERTY if theirs is None else DELETE_CHANGED_PROPERTY
                self._markers.add_property(kind, path, name, base)
            elif theirs is not None:
                # The branch removed an absent property. A merge depends on its absence; so does a rebase.
                self._markers.add_property(DELETE_ADDED_PROPERTY, path, name, theirs)
        elif theirs == mine:
            self._repeat(path, name)
        elif base is None:
            self._markers.add_property(ADD_EXISTING_PROPERTY, path, name, mine)
        elif theirs is None:
            self._markers.add_property(CHANGE_DELETED_PROPERTY, path, name, mine)
        else:
            self._markers.add_property(CHANGE_CHANGED_PROPERTY, path, name, mine)

    def _repeat(self, path: str, name: str) -> None:
        """Let the merge depend on a property that the branch has set to trunk's value."""
        staged = self._staging.find(path)
        assert staged is not None
        staged.repeat(name)

    def _adjusted(self, node: StagedNode, name: str, target: Adjusted) -> None:
        """Apply an adjust; it commutes with the sets and the adjusts of trunk."""
        path, mine = node.path, node.encoded(name)
        assert mine is not None
        assert node.adjusted is not None
        is_new = node.property_of(name).plain is None
        if target.plain is None and not is_new:
            self._markers.add_property(CHANGE_DELETED_PROPERTY, path, name, mine)
        elif target.plain is None and self._staging.child(path, name) is not None:
            self._postponed.append((path, name, node.property_after(name, 0)))
        elif target.plain is not None and exact_number(path, name, target.plain) is None:
            self._markers.add_property(ADD_EXISTING_PROPERTY if is_new else CHANGE_CHANGED_PROPERTY, path, name, mine)
        else:
            self._staging.apply([operations.AdjustExact(path, name, node.adjusted[name])])

    def _set_new(self, node: StagedNode, name: str) -> None:
        """Set a property that trunk lacks; postpone it if trunk has a child of that name."""
        path, mine = node.path, node.property_after(name, 0)
        if self._staging.child(path, name) is not None:
            self._postponed.append((path, name, mine))
        else:
            self._staging.apply(_set_exactly(path, name, mine))

    # --- helpers -----------------------------------------------------------------------------------------

    def _is_effect_of(self, path: str, *, removed: bool) -> bool:
        above = self._effect.get(path)
        return above is not None and above.exists is not removed

    def _owner_gone(self, path: str) -> bool:
        """Return whether trunk removed an ancestor; mark the topmost one as a changed node that was deleted."""
        if path == paths.ROOT or self._staging.find(paths.parent(path)) is not None:
            return False
        for above in reversed(list(_above(path))):
            if self._staging.find(above) is None:
                self._handled.add(above)
                if self._reader.node(self._state.trunk, above) is not None:
                    self._mark_node(CHANGE_DELETED_NODE, above, self._subtree(self._state.view, above))
                return True
        return False

    def _subtree(self, view: View, path: str) -> dict[str, dict[str, bytes]]:
        """Return the encoded properties of a node and its descendants, parents first."""
        return _encoded(self._states(view, path))

    def _states(self, view: View, path: str) -> list[NodeState]:
        """Return a node and its descendants, parents first."""
        top = self._reader.node(view, path)
        return [] if top is None else [top, *chain.from_iterable(self._reader.levels(view, path))]

    def _mark_node(self, kind: str, path: str, subtree: dict[str, dict[str, bytes]]) -> None:
        """Mark a whole subtree, and replace a marker of an earlier rebase."""
        self._handled.add(self._markers.add_node(kind, path, subtree))


def _is_same_set(view: NodeState | None, target: NodeState | None, name: str) -> bool:
    """Return whether trunk has only adjusted a property between two views, or not changed it.

    Another set may have written the same bytes. In another life, they do not mean the same.
    """
    column = schema.property_column(name)[1]
    return (
        view is not None
        and target is not None
        and view.created == target.created
        and view.later.get(column) == target.later.get(column)
    )


def _encoded(nodes: Iterable[NodeState]) -> dict[str, dict[str, bytes]]:
    return {node.path: node.encoded for node in nodes}


def _value(found: Adjusted) -> bytes:
    """Return the rounded value of a property that exists."""
    value = found.value()
    assert value is not None
    return value


def _set_exactly(path: str, name: str, found: Adjusted) -> list[Operation]:
    """Return the operations that set a property, with its exact sum."""
    plain, by = found.without_totals()
    return [operations.SetEncoded(path, name, plain), *([operations.AdjustExact(path, name, by)] if by else [])]


def _add_exactly(path: str, encoded: Mapping[str, bytes], adjusted: Mapping[str, Adjusted] | None) -> list[Operation]:
    """Return the operations that add a node, with the exact sums of its properties."""
    added: list[Operation] = [operations.AddEncoded(paths.check_new(path), encoded)]
    for name, found in (adjusted or {}).items():
        if name in encoded:
            added += _set_exactly(path, name, found)
    return added


def _above(path: str) -> Iterable[str]:
    while path != paths.ROOT:
        path = paths.parent(path)
        yield path
