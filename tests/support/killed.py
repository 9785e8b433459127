"""Real processes that kill themselves with SIGKILL at a chosen store call, and their actions."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from hbasemk import Repository, Transaction
from hbasemk.opening import open_store
from hbasemk.repository import instance_of
from hbasemk.snapshot import Snapshot
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.quick_processes import quick_context


def prepare(tx: Transaction, place: str) -> None:
    """Add the nodes that an action changes."""
    tx.add(place, {"v": "old"})
    tx.add(f"{place}/old", {"x": 1})
    tx.add(f"{place}/old/below")


def change(repository: Repository, place: str) -> None:
    """Set a property, add a node and remove a subtree in one commit."""

    def all_of_it(tx: Transaction) -> None:
        tx.set(place, "v", "new")
        tx.add(f"{place}/new", {"x": 2})
        tx.remove(f"{place}/old")

    repository.run(all_of_it)


def merge(repository: Repository, place: str) -> None:
    """Make the same changes on a branch, and merge it."""
    with repository.branch() as branch:
        branch.run(lambda tx: tx.set(place, "v", "new"))
        branch.run(lambda tx: tx.add(f"{place}/new", {"x": 2}))
        branch.run(lambda tx: tx.remove(f"{place}/old"))


ACTIONS: dict[str, Callable[[Repository, str], None]] = {"change": change, "merge": merge}


def happened(head: Snapshot, place: str) -> bool:
    """Return whether an action happened; raise AssertionError if only a part of it did."""
    parts = {head[place]["v"] == "new", f"{place}/new" in head, f"{place}/old" not in head}
    parts.add(f"{place}/old/below" not in head)
    assert len(parts) == 1, f"a part of the change of {place} is visible"
    return parts.pop()


def work(url: str, action: str, place: str, at: int, when: str) -> None:
    """Carry out an action; kill this process before or after store call ``at``. Exit with 0 if there are fewer calls."""
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
    """Carry out an action in a new process; return whether that was killed."""
    process = quick_context().Process(target=work, args=(url, action, place, at, when), daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL), f"{place} ended with {process.exitcode}"
    return process.exitcode != 0
