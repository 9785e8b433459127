"""Estimate which other processes wait to commit. The estimate only orders turns; it never decides an outcome.

Polls read the flags of all new journal rows anyway. If the newest revisions of a machine id were aborted and it has
committed nothing since, its process is retrying. The lowest of these revisions shows how long it has been waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hbasemk.format import revisions

EXPIRES_MS: Final = 4000
"""A process without an attempt for this long, in id time, has given up or died; nobody waits for it."""
EVICT_FROM: Final = 1000
"""From this number of machine ids on, expired ones are evicted."""


@dataclass(slots=True)
class _Machine:
    """Attempts of one machine id: its highest committed revision, and the lowest and highest aborted since."""

    committed: int = 0
    first: int = 0
    last: int = 0


class Contention:
    """Attempts of other processes, as one instance's polls find them. One poll at a time writes, and commits beside it."""

    def __init__(self) -> None:
        self._machines: dict[int, _Machine] = {}
        self._newest = 0

    def aborted(self, revision: int) -> None:
        """Record that a poll found an aborted revision. Repeating a call has no effect."""
        self._newest = max(self._newest, revision)
        known = self._known(revision)
        if revision > known.committed:
            known.first = min(known.first, revision) if known.first else revision
            known.last = max(known.last, revision)

    def committed(self, found: Iterable[int]) -> None:
        """Record that a poll found these committed revisions."""
        # Of each machine id, only the highest one matters.
        for revision in {revisions.machine_of(one): one for one in sorted(found)}.values():
            self._newest = max(self._newest, revision)
            known = self._known(revision)
            if revision > known.committed:
                known.committed = revision
                known.first = known.last if known.last > revision else 0

    def waiting(self, own: int) -> list[int]:
        """Return the first aborted revision of each waiting process, lowest first, except of machine id ``own``."""
        return sorted(
            known.first
            for machine, known in list(self._machines.items())
            if known.first and machine != own and not self._expired(known)
        )

    def _known(self, revision: int) -> _Machine:
        machine = revisions.machine_of(revision)
        known = self._machines.get(machine)
        if known is None:
            if len(self._machines) >= EVICT_FROM:
                self._machines = {one: kept for one, kept in list(self._machines.items()) if not self._expired(kept)}
            known = self._machines[machine] = _Machine()
        return known

    def _expired(self, known: _Machine) -> bool:
        newest = max(known.last, known.committed)
        return revisions.ms_of(self._newest) - revisions.ms_of(newest) > EXPIRES_MS
