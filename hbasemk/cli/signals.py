"""Signals that end a command: SIGTERM interrupts it as Ctrl-C does, and the exit code says which of them came."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Final

REPEATED: Final = 1.0
"""The seconds for which a repeated SIGTERM is the same one: `timeout` sends it to a process, and then to the process's group."""


class EndedBySignal(BaseException):
    """End the command after an interrupt without a further message. click lets it pass, unlike a KeyboardInterrupt."""


class Interrupts:
    """Let SIGTERM interrupt the block as Ctrl-C does: by a KeyboardInterrupt, which all code that an interrupt may end expects.

    ``code`` is the exit code that shells show for the signal. SIGTERM keeps its effect if the parent process ignores it or a
    handler is set.
    """

    def __init__(self) -> None:
        self.code = 128 + signal.SIGINT
        self.message = "interrupted"
        self._replaces = False
        self._ignored_until = float("-inf")

    def __enter__(self) -> Interrupts:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            # Outside of the main thread, Python sets no handlers.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, self._interrupt)
                self._replaces = True
        return self

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if now < self._ignored_until:
            return
        self._ignored_until = now + REPEATED
        self.code = 128 + number
        self.message = "interrupted by SIGTERM"
        raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._replaces:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let an interrupt be the normal end of the block's command, without a message: raise :exc:`EndedBySignal`."""
    try:
        yield
    except KeyboardInterrupt:
        raise EndedBySignal from None
