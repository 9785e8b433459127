"""What a benchmark asks of a system under test: a tree of nodes with properties, one commit a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

Properties: TypeAlias = Mapping[str, "int | str"]


class System(ABC):
    """One open connection of one process to one tree. Every change is one durable commit when its call returns.

    Paths are absolute ("/a/b"); a parent is there before its child, or comes before it in the same call. A conflict with
    another process is resolved inside the call by doing it again, and counted in ``retries``. What a system cannot do raises
    NotImplementedError, and the table shows a dash.
    """

    name: ClassVar[str]
    """As it stands in the tables."""

    notices: ClassVar[bool] = False
    """Whether what others commit shows after a while without :meth:`refresh`."""

    retries: int = 0
    """How often a change of this connection had to be done again."""

    @classmethod
    @abstractmethod
    def create(cls, place: str) -> System:
        """Make an empty tree at ``place`` and connect to it: a folder for embedded systems, ``host:port/prefix`` for others."""

    @abstractmethod
    def connect(self) -> str:
        """What ``type(self).join`` needs to reach the same tree from another process."""

    @classmethod
    @abstractmethod
    def join(cls, address: str) -> System:
        """Connect to the tree of another process."""

    @abstractmethod
    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        """Add nodes with their properties."""

    @abstractmethod
    def set(self, path: str, name: str, value: int | str) -> None:
        """Set one property of one node."""

    @abstractmethod
    def increment(self, path: str, name: str) -> None:
        """Add one to a number, nothing lost when others do the same."""

    @abstractmethod
    def read(self, path: str) -> Properties | None:
        """All properties of a node at the head this connection knows; None if it is not there."""

    @abstractmethod
    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        """At most ``limit`` names of children, in order, that come after ``after``."""

    @abstractmethod
    def subtree(self, path: str) -> int:
        """Read all nodes below a path with all their properties; how many there were."""

    @abstractmethod
    def refresh(self) -> None:
        """See what others committed until now."""

    @abstractmethod
    def forget(self) -> None:
        """Empty this connection's caches of nodes, so that the next reads are cold."""

    def mark(self) -> object:
        """A name for the present head, for ``read_at`` and ``changed``."""
        raise NotImplementedError

    def read_at(self, mark: object, path: str) -> Properties | None:
        """Read a node as it was at a mark."""
        raise NotImplementedError

    def changed(self, mark: object) -> int:
        """How many nodes differ between a mark and the head."""
        raise NotImplementedError

    def branch_and_merge(self, nodes: Sequence[tuple[str, Properties]], commits: int) -> None:
        """Add the nodes in so many commits on a private branch, and merge it."""
        raise NotImplementedError

    def age(self, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
        """Give a node's property a history of so many commits; how many were made before ``stop`` said to.

        A system that can bring the same history about faster than by committing overrides it.
        """
        for number in range(commits):
            if stop():
                return number
            self.set(path, name, number)
        return commits

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk (or in the store) that the tree takes."""

    @abstractmethod
    def close(self) -> None:
        """End the connection; the creator's close also removes what it started."""
