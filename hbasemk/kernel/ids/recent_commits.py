"""The last commits that the log of a writer shows, as the writer keeps them."""

from __future__ import annotations

from typing import Final

from hbasemk.format import recent_commits

MOST_BYTES: Final = 512
"""The size of the cell. A poll beside busy writers finds some five new commits of each; all polls read all these bytes."""


class RecentCommits:
    """The last commits of one instance, encoded, the last one first. Not thread-safe.

    An interrupt never leaves them half changed: nothing is called meanwhile.
    """

    __slots__ = ("_all", "encoded", "is_shown")

    def __init__(self) -> None:
        self._all: tuple[bytes, ...] = ()
        self.encoded = b""
        self.is_shown = False
        """Whether the log has the cell, or the next write of the log must add it."""

    def add(self, revision: int, changes: bytes) -> None:
        """Add a commit, and drop the oldest ones that no longer fit. Ignore a commit that is larger than the cell."""
        size = recent_commits.HEAD + len(changes)
        if size > MOST_BYTES:
            # It may have no encoding: its length may not fit the bytes for it.
            return
        one = recent_commits.encode(revision, changes)
        keep = [one]
        for other in self._all:
            size += len(other)
            if size > MOST_BYTES:
                break
            keep.append(other)
        kept, encoded = tuple(keep), b"".join(keep)
        self._all, self.encoded, self.is_shown = kept, encoded, True

    def clear(self) -> None:
        """Drop all commits. The cell stays, empty."""
        self._all, self.encoded = (), b""
