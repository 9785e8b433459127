"""Faults of a distributed HBase under load: servers die, hang and lose their clocks; regions move, split and merge.

A longer run than the test's, for example half an hour with a fault every 20 s::

    python -m tests.support.cluster_faults --seconds 1800
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import hbasemk
from hbasemk.format import schema
from hbasemk.repository import instance_of
from tests.support.cluster import GATEWAYS, Administrator, Cluster, RefusedError, running_cluster
from tests.support.hbase import unused_prefix
from tests.support.load import load

ROLES: Final = ["write0", "write1", "write2", "write3", "read0", "read1", "merge"]
SESSION: Final = 10.0
"""Seconds after which a silent region server counts as dead (``zookeeper.session.timeout`` of the cluster)."""
WITHIN: Final = 2000
"""ms by which a clock may be off: less than the allowed skew of 5 s."""
BEYOND: Final = 20_000
"""ms that exceed the allowed skew; HBase itself refuses 30 s."""


class Faults:
    """What may happen to a cluster; each method is one fault, and returns when the cluster is whole again."""

    def __init__(self, cluster: Cluster, prefix: str, chance: random.Random, administrator: Administrator) -> None:
        self._cluster = cluster
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
        """Split the region of a table at a row that it holds."""
        table = self._a_table()
        keys = {
            "nodes": b"\0\2/counters/1",
            "journal": bytes([0x66, self._chance.randrange(256)]),
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
                # HBase refuses while a region still refers to the files of the one from which it was split.
                with contextlib.suppress(RefusedError):
                    self._administrator("merge", regions[0][0], regions[1][0])

    def compact(self) -> None:
        """Write all memory to files and run a major compaction of each table."""
        for table in schema.TABLES:
            self._administrator("flush", self._prefix + table.name)
            self._administrator("major-compact", self._prefix + table.name)

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


ALL: Final[dict[str, Callable[[Faults], None]]] = {
    name: fault for name, fault in vars(Faults).items() if not name.startswith("_")
}
SHORT: Final = ("move_regions", "split_a_region", "kill_a_region_server", "merge_regions", "kill_a_gateway")
"""The faults of a short run."""


def run(
    cluster: Cluster, seed: str, folder: Path, names: tuple[str, ...], *, seconds: float = 0, every: float = 3
) -> dict[str, Any]:
    """Inject each of the faults once, and again in random order until the time is over; check what the load leaves.

    ``every``: seconds from the end of a fault to the next one.
    """
    chance = random.Random(seed)
    prefix = unused_prefix()
    url = cluster.url(prefix)
    injected: list[tuple[str, float, float]] = []
    try:
        with ExitStack() as stack:
            administrator = stack.enter_context(cluster.administrator())
            processes = stack.enter_context(load(url, seed, folder, ROLES))
            faults = Faults(cluster, prefix, chance, administrator)
            until = time.monotonic() + seconds
            left: list[str] = []
            while len(injected) < len(names) or time.monotonic() < until:
                left = left or chance.sample(names, len(names))
                name = left.pop()
                begun = time.perf_counter()
                try:
                    ALL[name](faults)
                except RefusedError as error:
                    # For example while the master has just died: the next one comes later.
                    print(f"{name}: {str(error)[:200]}", flush=True)
                injected.append((name, begun, time.perf_counter()))
                print(f"{name}: {injected[-1][2] - begun:.1f} s", flush=True)
                time.sleep(every)
                processes.check_alive()
            counts = processes.end()
    finally:
        with hbasemk.connect(url, create=False, poll_interval=0) as repository:
            instance_of(repository).store.drop_tables(schema.TABLES)
    slow = counts.pop("slow")
    longest = {name: [_longest(slow, begun, ended) for one, begun, ended in injected if one == name] for name in names}
    return {**counts, "faults": dict(Counter(name for name, *_ in injected)), "longest calls": longest}


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
    given = parser.parse_args()
    print("seed", given.seed, flush=True)
    names = tuple(given.only or ALL)
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(cluster, given.seed, Path(folder), names, seconds=given.seconds, every=given.every)))


if __name__ == "__main__":
    main()
