"""The aborted revisions that wait for a sweep are shared by threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Barrier

import pytest

from hbasemk.kernel.journal.unswept import Unswept
from hbasemk.system import SystemRuntime

REVISIONS = 500
ROUNDS = 400


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_a_poll_and_a_sweep_may_remove_revisions_at_the_same_time() -> None:
    unswept = Unswept(SystemRuntime())
    for revision in range(REVISIONS):
        unswept.add(revision)
    both = Barrier(2, timeout=60)

    def poll() -> None:
        both.wait()
        for _ in range(ROUNDS):
            unswept.remove_up_to(-1)

    def sweep() -> None:
        both.wait()
        for revision, _ in zip(cycle(range(REVISIONS)), range(20 * ROUNDS), strict=False):
            unswept.remove(revision)
            unswept.add(revision)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(poll), threads.submit(sweep)]:
            done.result()

    assert unswept.waiting_for(0.0) == list(range(REVISIONS))
