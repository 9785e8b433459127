"""What an instance knows of the horizon never goes back, whichever threads learn it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hbasemk.kernel.journal.fence import GRACE, Fence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.memory import MemoryStore
from hbasemk.system import SystemRuntime

LEAST = 0.2
"""Seconds for which a thread lets another one go first. A shorter time could only make a test succeed by mistake."""


class _Interrupted:
    """Lets another thread run once, in the middle of a comparison."""

    def __init__(self, other: Callable[[], object]) -> None:
        self._other = other
        self.threads: list[threading.Thread] = []

    def __call__(self) -> None:
        if not self.threads:
            self.threads.append(threading.Thread(target=self._other))
            self.threads[0].start()
            self.threads[0].join(LEAST)

    def join(self) -> None:
        for thread in self.threads:
            thread.join()


class _Horizon(int):
    pause: Callable[[], None]

    def __gt__(self, other: int) -> bool:
        greater = super().__gt__(other)
        self.pause()
        return greater


class _Moment(float):
    pause: Callable[[], None]

    def __sub__(self, seconds: float) -> _Moment:
        earlier = _Moment(super().__sub__(seconds))
        earlier.pause = self.pause
        return earlier

    def __ge__(self, other: float) -> bool:
        passed = super().__ge__(other)
        self.pause()
        return passed


class _Clock(SystemRuntime):
    moment = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.monotonic = lambda: self.moment


def _fence(runtime: SystemRuntime) -> Fence:
    return Fence(RetryingStore(MemoryStore(transactions=True), runtime), runtime, 5)


def test_a_thread_that_has_read_an_older_horizon_does_not_replace_the_newer_one() -> None:
    fence = _fence(SystemRuntime())
    older = _Horizon(10)
    older.pause = pause = _Interrupted(lambda: fence.learn(12, 0.0))
    fence.learn(older, 0.0)
    pause.join()
    assert fence.horizon == 12


def test_two_threads_may_look_up_the_known_horizon_at_the_same_time() -> None:
    runtime = _Clock()
    fence = _fence(runtime)
    runtime.moment = 1.0
    fence.learn(10, 0.0)
    moment = _Moment(2.0 + GRACE)
    moment.pause = pause = _Interrupted(lambda: fence.known_horizon)
    runtime.moment = moment
    assert fence.known_horizon == 10
    pause.join()
    assert fence.known_horizon == 10
