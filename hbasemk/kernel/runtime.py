"""What the kernel needs from the world besides a store: time, chance, waiting, locks.

The kernel takes all of them from here, so that the same code runs on a real machine
(``hbasemk.system``) and under a simulator that owns time and decides every interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Runtime(Protocol):
    """Time, chance, waiting and locks for one instance."""

    @property
    def random(self) -> random.Random:
        """The instance's source of chance (jitter, nonces)."""

    def now_ms(self) -> int:
        """The wall clock in ms since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds that only go forward, from an arbitrary start."""

    def sleep(self, seconds: float) -> None:
        """Wait; returns early when the instance is closed."""

    @property
    def retry_timeout(self) -> float:
        """For how many seconds a call that the store refused is made again, where no operation sets a limit."""

    @property
    def closed(self) -> bool:
        """Whether the instance is closed: what waits then gives up."""

    def lock(self) -> AbstractContextManager[object]:
        """A new lock that may be held across store calls; the same thread may enter it again."""

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls, at the same time where that pays; raises after both ended if one raised."""

    def identity(self) -> tuple[int, str]:
        """The preferred machine id (16 bits, from the MAC) and a text that names this process."""
