"""The nodes in the place of an imported file's tree that the file does not contain."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.format import paths


class Surplus:
    """Compares the children of nodes with those in a file. The file's nodes come in its order: each one, then its subtree.

    Memory holds the names of the children of each node on the way down.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, set[str]]] = []
        """Beginnings of paths, with the names of children that the file did not contain so far. Only nodes with children."""

    def begin(self, path: str, names: Sequence[str]) -> list[str]:
        """Take the file's next node, and the names of its children in the tree; none if the file contains all of them.

        Returns the paths of the children that the file does not contain, of each node whose subtree in the file has ended.
        """
        found: list[str] = []
        while self._open and not path.startswith(self._open[-1][0]):
            found += self._end_one()
        if self._open:
            above, left = self._open[-1]
            left.discard(path[len(above) :])
        if names:
            self._open.append((paths.join(path, ""), set(names)))
        return found

    def end(self) -> list[str]:
        """End the file; return the paths of the children that it does not contain, of the other nodes."""
        found: list[str] = []
        while self._open:
            found += self._end_one()
        return found

    def _end_one(self) -> list[str]:
        above, left = self._open.pop()
        return [above + name for name in sorted(left)]
