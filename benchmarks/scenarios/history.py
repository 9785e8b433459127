"""Scenarios of a repository with a past: reading old revisions, and opening it."""

from __future__ import annotations

from benchmarks.harness import Harness, TooSlowError
from benchmarks.scenarios.nodes import properties
from benchmarks.system import System

YOUNG = 10
RECENT = (1, 100)
"""Commits since the revisions that are read besides the oldest one."""


def read_history(harness: Harness) -> None:
    """Read a node at a revision some, many and very many commits old; each commit has changed just that node."""
    sizes = harness.sizes
    contenders = harness.tree("history")
    ages = sorted({*RECENT, sizes.history}, reverse=True)
    marks: dict[int, dict[int, object]] = {}

    def age(system: System) -> None:
        system.add([("/old", properties(0))])
        marks[id(system)] = {}
        for number, old in enumerate(ages):
            try:
                system.set("/old", "title", f"at {old}")
                marks[id(system)][old] = system.mark()
            except NotImplementedError:
                pass
            # The next mark's own commit is one of those between.
            _age(harness, system, old - (ages[number + 1] + 1 if number + 1 < len(ages) else 0))

    harness.prepare(contenders, age, f"read at a revision {sizes.history:,} commits old")
    for old in reversed(ages):

        def read(system: System, _: int, old: int = old) -> None:
            mark = marks[id(system)].get(old)
            if mark is None:
                raise NotImplementedError
            found = system.read_at(mark, "/old")
            if found is None or found["title"] != f"at {old}":
                raise ValueError(f"/old, {old} commits ago, reads as {found!r}")

        harness.compare(f"read at a revision {old:,} commits old", contenders, read, turns=sizes.turns // 2 or 1)
    harness.compare(
        "read the same node at head, cold",
        contenders,
        lambda system, _: system.read("/old"),
        turns=sizes.long_turns * 2,
        before=lambda system, _: system.forget(),
    )
    harness.drop("history")


def start_up(harness: Harness) -> None:
    """Open a repository of few and of many revisions and read one node of it."""
    sizes = harness.sizes
    for name, count in (("young", YOUNG), ("old", sizes.revisions)):
        contenders = harness.tree(name, lambda entry: entry.several)
        addresses: dict[int, str] = {}
        joined: dict[int, System] = {}

        def prepare(system: System, count: int = count, addresses: dict[int, str] = addresses) -> None:
            system.add([("/old", properties(0))])
            _age(harness, system, count - 1)
            addresses[id(system)] = system.connect()

        def end(system: System, joined: dict[int, System] = joined) -> None:
            if id(system) in joined:
                joined.pop(id(system)).close()

        def start(
            system: System, _: int, addresses: dict[int, str] = addresses, joined: dict[int, System] = joined
        ) -> None:
            other = joined[id(system)] = type(system).join(addresses[id(system)])
            if other.read("/old") is None:
                raise ValueError("the node is not there")

        label = f"open among {count:,} revisions and read a node"
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


def _age(harness: Harness, system: System, commits: int) -> None:
    stop = harness.patience()
    made = system.age("/old", "number", commits, stop)
    if made < commits:
        raise TooSlowError(f"only {made:,} of {commits:,} commits were made in {harness.sizes.patience} s")
