"""The last revision that touched each subtree, kept at the head.

An arriving revision is recorded for every path that it touches and for all nodes above. Every other subtree is as it was
when the recording began. So a token of a subtree at the head costs no call, and changes only with the subtree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hbasemk.format import paths, revisions
from hbasemk.kernel.journal.known_revisions import Arrival, touched
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.runtime import Runtime

OF_EXTENT: Final = 16
"""The digits that the name of a view with an extent has after the point. A token of another view of trunk has fewer."""


class _Change(NamedTuple):
    """A revision and its position in the sequence."""

    position: int
    revision: int


class LastChanges:
    """The last changes of subtrees, as one instance saw them. Thread-safe.

    The recording begins with the first call of :meth:`token`, and again when more than ``most`` paths are recorded: then the
    tokens of all subtrees change once. ``position`` is that of the last revision that joined before this object listened to
    arrivals.
    """

    def __init__(self, runtime: Runtime, most: int, position: int) -> None:
        self._lock = runtime.lock()
        self._random = runtime.random
        self._most = most
        self._touched: dict[str, _Change] = {}
        self._begin: _Change | None = None
        self._last_arrival = position
        self._instance = ""

    def token(self, view: View, path: str) -> str:
        """Return a text that begins as the name of a view in which the subtree at a path is the same. No round trip.

        Two subtrees at one path have equal tokens only if they are equal. At the head, a token stays the same until a revision
        touches the subtree. In an older view it is also the head's if nothing has touched the subtree since.
        """
        if view.extent is not None or view.own:
            return view_name(view)
        with self._lock:
            if self._begin is None and view.position >= self._last_arrival:
                self._begin = _Change(view.position, view.revision)
            found = self._touched.get(path, self._begin)
            # Another instance may have seen revisions in another order, so it has other tokens.
            self._instance = self._instance or f"{self._random.getrandbits(32):08x}"
        at = found.revision if found is not None and found.position <= view.position else view.revision
        return f"{revisions.to_text(at)}.{self._instance}"

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Record what arriving revisions touch. The journal calls this before any view contains them."""
        with self._lock:
            self._last_arrival = arrivals[-1].position
            for arrival in arrivals:
                if self._begin is not None:
                    self._record(_Change(arrival.position, arrival.revision), touched((arrival,)))

    def forget(self, position: int) -> None:
        """Begin again: the revision announced at this position never joined."""
        with self._lock:
            self._last_arrival = position
            # Other revisions may have arrived, so tokens given before must not return.
            self._instance = ""
            self._start_again()

    def _record(self, change: _Change, changed: Iterable[str]) -> None:
        for path in paths.with_ancestors(changed):
            self._touched[path] = change
            if len(self._touched) > self._most:
                self._start_again()
                return

    def _start_again(self) -> None:
        self._touched = {}
        self._begin = None


def view_name(view: View) -> str:
    """Return a text that names a view of one instance; :meth:`Instance.view_named` finds the view.

    A revision alone names no view of trunk: a checkpoint may keep another view of the revision than the sequence.
    """
    revision = revisions.to_text(view.revision)
    if view.own:
        return revision
    if view.extent is None:
        return f"{revision}."
    return f"{revision}.{hashlib.sha256(repr(view.extent.ids).encode()).hexdigest()[:OF_EXTENT]}"
