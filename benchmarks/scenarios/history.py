"""Scenarios of a repository with a history: read old revisions, and open the repository."""

from __future__ import annotations

from benchmarks.harness import Harness, TooSlowError
from benchmarks.scenarios.nodes import properties
from benchmarks.system import System

YOUNG = 10
RECENT = (1, 100)
"""Ages in commits of the revisions that the scenario reads besides the oldest one."""


def read_history(harness: Harness) -> None:
    """Read a node at revisions of different ages; every commit since has changed that node."""
    sizes = harness.sizes
    contenders = harness.tree("history")
    ages = sorted({*RECENT, sizes.history}, reverse=True)
    marks: dict[int, dict[int, object]] = {}

    def prepare(system: System) -> None:
        system.add([("/old", properties(0))])
        marks[id(system)] = {}
        for number, old in enumerate(ages):
            try:
                system.set("/old", "title", f"at {old}")
                marks[id(system)][old] = system.mark()
            except NotImplementedError:
                pass
            # The commit of the next mark is one of the commits in between.
            _make_history(harness, system, old - (ages[number + 1] + 1 if number + 1 < len(ages) else 0))

    harness.prepare(contenders, prepare, f"read at a revision {sizes.history:,} commits old")
    for old in reversed(ages):

        def read(system: System, _: int, old: int = old) -> None:
            mark = marks[id(system)].get(old)
            if mark is None:
                raise NotImplementedError
            found = system.read_at(mark, "/old")
            if found is None or found["title"] != f"at {old}":
                raise ValueError(f"/old must have the title 'at {old}' at its mark, got {found!r}")

        harness.compare(f"read at a revision {old:,} commits old", contenders, read, turns=sizes.turns // 2 or 1)
    harness.compare(
        "read the same node at head, cold",
        contenders,
        lambda system, _: system.read("/old"),
        turns=sizes.long_turns * 2,
        before=lambda system, _: system.clear_caches(),
    )
    harness.drop("history")


def start_up(harness: Harness) -> None:
    """Open a repository with few and with many revisions, and read one node."""
    sizes = harness.sizes
    for name, count in (("young", YOUNG), ("old", sizes.revisions)):
        contenders = harness.tree(name, lambda entry: entry.multiprocess)
        addresses: dict[int, str] = {}
        joined: dict[int, System] = {}

        def prepare(system: System, count: int = count, addresses: dict[int, str] = addresses) -> None:
            system.add([("/old", properties(0))])
            _make_history(harness, system, count - 1)
            addresses[id(system)] = system.address()

        def end(system: System, joined: dict[int, System] = joined) -> None:
            if id(system) in joined:
                joined.pop(id(system)).close()

        def start(
            system: System, _: int, addresses: dict[int, str] = addresses, joined: dict[int, System] = joined
        ) -> None:
            other = joined[id(system)] = type(system).join(addresses[id(system)])
            if other.read("/old") is None:
                raise ValueError("/old must exist in the opened repository")

        label = f"open with {count:,} revisions and read a node"
        harness.prepare(contenders, prepare, label)
        harness.compare(
            label,
            contenders,
            start,
            turns=sizes.long_turns,
            before=lambda system, _, end=end: end(system),  # type: ignore[misc]
        )
        harness.prepare(contenders, end, "closing")
        harness.drop(name)


def _make_history(harness: Harness, system: System, commits: int) -> None:
    stop = harness.start_time_limit()
    count = system.make_history("/old", "number", commits, stop)
    if count < commits:
        raise TooSlowError(f"only {count:,} of {commits:,} commits were made in {harness.sizes.time_limit} s")
