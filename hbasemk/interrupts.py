"""Protects short pieces of work from signals: bookkeeping of locks, connections and counts.

Python calls the handler of a signal between any two instructions of the main thread, also inside a ``finally`` block. The
handler of SIGINT (Ctrl-C) raises KeyboardInterrupt, and a program may let others raise exceptions too. :class:`Deferred`
delays the handlers until a safe point.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

try:
    # Without the enumerations of the module signal, which cost more than the call.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:  # pragma: no cover - another implementation of Python
    from signal import getsignal
    from signal import signal as set_handler

SLICE = 0.05
"""Seconds of a wait after which a deferred interrupt is delivered."""
NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK", "SIGALRM", "SIGVTALRM", "SIGUSR1", "SIGUSR2")
"""The signals whose handlers end the work of programs. SIGPROF is none: a profiler needs the frame that it interrupts."""
NUMBERS: Final = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))

_main_thread = threading.main_thread().ident
"""The thread that calls the handlers of signals; in a child process, the one that forked."""

Handler = Callable[[int, FrameType | None], Any]


class Deferred:
    """Defers the handlers of :data:`NAMES` in the main thread to the end of the ``with`` block, or to :meth:`deliver`.

    In other threads it does nothing, because handlers run in the main thread only. Blocks may be nested; the outermost one
    defers. Signals that have no handler in Python keep their effect.
    """

    __slots__ = ("_active", "_noted", "_replaced")

    def __init__(self) -> None:
        # While this is False, the replaced handlers are called at once. So one assignment begins and ends to defer all
        # signals, and the handler of one may interrupt the exchange of the handler of another.
        self._active = False
        self._replaced: dict[int, Handler] = {}
        # As Python itself does, signals of one number are one until the handler is called.
        self._noted: dict[int, FrameType | None] = {}

    def __enter__(self) -> Deferred:
        if threading.get_ident() == _main_thread:
            for number in NUMBERS:
                handler = getsignal(number)
                # Most signals have SIG_DFL, which is 0.
                if not handler or not callable(handler):
                    continue
                while isinstance(deferred := getattr(handler, "__self__", None), Deferred) and not deferred._active:
                    # It has outlived its block: a handler ended the exchange, or kept what it had replaced itself.
                    handler = deferred._replaced[number]
                if not isinstance(deferred, Deferred):
                    self._replaced[number] = handler
                    try:
                        set_handler(number, self._note)
                    except ValueError:
                        # This is a sub-interpreter, where Python calls no handlers.
                        self._replaced.clear()
                        return self
            self._active = True
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._active:
            self._noted.setdefault(number, frame)
        else:
            self._replaced[number](number, frame)

    def deliver(self) -> None:
        """Call the handlers of the signals that have arrived. Callers do so where no work is half done."""
        if self._noted:
            with self.suspended():
                pass

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Defer nothing inside of this inner block; first call the handlers of the signals that have arrived."""
        try:
            self.leave()
            self._deliver_all()
            yield
        finally:
            self._enter_again()

    def _enter_again(self) -> None:
        """Defer again; the handler of a signal that arrives before may raise, but only when that is done."""
        last: BaseException | None = None
        while True:
            try:
                self.__enter__()
                break
            except BaseException as error:
                last = error
        if last is not None:
            raise last

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave()
        finally:
            if self._noted:
                self._deliver_all()

    def _deliver_all(self) -> None:
        """Call the handlers that are set now, as Python does, each although another one raises."""
        try:
            while self._noted:
                number = next(iter(self._noted))
                frame = self._noted.pop(number)
                handler = getsignal(number)
                if callable(handler):
                    handler(number, frame)
        finally:
            if self._noted:
                self._deliver_all()

    def leave(self) -> None:
        """End the block without calling the handlers of the signals that have arrived."""
        self._active = False
        for number, handler in self._replaced.items():
            # A handler that was called inside the block may have set another one.
            if getsignal(number) == self._note:
                set_handler(number, handler)

    @property
    def arrived(self) -> list[int]:
        """The numbers of the signals whose handlers were not called yet."""
        return list(self._noted)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; raise RuntimeError if the interpreter starts no more threads.

    :meth:`threading.Thread.start` waits on a condition, where an interrupt would also become a RuntimeError.
    """
    if sys.is_finalizing():
        # Before Python 3.12, Thread.start waits forever here: the new thread never begins.
        raise RuntimeError("can't create new thread at interpreter shutdown")
    with Deferred():
        thread.start()


_forks_main: list[bool] = []


def _before_fork() -> None:
    _forks_main[:] = [threading.get_ident() == _main_thread]


def _in_child() -> None:
    """Restore the handlers that the parent's main thread had replaced while another thread forked."""
    global _main_thread
    _main_thread = threading.get_ident()
    if _forks_main != [False]:
        return
    for number in NUMBERS:
        handler = getsignal(number)
        while isinstance(deferred := getattr(handler, "__self__", None), Deferred):
            handler = deferred._replaced[number]
            set_handler(number, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
