"""A watch resumes in later processes, and can be stopped from any thread."""

from __future__ import annotations

import _thread
import copy
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from hbasemk import (
    BranchError,
    InvalidRevisionError,
    Repository,
    UnknownRevisionError,
    Watch,
    connect,
)
from hbasemk.errors import ClosedError
from hbasemk.kernel import periodic_work
from hbasemk.kernel.journal import journal, known_revisions
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.watch import Watch as _Watch
from tests.support.interrupting import measures_coverage
from tests.support.repositories import Checked, Instances
from tests.support.watches import increments


@pytest.fixture
def pair(opened: Instances) -> tuple[Repository, Repository]:
    """Two instances on one repository."""
    return opened.pair(lambda tx: tx.add("/a", {"n": 0}), "begin")


def test_a_later_watch_resumes_where_an_earlier_one_ended(pair: tuple[Repository, Repository]) -> None:
    one, two = pair
    with one.watch(timeout=0.05) as watch:
        assert watch.revision is None
        increments(one, "1", "2", "3")
        assert [next(watch).message, next(watch).message] == ["1", "2"]
        token, last = watch.resume_token, watch.revision
    increments(two, "4")
    assert last is not None
    assert [entry.message for entry in two.watch(timeout=0.05, since=token)] == ["3", "4"]
    assert [entry.message for entry in two.watch(timeout=0.05, since=last)] == ["3", "4"]
    assert [entry.message for entry in two.watch(timeout=0.05, since=one.at(last))] == ["3", "4"]


def test_a_revision_that_one_instance_saw_late_is_not_missed_elsewhere(pair: tuple[Repository, Repository]) -> None:
    one, two = pair
    with one.watch(timeout=0.05) as watch:
        increments(two, "lower id")
        # This instance has a higher id in its sequence before it sees the lower one.
        one.transaction(base=one.head)
        with one.transaction("higher id", base=one.head) as tx:
            tx.add("/b")
        if instance_of(one).store.supports_transactions:
            # All instances have one order, that of the commits.
            assert next(watch).message == "lower id"
            token = watch.resume_token
            missing = "higher id"
        else:
            assert next(watch).message == "higher id"
            token = watch.resume_token
            missing = "lower id"
    assert [entry.message for entry in two.watch(timeout=0.05, since=token)] == [missing]


def test_a_token_advances_past_commits_outside_of_the_path(pair: tuple[Repository, Repository]) -> None:
    one, _ = pair
    with one.watch("/b", timeout=0.05) as watch:
        increments(one, "1")
        assert list(watch) == []
        token = watch.resume_token
    assert list(one.watch(timeout=0.05, since=token)) == []


def test_a_token_outlives_its_repository_object(url: str) -> None:
    with connect(url) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        watch = repo.watch()
    token = watch.resume_token
    assert list(watch) == []
    with connect(url) as repo:
        increments(repo, "1")
        assert [entry.message for entry in repo.watch(timeout=0.05, since=token)] == ["1"]


def test_an_old_token_reads_the_journals_table(opened: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_revisions, "KEPT", 3)
    monkeypatch.setattr(periodic_work, "ADVANCE_AFTER", 5)
    monkeypatch.setattr(journal, "SCAN_BATCH", 4)
    one = opened()
    one.run(lambda tx: tx.add("/a", {"n": 0}))
    token = one.watch().resume_token
    names = [str(number) for number in range(30)]
    increments(one, *names)
    instance_of(one).recovery.advance()
    fresh = opened()
    assert instance_of(fresh).journal.floor > instance_of(one).journal.floor - 1
    assert [entry.message for entry in fresh.watch(timeout=0.05, since=token)] == names


@pytest.mark.parametrize("wrong", ["", "w1.", "w1.%%%", "w1.AAAAAAAAAAAAAAAAAAAAAA", "nonsense", "w2.AAAA", "ä" * 20])
def test_a_text_that_is_not_a_token_is_rejected(opened: Instances, wrong: str) -> None:
    with pytest.raises(InvalidRevisionError, match="resume token"):
        opened().watch(since=wrong)


def test_a_token_that_is_truncated_or_of_another_repository_is_rejected(pair: tuple[Repository, Repository]) -> None:
    one, _ = pair
    increments(one, "1", "2")
    token = one.watch().resume_token
    for damaged in (token[:-3], token[:-1], token[:10] + "AA" + token[12:], token + "AAAA", token.upper()):
        with pytest.raises(InvalidRevisionError):
            one.watch(since=damaged)
    with Repository(MemoryStore(), poll_interval=0) as other:
        with pytest.raises(InvalidRevisionError, match="another repository"):
            other.watch(since=token)
        with pytest.raises(ValueError, match="same repository"):
            one.watch(since=other.head)


def test_a_token_with_revisions_that_a_backup_lacks_is_rejected(checked: Checked) -> None:
    store = checked(MemoryStore())
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        backup = store.clone()
        increments(repo, "1")
        token = repo.watch().resume_token
    with Repository(backup, poll_interval=0) as restored, pytest.raises(UnknownRevisionError, match="backup"):
        restored.watch(since=token)


def test_a_watch_rejects_starting_points_outside_of_trunk(opened: Instances) -> None:
    repo = opened()
    branch = repo.branch()
    with pytest.raises(BranchError):
        repo.watch(since=branch.revision)
    with pytest.raises(BranchError):
        repo.watch(since=branch.head)
    with pytest.raises(UnknownRevisionError):
        repo.watch(since="00000000000ff000")
    with pytest.raises(TypeError, match="since"):
        repo.watch(since=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("poll_interval", [0, 0.02])
def test_a_watch_is_stopped_from_another_thread(opened: Instances, poll_interval: float) -> None:
    repo = opened(poll_interval=poll_interval)
    watch = repo.watch()
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(list(watch)))
    thread.start()
    time.sleep(0.05)
    watch.close()
    watch.close()
    thread.join(60)
    assert ended == [[]]
    with repo.watch() as other:
        other.close()
        assert list(other) == []
    assert repo.refresh()


def test_a_watch_is_stopped_by_a_signal_handler(opened: Instances) -> None:
    repo = opened(poll_interval=0.02)
    watch = repo.watch()

    def stop(number: int, frame: object) -> None:
        watch.close()

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)).start()
        assert list(watch) == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_store_that_other_code_closed_is_an_error(real_store: MemoryStore) -> None:
    store = copy.copy(real_store)
    repo = Repository(store, poll_interval=0)
    watch = repo.watch()
    store.close()
    with pytest.raises(ClosedError):
        list(watch)
    repo.close()
    assert list(watch) == []


# Python drops an interrupt that a callback of garbage collection or of a weak reference raises, and warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_watch_returns_each_revision_once(pair: tuple[Repository, Repository]) -> None:
    one, two = pair
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    names = [str(number) for number in range(300)]
    watch = one.watch()
    increments(two, *names)
    one.refresh()
    got: list[str] = []
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(chance.random() * 0.03):
            _thread.interrupt_main()

    armed = [False]

    def spend() -> None:
        sum(range(20_000))

    def handle(number: int, frame: FrameType | None) -> None:
        if armed[0] and not measures_coverage(frame):
            armed[0] = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        while len(got) < len(names):
            try:
                armed[0] = True
                for entry in watch:
                    got.append(entry.message)
                    if len(got) == len(names):
                        break
                    spend()
                armed[0] = False
            except KeyboardInterrupt:
                continue
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert got == names


@pytest.fixture
def process(url: str) -> Iterator[list[str]]:
    """The command line of a watch in its own process."""
    with connect(url) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}), "begin")
    return [sys.executable, "-m", "hbasemk", "--url", url, "watch"]


def test_the_command_prints_where_to_resume(process: list[str], url: str) -> None:
    with subprocess.Popen([*process, "-n", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        with connect(url, poll_interval=0) as repo:
            deadline = time.monotonic() + 120
            for number in itertools.count():
                # At least one commit follows the two that the command has printed.
                ended = running.poll() is not None
                increments(repo, str(number))
                if ended:
                    break
                assert time.monotonic() < deadline, "the command does not end"
                time.sleep(0.05)
        shown, stderr = running.communicate(timeout=60)
    assert running.returncode == 0
    messages = [int(line.split("\t")[3]) for line in shown.splitlines()]
    assert len(messages) == 2
    token = stderr.strip().rpartition(" ")[2]
    rest_of = subprocess.run(
        [*process, "--since", token, "-n", "1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert rest_of.stdout.strip().split("\t")[3] == str(messages[1] + 1)
    # A revision that an earlier process printed is accepted, too.
    last = shown.splitlines()[-1].split("\t")[0]
    since_revision = subprocess.run(
        [*process, "--since", last, "-n", "1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert since_revision.stdout == rest_of.stdout
    wrong = subprocess.run([*process, "--since", token[:-2]], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_a_watch_is_exported() -> None:
    assert Watch is _Watch
