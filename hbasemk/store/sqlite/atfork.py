"""Keeps SQLite's handles from being carried across a fork.

SQLite notes the locks of a process in memory and a forked child inherits the notes, but not the locks: a connection
that the child opens then believes to hold what nobody holds, and the parent, closing, deletes the log under it. So
before a fork every pool finishes its calls and closes its connections; both sides open new ones when they need them.
"""

from __future__ import annotations

import _thread
import os
import threading
import weakref
from typing import Protocol

from hbasemk.interrupts import Deferred


class Forkable(Protocol):
    """Something with handles that no child may inherit."""

    def before_fork(self) -> None:
        """Let no call begin, wait for those that are running, close everything."""

    def after_fork(self, child: bool) -> None:
        """Let calls begin again, in the parent and in the child."""


_everyone: weakref.WeakSet[Forkable] = weakref.WeakSet()
_lock = threading.Lock()
_stopped: list[Forkable] = []
_hooked = False
_interrupts: list[Deferred] = []


def register(forkable: Forkable) -> None:
    """Have it told of every fork for as long as it lives."""
    global _hooked
    with _lock:
        _everyone.add(forkable)
        if not _hooked and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
            )
            _hooked = True


def _before() -> None:
    # Held until after the fork, so that no pool comes up meanwhile and no two threads stop the same ones. Until then an
    # interrupt waits: what hooks of a fork raise is not raised by the fork.
    interrupts = Deferred()
    interrupts.__enter__()
    _lock.acquire()
    _interrupts.append(interrupts)
    for forkable in list(_everyone):
        _stopped.append(forkable)
        forkable.before_fork()


def _after(child: bool) -> None:
    for forkable in _stopped:
        forkable.after_fork(child)
    _stopped.clear()
    interrupts = _interrupts.pop()
    _lock.release()
    if interrupts.leave() and not child:
        # After the fork has returned.
        threading.Timer(0.001, _thread.interrupt_main).start()
