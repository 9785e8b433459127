"""JSON values and nodes in JSOP.

Only memory limits the depth of a node: comparing, copying and pickling it does not recurse. Freeing it does not either, since
CPython frees nested containers in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from hbasemk.format.json_number import Number

Scalar: TypeAlias = Union[str, bool, Number]  # noqa: UP007 - evaluated at run time on 3.10
Value: TypeAlias = Union[Scalar, tuple[Scalar, ...]]  # noqa: UP007
"""A property value: a string, boolean or number, or an array of these."""


def _rebuild(flat: list[tuple[str, dict[str, Value], int]]) -> JsonNode:
    """Rebuild a node from its flat form; the inverse of ``JsonNode.__reduce__``."""
    _, properties, count = flat[0]
    top = JsonNode(properties)
    pending = [(top, count)]
    for name, properties, count in flat[1:]:
        while not pending[-1][1]:
            pending.pop()
        parent, remaining = pending[-1]
        pending[-1] = (parent, remaining - 1)
        node = parent.children[name] = JsonNode(properties)
        pending.append((node, count))
    return top


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonNode:
    """A node with its subtree: ``properties`` and ``children`` by name; no name is in both.

    Nodes are equal if the same names have the same values, in any order. Not hashable.
    """

    properties: dict[str, Value] = field(default_factory=dict)
    children: dict[str, JsonNode] = field(default_factory=dict)

    def walk(self, path: str) -> Iterator[tuple[str, JsonNode]]:
        """Yield this node (at ``path``) and its descendants with their paths: parents first, siblings in order."""
        pending = [(path, self)]
        while pending:
            at, node = pending.pop()
            yield at, node
            prefix = at if at.endswith("/") else at + "/"
            pending.extend((prefix + name, node.children[name]) for name in reversed(node.children))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonNode):
            return NotImplemented
        pending = [(self, other)]
        while pending:
            left, right = pending.pop()
            if left is right:
                continue
            if left.properties != right.properties or left.children.keys() != right.children.keys():
                return False
            pending.extend((child, right.children[name]) for name, child in left.children.items())
        return True

    def __repr__(self) -> str:
        return f"JsonNode(properties={self.properties!r}, children of names {list(self.children)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        flat: list[tuple[str, dict[str, Value], int]] = []
        pending = [("", self)]
        while pending:
            name, node = pending.pop()
            flat.append((name, node.properties, len(node.children)))
            pending.extend((child, node.children[child]) for child in reversed(node.children))
        return _rebuild, (flat,)
