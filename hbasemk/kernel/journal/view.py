"""A view: the set of revisions that a reader sees, a prefix of one instance's sequence or an extent.

A view never changes (I5), because a revision joins the sequence only at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hbasemk.errors import BranchError
from hbasemk.format import revisions
from hbasemk.format.extent import Extent


class Pin:
    """An object that all views at one position share, so that the journal can find the views still in use.

    ``extent`` is None while the sequence keeps the position. When the journal drops the position, it stores there what
    the views contain.
    """

    __slots__ = ("__weakref__", "extent")

    def __init__(self) -> None:
        self.extent: Extent | None = None


class View(NamedTuple):
    """What a reader sees: a prefix of an instance's sequence, or else the ``extent``, and a branch's ``own`` revisions.

    ``revision`` is its name. ``position`` is the index of its last revision in the sequence (-1: none). All committed
    trunk ids below the sequence are visible, too. A view with an extent does not depend on positions; its own is -1.
    ``upper`` is the highest id that the view can contain.
    """

    revision: int
    position: int
    upper: int
    extent: Extent | None = None
    own: frozenset[int] = frozenset()
    pin: Pin | None = None

    @classmethod
    def of(cls, revision: int, extent: Extent, upper: int) -> View:
        """Return the view of trunk that an extent defines."""
        return cls(revision, -1, upper, extent)

    @classmethod
    def of_branch(cls, own: Sequence[int], extent: Extent | None, upper: int) -> View:
        """Return the view of a branch: its view of trunk, and its ``own`` revisions, the newest last."""
        return cls(own[-1], -1, max(upper, *own), extent, frozenset(own))


def require_trunk(view: View) -> None:
    """Raise BranchError for a view of a branch, which cannot be the base of a trunk commit."""
    if revisions.is_branch(view.revision):
        text = revisions.to_text(view.revision)
        raise BranchError(
            f"the base of a trunk commit must be a trunk revision, got branch revision {text}; commit on the branch "
            "(Branch.run), or merge it",
            revision=text,
        )
