"""The budgets: the largest store traffic of each benchmarked operation at the tiny sizes.

A number here is a promise; raise it only on purpose. The budgets exclude the journal rows that polls read, because their number
depends on the commits of the last seconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from benchmarks.registry import Entry
from benchmarks.results import Run
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import TINY
from tests.support.counted import CountingHarness

COUNTED: Final = ("set", "adjust", "add", "read", "children", "subtree", "branch", "load", "history")
"""The scenarios whose operations are single turns of one connection."""


class Budget(NamedTuple):
    """Upper bounds; None means no bound. Each returned version of a cell counts as a cell."""

    calls: int
    rows_read: int | None = 0
    cells_read: int | None = 0
    bytes_read: int | None = 0
    rows_written: int = 0
    cells_written: int = 0
    bytes_written: int = 0


READING: Final[dict[str, Budget]] = {
    "read a node, hot": Budget(0),
    "read a node, warm": Budget(1, 1, 5, 180),
    "read a node, cold": Budget(1, 1, 5, 180),
    "list 30 children, again": Budget(0),
    "list 30 children after one was added": Budget(0),
    "list 30 children, cold": Budget(1, 2, 31, 500),
    "a page of 100 among 30 children": Budget(1, 2, 30, 480),
    "a page of 100 among 30 children, cold": Budget(1, 2, 31, 500),
    "read a subtree of 12 nodes, flat, cold": Budget(3, 13, 62, 2_250),
    "read a subtree of 12 nodes, flat, again": Budget(0),
    "diff of 10 changes among 30 nodes": Budget(2, 20, 110, 3_500),
    "read at a revision 1 commits old": Budget(0),
    "read at a revision 12 commits old": Budget(0),
    "read at a revision 100 commits old": Budget(0),
    "read the same node at head, cold": Budget(1, 1, 5, 180),
    "read a number set 64 times": Budget(1, 1, 5, 180),
    # One cell more for each slot, however many adjusts went through it.
    "read a number with 1 slot": Budget(1, 1, 6, 200),
    "read a number with 8 slots": Budget(1, 1, 13, 350),
    "read a number with 64 slots": Budget(1, 1, 69, 1_530),
}
BUDGETS: Final[dict[str, dict[str, Budget]]] = {
    "sqlite": {
        **READING,
        "read a subtree of 12 nodes, pyramid, cold": Budget(4, 13, 62, 2_250),
        "read a subtree of 12 nodes, pyramid, again": Budget(0),
        # A commit is one transaction; additions of nodes read first whether the nodes exist.
        "set one property": Budget(1, 1, 5, 100, 2, 8, 200),
        "set one number": Budget(1, 1, 5, 100, 2, 8, 200),
        "adjust one number": Budget(1, 1, 5, 120, 2, 8, 220),
        "adjust an absent number": Budget(1, 1, 2, 50, 2, 9, 240),
        # It reads back all properties that changed since the bound.
        "increment one number": Budget(1, 2, 23, 520, 2, 8, 200),
        "add one node": Budget(2, 1, 1, 30, 3, 13, 410),
        "add 100 nodes, flat": Budget(2, 3, 5, 120, 102, 607, 21_500),
        "add 100 nodes, pyramid": Budget(2, 1, 1, 30, 102, 604, 20_000),
        "add 30 nodes, flat": Budget(2, 1, 1, 30, 32, 187, 6_600),
        "add 30 nodes, pyramid": Budget(2, 1, 1, 30, 32, 184, 6_100),
        # A new branch, a commit to it, and a rebase are one transaction each.
        "branch with 8 changes and merge": Budget(9, None, None, None, 26, 131, 5_300),
        "commit to trunk, in turn with branches": Budget(1, 1, 5, 100, 2, 8, 200),
        "branch, commit, rebase and merge": Budget(6, None, None, None, 7, 28, 900),
        "branch, commit, commit to trunk, rebase and merge": Budget(9, None, None, None, 13, 55, 1_750),
        "bulk load of 30 nodes, per node": Budget(2, 1, 1, 30, 12, 67, 2_700),
    },
    "hbase": {
        **READING,
        # The reader takes two levels at a time, which costs one more read without results, in parallel with another.
        "read a subtree of 12 nodes, pyramid, cold": Budget(5, 13, 62, 2_250),
        "read a subtree of 12 nodes, pyramid, again": Budget(0),
        # A mark of a sole writer is longer than other values of lastRevision.
        "read a number set 64 times": Budget(1, 1, 5, 190),
        # A commit announces its revision in its writer's log, beside up to 16 that were decided just before.
        # It looks for marks of sole writers in the newest versions of lastRevision; one of its first commits to a row, in all.
        "set one property": Budget(5, 2, 9, 195, 4, 10, 540),
        "set one number": Budget(5, 2, 15, 330, 4, 10, 540),
        "adjust one number": Budget(5, 1, 9, 215, 4, 10, 550),
        "adjust an absent number": Budget(5, 1, 5, 110, 4, 11, 570),
        "increment one number": Budget(5, 3, 36, 815, 4, 10, 540),
        "add one node": Budget(6, 2, 7, 140, 5, 15, 750),
        "add 100 nodes, flat": Budget(6, 3, 110, 2_415, 104, 609, 22_300),
        "add 100 nodes, pyramid": Budget(6, 1, 6, 125, 104, 606, 20_800),
        "add 30 nodes, flat": Budget(6, 1, 35, 715, 34, 189, 7_100),
        "add 30 nodes, pyramid": Budget(6, 1, 6, 130, 34, 186, 6_600),
        # A new branch looks at the horizon of the collection, in all stores.
        "branch with 8 changes and merge": Budget(17, None, None, None, 28, 132, 5_800),
        "commit to trunk, in turn with branches": Budget(5, 2, 9, 195, 4, 10, 540),
        "branch, commit, rebase and merge": Budget(12, None, None, None, 9, 29, 900),
        "branch, commit, commit to trunk, rebase and merge": Budget(23, None, None, None, 19, 60, 1_850),
        "bulk load of 30 nodes, per node": Budget(6, 1, 15, 280, 14, 69, 3_100),
    },
}
"""The budgets by store and operation."""

SELF_COUNTED: Final = {
    "idle: calls per poll": 1,
    "2 processes adding children below one parent: retries": 0,
}
"""Bounds for counts that scenarios make themselves and that do not depend on time."""


def assert_within_budgets(entry: Entry, place: str) -> None:
    """Run the scenarios and compare the traffic. Each operation must have a budget, and each budget an operation."""
    run = Run("budgets", entry.store, {})
    counting = CountingHarness(run, [entry], place, TINY)
    with counting as harness:
        for name in COUNTED:
            counting.scenario = name
            SCENARIOS[name](harness)
    assert all(result.median is not None for result in run.results), run.results
    used = {operation: found for (_, operation), found in counting.used.items()}
    budgets = BUDGETS[entry.store]
    assert set(used) == set(budgets), set(used) ^ set(budgets)
    over = [
        f"{operation}: {name} {used[operation][name]}, at most {most}"
        for operation, budget in budgets.items()
        for name, most in budget._asdict().items()
        if most is not None and used[operation][name] > most
    ]
    assert not over, "\n".join(over)


def assert_whole(run: Run, messages: list[str]) -> None:
    """Assert that all scenarios have figures of hbasemk, nothing failed, and the scenarios' own counts are within bounds."""
    assert not [result for result in run.results if result.failed], "\n".join(messages)
    assert not run.environment["left_out"], run.environment["left_out"]
    assert {result.scenario for result in run.results} == set(SCENARIOS), "\n".join(messages)
    own = [result for result in run.results if result.system == "hbasemk"]
    # In a tiny run, an idle instance on SQLite may not poll.
    absent = [one.operation for one in own if one.median is None and not one.note.startswith("no polls")]
    assert not absent, absent
    over = {
        result.operation: result.median
        for result in own
        if (result.median or 0) > SELF_COUNTED.get(result.operation, 1e18)
    }
    assert not over, over
