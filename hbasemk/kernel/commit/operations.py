"""The operations of a commit, before they are applied to a view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple, TypeAlias, Union

from hbasemk.format import paths
from hbasemk.format.values import PropertyValue


class AddNode(NamedTuple):
    """Add a node with its properties; the parent must exist and the node must not."""

    path: str
    properties: Mapping[str, PropertyValue]


class AddEncoded(NamedTuple):
    """Add a node whose path is valid, with properties as :func:`values.encode` has encoded them; else like AddNode."""

    path: str
    properties: Mapping[str, bytes]


class SetProperty(NamedTuple):
    """Set one property of an existing node; ``value`` None removes it."""

    path: str
    name: str
    value: PropertyValue | None


class Increment(NamedTuple):
    """Add a number to a property of an existing node; an absent property counts as 0."""

    path: str
    name: str
    amount: int | float


class Adjust(NamedTuple):
    """Add a number to a property of an existing node, without reading its value; an absent property counts as 0."""

    path: str
    name: str
    by: int | float | Fraction


class RemoveNode(NamedTuple):
    """Remove a node with its subtree."""

    path: str


class MoveNode(NamedTuple):
    """Move a node with its subtree; the target must not exist, its parent must."""

    source: str
    target: str


class CopyNode(NamedTuple):
    """Copy a node with its subtree; the target must not exist, its parent must."""

    source: str
    target: str


class Expect(NamedTuple):
    """Change nothing, but require that the view's node has this version; ``version`` None: that there is no node."""

    path: str
    version: str | None


Operation: TypeAlias = Union[  # noqa: UP007
    AddNode, AddEncoded, SetProperty, Increment, Adjust, RemoveNode, MoveNode, CopyNode, Expect
]


def paths_needed(operations: Iterable[Operation]) -> list[str]:
    """Return the paths whose nodes the operations read first, except paths below nodes that they add themselves."""
    needed: dict[str, None] = {}
    added: set[str] = set()
    for operation in operations:
        if isinstance(operation, (MoveNode, CopyNode)):
            needed[operation.source] = needed[operation.target] = None
            if operation.target != paths.ROOT:
                needed[paths.parent(operation.target)] = None
            continue
        path = operation.path
        if isinstance(operation, (AddNode, AddEncoded, RemoveNode)) and path != paths.ROOT:
            parent = paths.parent(path)
            if parent in added:
                added.add(path)
                continue
            needed[parent] = None
        needed[path] = None
        if isinstance(operation, (AddNode, AddEncoded)):
            added.add(path)
    return [paths.check_path(path) for path in needed]
