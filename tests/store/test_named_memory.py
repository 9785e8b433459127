"""Handles on named stores: interrupted closes, and opens beside a fork."""

from __future__ import annotations

import os
import threading

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store import atfork
from hbasemk.store.abc import ALL_VERSIONS, Table
from hbasemk.store.atfork import ForkSafeLock
from hbasemk.store.named_memory import NamedStore, NamedStores
from tests.support.interrupting import in_files, interrupted_at, place, points_of

TABLE = Table("t", (b"d",), ALL_VERSIONS)


def two_handles() -> tuple[NamedStores, NamedStore, NamedStore]:
    stores = NamedStores()
    first, second = stores.open("name"), stores.open("name")
    first.create_tables([TABLE])
    return stores, first, second


@pytest.mark.parametrize("closed_before", [0, 1])
def test_an_interruption_of_a_close_changes_nothing_for_other_handles(closed_before: int) -> None:
    def before() -> tuple[NamedStores, NamedStore, NamedStore]:
        stores, *handles = two_handles()
        if closed_before:
            handles.pop().close()
        return stores, handles[0], handles[-1]

    points = points_of(before()[1].close)
    assert len(points) > 3
    for point in points:
        stores, handle, other = before()
        assert interrupted_at(point, handle.close), place(point)
        handle.close()
        if not closed_before:
            third = stores.open("name")
            third.verify([TABLE])
            third.close()
            other.verify([TABLE])
            other.close()
        with pytest.raises(StoreUnusableError):
            stores.open("name").verify([TABLE])


def test_an_interrupted_open_keeps_no_store() -> None:
    points = points_of(lambda: NamedStores().open("name").close(), lambda point: point[0].co_name == "open")
    assert len(points) > 2
    for point in points:
        stores = NamedStores()
        if not interrupted_at(point, lambda stores=stores: stores.open("name")):  # type: ignore[misc]
            continue
        assert stores._open == {}, place(point)


def test_the_hooks_of_a_fork_are_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a fork would wait for itself."""
    registered: list[object] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: registered.append(hooks))
    lock = ForkSafeLock()

    def first() -> None:
        monkeypatch.setattr(atfork, "_hooked", False)
        atfork.register(lock)

    points = points_of(first, in_files("store/atfork.py"))
    assert len(points) > 2
    for point in points:
        del registered[:]
        interrupted_at(point, first)
        atfork.register(lock)
        assert len(registered) == 1, place(point)


def test_a_thread_that_opens_a_store_during_a_fork_holds_no_lock_that_the_fork_waits_for() -> None:
    stores = NamedStores()
    opening = threading.Thread(target=lambda: stores.open("name"), daemon=True)
    # A fork holds this lock while it waits for the locks of all stores.
    with atfork._lock:
        opening.start()
        opening.join(0.2)
        assert opening.is_alive()
        lock = stores._fork_safe.lock
        assert lock.acquire(timeout=5)
        lock.release()
    opening.join(60)
    assert not opening.is_alive()
