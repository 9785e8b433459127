"""Branch revisions as snapshots: what is known of those that were asked for, within bounds.

Each tells all that came before it on its branch, so that of a long branch only few can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbasemk.kernel.journal.view import View
from hbasemk.kernel.runtime import Runtime

LONGEST: Final = 50_000
"""So many ids are kept in total, some 100 bytes each; a branch revision tells its own and those of its view of trunk."""
SURE_FOR: Final = 5.0
"""Seconds after which a branch revision that is known is asked for again: its branch may have been swept."""


@dataclass(frozen=True, slots=True)
class BranchState:
    """One branch revision: the branch's ``root``, trunk's ``base`` under it, its ``own`` revisions so far.

    ``trunk`` is the branch's fixed view of trunk, ``snapshot`` that with the branch's own revisions.
    """

    root: int
    base: int
    own: tuple[int, ...]
    trunk: View
    snapshot: View

    @property
    def ids(self) -> int:
        """How many ids it holds, roughly; the rest of it counts as ten."""
        return 10 + 2 * len(self.own) + 2 * len(self.trunk.own)


class BranchStates:
    """The branch revisions that one instance knows. Safe to be used by many threads at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._kept: dict[int, tuple[BranchState, float]] = {}
        self.ids = 0

    def get(self, wanted: int) -> BranchState | None:
        """What is known of a branch revision, however long it has been."""
        found = self._kept.get(wanted)
        return None if found is None else found[0]

    def is_current(self, wanted: int) -> bool:
        """Whether the store was asked for it lately."""
        found = self._kept.get(wanted)
        return found is not None and self._runtime.monotonic() - found[1] <= SURE_FOR

    def keep(self, wanted: int, state: BranchState) -> None:
        """Remember what the store has told now, in the place of what was remembered first."""
        with self._lock:
            self.drop(wanted)
            self._kept[wanted] = state, self._runtime.monotonic()
            self.ids += state.ids
            while self.ids > LONGEST and len(self._kept) > 1:
                self.drop(next(iter(self._kept)))

    def drop(self, wanted: int) -> None:
        """Forget a branch revision."""
        with self._lock:
            found = self._kept.pop(wanted, None)
            if found is not None:
                self.ids -= found[0].ids
