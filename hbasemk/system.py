"""The runtime of the kernel on a real machine: clocks, random numbers, threads and the machine's name."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import queue
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

from hbasemk.interrupts import start_thread
from hbasemk.wakeup import LONGEST, Flag
from hbasemk.weak_set import WeakSet

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

DEFAULT_RETRY_TIMEOUT: Final = 60.0


def _monotonic_clock() -> Callable[[], float]:
    """Return ``CLOCK_BOOTTIME`` on Linux, where ``CLOCK_MONOTONIC`` stands still while a machine sleeps; else the latter."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class PerProcess(Generic[T]):
    """An object, such as a pool of threads, that each process makes at its first use.

    A forked child has no threads of its parent. It would wait forever for their locks and results.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def get(self) -> T:
        """Return this process's object. If several threads make it at the same time, all get the same one."""
        found = self._made.get(os.getpid())
        return self._made.setdefault(os.getpid(), self._make()) if found is None else found

    def made(self) -> T | None:
        """Return this process's object, or None if it has not made one."""
        return self._made.get(os.getpid())


_locks: WeakSet[threading.RLock] = WeakSet()
"""The locks of all kernels, which a forked child renews."""
_generators: WeakSet[random.Random] = WeakSet()
"""The random number generators of all kernels, which a forked child seeds again."""


def _after_fork() -> None:
    """Free, in a forked child, the locks that other threads of the parent held, and draw other random numbers than the parent.

    The thread that forked keeps its own locks.
    """
    for generator in _generators:
        generator.seed(os.urandom(16))
    for lock in _locks:
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Call(Generic[T]):
    """A call that another thread makes. A wait for its end can be interrupted, and repeated."""

    __slots__ = ("_begun", "_call", "_ended", "_error", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._begun = threading.Lock()
        self._ended = Flag()
        self._value: T

    def make(self) -> None:
        """Make the call in this thread, unless another thread does."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        self._ended.raise_()

    def error(self) -> BaseException | None:
        """Wait for the end; return the error that the call raised, or None."""
        while not self._ended.wait(LONGEST):
            continue
        return self._error

    def result(self) -> T:
        """Wait for the end; return the result of the call, or raise its error."""
        error = self.error()
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # The error refers to this frame.
            del error


class _Threads:
    """A pool of threads that make calls for other threads. An interrupt leaves none of its locks held.

    An interrupt can leave the conditions of :class:`concurrent.futures.ThreadPoolExecutor` held.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._idle: collections.deque[None] = collections.deque()
        self._over = False

    def start(self, call: Callable[[], A]) -> _Call[A]:
        """Let a thread make a call; raise RuntimeError if no more threads can be started."""
        made = _Call(call)
        try:
            self._idle.pop()
        except IndexError:
            start_thread(threading.Thread(target=self._work, name="hbasemk-call", daemon=True))
        self._calls.put(made)
        if self._over:
            # All threads may have ended before they took this call.
            made.make()
        return made

    def end(self) -> None:
        """End the threads, each after its present call."""
        self._over = True
        self._calls.put(None)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                self._calls.put(None)
                return
            call.make()
            del call
            self._idle.append(None)


class SystemRuntime:
    """A :class:`~hbasemk.kernel.runtime.Runtime` on real clocks and threads.

    It starts threads when they are first needed. :meth:`close` ends all sleeps.
    """

    def __init__(self, retry_timeout: float = DEFAULT_RETRY_TIMEOUT) -> None:
        self.retry_timeout = retry_timeout
        """The number of seconds for which a refused call of the store is retried."""
        self.random = random.Random(os.urandom(16))
        """A generator that the operating system seeded, in a forked child again."""
        _generators.add(self.random)
        self._closing = Flag()
        self._threads = PerProcess(_Threads)
        self.monotonic: Callable[[], float] = _monotonic_clock()
        """Returns seconds that never decrease. They count a sleep of the machine where the system has such a clock."""

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait; return at once when the runtime is closed."""
        self._closing.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closing.is_raised

    def lock(self) -> AbstractContextManager[object]:
        """Return a new reentrant lock, implemented in C: no interrupt falls between its acquisition and the ``with`` block."""
        lock = threading.RLock()
        _locks.add(lock)
        return lock

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls in parallel, or in turn if the runtime is closed or no thread can be started.

        Raises the error of either after both have ended.
        """
        future = self._started(first)
        if future is None:
            return self._in_turn(first, second)
        try:
            result = second()
        except BaseException as raised:
            error = future.error()
            if error is not None and isinstance(raised, Exception):
                # An error of the store matters more than an error of the change, and an interrupt more than both.
                raise error from None
            raise
        return future.result(), result

    def _started(self, call: Callable[[], A]) -> _Call[A] | None:
        """Start a call in another thread; return None if the runtime is closed, or no thread can be started."""
        try:
            return None if self.closed else self._threads.get().start(partial(copy_context().run, call))
        except RuntimeError:
            # The interpreter ends, or the process has too many threads or too little memory.
            return None

    @staticmethod
    def _in_turn(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        try:
            one = first()
        except BaseException:
            # As in parallel: the second call ends as well, and the error of the first one counts.
            with contextlib.suppress(Exception):
                second()
            raise
        return one, second()

    @property
    def process(self) -> int:
        """The process id."""
        return os.getpid()

    def identity(self) -> tuple[int, str]:
        """Return a 16-bit hash of the MAC, and the host name with the process id."""
        mac = uuid.getnode().to_bytes(6, "big")
        digest = hashlib.sha256(mac).digest()
        # The system may have a name that is not UTF-8.
        host = socket.gethostname().encode("utf-8", "backslashreplace").decode()
        return int.from_bytes(digest[:2], "big"), f"{host} pid {os.getpid()}"

    def close(self) -> None:
        """End all sleeps and the threads; idempotent."""
        self._closing.raise_()
        threads = self._threads.made()
        if threads is not None:
            threads.end()
