"""The real world for the kernel: this machine's clocks, chance, threads and name."""

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
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

from hbasemk.interrupts import start_thread
from hbasemk.wakeup import LONGEST, Flag

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

DEFAULT_RETRY_TIMEOUT: Final = 60.0


def _monotonic_clock() -> Callable[[], float]:
    """Return ``CLOCK_BOOTTIME`` on Linux, where ``CLOCK_MONOTONIC`` stands still while a machine sleeps; else the latter."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class PerProcess(Generic[T]):
    """A thing that each process makes for itself when it first asks: locks, threads.

    After a fork a child would wait forever for locks and results of its parent's threads, which it does not have.
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


_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
"""All locks that kernels have, to be renewed after a fork."""


def _renew_locks() -> None:
    """In a forked child: free the locks that threads of the parent held. The thread that forked keeps its own."""
    for lock in list(_locks):
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class _Call(Generic[T]):
    """A call that another thread makes. Waiting for its end can be interrupted, and repeated."""

    __slots__ = ("_begun", "_call", "_ended", "_error", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._begun = threading.Lock()
        self._ended = Flag()
        self._value: T

    def make(self) -> None:
        """Make it, in this thread, unless another thread does."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        self._ended.raise_()

    def error(self) -> BaseException | None:
        """Wait for the end; returns what the call raised."""
        while not self._ended.wait(LONGEST):
            continue
        return self._error

    def result(self) -> T:
        """Wait for the end; returns what the call returned, or raises what it raised."""
        error = self.error()
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # The error refers to this frame.
            del error


class _Threads:
    """Threads that make calls for others, kept for the next call. There is nothing that an interruption could leave held.

    :class:`concurrent.futures.ThreadPoolExecutor` uses conditions, which can be left held.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._idle: collections.deque[None] = collections.deque()
        self._over = False

    def start(self, call: Callable[[], A]) -> _Call[A]:
        """Have a call made; raises RuntimeError when no thread can be started any more."""
        made = _Call(call)
        try:
            self._idle.pop()
        except IndexError:
            start_thread(threading.Thread(target=self._work, name="hbasemk-call", daemon=True))
        self._calls.put(made)
        if self._over:
            # Perhaps all threads have ended before they came to it.
            made.make()
        return made

    def end(self) -> None:
        """End the threads, each after the call that it is in."""
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

    Threads are started when they are first needed, and sleeping ends when :meth:`close` is called.
    """

    def __init__(self, retry_timeout: float = DEFAULT_RETRY_TIMEOUT) -> None:
        self._retry_timeout = retry_timeout
        self._random = random.Random(os.urandom(16))
        self._closing = Flag()
        self._threads = PerProcess(_Threads)
        self.monotonic: Callable[[], float] = _monotonic_clock()
        """Returns seconds that never decrease. They count a sleep of the machine where the system has such a clock."""

    @property
    def random(self) -> random.Random:
        """Seeded from the operating system."""
        return self._random

    def now_ms(self) -> int:
        """The wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait; returns at once when the runtime is closed."""
        self._closing.wait(seconds)

    @property
    def retry_timeout(self) -> float:
        """As it was given: how many seconds a call is made again that the store refused."""
        return self._retry_timeout

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closing.is_raised

    def lock(self) -> AbstractContextManager[object]:
        """A new re-entrant lock, implemented in C: an interruption cannot come between taking it and what releases it."""
        lock = threading.RLock()
        _locks.add(lock)
        return lock

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls at the same time, when closed one after the other; if either raises, that is raised after both ended."""
        future = self._started(first)
        if future is None:
            return self._in_turn(first, second)
        try:
            result = second()
        except BaseException:
            error = future.error()
            if error is not None:
                # What went wrong with the store matters more than what was wrong with the change.
                raise error from None
            raise
        return future.result(), result

    def _started(self, call: Callable[[], A]) -> _Call[A] | None:
        """The call, being made by another thread; None when the runtime is closed."""
        try:
            return None if self.closed else self._threads.get().start(partial(copy_context().run, call))
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
        self._closing.raise_()
        threads = self._threads.made()
        if threads is not None:
            threads.end()
