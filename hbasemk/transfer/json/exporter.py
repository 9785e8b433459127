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
    top = _Siblings(iter([[instance.require(view, snapshot[path].path)]]))
    yield _node(next(top))
    # One object is open for each level but the first.
    stack = [top, top.below(instance, view)]
    while len(stack) > 1:
        siblings = stack[-1]
        separator = ", " if siblings.begun else ""
        node = next(siblings, None)
        if node is None:
            stack.pop()
            yield "}}"
            continue
        yield f"{separator}{name_to_json(paths.name(node.path), node.path)}: {_node(node)}"
        stack.append(siblings.below(instance, view))
    yield "\n"


class _Siblings(Iterator[NodeState]):
    """The children of one node, in order, from batches of a bounded size. The names of their children are read ahead."""

    def __init__(self, batches: Iterator[Sequence[NodeState]]) -> None:
        self._batches = batches
        self._batch: Sequence[NodeState] = ()
        self._taken = 0
        self._names: dict[str, Names] = {}
        self.begun = False
        """Whether a node has been returned."""

    def __next__(self) -> NodeState:
        """Return the next node. One round trip for each 1000, and more if values are large."""
        while self._taken == len(self._batch):
            # Free the memory before the next batch is read.
            self._batch, self._taken = (), 0
            self._batch = next(self._batches)
        self.begun = True
        self._taken += 1
        return self._batch[self._taken - 1]

    def below(self, instance: Instance, view: View) -> _Siblings:
        """Return the children of the node returned last. One round trip for the names of many nodes."""
        first = self._taken - 1
        path = self._batch[first].path
        if path not in self._names:
            self._names = instance.children_of(view, self._batch[first : first + SIBLINGS], FEW)
        names, is_whole = self._names.pop(path)
        if not is_whole:
            # A walk then need not read the rows of deleted nodes.
            instance.children(view, path)
        return _Siblings(instance.levels(view, path, 1) if names or not is_whole else iter(()))


def _node(state: NodeState) -> str:
    """Return the text of a node up to its children."""
    properties = sorted(state.properties.items())
    inside = ", ".join([f"{name_to_json(name, state.path)}: {to_json(value)}" for name, value in properties])
    return f'{{"properties": {{{inside}}}, "children": {{'
