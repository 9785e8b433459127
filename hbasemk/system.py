"""The real world for the kernel: this machine's clocks, chance, threads and name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


class SystemRuntime:
    """A :class:`~hbasemk.kernel.runtime.Runtime` on real clocks and threads.

    Threads are started when they are first needed, and sleeping ends when :meth:`close` is called.
    """

    def __init__(self) -> None:
        self._random = random.Random(os.urandom(16))
        self._closing = threading.Event()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    @property
    def random(self) -> random.Random:
        """Seeded from the operating system."""
        return self._random

    def now_ms(self) -> int:
        """The wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; returns at once when the runtime is closed."""
        self._closing.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closing.is_set()

    def lock(self) -> AbstractContextManager[object]:
        """A new re-entrant lock."""
        return threading.RLock()

    def both(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls at the same time, when closed one after the other; if either raises, that is raised after both ended."""
        future = self._started(first)
        if future is None:
            return self._in_turn(first, second)
        try:
            result = second()
        except BaseException:
            error = future.exception()
            if error is not None:
                # What went wrong with the store matters more than what was wrong with the change.
                raise error from None
            raise
        return future.result(), result

    def _started(self, call: Callable[[], A]) -> Future[A] | None:
        """The call, being made by another thread; None when the runtime is closed."""
        pid = os.getpid()
        # A forked child has none of the threads of its parent's pool. Of threads that ask first one sets it, for all.
        pool = self._pools.get(pid) or self._pools.setdefault(
            pid, ThreadPoolExecutor(max_workers=8, thread_name_prefix="hbasemk-call")
        )
        try:
            return None if self.closed else pool.submit(call)
        except RuntimeError:
            if not self.closed:
                raise
            return None

    @staticmethod
    def _in_turn(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        try:
            one = first()
        except BaseException:
            # As when both are made at once: the second ends as well, and the first one's error counts.
            with contextlib.suppress(Exception):
                second()
            raise
        return one, second()

    def identity(self) -> tuple[int, str]:
        """A 16-bit hash of the MAC, and host name with process id."""
        mac = uuid.getnode().to_bytes(6, "big")
        digest = hashlib.sha256(mac).digest()
        return int.from_bytes(digest[:2], "big"), f"{socket.gethostname()} pid {os.getpid()}"

    def close(self) -> None:
        """End all sleeping and the threads; idempotent."""
        self._closing.set()
        pool = self._pools.get(os.getpid())
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=False)
