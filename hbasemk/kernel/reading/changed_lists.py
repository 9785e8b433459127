"""Lists of children that arriving revisions have changed since the cache kept them.

An arrival only records the names that it adds and removes. The next read puts these names into a copy of the list. So each
arrival costs the same, however long the list is, and a read after it needs no store call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hbasemk.kernel.reading.memory_sizes import size_of_changed_list, size_of_changed_name, size_of_name

MOST_CHANGED: Final = 1000
"""A list in which revisions have changed more names than this, since the last read, is not kept."""


class _List:
    """A list of names and their size in bytes, and what revisions have changed since.

    ``changed`` holds for each changed name whether it is in the list now. From ``position`` on, this is valid. ``size`` is the
    size of all in bytes.
    """

    __slots__ = ("changed", "names", "names_size", "position", "size")

    def __init__(self, position: int, names: Sequence[str], names_size: int) -> None:
        self.position = position
        self.names = names
        self.names_size = names_size
        self.changed: dict[str, bool] = {}
        self.size = 0


class Taken(NamedTuple):
    """A list of names in order, the position from which on it is valid, and the size of the names in bytes."""

    position: int
    names: Sequence[str]
    size: int


class ChangedLists:
    """The changed lists of one cache, in at most ``limit`` bytes. Not thread-safe, except for ``in``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[str, _List] = {}
        self.size = 0
        """The size of all lists in bytes."""

    def __contains__(self, path: str) -> bool:
        """Return whether a changed list of a node is kept."""
        return path in self._kept

    def keep(self, path: str, position: int, names: Sequence[str], size: int) -> None:
        """Keep a list that is valid from a position on, unless it is too large. Older lists make room for it.

        ``size`` is that of the names in bytes.
        """
        self.drop(path)
        whole = size_of_changed_list(size)
        if whole <= self._limit:
            self._kept[path] = _List(position, names, size)
            self._grow(path, whole)

    def change(self, path: str, position: int, added: Iterable[str], removed: Iterable[str]) -> None:
        """Record what the revision at a position does to the children of a node, if its list is kept."""
        kept = self._kept.get(path)
        if kept is None:
            return
        kept.position = position
        changed = kept.changed
        grown = 0
        for names, is_there in ((added, True), (removed, False)):
            for name in names:
                if name not in changed:
                    grown += size_of_changed_name(name)
                changed[name] = is_there
        if len(changed) > MOST_CHANGED:
            self.drop(path)
        else:
            self._grow(path, grown)

    def take(self, path: str) -> Taken:
        """Return a list as it is now. Keep it no longer."""
        kept = self._kept[path]
        self.drop(path)
        names, size = list(kept.names), kept.names_size
        for name, is_there in kept.changed.items():
            at = bisect_left(names, name)
            was_there = at < len(names) and names[at] == name
            if is_there and not was_there:
                names.insert(at, name)
                size += size_of_name(name)
            elif was_there and not is_there:
                del names[at]
                size -= size_of_name(name)
        return Taken(kept.position, names, size)

    def drop(self, path: str) -> None:
        """Keep the list of a node no longer, if it is kept."""
        kept = self._kept.pop(path, None)
        if kept is not None:
            self.size -= kept.size

    def clear(self) -> None:
        """Drop all lists."""
        self._kept.clear()
        self.size = 0

    def _grow(self, path: str, size: int) -> None:
        """Add to the size of a list; drop lists, the first ones first, until there is room."""
        self._kept[path].size += size
        self.size += size
        while self.size > self._limit:
            self.drop(next(iter(self._kept)))
