"""The net effect of a branch: how its newest revision differs from its view of trunk, as changes of that view.

A merge commits the net effect to trunk; a rebase applies it to a newer view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hbasemk.errors import BranchError
from hbasemk.format import paths, revisions
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.changes import RowChange
from hbasemk.format.node import NodeState, exact_number
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.reading.reader import Reader

MARKER: Final = ":conflict"
"""The name of the child in which a rebase records conflicts of a node."""


def net_effect(reader: Reader, state: BranchState, changes: Iterable[RowChange]) -> list[StagedNode]:
    """Return the nodes that differ between a branch and its view of trunk; ``changes`` are those of its revisions.

    Includes nodes with a property that the branch wrote and set back: a merge depends on its value. Two round trips for
    each batch of nodes that are not cached; one if ``state.states`` has them.
    """
    # Dicts keep the names in the order of the changes. A store on a B-tree inserts children in the order of names faster.
    properties: dict[str, dict[str, None]] = {}
    adjusted: dict[str, dict[str, None]] = {}
    children: dict[str, dict[str, None]] = {}
    for change in changes:
        properties.setdefault(change.path, {}).update(dict.fromkeys(change.properties))
        children.setdefault(change.path, {}).update(dict.fromkeys((*change.children_added, *change.children_removed)))
        adjusted.setdefault(change.path, {}).update((name, None) for name, _, _ in change.adjusted)
    before = reader.nodes(state.trunk, list(properties))
    after = {**state.states, **reader.nodes(state.view, [path for path in properties if path not in state.states])}
    nodes: list[StagedNode] = []
    for path, names in properties.items():
        node, now = StagedNode(path, before[path]), after[path]
        node.exists = now is not None
        if now is not None:
            node.is_new = _life(node.base) != now.created
            if node.is_new:
                node.take_properties(now.encoded, now.adjusted)
            else:
                for name in {**names, **adjusted[path]}:
                    _change_property(node, name, now.property_of(name), wrote=name in names)
            for name in children[path]:
                child = paths.join(path, name)
                old, new = before.get(child), after.get(child)
                # A node that is new on the branch has none of the children of trunk's node.
                if _life(new) != (None if node.is_new else _life(old)):
                    node.write_child(name, is_present=new is not None)
        if node.dirty or node.depends_on_base:
            nodes.append(node)
    return nodes


def _change_property(node: StagedNode, name: str, after: Adjusted, *, wrote: bool) -> None:
    """Stage the net effect on one property of a node that is not new; ``wrote``: the branch wrote its base."""
    before = node.property_of(name)
    # Totals do not count without a number: a set or an unset has dropped them.
    is_number = after.plain is not None and exact_number(node.path, name, after.plain) is not None
    by = after.sum - before.sum if is_number else 0
    created = before.plain is None and after.created and after.seen == before.sum
    if after.base == before.base or created:
        if wrote and not created:
            node.repeat(name)
    else:
        # A set is relative to the totals that it had seen, so it keeps the later adjusts of trunk.
        node.write(name, after.plain)
        by = after.shift if is_number else 0
    if by or created:
        node.adjust(name, by, creates=created)


def _life(state: NodeState | None) -> int | None:
    """Return the revision that began a node's life; None for a missing node."""
    return None if state is None else state.created


def is_marker(node: StagedNode) -> bool:
    """Return whether the branch added a conflict marker, or a conflict kind below a trunk node of the marker's name."""
    added = node.exists and (node.base is None or node.is_new)
    return added and is_place_of_marker(node.path)


def is_place_of_marker(path: str) -> bool:
    """Return whether a new node at a path is a conflict marker, or a conflict kind."""
    return MARKER in path.split("/")[-2:]


def require_no_marker(nodes: Iterable[StagedNode], revision: int) -> None:
    """Raise BranchError if a net effect contains a conflict marker; ``revision`` is the branch's."""
    marker = next((node.path for node in nodes if is_marker(node)), None)
    if marker is not None:
        raise BranchError(
            f"the branch cannot be merged while it carries conflict markers: resolve and remove {marker}. If it is not a marker "
            f"of a rebase but your own node, move it away from the name {MARKER!r} on the branch, or add it on trunk instead.",
            revision=revisions.to_text(revision),
            path=marker,
        )


def markers(nodes: Sequence[StagedNode]) -> list[str]:
    """Return the paths of the conflict markers in a net effect, without those inside of others."""
    found = [node.path for node in nodes if is_marker(node)]
    every = {path if paths.name(path) == MARKER else paths.parent(path) for path in found}
    return sorted(path for path in every if every.isdisjoint(paths.with_ancestors([paths.parent(path)])))
