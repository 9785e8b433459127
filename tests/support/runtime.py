"""A runtime whose time moves only when a test, or a sleep, moves it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

from hbasemk.check import IntegrityCheck
from hbasemk.errors import FormatError
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import WrappedStore

A = TypeVar("A")
B = TypeVar("B")

START_MS = 1_800_000_000_000
CHECKER = 0xFFFE
"""The MAC of the instance that checks at the end."""


class World:
    """The true time, in ms since 1970, which the store's clock shows."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.ms = float(start_ms)
        self._stores: list[Store] = []

    def clock(self) -> int:
        """Return the store's clock in ms."""
        return int(self.ms)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.ms += seconds * 1000

    def was_opened(self, store: Store) -> None:
        """Register a store with a repository."""
        while isinstance(store, WrappedStore):
            store = store.inner
        if not self.closes(store):
            self._stores.append(store)

    def closes(self, store: Store) -> bool:
        """Return whether the world closes a store at the end."""
        return any(store is other for other in self._stores)

    def problems(self) -> list[str]:
        """Return the problems of all repositories after all leases and one more instance's maintenance."""
        found: list[str] = []
        for store in self._stores:
            instance = open_instance(store, self, mac=CHECKER)
            self.advance((instance.settings.lease_ms + instance.settings.max_clock_skew_ms) / 1000 + 1)
            instance.poll()
            with suppress(FormatError):
                # The check reports the damage.
                instance.maintain()
            found += map(str, IntegrityCheck(instance).run())
        return found

    def close(self) -> None:
        """Close all stores."""
        for store in self._stores:
            store.close()


class TestRuntime:
    """One process's view of the world: its wall clock is ``skew_ms`` off, its monotonic clock runs true."""

    __test__ = False

    def __init__(
        self, world: World, *, mac: int = 0x1234, skew_ms: int = 0, seed: int = 1, retry_timeout: float = 0.2
    ) -> None:
        self.world = world
        self.retry_timeout = retry_timeout
        self.mac = mac
        self.skew_ms = skew_ms
        self._random = random.Random(seed)

    @property
    def random(self) -> random.Random:
        return self._random

    def now_ms(self) -> int:
        return int(self.world.ms) + self.skew_ms

    def monotonic(self) -> float:
        return self.world.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.world.advance(seconds)

    @property
    def closed(self) -> bool:
        return False

    def lock(self) -> AbstractContextManager[object]:
        return threading.RLock()

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        return first(), second()

    @property
    def process(self) -> int:
        return 0

    def identity(self) -> tuple[int, str]:
        return self.mac, "test"


def open_instance(store: Store, world: World, settings: Settings | None = None, **options: int) -> Instance:
    """Open one more instance in a world."""
    instance = Instance.open(store, TestRuntime(world, **options), wanted=settings)
    world.was_opened(store)
    return instance
