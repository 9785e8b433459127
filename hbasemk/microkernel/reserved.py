"""The names that ``get_nodes`` gives what it tells of each node: nothing that a caller stores may have them.

What was stored under them through the Pythonic face, where they mean nothing, is not shown here.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import InvalidChangeError
from hbasemk.format import paths

CHILD_NODE_COUNT: Final = ":childNodeCount"
HASH: Final = ":hash"
ID: Final = ":id"
RESERVED: Final = frozenset({CHILD_NODE_COUNT, HASH, ID})


def check_property(name: str, path: str) -> None:
    """Raise InvalidChangeError if a property's name is the kernel's."""
    if name in RESERVED:
        raise InvalidChangeError(f"property {name!r} of {path} cannot be set: the name is the kernel's", path=path)


def check_node(path: str) -> None:
    """Raise InvalidChangeError if a node's name is the kernel's."""
    if paths.name(path) in RESERVED:
        raise InvalidChangeError(f"there cannot be a node at {path}: its name is the kernel's", path=path)


def hidden(path: str) -> bool:
    """Whether a node, or one above it, has a name of the kernel's."""
    return "/:" in path and not RESERVED.isdisjoint(path.split("/"))
