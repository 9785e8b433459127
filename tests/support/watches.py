"""What tests of watches share."""

from __future__ import annotations

from hbasemk import Repository


def increments(repo: Repository, *names: str) -> None:
    """Increment a number once for each name, which is the message of the commit."""
    for name in names:
        repo.run(lambda tx: tx.increment("/a", "n"), name)
