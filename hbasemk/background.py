"""What goes on besides the calls that users make: polling, renewing the lease, ending loose ends; and the end of it.

One thread of an opened repository does it, or, where there shall be none, a call now and then. Errors do not end it: it
tries again, more slowly, and says so once; the calls that users make raise them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from hbasemk.errors import ClosedError, HbasemkError
from hbasemk.kernel.calls import time_limit
from hbasemk.kernel.instance import Instance

NO_PATIENCE: Final = 0.0
"""Background work that fails is done again later, so that it holds nothing up meanwhile."""
LONGEST_PAUSE: Final = 5.0
SHARE_OF_TIME: Final = 5
"""Polling pauses this many times as long as the last poll took, but no longer than :data:`LONGEST_REST`."""
LONGEST_REST: Final = 1.0
"""Seconds that polling pauses after a slow poll; one that hung in an outage must not keep it silent afterwards."""

_log = logging.getLogger("hbasemk")


def within(seconds: float, call: Callable[[], object]) -> None:
    """Make a call, and leave it to itself when it has not ended in time; what it raises until then is raised."""
    raised: list[BaseException] = []
    left = threading.Event()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            if left.is_set():
                _log.debug("what was left to itself ended: %s", error)
            raised.append(error)

    thread = threading.Thread(target=work, name="hbasemk-close", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter is about to end and starts no more threads.
        call()
        return
    thread.join(seconds)
    if thread.is_alive():
        left.set()
        return
    if raised:
        raise raised[0]


def rest(interval: float, took: float) -> float:
    """The seconds to pause after a poll that took so many; never less than the interval."""
    return max(interval, min(SHARE_OF_TIME * took, LONGEST_REST))


class _Trouble:
    """Tells once that work failed, and once that it goes on."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._told = False

    def met(self, error: HbasemkError) -> None:
        """The work failed."""
        if not self._told:
            _log.warning("background work on %s failed, trying again: %s", self._location, error)
        self._told = True

    def over(self) -> None:
        """The work was done."""
        if self._told:
            _log.warning("%s is in reach again", self._location)
        self._told = False


class OnDemand:
    """Tends one instance each time that it is called, in the caller's thread and one thread at a time."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lock = threading.Lock()
        self._trouble = _Trouble(instance.store.location)

    def __call__(self) -> None:
        """Tend now, unless another thread does. What fails is for the next time; the call that came by has succeeded."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            with time_limit(self._instance.runtime, NO_PATIENCE):
                self._instance.tend()
            self._trouble.over()
        except ClosedError:
            return
        except HbasemkError as error:
            self._trouble.met(error)
        finally:
            self._lock.release()


class Background:
    """Polls one instance every ``interval`` seconds until it is stopped. Started by its first use."""

    def __init__(self, instance: Instance, interval: float) -> None:
        self._instance = instance
        self._interval = interval
        self._stopping = threading.Event()
        self._trouble = _Trouble(instance.store.location)
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
                with time_limit(self._instance.runtime, NO_PATIENCE):
                    self._instance.poll()
                    self._instance.tend()
                self._trouble.over()
                pause = rest(self._interval, time.monotonic() - began)
            except ClosedError:
                return
            except HbasemkError as error:
                self._trouble.met(error)
                pause = min(max(pause, 0.1) * 2, LONGEST_PAUSE)
