"""Fork safety: close SQLite's handles before a fork, so that no child inherits them.

SQLite records a process's locks in memory. A forked child inherits the records but not the locks. A connection that
the child opens then assumes locks that nobody holds, and the parent, when it closes, deletes the log under the child.
So before a fork every pool finishes its calls and closes its connections. Both sides open new ones on demand.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from typing import Protocol

from hbasemk.interrupts import Deferred


class Forkable(Protocol):
    """An object with handles that no child process may inherit."""

    def before_fork(self) -> None:
        """Block new calls, wait for running calls, close all handles."""

    def after_fork(self, child: bool) -> None:
        """Allow calls again, in the parent and in the child."""


_registered: weakref.WeakSet[Forkable] = weakref.WeakSet()
_lock = threading.Lock()
_stopped: list[Forkable] = []
_hooked = False
_interrupts: list[Deferred] = []


def register(forkable: Forkable) -> None:
    """Call the object's hooks at every fork for as long as the object exists."""
    global _hooked
    with _lock:
        _registered.add(forkable)
        if not _hooked and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
            )
            _hooked = True


def _before() -> None:
    # The lock is held until after the fork: meanwhile no pool starts, and no two threads stop the same pools. An
    # interrupt is deferred until then, because a fork swallows the exceptions of its hooks.
    interrupts = Deferred()
    interrupts.__enter__()
    _lock.acquire()
    _interrupts.append(interrupts)
    for forkable in list(_registered):
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
