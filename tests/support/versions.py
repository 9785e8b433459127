"""What tests of the versions of nodes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hbasemk import Repository, Transaction
from tests.support.repositories import Instances

UNKNOWN: Final = "0" * 24
Change: TypeAlias = Callable[[Transaction], object]


def pair_with_nodes(opened: Instances) -> tuple[Repository, Repository]:
    """Return two instances; the tree has /a with the properties p and q and the child b, and /c."""

    def fill(tx: Transaction) -> None:
        tx.add("/a", {"p": 1, "q": 1})
        tx.add("/a/b", {"p": 1})
        tx.add("/c", {"p": 1})

    return opened.pair(fill)


def version(repo: Repository, path: str) -> str | None:
    """Return the version of a node at the newest head; None if there is no node."""
    node = repo.refresh().get(path)
    return None if node is None else node.version
