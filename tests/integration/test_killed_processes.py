"""Writers are killed with SIGKILL at their store calls; a process that only polls cleans up after them.

At every call of a commit, and at every third of a branch's life; ``HBASEMK_TEST_KILL_EVERY=1`` takes all of that too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import hbasemk
from hbasemk import Settings
from hbasemk.repository import instance_of
from tests.support import killed
from tests.support.hbase import HBase
from tests.support.repositories import problems, tree

SETTINGS = Settings(lease_ms=1000, max_clock_skew_ms=500)
MOST = 100
EVERY = {"change": 1, "merge": int(os.environ.get("HBASEMK_TEST_KILL_EVERY", "3"))}
RETRY_TIMEOUT = 60.0
"""Seconds after which a test gives up; lease and skew are over after 1.5."""


def kill_everywhere(url: str, action: str) -> None:
    """Kill a process before and after each store call of an action, while another one only polls."""
    calls = range(0, MOST, EVERY[action])
    places = [f"/{when}{number}" for number in calls for when in ("before", "after")]
    with hbasemk.connect(url, poll_interval=0, settings=SETTINGS) as first, first.transaction() as tx:
        for place in places:
            killed.prepare(tx, place)
    with hbasemk.connect(url, create=False, poll_interval=0.05) as watcher:
        points = done = 0
        for number in calls:
            pair = (("before", f"/before{number}"), ("after", f"/after{number}"))
            gone = [killed.run(url, action, place, number, when) for when, place in pair]
            head = watcher.refresh()
            done += sum(killed.happened(head, place) for _, place in pair)
            points += sum(gone)
            if not any(gone):
                break
        else:
            pytest.fail(f"{action} has more than {MOST} store calls")
        deadline = time.monotonic() + RETRY_TIMEOUT
        while time.monotonic() < deadline and (instance_of(watcher).journal.pending or problems(watcher)):
            time.sleep(0.2)
        assert not instance_of(watcher).journal.pending
        assert problems(watcher) == []
        assert not instance_of(watcher).lease.held
        with hbasemk.connect(url, create=False, poll_interval=0) as fresh:
            assert tree(fresh) == tree(watcher)
            # Visible commits stay, and no commit appears after its writer's death.
            assert sum(killed.happened(fresh.head, place) for place in places) == done
            fresh.run(lambda tx: tx.set("/", "goes", "on"))
    print(
        f"{action}: {points} processes killed; {done} had decided their commits, those that lived to the end included"
    )


@pytest.mark.slow
@pytest.mark.parametrize("action", killed.ACTIONS)
def test_on_one_sqlite_file(action: str, tmp_path: Path) -> None:
    kill_everywhere(f"sqlite:///{tmp_path / 'content.db'}", action)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("action", killed.ACTIONS)
def test_on_hbase(action: str, hbase: HBase) -> None:
    kill_everywhere(hbase.url(hbase.new_prefix()), action)
