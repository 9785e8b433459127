"""Scenarios of one writing process: single commits, large commits, a bulk load, a branch."""

from __future__ import annotations

from typing import Final

from benchmarks.harness import Call, Harness
from benchmarks.scenarios.nodes import flat, properties, pyramid
from benchmarks.sizes import CHANGES
from benchmarks.system import System

MANY = 100
COMMIT: Final = "commit to trunk, in turn with branches"
"""The targets compare the branches with this commit, because it finds the processor's caches in the same state."""
CYCLE: Final = "branch, commit, rebase and merge"
CYCLE_BESIDE: Final = "branch, commit, commit to trunk, rebase and merge"


def set_property(harness: Harness) -> None:
    """Set one property of one node and commit."""
    contenders = harness.tree("main")
    harness.prepare(contenders, lambda system: system.add([("/set", properties(0))]))
    harness.compare(
        "set one property",
        contenders,
        lambda system, turn: system.set("/set", "number", turn),
        turns=harness.sizes.turns,
    )


def add_nodes(harness: Harness) -> None:
    """Add one node with three properties; commits of many nodes, in one folder and as a pyramid."""
    sizes = harness.sizes
    contenders = harness.tree("main")
    harness.prepare(contenders, lambda system: system.add([("/one", {}), ("/flat", {}), ("/pyramid", {})]))
    harness.compare(
        "add one node",
        contenders,
        lambda system, turn: system.add([(f"/one/{turn}", properties(turn))]),
        turns=sizes.turns,
    )
    for count, turns in ((MANY, max(1, sizes.turns // 10)), (sizes.large_commit, sizes.large_turns)):

        def add_flat(system: System, turn: int, count: int = count) -> None:
            system.add(flat("/flat", count, f"{count}.{turn}."))

        def add_pyramid(system: System, turn: int, count: int = count) -> None:
            top = f"/pyramid/{count}.{turn}"
            system.add([(top, {}), *pyramid(top, count - 1)])

        harness.compare(f"add {count:,} nodes, flat", contenders, add_flat, turns=turns)
        harness.compare(f"add {count:,} nodes, pyramid", contenders, add_pyramid, turns=turns)


def bulk_load(harness: Harness) -> None:
    """Load many nodes in large commits; then find a few changes among them."""
    sizes = harness.sizes
    contenders = harness.tree("load")
    folders = max(1, sizes.bulk // sizes.folder)
    harness.prepare(contenders, lambda system: system.add([(f"/{folder}", {}) for folder in range(folders)]))
    chunks = sizes.bulk // sizes.chunk
    load = f"bulk load of {sizes.bulk:,} nodes, per node"
    harness.compare(
        load,
        contenders,
        lambda system, turn: system.add(flat(f"/{turn * folders // chunks}", sizes.chunk, f"{turn}.")),
        turns=chunks,
        loops=sizes.chunk,
        warm_up=False,
    )
    for contender in list(contenders):
        found = harness.run.find(harness.scenario, load, contender.entry.key)
        if found is None or found.note:
            contenders.remove(contender)
            harness.record_missing(contender.entry, _diff(sizes.bulk), "not all nodes were loaded in time")
    marks: dict[int, object] = {}

    def change(system: System) -> None:
        marks[id(system)] = None
        try:
            marks[id(system)] = system.mark()
        except NotImplementedError:
            return
        for number in range(CHANGES):
            folder, name = flat_name(number * chunks // CHANGES, number)
            system.set(f"/{folder}/{name}", "number", -1)

    def flat_name(turn: int, number: int) -> tuple[int, str]:
        return turn * folders // chunks, f"{turn}.{number % sizes.chunk:06}"

    def changed(system: System, _: int) -> None:
        if marks[id(system)] is None:
            raise NotImplementedError
        count = system.changed(marks[id(system)])
        if count != CHANGES:
            raise ValueError(f"the diff must have {CHANGES} nodes, got {count}")

    harness.prepare(contenders, change, _diff(sizes.bulk))
    harness.compare(_diff(sizes.bulk), contenders, changed, turns=sizes.long_turns)
    harness.drop("load")


def _diff(bulk: int) -> str:
    return f"diff of {CHANGES} changes among {bulk:,} nodes"


def branch(harness: Harness) -> None:
    """Make many changes on a private branch in several commits, and merge it; rebase and merge branches with one change."""
    sizes = harness.sizes
    contenders = harness.tree("main")
    nodes = [("/branch", properties(0)), ("/branch_beside", properties(0))]
    harness.prepare(contenders, lambda system: system.add(nodes))
    harness.compare(
        f"branch with {sizes.branch:,} changes and merge",
        contenders,
        lambda system, turn: system.branch_and_merge(flat("/branch", sizes.branch, f"{turn}."), sizes.branch_commits),
        turns=sizes.long_turns,
    )

    def cycle(name: str, beside: str | None) -> Call:
        return lambda system, turn: system.rebase_and_merge("/branch", name, turn, beside)

    harness.compare_calls(
        {
            COMMIT: lambda system, turn: system.set("/branch", "number", -turn),
            CYCLE: cycle("one", None),
            CYCLE_BESIDE: cycle("other", "/branch_beside"),
        },
        [one for one in contenders if one.system.has_branches],
        turns=max(1, sizes.turns // 4),
    )
