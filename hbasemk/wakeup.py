"""Waiting for other threads, in a way that an interruption (Ctrl-C) at any point cannot spoil.

:class:`threading.Condition` and :class:`threading.Event` hold a lock while they run Python code. A KeyboardInterrupt there
leaves the lock held forever, and a signal handler that uses the same object waits for itself. The classes here consist
of locks that are implemented in C, each of one waiter: there is nothing to leave held.
"""

from __future__ import annotations

import _thread
import threading
import weakref
from typing import Final

LONGEST: Final = threading.TIMEOUT_MAX


class Bell:
    """Wakes one waiting thread. A ring while nobody waits ends the next wait; several count as one.

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
            # It has been rung already.
            return

    def wait(self, seconds: float) -> bool:
        """Wait for a ring, at most ``seconds``; returns whether it was rung."""
        return self._silent.acquire(timeout=min(max(seconds, 0.0), LONGEST))


class Bells:
    """Rings all bells that are hung up here and still referred to by somebody else."""

    __slots__ = ("_hung",)

    def __init__(self) -> None:
        self._hung: dict[int, weakref.ref[Bell]] = {}

    def hang(self) -> Bell:
        """A new bell; it comes off when nothing refers to it any more."""
        bell = Bell()
        self._hung[id(bell)] = weakref.ref(bell)
        return bell

    def are_awaited(self) -> bool:
        """Return whether a bell is hung up."""
        return any(reference() is not None for reference in list(self._hung.values()))

    def ring(self) -> None:
        """Ring all of them."""
        for key, reference in list(self._hung.items()):
            bell = reference()
            if bell is not None:
                bell.ring()
            elif self._hung.get(key) is reference:
                self._hung.pop(key, None)


class Flag:
    """Is raised once, and then ends all waits for it, present and future ones."""

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
        """Wait until the flag is raised, at most ``seconds``; returns whether it is."""
        if not self._raised:
            # Hung up before the flag is looked at again, so that no ring is missed.
            bell = self._bells.hang()
            if not self._raised:
                bell.wait(seconds)
        return self._raised
