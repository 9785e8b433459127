"""The nodes that scenarios add: three properties each, flat in one folder or as a pyramid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from benchmarks.system import Properties, System

Nodes: TypeAlias = "list[tuple[str, Properties]]"

FAN_OUT = 10
CHUNK = 1000
"""Nodes a commit where a tree is only prepared."""


def properties(number: int) -> Properties:
    """A number, a short text and a longer one."""
    return {"number": number, "title": f"node {number}", "text": f"{number:08} " * 8}


def flat(path: str, count: int, prefix: str = "") -> Nodes:
    """So many children of a node that is there."""
    return [(f"{path}/{prefix}{number:06}", properties(number)) for number in range(count)]


def pyramid(path: str, count: int) -> Nodes:
    """So many nodes below a node that is there, ten below each, level by level."""
    made: Nodes = []
    level = [path]
    while len(made) < count:
        names = [f"{parent}/{child}" for parent in level for child in range(FAN_OUT)][: count - len(made)]
        made += [(name, properties(len(made) + number)) for number, name in enumerate(names)]
        level = names
    return made


def add_all(system: System, nodes: Sequence[tuple[str, Properties]], chunk: int = CHUNK) -> None:
    """Add nodes in commits of a moderate size."""
    for at in range(0, len(nodes), chunk):
        system.add(nodes[at : at + chunk])


def powers(most: int) -> Iterator[int]:
    """1, 2, 4 … up to ``most``."""
    number = 1
    while number <= most:
        yield number
        number *= 2
