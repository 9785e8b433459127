"""A set of weak references that loses no interrupt (Ctrl-C).

Python calls the handlers of signals wherever it runs Python code, and drops what a callback of a weak reference raises.
:class:`weakref.WeakSet` removes an object by such a callback, so a KeyboardInterrupt that arrives there is lost. The callbacks
here are implemented in C.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class WeakSet(Generic[T]):
    """The objects that were added and that another object still refers to. Thread-safe."""

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()

    def add(self, member: T) -> None:
        """Add an object; it is dropped when no other object refers to it."""
        self._references.add(weakref.ref(member, self._references.discard))

    def discard(self, member: T) -> None:
        """Remove an object, if it is in the set."""
        self._references.discard(weakref.ref(member))

    def __iter__(self) -> Iterator[T]:
        """Return an iterator over the objects that are in the set now."""
        members = [reference() for reference in list(self._references)]
        return iter([member for member in members if member is not None])

    def __len__(self) -> int:
        return len(self._references)
