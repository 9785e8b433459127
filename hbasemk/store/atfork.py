"""Fork safety: what no child process may inherit, or not within a call.

A lock that another thread holds during a fork stays held in the child forever, and what it protects may be half changed. So
a fork waits for the locks of stores in memory.

SQLite's handles are closed before a fork. SQLite records a process's locks in memory. A forked child inherits the records
but not the locks. A connection that the child opens then assumes locks that nobody holds, and the parent, when it closes,
deletes the log under the child. So before a fork every pool finishes its calls and closes its connections. Both sides open
new ones on demand.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Protocol

from hbasemk.interrupts import Deferred
from hbasemk.weak_set import WeakSet


class Forkable(Protocol):
    """An object of which no child process may inherit the state within a call."""

    def before_fork(self) -> None:
        """Block new calls, wait for running calls, close all handles."""

    def after_fork(self, child: bool) -> None:
        """Allow calls again, in the parent and in the child."""


_registered: WeakSet[Forkable] = WeakSet()
_lock = threading.Lock()
_stopped: list[Forkable] = []
_hooked = False
_interrupts: list[Deferred] = []


def register(forkable: Forkable) -> None:
    """Call the object's hooks at every fork for as long as the object exists."""
    global _hooked
    with Deferred(), _lock:
        _registered.add(forkable)
        if not _hooked and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
            )
            _hooked = True


class ForkSafeLock:
    """A reentrant lock, :attr:`lock`, that a fork waits for: no child inherits it while another thread holds it."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        register(self)

    def before_fork(self) -> None:
        """Wait for the thread that holds the lock. The forking thread may hold it itself; then both sides do."""
        self.lock.acquire()

    def after_fork(self, child: bool) -> None:  # noqa: ARG002 - the child inherits the lock of the forking thread
        """Release the lock."""
        self.lock.release()


def _before() -> None:
    # The lock is held until after the fork: meanwhile no pool starts, and no two threads stop the same pools. An
    # interrupt is deferred until then, because a fork swallows the exceptions of its hooks.
    interrupts = Deferred()
    interrupts.__enter__()
    _lock.acquire()
    _interrupts.append(interrupts)
    for forkable in _registered:
        _stopped.append(forkable)
        forkable.before_fork()


def _after(child: bool) -> None:
    for forkable in _stopped:
        forkable.after_fork(child)
    _stopped.clear()
    interrupts = _interrupts.pop()
    _lock.release()
    interrupts.leave()
    if not child:
        for number in interrupts.arrived:
            # The timer delivers the signal after the fork has returned.
            threading.Timer(0.001, signal.raise_signal, (number,)).start()
