"""The one thread of an opened repository: it polls, renews the lease and ends loose ends.

Errors do not end it: it tries again, more slowly, and says so once; the calls that users make raise them.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from hbasemk.errors import ClosedError, HbasemkError
from hbasemk.kernel.instance import Instance

LONGEST_PAUSE: Final = 5.0
SHARE_OF_TIME: Final = 5
"""Polling pauses at least this many times as long as the last poll took."""

_log = logging.getLogger("hbasemk")


class Background:
    """Polls one instance every ``interval`` seconds until it is stopped. Started by its first use."""

    def __init__(self, instance: Instance, interval: float) -> None:
        self._instance = instance
        self._interval = interval
        self._stopping = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._work, name="hbasemk-poll", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for it only while it is not inside a store call that hangs."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _work(self) -> None:
        pause = self._interval
        while not self._stopping.wait(pause):
            began = time.monotonic()
            try:
                self._instance.poll()
                self._instance.tend()
                if self._failing:
                    _log.warning("%s is in reach again", self._instance.store.location)
                self._failing = False
                pause = max(self._interval, SHARE_OF_TIME * (time.monotonic() - began))
            except ClosedError:
                return
            except HbasemkError as error:
                if not self._failing:
                    _log.warning("background work on %s failed, trying again: %s", self._instance.store.location, error)
                self._failing = True
                pause = min(max(pause, 0.1) * 2, LONGEST_PAUSE)
