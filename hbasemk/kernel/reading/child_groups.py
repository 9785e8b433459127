"""The children of a node with many of them, in groups that each have a hash.

After a change of one child, only the hashes of the children in its group are needed for the hash of the parent. The number of
groups is about the square root of the number of children. It and the group of a child depend on the names only, so equal
subtrees have equal hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from zlib import crc32

from hbasemk.format import paths

WIDE: Final = 256
"""The number of children from which on they are divided into groups."""
BYTES_PER_NAME: Final = 70
"""The memory of a short name besides its characters, and of its place in a group."""

Part: TypeAlias = "tuple[bytes, bytes, bytes]"
"""What a hash is made of: a kind, a name and data."""


class ChildGroups:
    """The children, and the hash of each group (None: not known).

    The known hashes are valid from ``position`` of the sequence on. Names and groups take about ``size`` bytes of memory.
    """

    __slots__ = ("_digests", "_groups", "_names", "position", "size")

    def __init__(
        self,
        names: Sequence[str],
        groups: Sequence[Sequence[str]],
        digests: list[bytes | None],
        position: int,
        size: int,
    ) -> None:
        self._names = names
        self._groups = groups
        self._digests = digests
        self.position = position
        self.size = size

    @classmethod
    def divided(cls, names: Sequence[str], position: int) -> ChildGroups:
        """Divide children, of which no hash is known."""
        count = _number_of_groups(names)
        groups: list[list[str]] = [[] for _ in range(count)]
        for name in names:
            groups[_group_of(name, count)].append(name)
        return cls(names, groups, [None] * count, position, _size_of(names))

    def copy(self) -> ChildGroups:
        """Return a copy, in which the hashes of groups stay known that :meth:`touch` forgets in this object."""
        return ChildGroups(self._names, self._groups, self._digests.copy(), self.position, self.size)

    def at(self, position: int, names: Sequence[str]) -> ChildGroups:
        """Return the groups of children with these names at a later position, with the hashes of groups with equal names.

        The result may share the hashes with this object, so this must be a copy that has no other use.
        """
        if self._names is names or list(self._names) == list(names):
            return ChildGroups(names, self._groups, self._digests, position, self.size)
        if _number_of_groups(names) != len(self._groups):
            return ChildGroups.divided(names, position)
        changed: dict[int, set[str]] = {}
        for name in frozenset(names).symmetric_difference(self._names):
            changed.setdefault(_group_of(name, len(self._groups)), set()).add(name)
        groups = list(self._groups)
        for number, others in changed.items():
            groups[number] = sorted(others.symmetric_difference(groups[number]))
            self._digests[number] = None
        return ChildGroups(names, groups, self._digests, position, _size_of(names))

    def touch(self, name: str) -> None:
        """Forget the hash of the group to which a child with this name belongs."""
        self._digests[_group_of(name, len(self._digests))] = None

    def unknown(self) -> list[str]:
        """Return the names of the children in groups without a known hash."""
        return [
            name for group, digest in zip(self._groups, self._digests, strict=True) if digest is None for name in group
        ]

    def parts(self, digests: Mapping[str, bytes]) -> Iterator[Part]:
        """Yield what the hash of the parent contains of the children; ``digests`` are those of the unknown ones, by name."""
        for number, group in enumerate(self._groups):
            digest = self._digests[number]
            if digest is None:
                digest = self._digests[number] = hash_of(parts_of(group, digests))
            yield b"g", b"%d" % number, digest


Children: TypeAlias = Sequence[str] | ChildGroups
"""The names of a node's children, or the groups of many."""


def in_groups(names: Sequence[str], position: int, kept: ChildGroups | None = None) -> Children:
    """Return children in groups if there are many; ``kept`` is a copy of the groups of their parent at an earlier position."""
    if len(names) < WIDE:
        return names
    return ChildGroups.divided(names, position) if kept is None else kept.at(position, names)


def parts_of(names: Sequence[str], digests: Mapping[str, bytes]) -> Iterator[Part]:
    """Yield what a hash contains of single children; ``digests`` are theirs, by name."""
    return ((b"c", paths.encode(name), digests[name]) for name in names)


def hash_of(parts: Iterable[Part]) -> bytes:
    """Return the hash of some parts."""
    digest = hashlib.sha256()
    for kind, name, data in parts:
        digest.update(b"%s%d:%s%d:%s" % (kind, len(name), name, len(data), data))
    return digest.digest()


def _number_of_groups(names: Sequence[str]) -> int:
    return 1 << (len(names) - 1).bit_length() // 2


def _size_of(names: Sequence[str]) -> int:
    return sum(map(len, names)) + BYTES_PER_NAME * len(names)


def _group_of(name: str, count: int) -> int:
    return crc32(paths.encode(name)) & count - 1
