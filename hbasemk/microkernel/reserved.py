"""The reserved names under which ``get_nodes`` returns facts about each node; callers cannot store them.

The Python API does not reserve them. The MicroKernel hides nodes and properties that it stored under these names.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import InvalidChangeError
from hbasemk.format.limits import shortened, shown

CHILD_NODE_COUNT: Final = ":childNodeCount"
HASH: Final = ":hash"
ID: Final = ":id"
RESERVED: Final = frozenset({CHILD_NODE_COUNT, HASH, ID})


def check_property(name: str, path: str) -> None:
    """Raise InvalidChangeError if a property's name is reserved, or its node is hidden."""
    if name in RESERVED or hidden(path):
        raise InvalidChangeError(
            f"property {shown(name)} of {shortened(path)} cannot be set: its path has a reserved name; use another one",
            path=path,
        )


def check_node(path: str) -> None:
    """Raise InvalidChangeError if a node at a path would be hidden."""
    if hidden(path):
        raise InvalidChangeError(
            f"there cannot be a node at {shortened(path)}: its path has a reserved name; use another one", path=path
        )


def hidden(path: str) -> bool:
    """Return whether a node or one of its ancestors has a reserved name."""
    return "/:" in path and not RESERVED.isdisjoint(path.split("/"))
