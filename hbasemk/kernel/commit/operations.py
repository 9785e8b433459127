"""The operations of a commit, before they are applied to a view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, Union

from hbasemk.format import paths
from hbasemk.format.exact import Exact
from hbasemk.format.values import PropertyValue


class AddNode(NamedTuple):
    """Add a node with its properties; the parent must exist and the node must not."""

    path: str
    properties: Mapping[str, PropertyValue]


class AddEncoded(NamedTuple):
    """Add a node at a path of :func:`paths.check_new`, with encoded properties of valid names; else like AddNode."""

    path: str
    properties: Mapping[str, bytes]


class SetProperty(NamedTuple):
    """Set one property of an existing node; ``value`` None removes it."""

    path: str
    name: str
    value: PropertyValue | None


class SetEncoded(NamedTuple):
    """Set one property of an existing node to an encoded value, which may be beyond the limits: some node has or had it."""

    path: str
    name: str
    data: bytes | None


class Increment(NamedTuple):
    """Add a number to a property of an existing node; an absent property counts as 0."""

    path: str
    name: str
    amount: int | float


class Adjust(NamedTuple):
    """Add a number to a property of an existing node, without reading its value; an absent property counts as 0."""

    path: str
    name: str
    by: int | float


class AdjustExact(NamedTuple):
    """Adjust a number by an exact amount. Neither the amount nor the sum is limited: earlier commits have accepted them."""

    path: str
    name: str
    by: Exact


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


class Require(NamedTuple):
    """Change nothing, but require that the view has this node."""

    path: str


Operation: TypeAlias = Union[  # noqa: UP007
    AddNode,
    AddEncoded,
    SetProperty,
    SetEncoded,
    Increment,
    Adjust,
    AdjustExact,
    RemoveNode,
    MoveNode,
    CopyNode,
    Expect,
    Require,
]


class Needed(NamedTuple):
    """The nodes that operations read first, except those below nodes that the operations add themselves.

    ``paths`` holds their paths in the order of the operations, ``added`` those of new nodes by the path of their parent.
    """

    paths: dict[str, None]
    added: dict[str, list[str]]


def needed_by(operations: Iterable[Operation]) -> Needed:
    """Return what operations need. Raises InvalidPathError for the first invalid path."""
    needed: dict[str, None] = {}
    children: dict[str, list[str]] = {}
    added: set[str] = set()
    for operation in operations:
        if isinstance(operation, AddEncoded):
            # Nearly all operations of a load; their paths are valid.
            path = operation.path
            is_node = path != paths.ROOT
        elif isinstance(operation, (MoveNode, CopyNode)):
            source, target = map(paths.check_path, operation)
            needed[source] = needed[target] = None
            if target != paths.ROOT:
                needed[paths.parent(target)] = None
            continue
        else:
            path = paths.check_path(operation.path)
            is_node = path != paths.ROOT and isinstance(operation, (AddNode, RemoveNode))
        if not is_node:
            needed[path] = None
            continue
        parent = paths.parent(path)
        if parent in added:
            added.add(path)
            continue
        needed[parent] = needed[path] = None
        if not isinstance(operation, RemoveNode):
            added.add(path)
            children.setdefault(parent, []).append(path)
    return Needed(needed, children)
