"""Processes whose clocks step at random moments share one repository; some are paused or killed. Nothing may be lost.

A longer run than the test's, for example half an hour::

    python -m tests.support.shifted_clocks sqlite:////tmp/content.db --seconds 1800
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import hbasemk
from hbasemk import ConflictError, NodeExistsError, Outcome, Repository, Snapshot, StoreNotAppliedError, Transaction
from hbasemk.format import journal_row, revisions, schema
from hbasemk.store.abc import Scan, scan_all
from tests.support.hammer import fingerprint
from tests.support.repositories import problems

WRITERS: Final = 4
COUNTERS: Final = 2
BOXES: Final = 3
UNIQUE: Final = 40
"""How many paths the writers compete for at a time."""
FAR: Final = (-10.0, -3.0, -0.5, 0.0, 0.0, 1.0, 4.0, 60.0, 600.0)
"""Seconds by which a process's wall clock is wrong. On SQLite any clock is allowed."""
NEAR: Final = (-2.0, -0.5, 0.0, 0.0, 0.5, 2.0)
"""The same on HBase, where a clock that is more than 5 s wrong may not commit."""
JUMPS: Final = (0.0, 0.0, 1.0, 4.0, -1.0)
"""Seconds by which the monotonic clocks jump ahead, or stand still (negative). On HBase, polls still rely on these clocks."""


class Clocks:
    """Replaces this process's clocks by ones that step."""

    def __init__(self, chance: random.Random, offsets: tuple[float, ...], jumps: tuple[float, ...]) -> None:
        self._chance = chance
        self._offsets = offsets
        self._jumps = jumps
        self._wall = self._steady = 0.0
        self._last: dict[str, float] = {}
        self._lock = threading.Lock()
        self._time, self._time_ns, self._monotonic = time.time, time.time_ns, time.monotonic
        self._gettime = time.clock_gettime

    def install(self) -> None:
        """Replace the functions of the ``time`` module, and step the clocks in a thread from now on."""
        vars(time).update(
            time=lambda: self._time() + self._wall,
            time_ns=lambda: self._time_ns() + int(self._wall * 10**9),
            monotonic=lambda: self._never_back("monotonic", self._monotonic()),
            clock_gettime=lambda clock: self._never_back(str(clock), self._gettime(clock)),
        )
        threading.Thread(target=self._step, daemon=True).start()

    def _never_back(self, clock: str, now: float) -> float:
        with self._lock:
            self._last[clock] = max(self._last.get(clock, now), now + self._steady)
            return self._last[clock]

    def _step(self) -> None:
        while True:
            time.sleep(self._chance.uniform(0.05, 1.5))
            self._wall = self._chance.choice(self._offsets)
            self._steady += self._chance.choice(self._jumps)


@dataclass
class Record:
    """What one process has tried, and which tries were acknowledged: one JSON list a line, which survives SIGKILL."""

    path: Path
    lines: list[list[Any]] = field(default_factory=list)

    def add(self, *items: Any) -> None:
        """Append a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(items) + "\n")

    def read(self) -> list[list[Any]]:
        """Return all whole lines."""
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _attempt(record: Record, kind: str, what: str, run: Callable[[], Any]) -> None:
    record.add("try", kind, what)
    run()
    record.add("done", kind, what)


def write(repository: Repository, me: str, record: Record, chance: random.Random, stop: Path) -> None:
    """Commit changes whose result can be checked, until the file ``stop`` exists.

    A step of the monotonic clock ends the time limit of a call, and a paused process may hold the lock of the file for as
    long. The errors then say that nothing was committed.
    """
    number = 0
    while not stop.exists():
        number += 1
        with contextlib.suppress(StoreNotAppliedError, ConflictError):
            _change(repository, me, number, record, chance)


def _change(repository: Repository, me: str, number: int, record: Record, chance: random.Random) -> None:
    kind = chance.choice(["count", "count", "unique", "append", "move", "flag"])
    if kind == "count":
        path = f"/counters/{chance.randrange(COUNTERS)}"
        _attempt(record, kind, path, partial(repository.run, partial(_count, path=path)))
    elif kind == "unique":
        path = f"/unique/{int(time.perf_counter()) // 4}-{chance.randrange(UNIQUE)}"
        with contextlib.suppress(NodeExistsError):
            _attempt(record, kind, path, partial(repository.run, partial(_add, path=path, me=me)))
    elif kind == "append":
        item = f"{me}-{number}"
        _attempt(record, kind, item, partial(repository.run, partial(_append, item=item)))
    elif kind == "move":
        repository.run(partial(_move, to=chance.randrange(BOXES)))
    else:
        mine = chance.randrange(2)
        repository.run(partial(_raise_flag, mine=mine), isolation="serializable")
        repository.run(partial(_lower_flag, mine=mine))


def _count(tx: Transaction, path: str) -> None:
    tx.increment(path, "n", 1)


def _add(tx: Transaction, path: str, me: str) -> None:
    tx.add(path, {"by": me})


def _append(tx: Transaction, item: str) -> None:
    items = tx["/list", "items"]
    assert isinstance(items, str)
    tx.set("/list", "items", f"{items},{item}")


def _move(tx: Transaction, to: int) -> None:
    (at,) = (box for box in range(BOXES) if tx.exists(f"/boxes/{box}/thing"))
    if at != to:
        tx.move(f"/boxes/{at}/thing", f"/boxes/{to}/thing")


def _raise_flag(tx: Transaction, mine: int) -> None:
    if not tx["/flags", f"f{1 - mine}"]:
        tx.set("/flags", f"f{mine}", 1)


def _lower_flag(tx: Transaction, mine: int) -> None:
    tx.set("/flags", f"f{mine}", 0)


def read(repository: Repository, record: Record, chance: random.Random, stop: Path) -> None:
    """Check in many snapshots what must hold in each of them, and that a held snapshot does not change."""
    before: Counter[str] = Counter()
    while not stop.exists():
        snapshot = repository.refresh()
        seen = _observe(snapshot)
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, 0.5))
            if _observe(snapshot) != seen:
                record.add("wrong", "a held snapshot changed", str(snapshot.revision))
        counts, things, flags = seen
        if things != 1:
            record.add("wrong", "the moved node exists so often", things)
        if flags == (1, 1):
            record.add("wrong", "write skew", str(snapshot.revision))
        if any(counts[one] < before[one] for one in before):
            record.add("wrong", "a counter went back", str(snapshot.revision))
        before = counts


def _observe(snapshot: Any) -> tuple[Counter[str], int, tuple[int, int]]:
    counts = Counter({str(one): snapshot[f"/counters/{one}"]["n"] for one in range(COUNTERS)})
    things = sum(snapshot.get(f"/boxes/{box}/thing") is not None for box in range(BOXES))
    flags = snapshot["/flags"]
    return counts, things, (flags["f0"], flags["f1"])


def watch(repository: Repository, record: Record, rest: Path) -> None:
    """Record each revision that a watch returns until all other processes rest, and then what is left."""
    seen: Counter[str] = Counter()
    head = repository.head
    record.add("begun", head.revision)
    record.add("stopped")
    since: Snapshot | str = head
    is_last = False
    while not is_last:
        is_last = rest.exists()
        repository.refresh()
        with repository.watch(timeout=0.5, since=since) as watching:
            seen.update(entry.revision for entry in watching)
            since = watching.resume_token
    record.add("seen", dict(seen))


def work(url: str, role: str, folder: str, seed: str) -> None:
    """Run one process; ``role`` begins with the name of its work."""
    chance = random.Random(f"{seed} {role}")
    stop, rest, record = Path(folder, "stop"), Path(folder, "rest"), Record(Path(folder, role))
    clocks = (FAR, JUMPS) if url.startswith("sqlite") else (NEAR, (0.0,))
    Clocks(chance, *clocks).install()
    with hbasemk.connect(url, create=False) as repository:
        if role.startswith("write"):
            write(repository, role, record, chance, stop)
        elif role.startswith("read"):
            read(repository, record, chance, stop)
        else:
            watch(repository, record, rest)
        record.add("stopped")
        while not rest.exists():
            time.sleep(0.05)
        record.add("tree", fingerprint(repository))


def prepare(repository: Repository) -> None:
    """Create what the processes change."""
    with repository.transaction() as tx:
        for path in ("/counters", "/unique", "/boxes", "/boxes/0", "/boxes/0/thing"):
            tx.add(path)
        for one in range(COUNTERS):
            tx.add(f"/counters/{one}", {"n": 0})
        for box in range(1, BOXES):
            tx.add(f"/boxes/{box}")
        tx.add("/list", {"items": ""})
        tx.add("/flags", {"f0": 0, "f1": 0})


def run(url: str, seconds: float, seed: str, folder: Path, longest_pause: float) -> dict[str, int]:
    """Run all processes for so many seconds, check what they left, and return counts of what happened.

    ``longest_pause`` is that of SIGSTOP in seconds. Raises AssertionError for anything that was lost or wrong.
    """
    chance = random.Random(seed)
    with hbasemk.connect(url) as repository:
        prepare(repository)
    context = multiprocessing.get_context("spawn")
    running: dict[str, Any] = {}
    names: list[str] = []

    def start(role: str) -> None:
        names.append(role)
        running[role] = context.Process(target=work, args=(url, role, str(folder), seed), daemon=True)
        running[role].start()

    pauses = kills = 0
    try:
        start("watch")
        _wait(lambda: len(Record(folder / "watch").read()) == 2, running)
        for number in range(WRITERS):
            start(f"write{number}")
        start("read")
        _wait(lambda: all(Record(folder / role).read() for role in running if role.startswith("write")), running)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(0.2, 1.0))
            role = chance.choice(list(running))
            if role.startswith("write") and chance.random() < 0.2:
                running[role].kill()
                running.pop(role).join()
                start(f"write{len(names)}")
                kills += 1
            elif chance.random() < 0.5:
                os.kill(running[role].pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0.1, longest_pause))
                os.kill(running[role].pid, signal.SIGCONT)
                pauses += 1
            dead = [role for role, process in running.items() if not process.is_alive()]
            assert not dead, f"{dead} ended with an error"
        (folder / "stop").touch()
        _wait(lambda: all(["stopped"] in Record(folder / role).read() for role in running), running)
        (folder / "rest").touch()
        for role, process in running.items():
            process.join(120)
            assert process.exitcode == 0, f"{role} ended with exit code {process.exitcode}"
    finally:
        for process in running.values():
            process.kill()
            process.join()
    return {**_judge(url, folder, names, list(running)), "pauses": pauses, "kills": kills}


def _wait(condition: Callable[[], bool], running: dict[str, Any]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "the processes did not stop"
        assert all(process.is_alive() for process in running.values()), "a process ended with an error"
        time.sleep(0.1)


def _judge(url: str, folder: Path, names: list[str], alive: list[str]) -> dict[str, int]:
    records = {role: Record(folder / role).read() for role in names}
    lines = [(role, line) for role in names for line in records[role]]
    assert [line for _, line in lines if line[0] == "wrong"] == []
    tried = Counter((line[1], line[2]) for _, line in lines if line[0] == "try")
    done = Counter((line[1], line[2]) for _, line in lines if line[0] == "done")
    with hbasemk.connect(url, create=False, poll_interval=0) as fresh:
        head = fresh.refresh()
        for one in range(COUNTERS):
            key = ("count", f"/counters/{one}")
            count = head[f"/counters/{one}"]["n"]
            assert isinstance(count, int)
            assert done[key] <= count <= tried[key], f"counter {one}"
        owners = [(role, line[2]) for role, line in lines if line[:2] == ["done", "unique"]]
        assert len({path for _, path in owners}) == len(owners), "two processes added one path"
        assert [(role, path) for role, path in owners if head[path]["by"] != role] == []
        items = Counter(str(head["/list"]["items"]).split(",")[1:])
        assert all(count == 1 for count in items.values()), "an item was appended twice"
        assert all(items[what] for kind, what in done if kind == "append"), "an appended item is lost"
        assert all(tried["append", item] for item in items)
        ((begun,),) = (line[1:] for line in records["watch"] if line[0] == "begun")
        (seen,) = (line[1] for line in records["watch"] if line[0] == "seen")
        scan = Scan(None, None, 1000, columns=(schema.COMMITTED, schema.ABORT))
        rows = list(journal_row.decode(scan_all(fresh.store, schema.JOURNAL, scan)))
        committed = {
            revisions.to_text(row.revision) for row in rows if row.outcome is Outcome.COMMITTED and not row.is_branch
        }
        after = {revision for revision in committed if revision > begun}
        wrong = {one: seen.get(one, 0) for one in after.union(seen) if (one in after, seen.get(one)) != (True, 1)}
        assert not wrong, f"the watch after {begun} returned these revisions not exactly once, of {len(after)}: {wrong}"
        trees = {line[1] for role in alive for line in records[role] if line[0] == "tree"}
        assert trees == {fingerprint(fresh)}, "the processes differ at rest"
        assert problems(fresh) == []
    assert sum(done.values()) > 0
    return {"commits": len(committed), "acknowledged": sum(done.values()), "watched": len(seen)}


def main() -> None:
    """Run for as long as the command line says, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--longest-pause", type=float, default=30)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    given = parser.parse_args()
    print("seed", given.seed, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(given.url, given.seconds, given.seed, Path(folder), given.longest_pause)))


if __name__ == "__main__":
    main()
