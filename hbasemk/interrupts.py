"""Protects short pieces of work from Ctrl-C: bookkeeping of locks, connections and counts.

Python calls the handler of a signal between any two instructions of the main thread, also inside a ``finally`` block. The
handler of SIGINT raises KeyboardInterrupt. :class:`Deferred` delays the handler until a safe point.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

try:
    # Without the enumerations of the module signal, which cost more than the call.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:  # pragma: no cover - another implementation of Python
    from signal import getsignal
    from signal import signal as set_handler

SLICE = 0.05
"""Seconds of a wait after which a deferred interrupt is delivered."""


class Deferred:
    """Defers SIGINT in the main thread to the end of the ``with`` block, or to :meth:`deliver`.

    In other threads it does nothing, because handlers run in the main thread only. Blocks may be nested.
    """

    __slots__ = ("_handler", "_noted")

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._noted: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> Deferred:
        if threading.get_ident() == threading.main_thread().ident:
            handler = getsignal(signal.SIGINT)
            if callable(handler):
                # In this order: an interrupt before the second step finds nothing changed.
                self._handler = handler
                set_handler(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number, frame

    def deliver(self) -> None:
        """Call the handler now if an interrupt has arrived. Callers do so where no work is half done."""
        noted, self._noted = self._noted, None
        if noted is not None and self._handler is not None:
            self._handler(*noted)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.leave():
            self.deliver()

    def leave(self) -> bool:
        """End the block without calling the handler; return whether an interrupt has arrived."""
        if self._handler is not None:
            set_handler(signal.SIGINT, self._handler)
        return self._noted is not None


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; raise RuntimeError if the interpreter starts no more threads.

    :meth:`threading.Thread.start` waits on a condition, where an interrupt would also become a RuntimeError.
    """
    with Deferred():
        thread.start()


_forks_main: list[bool] = []


def _before_fork() -> None:
    _forks_main[:] = [threading.get_ident() == threading.main_thread().ident]


def _in_child() -> None:
    """Restore the handler that the parent's main thread had replaced while another thread forked."""
    handler = getsignal(signal.SIGINT)
    while _forks_main == [False] and isinstance(getattr(handler, "__self__", None), Deferred):
        handler = handler.__self__._handler
        set_handler(signal.SIGINT, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
