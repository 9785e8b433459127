"""Who else waits to commit, as far as the journal shows it: only to take turns, never to decide anything.

Polls read the flags of all new journal rows anyway. A machine id whose newest revisions were aborted, and that has
committed nothing since, belongs to a process that tries again. The lowest of these revisions tells since when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbasemk.format import revisions

EXPIRES_MS: Final = 4000
"""A process that has not tried for so long, in id time, has given up or died: nobody waits for it any more."""
MANY: Final = 1000
"""From so many machine ids on, those that expired are forgotten."""


@dataclass(slots=True)
class _Machine:
    """Of one machine id: its highest committed revision, the lowest and the highest that were aborted since."""

    committed: int = 0
    first: int = 0
    last: int = 0


class Contention:
    """What one instance's polls show of other processes' attempts. Written by polls, one at a time."""

    def __init__(self) -> None:
        self._machines: dict[int, _Machine] = {}
        self._newest = 0

    def aborted(self, made: int) -> None:
        """A poll met an aborted revision; may be called again for the same one."""
        self._newest = max(self._newest, made)
        known = self._known(made)
        if made > known.committed:
            known.first = min(known.first, made) if known.first else made
            known.last = max(known.last, made)

    def committed(self, made: int) -> None:
        """A poll met a committed revision."""
        self._newest = max(self._newest, made)
        known = self._known(made)
        if made > known.committed:
            known.committed = made
            known.first = known.last if known.last > made else 0

    def waiting(self, own: int) -> list[int]:
        """The first aborted revision of each process that waits, lowest first, without the machine id ``own``."""
        return sorted(
            known.first
            for machine, known in list(self._machines.items())
            if known.first and machine != own and not self._expired(known)
        )

    def _known(self, made: int) -> _Machine:
        machine = revisions.machine_of(made)
        known = self._machines.get(machine)
        if known is None:
            if len(self._machines) >= MANY:
                self._machines = {one: kept for one, kept in self._machines.items() if not self._expired(kept)}
            known = self._machines[machine] = _Machine()
        return known

    def _expired(self, known: _Machine) -> bool:
        newest = max(known.last, known.committed)
        return revisions.ms_of(self._newest) - revisions.ms_of(newest) > EXPIRES_MS
