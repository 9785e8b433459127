"""Faults of a distributed HBase under load: servers die, hang and lose their clocks; regions move, split and merge.

A longer run than the test's, for example half an hour with a fault every 20 s::

    python -m tests.support.cluster_faults --seconds 1800
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hbasemk.format import revisions, schema
from hbasemk.opening import open_store
from hbasemk.testing.history.processes import Conductor, RunReport
from tests.support.cluster import GATEWAYS, Administrator, Cluster, RefusedError, running_cluster
from tests.support.hbase import unused_prefix
from tests.support.load import load

ROLES: Final = ["write0", "write1", "write2", "write3", "read0", "read1", "merge"]
SESSION: Final = 10.0
"""Seconds after which a silent region server counts as dead (``zookeeper.session.timeout`` of the cluster)."""
STARTING: Final = 120.0
"""Seconds within which the repository of a history is created, and a worker commits."""
INSIST: Final = 120.0
"""Seconds after which a fault that HBase refuses is an error."""
WITHIN: Final = 2000
"""ms by which a clock may be off: less than the allowed skew of 5 s."""
BEYOND: Final = 20_000
"""ms that exceed the allowed skew; HBase itself refuses 30 s."""


def count_regions(administrator: Administrator, prefix: str) -> int:
    """Return the number of regions of all tables."""
    return sum(len(administrator("regions", prefix + table.name)) for table in schema.TABLES)


class RegionFaults:
    """What an administrator does to regions while processes use them; each public method is one fault."""

    def __init__(self, prefix: str, chance: random.Random, administrator: Administrator) -> None:
        self._prefix = prefix
        self._chance = chance
        self._administrator = administrator

    def _regions(self, table: str) -> list[list[str]]:
        """Name, server, and keys of each region, in the order of keys."""
        return [line.split(" ") for line in self._administrator("regions", self._prefix + table)]

    def _a_table(self) -> str:
        return self._chance.choice([table.name for table in schema.TABLES])

    def move_regions(self) -> None:
        """Move every region to a server of chance."""
        servers = self._administrator("servers")
        for table in schema.TABLES:
            for name, *_ in self._regions(table.name):
                self._administrator("move", name, self._chance.choice(servers))

    def split_a_region(self) -> None:
        """Split a region of a table between its rows; that of the journal between those that exist and later ones."""
        table = self._a_table()
        keys = {
            "nodes": b"\0\2/counters/1",
            "journal": schema.revision_key(revisions.pack(time.time_ns() // 10**6 - revisions.DEFAULT_EPOCH_MS, 0, 0)),
            "cluster": bytes([self._chance.randrange(256)]),
            "blobs": bytes([self._chance.randrange(256)]),
        }
        key = keys[table].hex()
        for name, _, ends in self._regions(table):
            start, _, stop = ends.partition("-")
            if start < key and (not stop or key < stop):
                self._administrator("split", name, key)

    def merge_regions(self) -> None:
        """Merge the first two regions of each table that has several."""
        for table in schema.TABLES:
            regions = self._regions(table.name)
            if len(regions) > 1:
                try:
                    self._administrator("merge", regions[0][0], regions[1][0])
                except RefusedError:
                    # A region still refers to the files of the one from which it was split; a compaction ends that.
                    self._administrator("major-compact", self._prefix + table.name)

    def compact(self) -> None:
        """Write all memory to files and run a major compaction of each table."""
        for table in schema.TABLES:
            self._administrator("flush", self._prefix + table.name)
            self._administrator("major-compact", self._prefix + table.name)


class Faults(RegionFaults):
    """What may happen to a cluster, too; a method returns when the server works again."""

    def __init__(self, cluster: Cluster, prefix: str, chance: random.Random, administrator: Administrator) -> None:
        super().__init__(prefix, chance, administrator)
        self._cluster = cluster

    def kill_a_region_server(self) -> None:
        """Kill a region server with signal 9 and start it again."""
        self._kill(self._busiest())

    def stop_a_region_server_past_its_session(self) -> None:
        """Stop a region server until others serve its regions; it finds itself declared dead, and ends."""
        server = self._busiest()
        self._cluster.docker("pause", server)
        time.sleep(SESSION + 5)
        self._cluster.docker("unpause", server)
        # It ends by itself, and its container starts it again.
        time.sleep(5)
        self._cluster.until_healthy(server)

    def kill_the_master(self) -> None:
        """Kill the active master; the standby takes over."""
        (master,) = self._administrator("master")
        self._kill(master.partition(",")[0])

    def kill_a_gateway(self) -> None:
        """Kill a gateway with signal 9 and start it again."""
        self._kill(self._chance.choice(GATEWAYS))

    def hang_a_gateway(self) -> None:
        """Stop a gateway for longer than the timeout of a call."""
        server = self._chance.choice(GATEWAYS)
        self._cluster.docker("pause", server)
        time.sleep(12)
        self._cluster.docker("unpause", server)

    def set_a_clock_off_within_the_limit(self) -> None:
        """Step the clock of a region server by less than the allowed skew, and back."""
        self._set_clock_off(self._chance.choice((-WITHIN, WITHIN)))

    def set_a_clock_off_beyond_the_limit(self) -> None:
        """Step the clock of a region server by more than the allowed skew, and back."""
        self._set_clock_off(self._chance.choice((-BEYOND, BEYOND)))

    def _set_clock_off(self, milliseconds: int) -> None:
        server = self._busiest()
        self._cluster.set_clock_off(server, milliseconds)
        time.sleep(8)
        self._cluster.set_clock_off(server, 0)

    def _kill(self, server: str) -> None:
        self._cluster.docker("kill", server, "--signal=KILL")
        time.sleep(2)
        self._cluster.docker("start", server)
        self._cluster.until_healthy(server)

    def _busiest(self) -> str:
        """A region server that serves a table that every commit needs."""
        (_, server, _), *_ = reversed(self._regions(self._chance.choice(("nodes", "journal", "cluster"))))
        return server.partition(",")[0]


def _names(*kinds: type) -> tuple[str, ...]:
    return tuple(name for kind in kinds for name in vars(kind) if not name.startswith("_"))


ALL: Final = _names(RegionFaults, Faults)
OF_CLOCKS: Final = tuple(name for name in ALL if "clock" in name)
SHORT: Final = (
    "split_a_region",
    "move_regions",
    "kill_a_region_server",
    "kill_the_master",
    "kill_a_gateway",
    "set_a_clock_off_within_the_limit",
)
"""The faults of a short run."""
Answer = TypeVar("Answer")
Injected = list[tuple[str, float, float]]
"""The name of each fault, and its begin and end by `time.perf_counter`."""


def inject(
    faults: RegionFaults,
    names: tuple[str, ...],
    chance: random.Random,
    *,
    seconds: float,
    every: float,
    after_each: Callable[[], None],
) -> Injected:
    """Inject each of the faults once, and again in random order until the time is over.

    ``every``: seconds from the end of a fault to the next one.
    """
    injected: Injected = []
    until = time.monotonic() + seconds
    left: list[str] = []
    while len(injected) < len(names) or time.monotonic() < until:
        left = left or chance.sample(names, len(names))
        name = left.pop()
        begun = time.perf_counter()
        insist(getattr(faults, name))
        injected.append((name, begun, time.perf_counter()))
        print(f"{name}: {injected[-1][2] - begun:.1f} s", flush=True)
        time.sleep(every)
        after_each()
    return injected


def insist(ask: Callable[[], Answer]) -> Answer:
    """Ask the administrator for something; try again while HBase refuses it, for example because a master has just died."""
    deadline = time.monotonic() + INSIST
    while True:
        try:
            return ask()
        except RefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def run(
    cluster: Cluster, seed: str, folder: Path, names: tuple[str, ...], *, seconds: float = 0, every: float = 3
) -> dict[str, Any]:
    """Inject faults while processes share a repository, and check what they leave."""
    chance = random.Random(seed)
    prefix = unused_prefix()
    with ExitStack() as stack:
        url = stack.enter_context(tables_of(cluster, prefix))
        administrator = stack.enter_context(cluster.administrator())
        processes = stack.enter_context(load(url, seed, folder, ROLES))
        faults = Faults(cluster, prefix, chance, administrator)
        injected = inject(faults, names, chance, seconds=seconds, every=every, after_each=processes.check_alive)
        counts = processes.end()
    slow = counts.pop("slow")
    longest = {name: [_longest(slow, begun, ended) for one, begun, ended in injected if one == name] for name in names}
    return {**counts, "faults": dict(Counter(name for name, *_ in injected)), "longest calls": longest}


def record_history(
    cluster: Cluster, seed: int, folder: Path, names: tuple[str, ...], *, seconds: float, every: float
) -> tuple[RunReport, Injected]:
    """Inject faults while workers record a history; return what its check found.

    The workers use a repository with short leases and an allowed skew of 0.5 s, so no clock may be set off.
    """
    chance = random.Random(seed)
    prefix = unused_prefix()
    with ExitStack() as stack:
        url = stack.enter_context(tables_of(cluster, prefix))
        administrator = stack.enter_context(cluster.administrator())
        faults = Faults(cluster, prefix, chance, administrator)
        threads = stack.enter_context(ThreadPoolExecutor(1))
        conductor = Conductor(url, folder, seed)

        def disturb() -> Injected:
            # Nobody repeats the calls that create the repository, so the faults begin after them.
            deadline = time.monotonic() + STARTING
            while not any(folder.glob("w*.history")):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no worker of the history committed within {STARTING:.0f} s")
                time.sleep(0.1)
            return inject(faults, names, chance, seconds=seconds - 30, every=every, after_each=lambda: None)

        injected = threads.submit(disturb)
        report = conductor.run(seconds)
        return report, injected.result()


@contextmanager
def tables_of(cluster: Cluster, prefix: str) -> Iterator[str]:
    """The URL of a repository; its tables are dropped at the end."""
    url = cluster.url(prefix)
    try:
        yield url
    finally:
        store, _, _ = open_store(url)
        with closing(store):
            store.drop_tables(schema.TABLES)


def _longest(slow: list[tuple[float, float]], begun: float, ended: float) -> float:
    """The duration of the longest call that a fault may have delayed."""
    return round(max((seconds for at, seconds in slow if at < ended and at + seconds > begun), default=0.0), 1)


def main() -> None:
    """Run for as long as the command line says, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=20)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--only", choices=sorted(ALL), action="append", help="a fault; several may be given")
    parser.add_argument("--history", action="store_true", help="record a history and check it; sets no clock off")
    given = parser.parse_args()
    print("seed", given.seed, flush=True)
    names = tuple(given.only or ALL)
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        times = {"seconds": given.seconds, "every": given.every}
        if given.history:
            kept = tuple(name for name in names if name not in OF_CLOCKS)
            report, _ = record_history(cluster, int(given.seed), Path(folder), kept, **times)
            print(report)
            assert not report.anomalies, report.explain()
            assert not report.problems, report.explain()
        else:
            print(json.dumps(run(cluster, given.seed, Path(folder), names, **times)))


if __name__ == "__main__":
    main()
