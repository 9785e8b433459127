"""Large work delays Python's garbage collector, and leaves its thresholds as they were."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import Repository, StoreNotAppliedError
from hbasemk.kernel.garbage import RARELY, collected_rarely
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer.exporter import write_json
from tests.support.repositories import problems

USUAL = (700, 10, 10)
WRITES = ("write", "write_if", "check_and_write")


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def repo(store: FaultyStore) -> Iterator[Repository]:
    with Repository(store, poll_interval=0) as repo:
        yield repo
        store.before = None
        assert problems(repo) == []


def seen_by(store: FaultyStore) -> set[tuple[int, int, int]]:
    """Return a set to which each later write adds the thresholds at that moment."""
    seen: set[tuple[int, int, int]] = set()
    store.before = lambda call: seen.add(gc.get_threshold()) if call.method in WRITES else None
    return seen


@pytest.mark.parametrize("place", ["trunk", "branch"])
def test_a_commit_delays_the_collector(store: FaultyStore, repo: Repository, place: str) -> None:
    writer = repo.branch() if place == "branch" else repo
    writer.run(lambda tx: tx.add("/a"))
    seen = seen_by(store)
    writer.run(lambda tx: tx.add("/b"))
    assert seen == {(RARELY, *USUAL[1:])}
    assert gc.get_threshold() == USUAL


def test_an_export_delays_the_collector(store: FaultyStore, repo: Repository, tmp_path: Path) -> None:
    repo.run(lambda tx: tx.add("/a", {"n": 1}))
    seen: set[tuple[int, int, int]] = set()
    store.before = lambda _: seen.add(gc.get_threshold())
    with Repository(store, poll_interval=0, owns_store=False) as reader:
        head = reader.head
        seen.clear()
        write_json(head, "/", tmp_path / "all.json")
    assert seen == {(RARELY, *USUAL[1:])}
    assert gc.get_threshold() == USUAL


def test_a_failed_commit_restores_the_thresholds(store: FaultyStore, repo: Repository) -> None:
    def fail(call: Call) -> None:
        if call.method in WRITES:
            raise StoreNotAppliedError("the store is temporarily unavailable")

    store.before = fail
    with pytest.raises(StoreNotAppliedError):
        repo.run(lambda tx: tx.add("/a"), retry_timeout=0)
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("first", [0, RARELY, 2 * RARELY])
def test_a_threshold_of_the_application_that_is_rarer_stays(store: FaultyStore, repo: Repository, first: int) -> None:
    gc.set_threshold(first, *USUAL[1:])
    seen = seen_by(store)
    repo.run(lambda tx: tx.add("/a"))
    assert seen == {(first, *USUAL[1:])}
    assert gc.get_threshold() == (first, *USUAL[1:])


def test_a_threshold_that_is_set_meanwhile_stays() -> None:
    collected_rarely(gc.set_threshold)(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_the_first_of_two_commits_to_end_restores_the_thresholds() -> None:
    inner = collected_rarely(gc.get_threshold)
    assert collected_rarely(lambda: (inner(), gc.get_threshold()))() == ((RARELY, *USUAL[1:]),) * 2
    assert gc.get_threshold() == USUAL
