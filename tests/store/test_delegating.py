"""Stores that wrap another store: what they remember of it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Limits
from hbasemk.store.memory import MemoryStore
from tests.support.forked import in_a_child
from tests.support.runtime import TestRuntime, World

LONGEST = 20
"""Seconds after which a child that hangs is killed."""


class SlowToAnswer(MemoryStore):
    """A store whose limits take a while to find out."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()
        self.times = 0

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        self.times += 1
        self.asked.set()
        assert self.answer.wait(LONGEST)
        return Limits()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_fork_while_another_thread_asks_for_the_limits_of_a_store(world: World) -> None:
    slow, runtime = SlowToAnswer(), TestRuntime(world)
    asking = threading.Thread(target=lambda: RetryingStore(slow, runtime).limits)
    asking.start()
    assert slow.asked.wait(LONGEST)

    def work() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST)
        assert RetryingStore(MemoryStore(), runtime).limits == Limits()

    try:
        in_a_child(work)
    finally:
        slow.answer.set()
        asking.join()


def test_the_limits_of_a_store_are_read_once(world: World) -> None:
    slow = SlowToAnswer()
    slow.answer.set()
    store = RetryingStore(slow, TestRuntime(world))
    assert store.limits == store.limits == Limits()
    assert slow.times == 1
