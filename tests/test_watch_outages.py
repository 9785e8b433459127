"""A watch continues through outages."""

from __future__ import annotations

import copy
import threading
import time

import pytest

from hbasemk import (
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    Watch,
    maintenance,
)
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Checked
from tests.support.watches import increments


class Outage:
    """Lets the calls of one store fail while it lasts."""

    def __init__(self, store: FaultyStore) -> None:
        self.lasts = False
        self.refused = 0
        store.before = self

    def __call__(self, call: Call) -> None:
        if self.lasts:
            self.refused += 1
            error = StoreNotAppliedError if self.refused % 2 else StoreUnknownError
            raise error(f"an outage, in {call.method}")


@pytest.mark.parametrize("poll_interval", [0, 0.01])
def test_a_watch_survives_outages(checked: Checked, poll_interval: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this, background polls pause for five seconds after each failed one.
    monkeypatch.setattr(maintenance, "LONGEST_PAUSE", 0.1)
    store = checked(MemoryStore())
    watched = FaultyStore(copy.copy(store))
    with Repository(store, poll_interval=0) as writer, Repository(watched, poll_interval=poll_interval) as repo:
        writer.run(lambda tx: tx.add("/a", {"n": 0}))
        repo.refresh()
        outage = Outage(watched)
        got: list[str] = []
        names = [str(number) for number in range(12)]

        def follow(watch: Watch) -> None:
            got.extend(entry.message for entry in watch)

        with repo.watch() as watch:
            following = threading.Thread(target=follow, args=(watch,))
            following.start()
            for number, name in enumerate(names):
                outage.lasts = number % 3 == 1
                increments(writer, name)
                until = outage.refused + 3
                while outage.lasts and outage.refused < until:
                    time.sleep(0.01)
            outage.lasts = False
            while len(got) < len(names) and following.is_alive():
                time.sleep(0.01)
            watch.close()
            following.join(60)
        assert got == names
        assert outage.refused


def test_an_outage_while_entries_are_read_ends_nothing(checked: Checked) -> None:
    store = checked(MemoryStore())
    watched = FaultyStore(copy.copy(store))
    with Repository(store, poll_interval=0) as writer, Repository(watched, poll_interval=0) as repo:
        writer.run(lambda tx: tx.add("/a", {"n": 0}))
        with repo.watch(timeout=60, since=repo.refresh()) as watch:
            increments(writer, "1", "2")
            repo.refresh()
            left = [StoreUnknownError("lost")] * 9

            def fail(call: Call) -> None:
                if left:
                    raise left.pop()

            watched.before = fail
            assert [next(watch).message, next(watch).message] == ["1", "2"]
            assert not left


def test_a_watch_ends_at_its_timeout_during_an_outage(real_store: MemoryStore) -> None:
    watched = FaultyStore(real_store)
    with Repository(watched, poll_interval=0) as repo:
        outage = Outage(watched)
        outage.lasts = True
        assert list(repo.watch(timeout=0.3)) == []
        assert outage.refused
        outage.lasts = False


def test_other_errors_are_raised_and_the_watch_continues_after_them(real_store: MemoryStore) -> None:
    watched = FaultyStore(real_store)
    with Repository(watched, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        with repo.watch(timeout=0.05) as watch:
            increments(repo, "1")

            def fail(call: Call) -> None:
                watched.before = lambda _: None
                raise ZeroDivisionError(call.method)

            watched.before = fail
            with pytest.raises(ZeroDivisionError):
                next(watch)
            assert [entry.message for entry in watch] == ["1"]
