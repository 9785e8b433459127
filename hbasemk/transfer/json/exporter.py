"""The export of a subtree as JSON, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Names
from hbasemk.snapshot import Snapshot, instance_of_snapshot, view_of
from hbasemk.transfer.json.values import name_to_json, to_json

SIBLINGS: Final = 200
"""The names of the children of so many siblings are read in one call."""
FEW: Final = 1000
"""The list of a node's children that one call reads with those of its siblings has at most about so many names."""


def export_json(snapshot: Snapshot, path: str) -> Iterator[str]:
    """Yield the subtree as JSON text, piece by piece: ``{"properties": {…}, "children": {name: …}}``, names sorted.

    Values are those of :mod:`hbasemk.transfer.json.values`; they are exact, so an import creates the same tree. Memory
    holds the children of each node on the way down, and the names of some of their children. Raises NodeNotFoundError, and
    InvalidValueError for a name without a JSON form.
    """
    instance = instance_of_snapshot(snapshot)
    view = view_of(instance, snapshot)
    top = _Siblings([instance.require(view, snapshot[path].path)])
    yield _node(top.take())
    # One object is open for each level but the first.
    stack = [top, top.below(instance, view)]
    while len(stack) > 1:
        siblings = stack[-1]
        if siblings.taken == len(siblings.states):
            stack.pop()
            yield "}}"
            continue
        separator = ", " if siblings.taken else ""
        node = siblings.take()
        yield f"{separator}{name_to_json(paths.name(node.path), node.path)}: {_node(node)}"
        stack.append(siblings.below(instance, view))
    yield "\n"


class _Siblings:
    """The children of one node, in order: ``taken`` of them are written. The names of their children are read ahead."""

    def __init__(self, states: Sequence[NodeState]) -> None:
        self.states = states
        self.taken = 0
        self._names: dict[str, Names] = {}

    def take(self) -> NodeState:
        """Return the next node."""
        self.taken += 1
        return self.states[self.taken - 1]

    def below(self, instance: Instance, view: View) -> _Siblings:
        """Return the children of the node taken last. One round trip for each 1000, and one for the names of many nodes."""
        first = self.taken - 1
        path = self.states[first].path
        if path not in self._names:
            self._names = instance.children_of(view, self.states[first : first + SIBLINGS], FEW)
        names, is_whole = self._names.pop(path)
        if not is_whole:
            names = instance.children(view, path)
        found = instance.nodes(view, [paths.join(path, name) for name in names])
        return _Siblings([state for state in found.values() if state is not None])


def _node(state: NodeState) -> str:
    """Return the text of a node up to its children."""
    properties = sorted(state.properties.items())
    inside = ", ".join([f"{name_to_json(name, state.path)}: {to_json(value)}" for name, value in properties])
    return f'{{"properties": {{{inside}}}, "children": {{'
