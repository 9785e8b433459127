"""Scenarios of one reading process: hot, warm and cold nodes, a large folder, a subtree.

Hot: the connection has just read the node. Warm: the connection reads the node for the first time, but has read nodes near it.
Cold: the scenario clears all caches of the connection before each read; for hbasemk this is a new instance on new connections.
The caches of the operating system and of HBase's servers stay filled in all three cases.
"""

from __future__ import annotations

import random

from benchmarks.harness import WARM_UP, Harness
from benchmarks.scenarios.nodes import add_all, flat, pyramid
from benchmarks.system import System

HOT = 200
"""Nodes in the set of hot reads."""
PASSES = 10
"""Passes over the hot nodes in one turn. The first pass after other systems' turns finds the processor's caches cold."""
PAGE = 100


def read_nodes(harness: Harness) -> None:
    """Read a random node hot, warm and cold."""
    sizes = harness.sizes
    contenders = harness.tree("main")
    harness.prepare(contenders, lambda system: add_all(system, [("/read", {}), *flat("/read", sizes.folder)]))
    generator = random.Random(sizes.folder)
    names = [f"/read/{number:06}" for number in range(sizes.folder)]
    some = generator.sample(names, min(HOT, len(names)))

    def hot(system: System, _turn: int) -> None:
        for _ in range(PASSES):
            for path in some:
                _check(system, path)

    harness.compare("read a node, hot", contenders, hot, turns=min(sizes.turns, 30), loops=PASSES * len(some))
    turns = min(sizes.turns, len(names) * 4 // 5)
    order = generator.sample(names, turns + max(1, turns // WARM_UP))
    # The first use of empty caches is not measured.
    harness.prepare(contenders, lambda system: system.clear_caches(), "clearing caches")
    harness.compare("read a node, warm", contenders, lambda system, turn: _check(system, order[turn]), turns=turns)
    turns = max(1, turns // 5)
    harness.compare(
        "read a node, cold",
        contenders,
        lambda system, turn: _check(system, order[turn]),
        turns=turns,
        before=lambda system, _: system.clear_caches(),
    )


def _check(system: System, path: str) -> None:
    found = system.read(path)
    if found is None or "number" not in found or found["number"] < 0:  # type: ignore[operator]
        raise ValueError(f"{path} must have its properties, got {found!r}")


def list_children(harness: Harness) -> None:
    """List the names of a large folder, and read single pages of it."""
    sizes = harness.sizes
    contenders = harness.tree("main")
    harness.prepare(contenders, lambda system: add_all(system, [("/list", {}), *flat("/list", sizes.folder)]))

    def everything(system: System, _: int) -> None:
        if len(system.children("/list", None, sizes.folder)) != sizes.folder:
            raise ValueError(f"the list must have {sizes.folder} names")

    def page(system: System, turn: int) -> None:
        at = turn * 7919 % sizes.folder
        found = system.children("/list", f"{at:06}", PAGE)
        if len(found) != min(PAGE, sizes.folder - at - 1):
            raise ValueError(f"the page after {at} has {len(found)} names")

    turns = sizes.long_turns
    harness.compare(f"list {sizes.folder:,} children, again", contenders, everything, turns=turns)
    harness.compare(
        f"list {sizes.folder:,} children, cold",
        contenders,
        everything,
        turns=turns,
        before=lambda system, _: system.clear_caches(),
    )
    pages = f"a page of {PAGE} among {sizes.folder:,} children"
    harness.compare(pages, contenders, page, turns=sizes.turns // 2 or 1)
    harness.compare(
        f"{pages}, cold",
        contenders,
        page,
        turns=sizes.turns // 5 or 1,
        before=lambda system, _: system.clear_caches(),
    )

    def add(system: System, turn: int) -> None:
        system.add([(f"/list/x{turn:06}", {})])

    def more(system: System, _: int) -> None:
        if len(system.children("/list", None, sizes.folder * 2)) <= sizes.folder:
            raise ValueError(f"the list must have more than {sizes.folder} names")

    after = f"list {sizes.folder:,} children after one was added"
    harness.prepare(contenders, lambda system: everything(system, 0), "listing")
    harness.compare(after, contenders, more, turns=turns, before=add)


def read_subtree(harness: Harness) -> None:
    """Read a whole subtree with all properties: one level, and a pyramid."""
    sizes = harness.sizes
    count = sizes.subtree
    contenders = harness.tree("main")

    def add(system: System) -> None:
        add_all(system, [("/wide", {}), *flat("/wide", count)])
        add_all(system, [("/deep", {}), *pyramid("/deep", count)])

    harness.prepare(contenders, add)
    for path, shape in (("/wide", "flat"), ("/deep", "pyramid")):

        def read(system: System, _: int, path: str = path) -> None:
            found = system.subtree(path)
            if found != count:
                raise ValueError(f"{path} must have {count} descendants, got {found}")

        harness.compare(
            f"read a subtree of {count:,} nodes, {shape}, cold",
            contenders,
            read,
            turns=sizes.long_turns * 2,
            before=lambda system, _: system.clear_caches(),
        )
        harness.compare(
            f"read a subtree of {count:,} nodes, {shape}, again", contenders, read, turns=sizes.long_turns * 2
        )
