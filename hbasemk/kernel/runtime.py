"""The interface through which the kernel gets time, randomness, waiting and locks.

The kernel uses no other source of them. So the same code runs on a real machine (``hbasemk.system``) and under a
simulator that controls time and every interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Runtime(Protocol):
    """Time, randomness, waiting and locks for one instance."""

    @property
    def random(self) -> random.Random:
        """The instance's random number generator, for jitter and nonces."""

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970; it may jump."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; the value never decreases."""

    def sleep(self, seconds: float) -> None:
        """Wait; return early if the instance is closed."""

    @property
    def retry_timeout(self) -> float:
        """The number of seconds for which a failed store call is retried, if no operation sets a limit."""

    @property
    def closed(self) -> bool:
        """Whether the instance is closed; waiting operations then give up."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a new reentrant lock that may be held across store calls."""

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls, in parallel if that is faster; if one raises, raise after both have ended."""

    @property
    def process(self) -> int:
        """A number that names this process; a forked child has another one."""

    def identity(self) -> tuple[int, str]:
        """Return the preferred machine id (16 bits, from the MAC) and a text that names this process."""
