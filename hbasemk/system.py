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
from contextvars import copy_context
from types import TracebackType
from typing import Final, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

DEFAULT_PATIENCE: Final = 60.0


def _boot_time() -> float:
    """``CLOCK_BOOTTIME`` on Linux: ``CLOCK_MONOTONIC`` stands still while a machine sleeps. Elsewhere the monotonic clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class PerProcess(Generic[T]):
    """A thing that each process makes for itself when it first asks: locks, threads.

    After a fork a child would wait for ever for what threads of its parent hold or do, since it has none of them.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def get(self) -> T:
        """This process's own; of threads that ask first at the same time one makes it for all."""
        found = self._made.get(os.getpid())
        return self._made.setdefault(os.getpid(), self._make()) if found is None else found

    def made(self) -> T | None:
        """This process's own, if it has asked for it."""
        return self._made.get(os.getpid())


class _Lock(PerProcess[AbstractContextManager[object]]):
    """A re-entrant lock between the threads of one process."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(threading.RLock)

    def __enter__(self) -> object:
        return (self._made.get(os.getpid()) or self.get()).__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock = self._made.get(os.getpid())
        if lock is not None:
            # Else it was taken before a fork, and is the parent's to give back.
            lock.__exit__(kind, error, trace)


class SystemRuntime:
    """A :class:`~hbasemk.kernel.runtime.Runtime` on real clocks and threads.

    Threads are started when they are first needed, and sleeping ends when :meth:`close` is called.
    """

    def __init__(self, patience: float = DEFAULT_PATIENCE) -> None:
        self._patience = patience
        self._random = random.Random(os.urandom(16))
        self._closed = False
        self._closing = PerProcess(threading.Event)
        self._pools = PerProcess(lambda: ThreadPoolExecutor(max_workers=8, thread_name_prefix="hbasemk-call"))

    @property
    def random(self) -> random.Random:
        """Seeded from the operating system."""
        return self._random

    def now_ms(self) -> int:
        """The wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that only go forward, also while the machine sleeps where the system has such a clock."""
        return _boot_time()

    def sleep(self, seconds: float) -> None:
        """Wait; returns at once when the runtime is closed."""
        # Asked for first: close() sets it after it has told that it is closed.
        closing = self._closing.get()
        if not self._closed:
            closing.wait(seconds)

    @property
    def patience(self) -> float:
        """As it was given: how many seconds a call is made again that the store refused."""
        return self._patience

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closed

    def lock(self) -> AbstractContextManager[object]:
        """A new re-entrant lock."""
        return _Lock()

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
        try:
            return None if self.closed else self._pools.get().submit(copy_context().run, call)
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
        self._closed = True
        self._closing.get().set()
        pool = self._pools.made()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=False)
