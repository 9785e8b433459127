"""Scenarios of numbers that many processes change: adjusts beside sets and increments, and reads of adjusted numbers."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from benchmarks.harness import Call, Harness
from benchmarks.scenarios.multiprocess import compare_kinds
from benchmarks.scenarios.nodes import properties
from benchmarks.system import System

SLOTS: Final = (1, 8, 64)
SPREAD: Final = 100
"""The number of nodes on which absent numbers are adjusted."""
KINDS: Final = {
    "disjoint": "setting numbers of their own",
    "adjust own": "adjusting numbers of their own",
    "adjust one": "adjusting one number",
    "increment one": "incrementing one number",
}


def adjust(harness: Harness) -> None:
    """Adjust, increment and set a number in one process; read numbers that 1, 8 and 64 writers have adjusted."""
    sizes = harness.sizes
    contenders = harness.tree("adjust")
    names = [f"/absent/{number}" for number in range(SPREAD)]

    def prepare(system: System) -> None:
        system.add([("/adjust", properties(0)), ("/absent", {}), *((path, {}) for path in names)])
        with suppress(NotImplementedError):
            system.adjust("/adjust", "number", 1)

    harness.prepare(contenders, prepare)
    harness.compare_calls(
        {
            "set one number": lambda system, turn: system.set("/adjust", "other", turn),
            "adjust one number": lambda system, _: system.adjust("/adjust", "number", 1),
            "increment one number": lambda system, _: system.increment("/adjust", "third"),
            "adjust an absent number": lambda system, turn: system.adjust(
                names[turn % SPREAD], f"n{turn // SPREAD}", 1
            ),
        },
        contenders,
        turns=sizes.turns,
    )
    _read(harness)
    # Its many commits would burden the trees of other scenarios.
    harness.drop("adjust")


def _read(harness: Harness) -> None:
    """Read numbers that the connection reads for the first time, after another read."""
    contenders = [one for one in harness.tree("adjust") if one.system.has_slots]
    nodes = {f"/slots/{count}": count for count in (0, *SLOTS)}
    most = max(SLOTS)

    def prepare(system: System) -> None:
        system.add([("/slots", {}), *((path, properties(1)) for path in nodes)])
        for path, count in nodes.items():
            system.adjust_in_slots(path, "number", count)
        # As many commits as the node with the most slots had.
        for number in range(most):
            system.set("/slots/0", "number", most - number)

    def clear(system: System, _: int) -> None:
        system.clear_caches()
        system.read("/adjust")

    harness.prepare(contenders, prepare)
    harness.compare_calls(
        {reading(count): _reader(path, count + 1) for path, count in nodes.items()},
        contenders,
        turns=max(1, harness.sizes.turns // 4),
        before=clear,
    )


def _reader(path: str, expected: int) -> Call:
    def read(system: System, _: int) -> None:
        found = system.read(path)
        if found is None or found["number"] != expected:
            raise ValueError(f"{path} must have the number {expected}, got {found!r}")

    return read


def reading(count: int) -> str:
    """Return the operation name of a read of a number with so many slots."""
    return (
        f"read a number with {count} slot{'' if count == 1 else 's'}"
        if count
        else f"read a number set {max(SLOTS)} times"
    )


def adjust_from_processes(harness: Harness) -> None:
    """Change numbers from one process and from many at once; the figures are commits per second, and retries."""
    compare_kinds(harness, "adjust_processes", KINDS, [1, harness.sizes.processes])
