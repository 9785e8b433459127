"""Closing a repository always ends, and releases the lease if the store permits it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hbasemk import Repository, StoreUnusableError, connect
from hbasemk.errors import ClosedError
from hbasemk.format import schema
from hbasemk.format.lease_record import record_of
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Checked


def test_closing_releases_the_lease(real_store: MemoryStore) -> None:
    repo = Repository(real_store, poll_interval=0, owns_store=False)
    repo.run(lambda tx: tx.add("/a"))
    lease = instance_of(repo).lease
    end, machine = lease.end, lease.machine
    repo.close()
    found = record_of(real_store.read(schema.CLUSTER, [Get(schema.machine_key(machine))])[0])
    assert found is not None
    assert found.end < end


def test_closing_does_not_wait_for_a_store_that_hangs_during_the_release(
    real_store: MemoryStore,
) -> None:
    store = FaultyStore(real_store)
    repo = Repository(store, poll_interval=0)
    repo.run(lambda tx: tx.add("/a"))
    let_go = threading.Event()

    def hang(call: Call) -> None:
        if call.table == schema.CLUSTER:
            let_go.wait(600)

    store.before = hang
    closing = threading.Thread(target=repo.close, daemon=True)
    closing.start()
    closing.join(60)
    ended = not closing.is_alive()
    let_go.set()
    assert ended
    with pytest.raises(ClosedError):
        store.inner.read(schema.CLUSTER, [])


def test_close_raises_damage_and_still_closes_the_store(real_store: MemoryStore) -> None:
    store = FaultyStore(real_store)
    repo = Repository(store, poll_interval=0)
    repo.run(lambda tx: tx.add("/a"))

    def fail(call: Call) -> None:
        raise ZeroDivisionError(f"a bug in {call.method}")

    store.before = fail
    with pytest.raises(ZeroDivisionError):
        repo.close()
    repo.close()
    with pytest.raises(ClosedError):
        store.inner.read(schema.CLUSTER, [])


def test_close_ignores_an_unusable_store(real_store: MemoryStore) -> None:
    store = FaultyStore(real_store)
    repo = Repository(store, poll_interval=0)
    repo.run(lambda tx: tx.add("/a"))

    def fail(call: Call) -> None:
        raise StoreUnusableError(f"no {call.method} any more")

    store.before = fail
    repo.close()


def test_a_repository_can_be_closed_when_the_interpreter_ends(url: str) -> None:
    script = """
import atexit, sys, hbasemk
from hbasemk.repository import instance_of
repo = hbasemk.connect(sys.argv[1], poll_interval=0)
repo.run(lambda tx: tx.add("/a"))
machine, end = instance_of(repo).lease.machine, instance_of(repo).lease.end
atexit.register(lambda: (repo.close(), print(machine, end)))
"""
    ran = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    machine, end = map(int, ran.stdout.split())
    with connect(url, poll_interval=0) as repo:
        row = repo.store.read(schema.CLUSTER, [Get(schema.machine_key(machine))])[0]
        found = record_of(row)
        assert found is not None
        assert found.end < end


def test_close_ignores_a_closed_store(checked: Checked) -> None:
    for poll_interval in (0, 0.01):
        for owns_store in (True, False):
            store = checked(MemoryStore())
            repo = Repository(store, poll_interval=poll_interval, owns_store=owns_store)
            repo.run(lambda tx: tx.add("/a"))
            kernel = instance_of(repo)
            store.close()
            repo.close()
            assert not kernel.lease.held
            with pytest.raises(ClosedError):
                repo.refresh()
