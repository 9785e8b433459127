"""A view: the set of revisions that a reader sees, usually a prefix of one instance's sequence.

A view never changes (I5), because a revision joins the sequence only at its end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format.extent import Extent

BELOW_SEQUENCE: Final = -2
"""The position of a view that ends below the kept sequence, at an id. Such a view uses no cache."""
BY_EXTENT: Final = -3
"""The position of a view that an extent defines: all of trunk up to ``floor``, and the ids in ``own``."""


class Pin:
    """An object that all views at one position share, so that the journal can find the views still in use.

    ``extent`` is None while the sequence keeps the position. When the journal drops the position, it stores there what
    the views contain.
    """

    __slots__ = ("__weakref__", "extent")

    def __init__(self) -> None:
        self.extent: Extent | None = None


class View(NamedTuple):
    """A prefix of an instance's sequence. A view of a branch also contains the branch's own revisions.

    ``revision`` is its name. ``position`` is the index of its last revision in the sequence (-1: none). All committed
    trunk ids up to ``floor`` lie below the sequence and are visible. ``upper`` is the highest id that the view can
    contain. ``own`` holds a branch's revisions, and ``base`` is the trunk revision they build on. On trunk, ``base`` is
    the revision itself.
    """

    revision: int
    position: int
    floor: int
    upper: int
    own: frozenset[int] = frozenset()
    base: int = 0
    pin: Pin | None = None
