"""Leases and revision ids (section 2)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.lease import Lease


def ids_below_seen_revisions(patch: pytest.MonkeyPatch) -> None:
    original = IdClock._candidate
    patch.setattr(IdClock, "_candidate", lambda self, _, now, branch: original(self, 0, now, branch))


def ids_of_any_time(patch: pytest.MonkeyPatch) -> None:
    def unchecked(self: IdClock) -> int:
        local, server = self._runtime.now_ms(), int(self._server_ms())
        return server if local < server <= local + self._settings.max_clock_skew_ms else local

    patch.setattr(IdClock, "_checked_now_ms", unchecked)


def leases_that_overlap(patch: pytest.MonkeyPatch) -> None:
    take = Lease._take

    def greedy(self: Lease, machine: int, found: Any, free_from: int, holder: str) -> bool:
        # Each machine id has a nonce of its own: an instance that changes its machine id adopts the log of a new nonce only.
        nonce = machine.to_bytes(16, "big")
        return self._write(machine, found, take.__globals__["LeaseRecord"](0, 2**38, nonce, holder))

    patch.setattr(Lease, "_take", greedy)
    patch.setattr(Lease, "_is_over", lambda *_: True)


def recovery_disabled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "over", lambda _lease, _issued, damage=None: [])
