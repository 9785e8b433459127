"""Signals that are the normal end of a command, such as a watch."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class EndedBySignal(BaseException):
    """End the command with the exit code ``code``, and without a message. click lets it pass, unlike a KeyboardInterrupt."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM interrupt the block; then raise :exc:`EndedBySignal`, with the exit code that shells show.

    SIGTERM keeps its effect if the parent process ignores it or a handler is set.
    """
    received: list[int] = [signal.SIGINT]

    def interrupt(number: int, _: FrameType | None) -> None:
        received[0] = number
        # All code that an interrupt may end expects this error.
        raise KeyboardInterrupt

    replaces = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if replaces:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise EndedBySignal(128 + received[0]) from None
    finally:
        if replaces:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
