"""Measure the child count of a very wide node: ``python -m benchmarks.child_count URL [CHILDREN]``.

The repository must be new. Each phase runs in its own process, one after the other.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import hbasemk
from hbasemk.connect import open_store
from hbasemk.testing.wrapped import CountingStore

BATCH = 10_000


def measure(label: str, counting: CountingStore, call: Callable[[], object]) -> None:
    counting.take()
    start_time = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start_time
    calls = counting.take()
    detail = ", ".join(f"{method} {table} {number}" for (method, table), number in sorted(calls.items()))
    print(f"| {label} | {result} | {seconds * 1000:,.2f} ms | {calls.total()} ({detail or 'none'}) |", flush=True)


def phase(url: str, name: str, children: int) -> None:
    store, _, _ = open_store(url)
    counting = CountingStore(store)
    with hbasemk.Repository(counting, poll_interval=0) as repo:

        def add(begin: int, end: int) -> None:
            with repo.transaction() as tx:
                for number in range(begin, end):
                    tx.add(f"/n/{number:08}")

        def load() -> int:
            repo.run(lambda tx: tx.add("/n"))
            for begin in range(0, children, BATCH):
                add(begin, min(begin + BATCH, children))
            return children

        def add_100() -> int:
            for number in range(100):
                add(children + number, children + number + 1)
            return 100

        if name == "load":
            measure("load, commits of 10,000", counting, load)
            measure("names of all", counting, lambda: len(repo.head.children("/n")))
            measure("first count ever", counting, lambda: repo.head.child_count("/n"))
            measure("again, same process", counting, lambda: repo.head.child_count("/n"))
        else:
            measure(f"first count, {name}", counting, lambda: repo.head.child_count("/n"))
        if name == "second process":
            measure("100 commits of one more child", counting, add_100)
            measure("then, same process", counting, lambda: repo.head.child_count("/n"))


def main() -> None:
    url = sys.argv[1]
    children = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    if len(sys.argv) > 3:
        phase(url, sys.argv[3], children)
        return
    print("| what | result | time | round trips |\n| --- | ---: | ---: | --- |", flush=True)
    for name in ("load", "second process", "third process", "fourth process"):
        subprocess.run([sys.executable, "-m", "benchmarks.child_count", url, str(children), name], check=True)


if __name__ == "__main__":
    main()
