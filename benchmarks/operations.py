"""Single operations on one repository: medians, and the round trips that each takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from hbasemk import Repository
from hbasemk.connect import open_store
from hbasemk.testing.wrapped import CountingStore


def measure(url: str, turns: int, nodes: int) -> list[dict[str, Any]]:
    """A row for each operation, on a folder of ``nodes`` nodes; times in µs."""
    store, _, _ = open_store(url)
    counting = CountingStore(store)
    rows: list[dict[str, Any]] = []
    with Repository(counting, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/n"))
        for at in range(0, nodes, 1000):
            repo.run(
                lambda tx, at=at: [
                    tx.add(f"/n/{number:06}", {"a": number, "b": "x"}) for number in range(at, min(nodes, at + 1000))
                ]
            )
        before = repo.head
        for number in range(10):
            repo.run(lambda tx, number=number: tx.set(f"/n/{number * nodes // 10:06}", "a", -1))

        def row(name: str, call: Callable[[int], Any], times: int) -> None:
            call(-1)
            taken: list[float] = []
            counting.calls.clear()
            for turn in range(times):
                began = time.perf_counter()
                call(turn)
                taken.append(time.perf_counter() - began)
            rows.append(
                {
                    "operation": name,
                    "median_us": round(statistics.median(taken) * 1e6, 1),
                    "round_trips": round(len(counting.calls) / times, 2),
                }
            )

        def one(turn: int) -> None:
            with repo.transaction(base=repo.head) as tx:
                tx.set("/n/000000", "a", turn)

        def hundred(turn: int) -> None:
            with repo.transaction(base=repo.head) as tx:
                for number in range(100):
                    tx.add(f"/n/{turn}-{number}", {"a": number})

        fresh = Repository(counting, poll_interval=0, owns_store=False, cache_entries=2)
        row("diff of 10 changes among all", lambda _: len(list(repo.diff(before))), 20)
        row("set a property and commit", one, turns)
        row("add 100 nodes and commit", hundred, max(5, turns // 10))
        row("read a node, cached", lambda _: repo.head["/n/000001"], turns * 10)
        row("read a node, not cached", lambda turn: fresh.head[f"/n/{turn % nodes:06}"], turns)
        row("names of all children", lambda _: repo.head.children("/n"), 5)
        row("walk the subtree", lambda _: sum(1 for _ in repo.head.walk("/n")), 3)
        row("idle poll", lambda _: repo.refresh(), turns)
        fresh.close()
    return rows
