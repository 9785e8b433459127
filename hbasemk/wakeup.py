"""Waits for other threads that an interrupt (Ctrl-C) at any point leaves in order.

:class:`threading.Condition` and :class:`threading.Event` hold a lock while they run Python code. A KeyboardInterrupt there
leaves the lock held forever, and a signal handler that uses the same object waits for itself. The classes here use only
locks that are implemented in C, one for each waiter. So no interrupt leaves a lock held.
"""

from __future__ import annotations

import _thread
import threading
from typing import Final

from hbasemk.weak_set import WeakSet

LONGEST: Final = threading.TIMEOUT_MAX


class Bell:
    """Wakes one waiting thread. A ring without a waiting thread ends the next wait; several rings count as one.

    :meth:`ring` may be called by any thread and by signal handlers.
    """

    __slots__ = ("__weakref__", "_silent")

    def __init__(self) -> None:
        self._silent = _thread.allocate_lock()
        self._silent.acquire()

    def ring(self) -> None:
        """End the wait."""
        try:
            self._silent.release()
        except RuntimeError:
            # The bell has been rung already.
            return

    def wait(self, seconds: float) -> bool:
        """Wait for a ring, at most ``seconds``; return whether the bell was rung."""
        return self._silent.acquire(timeout=min(max(seconds, 0.0), LONGEST))


class Bells:
    """Rings all bells that :meth:`new_bell` returned and that another object still refers to."""

    __slots__ = ("_bells",)

    def __init__(self) -> None:
        self._bells: WeakSet[Bell] = WeakSet()

    def new_bell(self) -> Bell:
        """Return a new bell; this object drops it when no other object refers to it."""
        bell = Bell()
        self._bells.add(bell)
        return bell

    def are_awaited(self) -> bool:
        """Return whether any bell is left."""
        return len(self._bells) > 0

    def ring(self) -> None:
        """Ring all bells."""
        for bell in self._bells:
            bell.ring()


class Flag:
    """A flag that is raised once, and then ends all waits for it, present and future ones."""

    __slots__ = ("_bells", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._bells = Bells()

    @property
    def is_raised(self) -> bool:
        """Whether :meth:`raise_` has been called."""
        return self._raised

    def raise_(self) -> None:
        """End all waits."""
        self._raised = True
        self._bells.ring()

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is raised, at most ``seconds``; return whether it is raised."""
        if not self._raised:
            # Make the bell before the second look at the flag, so that no ring is missed.
            bell = self._bells.new_bell()
            if not self._raised:
                bell.wait(seconds)
        return self._raised
