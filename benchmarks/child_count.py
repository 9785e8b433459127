"""How long it takes to tell how many children a very wide node has: ``python -m benchmarks.child_count URL [CHILDREN]``.

The repository must be new. Each "process" is one of its own, opened and ended before the next.
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


def say(what: str, counting: CountingStore, call: Callable[[], object]) -> None:
    counting.take()
    began = time.perf_counter()
    result = call()
    taken = time.perf_counter() - began
    calls = counting.take()
    detail = ", ".join(f"{method} {table} {number}" for (method, table), number in sorted(calls.items()))
    print(f"| {what} | {result} | {taken * 1000:,.2f} ms | {calls.total()} ({detail or 'none'}) |", flush=True)


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

        def more() -> int:
            for number in range(100):
                add(children + number, children + number + 1)
            return 100

        if name == "load":
            say("load, commits of 10,000", counting, load)
            say("names of all", counting, lambda: len(repo.head.children("/n")))
            say("first count ever", counting, lambda: repo.head.child_count("/n"))
            say("again, same process", counting, lambda: repo.head.child_count("/n"))
        else:
            say(f"first count, {name}", counting, lambda: repo.head.child_count("/n"))
        if name == "second process":
            say("100 commits of one more child", counting, more)
            say("then, same process", counting, lambda: repo.head.child_count("/n"))


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
