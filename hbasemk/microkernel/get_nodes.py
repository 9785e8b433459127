"""``get_nodes``: a tree as JSON text, down to a depth, page by page, filtered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.jsop import JsonBuilder
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.child_count import ChildCounts
from hbasemk.kernel.reading.reader import Reader
from hbasemk.microkernel.filters import Filter
from hbasemk.microkernel.json_values import to_json
from hbasemk.microkernel.reserved import CHILD_NODE_COUNT, HASH, ID, RESERVED


@dataclass(slots=True)
class _Shown:
    """One node that is shown with its properties: how many children it has (0 if not shown), and which are shown."""

    state: NodeState
    count: int
    names: list[str]
    children: dict[str, _Shown] = field(default_factory=dict)


def tree(
    reader: Reader,
    counts: ChildCounts,
    snapshot: View,
    top: NodeState,
    depth: int,
    offset: int,
    limit: int,
    chosen: Filter,
    remember: Callable[[str, str], None],
) -> str:
    """The JSON text of a node; ``remember`` is told each hash that is shown, with its path.

    One round trip a level for the nodes and one for their children's names, for up to 1000 nodes and 10,000 names each.
    """
    if depth < 0:
        offset = limit = 0
    shown = _show(reader, counts, snapshot, [top], offset, limit, chosen)[0]
    level = [shown]
    for _ in range(depth):
        wanted = {paths.join(one.state.path, name): (one, name) for one in level for name in one.names}
        if not wanted:
            break
        states = reader.nodes(snapshot, list(wanted))
        found = [states[path] for path in wanted]
        below = _show(reader, counts, snapshot, [state for state in found if state is not None], 0, limit, chosen)
        for one in below:
            parent, name = wanted[one.state.path]
            parent.children[name] = one
        level = below
    hashes = subtree_hashes(reader, snapshot, top) if chosen.properties.names(HASH) else {}
    return _write(snapshot, shown, chosen, hashes, remember)


def _show(
    reader: Reader,
    counts: ChildCounts,
    snapshot: View,
    states: list[NodeState],
    offset: int,
    limit: int,
    chosen: Filter,
) -> list[_Shown]:
    end = None if limit < 0 else offset + limit
    # Which names a filter leaves is known when all have been seen.
    found = reader.children_of(snapshot, states, end if chosen.nodes is None else None)
    counted = chosen.properties.takes(CHILD_NODE_COUNT)
    shown = []
    for state in states:
        names, whole = found[state.path]
        taken = [name for name in names if name not in RESERVED and chosen.takes_node(name)]
        count = len(names) if whole else counts.of(snapshot, state, wide=True) if counted else 0
        shown.append(_Shown(state, count, taken[offset:end]))
    return shown


def _write(
    snapshot: View, top: _Shown, chosen: Filter, hashes: dict[str, str], remember: Callable[[str, str], None]
) -> str:
    builder = JsonBuilder()
    takes = chosen.properties.takes

    def begin(one: _Shown, name: str | None) -> None:
        builder.begin_object(name)
        for key, kept in one.state.properties.items():
            if key not in RESERVED and takes(key):
                builder.value(to_json(kept), key)
        if chosen.properties.names(HASH):
            value = hashes[one.state.path]
            builder.value(value, HASH)
            remember(value, one.state.path)
        if chosen.properties.names(ID):
            builder.value(node_id(snapshot, one.state.path), ID)
        if takes(CHILD_NODE_COUNT):
            builder.value(one.count, CHILD_NODE_COUNT)

    begin(top, None)
    stack = [(top, iter(top.names))]
    while stack:
        one, names = stack[-1]
        name = next(names, None)
        if name is None:
            builder.end()
            stack.pop()
        elif name in one.children:
            begin(one.children[name], name)
            stack.append((one.children[name], iter(one.children[name].names)))
        else:
            builder.json("{}", name)
    return builder.text()


def node_id(snapshot: View, path: str) -> str:
    """The ``:id`` of a node: its revision and path."""
    return f"{snapshot.revision:016x}:{path}"


def subtree_hashes(reader: Reader, snapshot: View, top: NodeState) -> dict[str, str]:
    """For a node and every node below it a hash of its subtree: equal exactly when structure and properties are.

    Reads the whole subtree, level by level.
    """
    nodes = [top]
    for batch in reader.levels(snapshot, top.path):
        nodes += batch
    below: dict[str, list[tuple[bytes, bytes]]] = {}
    hashes: dict[str, str] = {}
    for state in sorted(nodes, key=lambda one: paths.key(one.path), reverse=True):
        digest = hashlib.sha256()
        parts = [(b"p", paths.encode(name), data) for name, data in sorted(state.encoded.items())]
        parts += [(b"c", name, value) for name, value in sorted(below.pop(state.path, []))]
        for kind, name, data in parts:
            digest.update(b"%s%d:%s%d:%s" % (kind, len(name), name, len(data), data))
        hashes[state.path] = digest.hexdigest()
        if state.path != top.path:
            entry = (paths.encode(paths.name(state.path)), digest.digest())
            below.setdefault(paths.parent(state.path), []).append(entry)
    return hashes
