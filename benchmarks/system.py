"""The interface of a system under test: a tree of nodes with properties, where each call is one commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

Properties: TypeAlias = Mapping[str, "int | str"]


class System(ABC):
    """One connection of one process to one tree. Every change is one durable commit when its call returns.

    Paths are absolute ("/a/b"). A parent exists before its child, or precedes it in the same call. After a conflict with
    another process, the call retries the change and adds one to ``retries``. An operation that a system does not support
    raises NotImplementedError, and the table shows a dash.
    """

    name: ClassVar[str]
    """The name in tables."""

    background_refresh: ClassVar[bool] = False
    """Whether the connection sees commits of others after some time without :meth:`refresh`."""

    retries: int = 0
    """How many times this connection retried a change."""

    @classmethod
    @abstractmethod
    def create(cls, place: str) -> System:
        """Create an empty tree at ``place`` and connect to it. A place is a folder, or ``host:port/prefix`` on HBase."""

    @classmethod  # noqa: B027
    def remove(cls, place: str) -> None:
        """Remove what :meth:`create` has made at ``place``, if anything, without a connection to the tree.

        Systems on HBase override this. The harness removes folders itself.
        """

    @abstractmethod
    def address(self) -> str:
        """Return the argument with which ``type(self).join`` reaches the same tree from another process."""

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
        """Add one to a number. Concurrent increments are not lost."""

    has_slots: ClassVar[bool] = False
    """Whether :meth:`adjust_in_slots` is possible."""

    def adjust(self, path: str, name: str, by: int) -> None:
        """Add to a number in the way that lets most processes do so at once. Concurrent adjusts are not lost.

        The number is a property, or a counter beside the properties. The first call creates it.
        """
        raise NotImplementedError

    def counter(self, path: str, name: str) -> int:
        """Return the number that :meth:`adjust` changes."""
        raise NotImplementedError

    def adjust_in_slots(self, path: str, name: str, count: int) -> None:
        """Add ``count`` to a number, such that it has as many parts as that many concurrent writers leave."""
        raise NotImplementedError

    @abstractmethod
    def read(self, path: str) -> Properties | None:
        """Return all properties of a node at the connection's head, or None if the node does not exist."""

    @abstractmethod
    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        """Return at most ``limit`` names of children after the name ``after``, in order."""

    @abstractmethod
    def subtree(self, path: str) -> int:
        """Read all nodes below a path with all their properties, and return their number."""

    @abstractmethod
    def refresh(self) -> None:
        """Make all commits of others visible to this connection."""

    @abstractmethod
    def clear_caches(self) -> None:
        """Clear this connection's caches of nodes, so that the next reads are cold."""

    def mark(self) -> object:
        """Return an identifier of the current head, for ``read_at`` and ``changed``."""
        raise NotImplementedError

    def read_at(self, mark: object, path: str) -> Properties | None:
        """Return the properties of a node at a mark, or None if it did not exist."""
        raise NotImplementedError

    def changed(self, mark: object) -> int:
        """Return how many nodes differ between a mark and the head."""
        raise NotImplementedError

    has_branches: ClassVar[bool] = False
    """Whether :meth:`branch_and_merge` and :meth:`rebase_and_merge` are possible."""

    def branch_and_merge(self, nodes: Sequence[tuple[str, Properties]], commits: int) -> None:
        """Add nodes in ``commits`` commits on a private branch, and merge it."""
        raise NotImplementedError

    def rebase_and_merge(self, path: str, name: str, value: int, beside: str | None) -> None:
        """Set a property of a node on a private branch, move the branch to the head, and merge it.

        ``beside`` is a node that changes on trunk before the branch is moved; None: nothing changes there.
        """
        raise NotImplementedError

    def make_history(self, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
        """Set a node's property in ``commits`` commits, until ``stop`` returns True. Returns the number of commits.

        A system overrides this if it can write the same history faster than commit by commit.
        """
        for number in range(commits):
            if stop():
                return number
            self.set(path, name, number)
        return commits

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that the tree occupies on disk or in the store."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. The connection from ``create`` also removes what ``create`` made."""
