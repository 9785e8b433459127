"""Real processes that kill themselves with SIGKILL at a chosen store call, and what each of them does."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable

from hbasemk import Repository, Transaction
from hbasemk.connect import open_store
from hbasemk.repository import instance_of
from hbasemk.snapshot import Snapshot
from hbasemk.testing.wrapped import Call, FaultyStore


def prepare(tx: Transaction, place: str) -> None:
    """What an action finds."""
    tx.add(place, {"v": "old"})
    tx.add(f"{place}/old", {"x": 1})
    tx.add(f"{place}/old/below")


def change(repository: Repository, place: str) -> None:
    """A property, a node that comes, a subtree that goes, in one commit."""

    def all_of_it(tx: Transaction) -> None:
        tx.set(place, "v", "new")
        tx.add(f"{place}/new", {"x": 2})
        tx.remove(f"{place}/old")

    repository.run(all_of_it)


def merge(repository: Repository, place: str) -> None:
    """The same through a branch."""
    with repository.branch() as branch:
        branch.run(lambda tx: tx.set(place, "v", "new"))
        branch.run(lambda tx: tx.add(f"{place}/new", {"x": 2}))
        branch.run(lambda tx: tx.remove(f"{place}/old"))


ACTIONS: dict[str, Callable[[Repository, str], None]] = {"change": change, "merge": merge}


def happened(head: Snapshot, place: str) -> bool:
    """Whether an action happened; raises AssertionError if a part of it did."""
    parts = {head[place]["v"] == "new", f"{place}/new" in head, f"{place}/old" not in head}
    parts.add(f"{place}/old/below" not in head)
    assert len(parts) == 1, f"a part of what {place} was to become is visible"
    return parts.pop()


def work(url: str, action: str, place: str, at: int, when: str) -> None:
    """Do it, and die before or after the store call of a number; exits with 0 if there are not so many."""
    store, _, _ = open_store(url)
    faulty = FaultyStore(store)
    repository = Repository(faulty, create=False, poll_interval=0)
    instance_of(repository).clock.next(0)
    count = 0

    def before(_: Call) -> None:
        nonlocal count
        if when == "before" and count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def after(_: Call) -> None:
        if when == "after" and count - 1 == at:
            os.kill(os.getpid(), signal.SIGKILL)

    faulty.before, faulty.after = before, after
    ACTIONS[action](repository, place)
    faulty.before = faulty.after = None
    repository.close()
    os._exit(0)


def run(url: str, action: str, place: str, at: int, when: str) -> bool:
    """Do it in a process of its own; returns whether that was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.killed", "hbasemk.store.sqlite", "hbasemk.store.hbase"])
    process = context.Process(target=work, args=(url, action, place, at, when), daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL), f"{place} ended with {process.exitcode}"
    return process.exitcode != 0
