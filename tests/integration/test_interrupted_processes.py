"""A committing process receives SIGINT at random moments, continues, and closes; SIGINT stops another one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hbasemk
from hbasemk import Settings
from hbasemk.repository import instance_of
from tests.support.hbase import HBase
from tests.support.interrupting import WHEN_ARMED, signals
from tests.support.repositories import Checked

SETTINGS = Settings(lease_ms=1000, max_clock_skew_ms=500)
INTERRUPTS = 60
LONGEST_PAUSE = 0.08
"""Seconds between two signals."""
WITHIN = 60.0
"""Seconds after which a test gives up; lease and skew are over after 1.5."""

GOES_ON = (
    WHEN_ARMED
    + """
import sys, threading, hbasemk
url, wanted = sys.argv[1], int(sys.argv[2])
if url.startswith("hbase:"):
    # With so few connections, calls soon wait forever if interrupts leak some.
    from urllib.parse import parse_qs, urlsplit
    from hbasemk.store.hbase import Address, HBaseStore
    parts = urlsplit(url)
    store = HBaseStore([Address(parts.hostname, parts.port)], prefix=parse_qs(parts.query)["prefix"][0], pool_size=3)
    repo = hbasemk.Repository(store, create=False, poll_interval=0.02)
else:
    repo = hbasemk.connect(url, create=False, poll_interval=0.02)
tried = [None]
def change(tx):
    tried[0] = tx
    # Read, so that some attempts stage and create their journal row at the same time, and some do not.
    if committed % 2:
        assert tx["/a", "n"] is not None
    tx.increment("/a", "n")
committed = interrupted = 0
print("begun", flush=True)
while interrupted < wanted:
    tried[0] = None
    try:
        armed[0] = True
        repo.run(change)
        armed[0] = False
        committed += 1
    except KeyboardInterrupt:
        interrupted += 1
        attempted = tried[0].attempted if tried[0] else None
        committed += attempted is not None and repo.outcome(attempted) is hbasemk.Outcome.COMMITTED
    armed[0] = False
install(signal.SIG_IGN)
print("enough", flush=True)
failed = []
def use():
    try:
        repo.run(lambda tx: tx.increment("/b", "n"))
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
print(committed, flush=True)
sys.stdin.readline()
repo.close()
"""
)

STOPS = """
import sys, hbasemk
acknowledged = 0
with hbasemk.connect(sys.argv[1], create=False, poll_interval=0.02) as repo:
    try:
        print("begun", flush=True)
        while True:
            repo.run(lambda tx: tx.increment("/a", "n"))
            acknowledged += 1
    except KeyboardInterrupt:
        print(acknowledged, flush=True)
        sys.exit(130)
"""


READY = """
import faulthandler, signal
# A process inherits that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGABRT prints where the process is.
faulthandler.enable()
"""


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    running = subprocess.Popen(
        [sys.executable, "-c", READY + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    return running


def ended(running: subprocess.Popen[str], sent: str | None = None) -> tuple[str, str]:
    """Return what a process has printed until its end; if it goes on, fail with its errors and its present place."""
    try:
        return running.communicate(sent, timeout=WITHIN)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGABRT)
        printed, errors = running.communicate()
        pytest.fail(f"the process did not end within {WITHIN:g} s; it printed {printed!r} and these errors:\n{errors}")


def until_nothing_is_pending(repository: hbasemk.Repository) -> None:
    deadline = time.monotonic() + WITHIN
    while repository.refresh() and instance_of(repository).journal.pending:
        assert time.monotonic() < deadline, "a revision stays pending"
        time.sleep(0.05)


def interrupt_everywhere(url: str) -> None:
    """Interrupt a writer many times, and then stop some with one signal each."""
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    with hbasemk.connect(url, poll_interval=0, settings=SETTINGS) as other:
        other.run(lambda tx: [tx.add("/a", {"n": 0}), tx.add("/b", {"n": 0})])
        with started(GOES_ON, url, str(INTERRUPTS)) as running:
            assert running.stdout is not None
            with signals(running, chance, LONGEST_PAUSE):
                enough = running.stdout.readline()
            committed = running.stdout.readline()
            if enough == "enough\n" and committed:
                # It lives and keeps its lease, so no other instance ends its pending revision.
                until_nothing_is_pending(other)
                assert other.head["/a"]["n"] == int(committed)
                assert other.head["/b"]["n"] == 8
            _, errors = ended(running, "\n")
        assert (running.returncode, errors) == (0, "")
        assert enough == "enough\n"
        print(f"{INTERRUPTS} interrupts, {int(committed)} commits")

        found = int(committed)
        for _ in range(3):
            with started(STOPS, url) as running:
                time.sleep(chance.random() * 0.3)
                running.send_signal(signal.SIGINT)
                printed, errors = ended(running)
            assert (running.returncode, errors) == (130, "")
            until_nothing_is_pending(other)
            now = other.head["/a"]["n"]
            assert isinstance(now, int)
            # All acknowledged commits, and possibly the interrupted one.
            assert int(printed) <= now - found <= int(printed) + 1
            found = now


@pytest.mark.slow
def test_on_one_sqlite_file(checked: Checked, tmp_path: Path) -> None:
    interrupt_everywhere(checked(f"sqlite:///{tmp_path / 'content.db'}?durable=no"))


@pytest.mark.integration
@pytest.mark.slow
def test_on_hbase(hbase: HBase, checked: Checked) -> None:
    interrupt_everywhere(checked(hbase.url(hbase.new_prefix())))
