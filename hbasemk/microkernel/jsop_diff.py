"""Differences between revisions as JSOP text."""

from __future__ import annotations

from collections.abc import Iterable

from hbasemk import jsop
from hbasemk.format import paths
from hbasemk.format.node import NodeState, decode_property
from hbasemk.jsop import JsonNode
from hbasemk.kernel.diff import NodeChange
from hbasemk.microkernel.json_values import to_json
from hbasemk.microkernel.reserved import RESERVED, hidden


def json_node(state: NodeState) -> JsonNode:
    """A node without its children."""
    return JsonNode({name: to_json(value) for name, value in state.properties.items() if name not in RESERVED})


def tell(changes: Iterable[NodeChange], path: str = paths.ROOT, depth: int = -1) -> str:
    """The JSOP that makes the one side the other; empty when they are equal.

    Nodes more than ``depth`` levels below ``path`` are not told (negative: all are); that something changed there shows as
    ``^"/p":{}`` for the topmost node that is not. Removals come first, so that a name may change its kind.
    """
    limit = None if depth < 0 else paths.depth(path) + depth
    removed: list[jsop.Operation] = []
    unset: list[jsop.Operation] = []
    added: list[jsop.Operation] = []
    changed: list[jsop.Operation] = []
    below: dict[str, None] = {}
    gone: set[str] = set()
    new: dict[str, JsonNode] = {}
    for change in changes:
        one = change.path
        if hidden(one):
            continue
        above = paths.parent(one) if one != paths.ROOT else None
        if change.after is None:
            gone.add(one)
            if above in gone:
                continue
            if _told(above, limit):
                removed.append(jsop.Remove(one))
            else:
                below[_topmost(one, limit)] = None
        elif change.before is None:
            node = new[one] = json_node(change.after)
            if above in new:
                new[above].children[paths.name(one)] = node
            elif _told(above, limit):
                added.append(jsop.AddNode(one, node))
            else:
                below[_topmost(one, limit)] = None
        elif _told(one, limit):
            for name, value in _properties(change.before, change.after):
                (unset if value is None else changed).append(jsop.SetProperty(one, name, value))
        else:
            below[_topmost(one, limit)] = None
    told: list[jsop.Operation] = [*removed, *unset, *added, *changed]
    told += [jsop.ChangedSubtree(one) for one in below]
    return jsop.write(told)


def _told(path: str | None, limit: int | None) -> bool:
    return limit is None or path is None or paths.depth(path) <= limit


def _topmost(path: str, limit: int | None) -> str:
    """The ancestor (or the node itself) one level below the last that is told."""
    assert limit is not None
    while paths.depth(path) > limit + 1:
        path = paths.parent(path)
    return path


def _properties(before: NodeState, after: NodeState) -> Iterable[tuple[str, jsop.Value | None]]:
    for name in before.encoded:
        if name not in after.encoded and name not in RESERVED:
            yield name, None
    for name, data in after.encoded.items():
        if before.encoded.get(name) != data and name not in RESERVED:
            yield name, to_json(decode_property(after.path, name, data))
