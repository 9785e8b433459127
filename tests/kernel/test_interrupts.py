"""After an interruption at any point a repository polls, commits, forks and closes as before, without lost commits.

``HBASEMK_INTERRUPT_SECONDS`` bounds each test of all points (default 1 to 2.5; 0: every point, some minutes).
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hbasemk import ClosedError, Outcome, Repository, Transaction, connect
from hbasemk.maintenance import InlineMaintenance
from hbasemk.repository import instance_of
from hbasemk.transfer.files.entries import TOTALS, walk
from hbasemk.transfer.files.reader import FileReader, ReaderJob
from hbasemk.transfer.files.worker import Batch, Job, Worker
from tests.support import proof
from tests.support.interrupting import (
    SECONDS,
    WHEN_ARMED,
    Point,
    each_point,
    in_files,
    interrupted_at,
    points_of,
    signals,
)
from tests.support.repositories import Checked

FORK_EVERY = 8


class Subject:
    """A repository that is interrupted, and another instance that observes it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repo = connect(url, poll_interval=0.01)
        self.other = connect(url, poll_interval=0)
        self.repo.run(lambda tx: tx.add("/a", {"n": 0, "m": 0}))
        self.acknowledged = 0
        self.in_doubt = 0
        self.marks = 0
        self.branched = 0
        self.tried: Transaction | None = None

    def increment(self, tx: Transaction) -> None:
        self.tried = tx
        tx.increment("/a", "n")

    def commit(self) -> None:
        self.repo.run(self.increment)

    def transaction(self) -> None:
        with self.repo.transaction() as tx:
            self.increment(tx)

    def attempted_is_committed(self) -> bool:
        """Return what outcome() says about the interrupted transaction."""
        attempted = None if self.tried is None else self.tried.attempted
        return attempted is not None and self.repo.outcome(attempted) is Outcome.COMMITTED

    def poll(self) -> None:
        self.repo.refresh()

    def branch(self) -> None:
        branch = self.repo.branch()
        branch.run(lambda tx: tx.increment("/a", "n"))
        branch.merge()

    def serializable(self) -> None:
        def change(tx: Transaction) -> None:
            assert tx["/a", "m"] is not None
            self.increment(tx)

        self.repo.run(change, isolation="serializable")

    def opening(self) -> None:
        with connect(self.url, poll_interval=0.01):
            pass

    def watch(self) -> None:
        with self.repo.watch(timeout=0, since=self.repo.head) as watch:
            list(watch)

    def before(self, work: Callable[[], None]) -> None:
        """Create the preconditions of the work."""
        if work == self.poll:
            self.mark()

    def mark(self) -> None:
        self.other.run(lambda tx: tx.increment("/a", "m"))
        self.marks += 1

    def is_whole(self, fork: bool) -> None:
        """Assert that background polls, commits and forks work."""
        self.mark()
        marks = self.marks
        deadline = time.monotonic() + 60
        while self.repo.head["/a"]["m"] != marks:
            assert time.monotonic() < deadline, "it does not poll in the background any more"
            time.sleep(0.002)
        self.repo.run(lambda tx: tx.increment("/a", "n"))
        self.acknowledged += 1
        if fork:
            child = os.fork()
            if not child:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        count = self.other.refresh()["/a"]["n"]
        # The commit above has ended the remains of the interrupted call.
        assert not instance_of(self.other).journal.pending, "a revision of a living process stays pending"
        assert isinstance(count, int)
        while sum(thread.name == "hbasemk-poll" for thread in threading.enumerate()) > 1:
            assert time.monotonic() < deadline, "a repository that nothing refers to still polls"
            time.sleep(0.002)
        assert self.acknowledged <= count <= self.acknowledged + self.in_doubt
        self.in_doubt -= count - self.acknowledged
        self.acknowledged = count

    def close(self) -> None:
        self.repo.close()
        self.other.close()


@pytest.fixture(params=["sqlite", "memory"])
def subject_url(request: pytest.FixtureRequest, checked: Checked, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    # A fork that waits for a leaked connection, or a writer that waits for a leaked lock, waits forever.
    return checked(f"sqlite:///{tmp_path / 'content.db'}?busy_timeout=3600&durable=no")


@pytest.mark.slow
@pytest.mark.timeout(0 if not SECONDS else 300)
@pytest.mark.parametrize("seconds", proof.sizes("HBASEMK_INTERRUPT_SECONDS", 1, 2.5))
@pytest.mark.parametrize("name", ["commit", "transaction", "poll", "branch", "serializable", "watch", "opening"])
# A repository ends with this warning if an interrupt falls between its opening and the with block.
@pytest.mark.filterwarnings("ignore:a repository at:ResourceWarning")
def test_an_interruption_at_any_point_leaks_no_lock_or_connection(subject_url: str, name: str, seconds: float) -> None:
    subject = Subject(subject_url)
    work: Callable[[], None] = getattr(subject, name)
    alone = name in ("commit", "transaction", "serializable")
    writes = alone or name == "branch"
    try:
        points: list[Point] = []
        for _ in range(2):
            subject.before(work)
            points = list(dict.fromkeys([*points, *points_of(work)]))
            subject.acknowledged += writes
        tests = [0]

        def test(point: Point) -> None:
            subject.before(work)
            subject.tried = None
            if not interrupted_at(point, work):
                subject.acknowledged += writes
            elif alone:
                subject.acknowledged += subject.attempted_is_committed()
            else:
                subject.in_doubt += writes
            tests[0] += 1
            subject.is_whole(fork=tests[0] % FORK_EVERY == 0)

        each_point(points, test, seconds=seconds)
        subject.is_whole(fork=True)
    finally:
        subject.close()


@pytest.mark.slow
@pytest.mark.timeout(0 if not SECONDS else 300)
# Python closes it immediately if an interrupt falls between the call and its with block.
@pytest.mark.filterwarnings("ignore:unclosed scandir iterator:ResourceWarning")
def test_an_import_worker_works_after_an_interruption_at_any_point(checked: Checked, tmp_path: Path) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}?busy_timeout=3600&durable=no")
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").write_text("0")
    job = Job(url, str(top), "/top", 60.0)
    with connect(url, poll_interval=0) as other:
        other.run(lambda tx: tx.add("/top", dict.fromkeys(TOTALS, 0)))
        with contextlib.ExitStack() as stack:

            def reader() -> FileReader:
                return stack.enter_context(FileReader.forked(ReaderJob(url, str(top), job.limit), []))

            worker = Worker(job, reader())
            stack.callback(worker.repository.close)
            number = [0]

            def work() -> None:
                number[0] += 1
                (top / "file").write_text(str(number[0]))
                worker.do(Batch(number[0], entries=list(walk(str(top), (), lambda _: None))))

            points = list(dict.fromkeys([*points_of(work), *points_of(work)]))

            def test(point: Point) -> None:
                if interrupted_at(point, work):
                    # A worker ignores SIGINT. A request to its reader may be unanswered.
                    worker._reader = reader()
                work()
                other.run(lambda tx: tx.set("/", "n", number[0]))

            each_point(points, test)


SCRIPT = (
    WHEN_ARMED
    + """
import os, sys, hbasemk

def unraisable(found):
    # Python ignores an interrupt in a callback of a weak reference. The handler is disarmed then, and the call goes on.
    if found.exc_type is not KeyboardInterrupt or getattr(found.object, "__module__", "") != "weakref":
        sys.__unraisablehook__(found)

sys.unraisablehook = unraisable
repo = hbasemk.connect(sys.argv[1], poll_interval=0.005)
other = hbasemk.connect(sys.argv[1], poll_interval=0)
acknowledged = interrupted = 0
print("begun", flush=True)
while interrupted < 300:
    try:
        armed[0] = True
        repo.run(lambda tx: tx.increment("/a", "n"))
        acknowledged += 1
        repo.refresh()
        branch = repo.branch()
        branch.run(lambda tx: tx.increment("/a", "m"))
        try:
            branch.merge()
        except hbasemk.ConflictError:
            pass
        armed[0] = False
    except KeyboardInterrupt:
        # The handler has disarmed itself, so no signal interrupts the code outside of this block.
        interrupted += 1
print("enough", flush=True)
install(signal.SIG_IGN)
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
found = other.refresh()["/a"]["n"]
assert acknowledged <= found <= acknowledged + interrupted, (acknowledged, found, interrupted)
other.run(lambda tx: tx.set("/", "mark", 1))
while repo.head["/"].get("mark") != 1:
    pass
repo.run(lambda tx: tx.increment("/a", "n"))
repo.close()
other.close()
print("whole", acknowledged, flush=True)
"""
)


@pytest.mark.skipif(
    (3, 14) <= sys.version_info < (3, 15),
    reason="an interrupt in Python 3.14 may leave a lock locked (https://github.com/python/cpython/issues/148874)",
)
def test_real_signals_leak_no_lock_or_connection(checked: Checked, tmp_path: Path) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}?busy_timeout=3600&durable=no")
    seed = random.randrange(10**6)
    print("seed", seed)
    with connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0, "m": 0}))
    with subprocess.Popen(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", SCRIPT, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        with signals(running, random.Random(seed), longest_pause=0.01):
            enough = running.stdout.readline()
        output, errors = running.communicate(timeout=200)
    assert (enough, errors) == ("enough\n", "")
    assert output.startswith("whole")


def test_an_interruption_of_inline_maintenance_leaves_its_lock_free(tmp_path: Path) -> None:
    with connect(f"memory://{tmp_path.name}", poll_interval=0) as repo:
        maintain = InlineMaintenance(instance_of(repo))

        def test(point: Point) -> None:
            interrupted_at(point, maintain)
            assert not maintain._lock.locked()

        each_point(points_of(maintain), test, in_files("maintenance.py"), seconds=2)


@pytest.mark.slow
def test_a_second_close_finishes_what_an_interruption_left_of_the_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'content.db'}?durable=no"
    connect(url).close()

    def opened() -> Repository:
        return connect(url, poll_interval=0.01)

    def test(point: Point) -> None:
        repo = opened()
        interrupted_at(point, repo.close)
        repo.close()
        for thread in threading.enumerate():
            if thread.name == "hbasemk-poll":
                # Closing waits a second at most; a thread of a slow machine may need longer.
                thread.join(60)
                assert not thread.is_alive()
        with pytest.raises(ClosedError):
            repo.store.read("nodes", [])

    each_point(points_of(opened().close), test, in_files("repository.py", "maintenance.py"), seconds=SECONDS)
