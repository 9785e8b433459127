"""``get_nodes``: a tree as JSON text, limited in depth, paged and filtered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.jsop import JsonBuilder
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.microkernel.child_counts import child_counts
from hbasemk.microkernel.filters import Filter
from hbasemk.microkernel.json_values import to_text
from hbasemk.microkernel.reserved import CHILD_NODE_COUNT, HASH, ID, RESERVED


@dataclass(slots=True)
class _Shown:
    """A node in the result: its number of children (meaningless if not shown), the shown names, and the expanded children."""

    state: NodeState
    count: int
    names: Sequence[str]
    children: dict[str, _Shown] = field(default_factory=dict)


def tree(
    instance: Instance,
    view: View,
    top: NodeState,
    depth: int,
    offset: int,
    limit: int,
    chosen: Filter,
    remember: Callable[[str, str], None],
) -> str:
    """Write a tree as JSON text; call ``remember`` with each hash in it and its path.

    Each level costs one round trip for the nodes and one for their children's names, per 1000 nodes and 10,000 names.
    """
    if depth < 0:
        offset = limit = 0
    shown = _show(instance, view, [top], offset, limit, chosen)[0]
    level = [shown]
    expanded: list[str] = []
    for _ in range(depth):
        parents = {paths.join(node.state.path, name): (node, name) for node in level for name in node.names}
        if not parents:
            break
        by_path = instance.nodes(view, list(parents))
        states = [by_path[path] for path in parents]
        children = _show(instance, view, [state for state in states if state is not None], 0, limit, chosen)
        for child in children:
            parent, name = parents[child.state.path]
            parent.children[name] = child
        level = children
        expanded += [child.state.path for child in children]
    hashes = instance.subtree_hashes(view, top, expanded) if chosen.properties.names(HASH) else {}
    return _write(instance, view, shown, chosen, hashes, remember)


def _show(
    instance: Instance,
    view: View,
    states: list[NodeState],
    offset: int,
    limit: int,
    chosen: Filter,
) -> list[_Shown]:
    end = None if limit < 0 else offset + limit
    # With a filter of nodes, paging needs all names. Hidden names take no places on a page.
    most = None if end is None or chosen.nodes is not None else end + len(RESERVED)
    listed = instance.children_of(view, states, most)
    wide = (
        [state for state in states if not listed[state.path].whole] if chosen.properties.takes(CHILD_NODE_COUNT) else []
    )
    counts = child_counts(instance, view, wide)
    shown = []
    for state in states:
        visible = _visible(listed[state.path].names)
        accepted = visible if chosen.nodes is None else [name for name in visible if chosen.takes_node(name)]
        shown.append(_Shown(state, counts.get(state.path, len(visible)), accepted[offset:end]))
    return shown


def _visible(names: Sequence[str]) -> Sequence[str]:
    """Return a node's names of children, which are sorted, without the reserved ones. Usually it is the same object."""
    for reserved in RESERVED:
        place = bisect_left(names, reserved)
        if place < len(names) and names[place] == reserved:
            return [name for name in names if name not in RESERVED]
    return names


def _write(
    instance: Instance,
    view: View,
    top: _Shown,
    chosen: Filter,
    hashes: dict[str, str],
    remember: Callable[[str, str], None],
) -> str:
    builder = JsonBuilder()
    takes = chosen.properties.takes

    def begin(node: _Shown, name: str | None) -> None:
        builder.begin_object(name)
        for key, stored in sorted(node.state.properties.items()):
            if key not in RESERVED and takes(key):
                builder.json(to_text(stored), key)
        if chosen.properties.names(HASH):
            value = hashes[node.state.path]
            builder.value(value, HASH)
            remember(value, node.state.path)
        if chosen.properties.names(ID):
            builder.value(f"{instance.subtree_token(view, node.state.path)}:{node.state.path}", ID)
        if takes(CHILD_NODE_COUNT):
            builder.value(node.count, CHILD_NODE_COUNT)

    begin(top, None)
    stack = [(top, iter(top.names))]
    while stack:
        node, names = stack[-1]
        if not node.children:
            builder.empty_objects(node.names)
            builder.end()
            stack.pop()
            continue
        name = next(names, None)
        if name is None:
            builder.end()
            stack.pop()
        elif name in node.children:
            begin(node.children[name], name)
            stack.append((node.children[name], iter(node.children[name].names)))
        else:
            builder.json("{}", name)
    return builder.text()
