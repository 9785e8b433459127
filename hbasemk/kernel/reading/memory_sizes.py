"""Approximate sizes in bytes of what the node cache keeps in memory. A test compares their sum with the memory used."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Final

from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.format.values import extra_memory

_ABSENT: Final = 300
_NODE: Final = 650
_PROPERTY: Final = 220
_NAMES: Final = 60
_NAME: Final = 11
_ID: Final = 40
_CHANGED_LIST: Final = 600
_CHANGED_NAME: Final = 110
"""Sizes besides the text and the values."""
_EMPTY: Final = getsizeof("")
_SMALL: Final = 256
"""Only values with more bytes get a closer look."""


def size_of_state(state: NodeState | None) -> int:
    """Return the size of a node; None: that no node is there, without its path."""
    if state is None:
        return _ABSENT
    encoded = state.encoded
    content = sum(map(len, encoded.values()))
    size = _NODE + 2 * (getsizeof(state.path) - _EMPTY) + _PROPERTY * state.columns + 2 * content
    if content > _SMALL:
        size += sum(extra_memory(data) for data in encoded.values() if len(data) > _SMALL)
    return size


def size_of_absence(path: str) -> int:
    """Return the size of the knowledge that no node is at a path, or that its state is unknown."""
    return _ABSENT + getsizeof(path) - _EMPTY


def size_of_extent(extent: Extent) -> int:
    """Return the size of an extent."""
    return _ABSENT + _ID * len(extent.above)


def size_of_name(name: str) -> int:
    """Return the size of one name in a list."""
    return _NAME + getsizeof(name)


def size_of_names(names: Sequence[str]) -> int:
    """Return the size of a list of names."""
    return _NAMES + _NAME * len(names) + sum(map(getsizeof, names)) if names else 0


def size_of_changed_list(size: int) -> int:
    """Return the size of a list of children that may change, whose names have a size."""
    return _CHANGED_LIST + size


def size_of_changed_name(name: str) -> int:
    """Return the size of one name that revisions have added to a list, or removed from it."""
    return _CHANGED_NAME + getsizeof(name)
