"""Processes that share one repository while a test disturbs them or the store, and the checks of what they leave.

Writers commit changes whose result can be checked, readers check what must hold in each snapshot, one process merges
branches, and one watches. Each records what it tried, and what was acknowledged, in a file of its own.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import digits
from typing import Any, Final

import hbasemk
from hbasemk import (
    ClockSkewError,
    CommitUnknownError,
    ConflictError,
    NodeExistsError,
    Outcome,
    Repository,
    Snapshot,
    StoreNotAppliedError,
    Transaction,
)
from hbasemk.format import journal_row, revisions, schema
from hbasemk.store.abc import Scan, scan_all
from tests.support.hammer import fingerprint
from tests.support.repositories import damage

COUNTERS: Final = 2
BRANCHED: Final = "/counters/branched"
"""The counter that only merges of branches change."""
ADJUSTED: Final = "/counters/adjusted"
"""The counter that writers adjust without reading it."""
BOXES: Final = 3
UNIQUE: Final = 40
"""How many paths the writers compete for at a time."""
EXPECTED: Final = (StoreNotAppliedError, ConflictError, ClockSkewError, CommitUnknownError)
"""Errors that say what became of the commit. Others end the process."""
SLOW: Final = 0.5
"""Calls that take more seconds are recorded."""


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
    _timed(record, run)
    record.add("done", kind, what)


def _timed(record: Record, run: Callable[[], Any]) -> None:
    begun = time.perf_counter()
    try:
        run()
    except EXPECTED as error:
        record.add("error", type(error).__name__, str(error), time.perf_counter() - begun)
        raise
    finally:
        seconds = time.perf_counter() - begun
        if seconds > SLOW:
            record.add("slow", begun, seconds)


def write(repository: Repository, me: str, record: Record, chance: random.Random, stop: Path) -> None:
    """Commit changes whose result can be checked, until the file ``stop`` exists.

    A step of the monotonic clock ends the time limit of a call, and a paused process may hold the lock of the file for as
    long. The record keeps the errors.
    """
    number = 0
    while not stop.exists():
        number += 1
        with contextlib.suppress(*EXPECTED):
            _change(repository, me, number, record, chance)


def _change(repository: Repository, me: str, number: int, record: Record, chance: random.Random) -> None:
    kind = chance.choice(["count", "count", "adjust", "unique", "append", "move", "flag"])
    if kind == "count":
        path = f"/counters/{chance.randrange(COUNTERS)}"
        _attempt(record, kind, path, partial(repository.run, partial(_count, path=path)))
    elif kind == "adjust":
        _attempt(record, "count", ADJUSTED, partial(repository.run, lambda tx: tx.adjust(ADJUSTED, "n", 1)))
    elif kind == "unique":
        path = f"/unique/{int(time.perf_counter()) // 4}-{chance.randrange(UNIQUE)}"
        with contextlib.suppress(NodeExistsError):
            _attempt(record, kind, path, partial(repository.run, partial(_add, path=path, me=me)))
    elif kind == "append":
        item = f"{me}-{number}"
        _attempt(record, kind, item, partial(repository.run, partial(_append, item=item)))
    elif kind == "move":
        _timed(record, partial(repository.run, partial(_move, to=chance.randrange(BOXES))))
    else:
        mine = chance.randrange(2)
        _timed(record, partial(repository.run, partial(_raise_flag, mine=mine), isolation="serializable"))
        _timed(record, partial(repository.run, partial(_lower_flag, mine=mine)))


def merge(repository: Repository, record: Record, chance: random.Random, stop: Path) -> None:
    """Merge branches of some commits each, one after the other, until the file ``stop`` exists."""

    def once() -> None:
        with repository.branch() as branch:
            for _ in range(chance.randrange(4)):
                branch.run(lambda tx: tx.set("/counters", "draft", chance.random()))
            branch.run(partial(_count, path=BRANCHED))

    while not stop.exists():
        with contextlib.suppress(*EXPECTED):
            _attempt(record, "count", BRANCHED, once)


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
        begun = time.perf_counter()
        try:
            snapshot = repository.refresh()
            seen = _observe(snapshot)
            seconds = time.perf_counter() - begun
            if seconds > SLOW:
                record.add("slow", begun, seconds)
            if chance.random() < 0.3:
                time.sleep(chance.uniform(0, 0.5))
                if _observe(snapshot) != seen:
                    record.add("wrong", "a held snapshot changed", str(snapshot.revision))
        except EXPECTED as error:
            record.add("error", type(error).__name__, str(error), time.perf_counter() - begun)
            continue
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
        try:
            repository.refresh()
            with repository.watch(timeout=0.5, since=since) as watching:
                for entry in watching:
                    seen[entry.revision] += 1
                    since = watching.resume_token
                since = watching.resume_token
        except EXPECTED as error:
            record.add("error", type(error).__name__, str(error), 0)
            is_last = False
    record.add("seen", dict(seen))


def work(url: str, role: str, folder: str, seed: str, begin: Callable[[random.Random], None] | None) -> None:
    """Call ``begin`` and run one process; ``role`` begins with the name of its work."""
    chance = random.Random(f"{seed} {role}")
    stop, rest, record = Path(folder, "stop"), Path(folder, "rest"), Record(Path(folder, role))
    if begin is not None:
        begin(chance)
    with hbasemk.connect(url, create=False) as repository:
        if role.startswith("write"):
            write(repository, role, record, chance, stop)
        elif role.startswith("read"):
            read(repository, record, chance, stop)
        elif role.startswith("merge"):
            merge(repository, record, chance, stop)
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
        for path in (BRANCHED, ADJUSTED):
            tx.add(path, {"n": 0})
        for box in range(1, BOXES):
            tx.add(f"/boxes/{box}")
        tx.add("/list", {"items": ""})
        tx.add("/flags", {"f0": 0, "f1": 0})


class Load:
    """The processes; ``names`` are all that ever ran, ``running`` those that run now."""

    def __init__(self, url: str, folder: Path, seed: str, begin: Callable[[random.Random], None] | None) -> None:
        self.url = url
        self.folder = folder
        self.running: dict[str, Any] = {}
        self.names: list[str] = []
        self._seed = seed
        self._begin = begin
        self._context = multiprocessing.get_context("spawn")

    def start(self, role: str) -> None:
        """Start a process."""
        self.names.append(role)
        arguments = (self.url, role, str(self.folder), self._seed, self._begin)
        self.running[role] = self._context.Process(target=work, args=arguments, daemon=True)
        self.running[role].start()

    def record(self, role: str) -> Record:
        """Return what a process has recorded."""
        return Record(self.folder / role)

    def check_alive(self) -> None:
        """Raise AssertionError if a process has ended."""
        dead = [role for role, process in self.running.items() if not process.is_alive()]
        assert not dead, f"{dead} ended with an error"

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, while all processes live."""
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline, "the processes did not stop"
            self.check_alive()
            time.sleep(0.1)

    def end(self) -> dict[str, Any]:
        """End all processes, check what they left, and return counts of what happened."""
        (self.folder / "stop").touch()
        self.wait(lambda: all(["stopped"] in self.record(role).read() for role in self.running))
        (self.folder / "rest").touch()
        for role, process in self.running.items():
            # Each reads its whole tree, which is large after a long run.
            process.join(600)
            assert process.exitcode == 0, f"{role} ended with exit code {process.exitcode}"
        return _judge(self.url, self.folder, self.names, list(self.running))


@contextmanager
def load(
    url: str, seed: str, folder: Path, roles: list[str], begin: Callable[[random.Random], None] | None = None
) -> Iterator[Load]:
    """Create a repository and run processes of these roles; each calls ``begin`` first.

    `Load.end` checks the result: it raises AssertionError for anything that was lost or wrong.
    """
    with hbasemk.connect(url) as repository:
        prepare(repository)
    made = Load(url, folder, seed, begin)
    try:
        made.start("watch")
        made.wait(lambda: len(made.record("watch").read()) >= 2)
        for role in roles:
            made.start(role)
        made.wait(lambda: all(made.record(role).read() for role in made.running if role.startswith("write")))
        yield made
    finally:
        for process in made.running.values():
            process.kill()
            process.join()


def _opened(url: str) -> Repository:
    """Open the repository. An opening does not retry, and HBase may still recover from the last fault."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return hbasemk.connect(url, create=False, poll_interval=0)
        except StoreNotAppliedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _judge(url: str, folder: Path, names: list[str], alive: list[str]) -> dict[str, Any]:
    records = {role: Record(folder / role).read() for role in names}
    lines = [(role, line) for role in names for line in records[role]]
    assert [line for _, line in lines if line[0] == "wrong"] == []
    tried = Counter((line[1], line[2]) for _, line in lines if line[0] == "try")
    done = Counter((line[1], line[2]) for _, line in lines if line[0] == "done")
    with _opened(url) as fresh:
        head = fresh.refresh()
        for path in (*(f"/counters/{one}" for one in range(COUNTERS)), BRANCHED, ADJUSTED):
            count = head[path]["n"]
            assert isinstance(count, int)
            assert done["count", path] <= count <= tried["count", path], path
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
    # Dead writers are recovered when their leases expire.
    found = damage(url)
    assert not found, "\n".join(found)
    assert sum(done.values()) > 0
    return {
        "commits": len(committed),
        "acknowledged": sum(done.values()),
        "watched": len(seen),
        "errors": dict(Counter(f"{role.rstrip(digits)}: {line[1]}" for role, line in lines if line[0] == "error")),
        "slow": sorted(tuple(line[1:]) for _, line in lines if line[0] == "slow"),
    }
