"""JSON values and nodes as JSOP reads them.

A node may be nested as deeply as memory allows: comparing, copying and pickling one does not recurse, and neither does
freeing it (CPython frees nested containers in a loop of its own).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from hbasemk.format.json_number import Number

Scalar: TypeAlias = Union[str, bool, Number]  # noqa: UP007 - evaluated at run time on 3.10
Value: TypeAlias = Union[Scalar, tuple[Scalar, ...]]  # noqa: UP007
"""A property's value as it is read: a string, boolean or number, or an array of these."""


def _rebuild(flat: list[tuple[str, dict[str, Value], int]]) -> JsonNode:
    """The inverse of ``JsonNode.__reduce__``."""
    _, properties, count = flat[0]
    top = JsonNode(properties)
    pending = [(top, count)]
    for name, properties, count in flat[1:]:
        while not pending[-1][1]:
            pending.pop()
        parent, missing = pending[-1]
        pending[-1] = (parent, missing - 1)
        node = parent.children[name] = JsonNode(properties)
        pending.append((node, count))
    return top


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonNode:
    """A node with everything below it: ``properties`` and ``children`` by name, and no name in both.

    Two nodes are equal when the same names have the same values, whatever the order. Not hashable.
    """

    properties: dict[str, Value] = field(default_factory=dict)
    children: dict[str, JsonNode] = field(default_factory=dict)

    def walk(self, path: str) -> Iterator[tuple[str, JsonNode]]:
        """This node, which is at ``path``, and all below it with their paths: parents first, siblings in order."""
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
            one, two = pending.pop()
            if one is two:
                continue
            if one.properties != two.properties or one.children.keys() != two.children.keys():
                return False
            pending.extend((child, two.children[name]) for name, child in one.children.items())
        return True

    def __repr__(self) -> str:
        return f"JsonNode(properties={self.properties!r}, children of names {list(self.children)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        flat: list[tuple[str, dict[str, Value], int]] = []
        pending = [("", self)]
        while pending:
            name, node = pending.pop()
            flat.append((name, node.properties, len(node.children)))
            pending.extend((below, node.children[below]) for below in reversed(node.children))
        return _rebuild, (flat,)
