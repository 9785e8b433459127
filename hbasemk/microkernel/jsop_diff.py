"""Differences between revisions as JSOP text."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from hbasemk import jsop
from hbasemk.format import paths
from hbasemk.format.node import NodeState, decode_property
from hbasemk.jsop import JsonNode
from hbasemk.kernel.diff import NodeChange
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.microkernel.json_values import to_json
from hbasemk.microkernel.reserved import RESERVED, hidden


def json_node(state: NodeState) -> JsonNode:
    """Convert a node without its children; its properties are sorted by name."""
    return JsonNode({name: to_json(value) for name, value in sorted(state.properties.items()) if name not in RESERVED})


def subtree_operations(
    instance: Instance, before: View, changes: Iterable[NodeChange], path: str, depth: int = -1
) -> list[jsop.Operation]:
    """Return the operations of :func:`operations_of`, so that they apply to ``before``, the first of the two trees.

    If the changes add the node at ``path``, a property of its parent can have its name there; this property is removed
    first. One round trip more in this case, unless the cache has the parent.
    """
    operations = operations_of(changes, path, depth)
    if path != paths.ROOT and operations and isinstance(operations[0], jsop.AddNode) and operations[0].path == path:
        parent, name = instance.node(before, paths.parent(path)), paths.name(path)
        if parent is not None and name in parent.encoded:
            return [jsop.SetProperty(parent.path, name, None), *operations]
    return operations


def operations_of(changes: Iterable[NodeChange], path: str = paths.ROOT, depth: int = -1) -> list[jsop.Operation]:
    """Return the operations that turn one tree into the other; none if the trees are equal.

    Changes more than ``depth`` levels below ``path`` (negative: unlimited) appear only as ``^"/p":{}``, where ``/p`` is the
    topmost node below that depth. An added subtree is shown down to that depth, its top in any case. Removals come first, so
    that a name may change from a property to a node or back.
    """
    limit = None if depth < 0 else paths.depth(path) + depth
    removed: list[jsop.Operation] = []
    unset: list[jsop.Operation] = []
    added: list[jsop.Operation] = []
    changed: list[jsop.Operation] = []
    cut_off: set[str] = set()
    removed_paths: set[str] = set()
    added_nodes: dict[str, JsonNode | None] = {}
    for change in changes:
        changed_path = change.path
        if hidden(changed_path):
            continue
        parent = paths.parent(changed_path) if changed_path != paths.ROOT else None
        if change.after is None:
            removed_paths.add(changed_path)
            if parent in removed_paths:
                continue
            if _is_within(parent, limit):
                removed.append(jsop.Remove(changed_path))
            else:
                cut_off.add(_topmost(changed_path, limit))
        elif change.before is None:
            if parent in added_nodes:
                above = added_nodes[parent]
                node = None
                if above is not None and _is_within(changed_path, limit):
                    node = above.children[paths.name(changed_path)] = json_node(change.after)
                added_nodes[changed_path] = node
            elif _is_within(parent, limit):
                node = added_nodes[changed_path] = json_node(change.after)
                added.append(jsop.AddNode(changed_path, node))
            else:
                added_nodes[changed_path] = None
                cut_off.add(_topmost(changed_path, limit))
        elif _is_within(changed_path, limit):
            for name, value in sorted(_properties(change.before, change.after), key=itemgetter(0)):
                (unset if value is None else changed).append(jsop.SetProperty(changed_path, name, value))
        elif shows(change):
            cut_off.add(_topmost(changed_path, limit))
    deeper = [jsop.ChangedSubtree(subtree) for subtree in sorted(cut_off, key=paths.key)]
    return [*removed, *unset, *added, *changed, *deeper]


def shows(change: NodeChange) -> bool:
    """Return whether JSOP shows a difference: not one of hidden nodes, or of reserved properties alone."""
    if hidden(change.path):
        return False
    before, after = change.before, change.after
    return before is None or after is None or any(True for _ in _properties(before, after))


def _is_within(path: str | None, limit: int | None) -> bool:
    return limit is None or path is None or paths.depth(path) <= limit


def _topmost(path: str, limit: int | None) -> str:
    """Return the ancestor of a path (or itself) one level below the depth limit."""
    assert limit is not None
    return paths.ancestor(path, limit + 1)


def _properties(before: NodeState, after: NodeState) -> Iterable[tuple[str, jsop.Value | None]]:
    for name in before.encoded:
        if name not in after.encoded and name not in RESERVED:
            yield name, None
    for name, data in after.encoded.items():
        if before.encoded.get(name) != data and name not in RESERVED:
            yield name, to_json(decode_property(after.path, name, data))
