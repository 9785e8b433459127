"""Watches return all commits after the call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from hbasemk import InvalidPathError
from hbasemk.kernel import log
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.log import LogEntry
from hbasemk.repository import instance_of
from tests.support.repositories import Instances
from tests.support.watches import increments


def test_a_watch_returns_commits_after_the_call_even_before_its_first_poll(opened: Instances) -> None:
    repo = opened()
    watching = repo.watch("/", timeout=0.05)
    repo.run(lambda tx: tx.add("/a"), "first")
    assert [entry.message for entry in watching] == ["first"]
    with pytest.raises(InvalidPathError):
        repo.watch("no path")


def test_a_watch_without_background_polls_polls_before_its_timeout_ends_it(opened: Instances) -> None:
    """A caller that was busy for longer than the timeout, or a slow machine, missed what others had committed."""
    repo, other = opened(), opened()
    other.run(lambda tx: tx.add("/a", {"n": 0}), "before")
    repo.refresh()
    with repo.watch(timeout=0) as watch:
        increments(other, "first", "second")
        assert next(watch).message == "first"
        assert next(watch).message == "second"
        increments(other, "third")
        assert [entry.message for entry in watch] == ["third"]


def test_commits_of_others_do_not_delay_the_timeout(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a"), tx.add("/b", {"n": 0})))
    over = threading.Event()

    def commit() -> None:
        while not over.wait(0.01):
            repo.run(lambda tx: tx.increment("/b", "n"))

    other = threading.Thread(target=commit)
    other.start()
    try:
        assert list(repo.watch("/a", timeout=0.1)) == []
    finally:
        over.set()
        other.join()


@pytest.mark.parametrize("poll_interval", [0, 3600])
def test_commits_as_fast_as_the_watch_reads_them_do_not_keep_it_from_its_end(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, poll_interval: float
) -> None:
    repo = opened(poll_interval=poll_interval)
    repo.run(lambda tx: (tx.add("/a", {"n": 0}), tx.add("/b", {"n": 0})))
    entries = log.entries
    reads: list[int] = []

    def while_another_commits(instance: Instance, revisions: list[int]) -> Iterator[LogEntry]:
        reads.append(len(revisions))
        assert len(reads) < 50
        repo.run(lambda tx: tx.increment("/b", "n"))
        return entries(instance, revisions)

    monkeypatch.setattr(log, "entries", while_another_commits)
    with repo.watch("/a", timeout=0) as watch:
        increments(repo, "known")
        repo.run(lambda tx: tx.increment("/b", "n"))
        assert [entry.message for entry in watch] == ["known"]
    assert len(reads) <= 4


@pytest.mark.parametrize("poll_interval", [0, 0.02])
def test_a_watch_ends_without_an_error_when_the_repository_is_closed(opened: Instances, poll_interval: float) -> None:
    repo = opened(poll_interval=poll_interval)
    # Not in the thread, which may begin after the end of the repository on a slow machine.
    watching = repo.watch()
    ended: list[object] = []

    def watch() -> None:
        try:
            ended.append(list(watching))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    time.sleep(0.15)
    repo.close()
    thread.join(60)
    assert ended == [[]]


def test_an_arrival_between_two_reads_of_the_journal_is_returned_once(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, other = opened(), opened()
    known = Journal.known
    left = ["during"]

    def slow(journal: Journal) -> tuple[int, int, list[int]]:
        found = known(journal)
        if left and journal is instance_of(repo).journal:
            message = left.pop()
            other.run(lambda tx: tx.add("/c"), message)
            repo.refresh()
        return found

    watching = repo.watch("/", timeout=0.05)
    repo.run(lambda tx: tx.add("/b"), "before")
    monkeypatch.setattr(Journal, "known", slow)
    assert [entry.message for entry in watching] == ["before", "during"]
