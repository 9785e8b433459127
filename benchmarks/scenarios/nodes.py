"""The nodes that scenarios add: three properties each, in one folder or as a pyramid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from benchmarks.system import Properties, System

Nodes: TypeAlias = "list[tuple[str, Properties]]"

FAN_OUT = 10
CHUNK = 1000
"""Nodes in each commit of a preparation."""


def properties(number: int) -> Properties:
    """Return a number, a short text and a longer text."""
    return {"number": number, "title": f"node {number}", "text": f"{number:08} " * 8}


def flat(path: str, count: int, prefix: str = "") -> Nodes:
    """Return ``count`` children of an existing node."""
    return [(f"{path}/{prefix}{number:06}", properties(number)) for number in range(count)]


def pyramid(path: str, count: int) -> Nodes:
    """Return ``count`` nodes below an existing node, ten below each, level by level."""
    nodes: Nodes = []
    level = [path]
    while len(nodes) < count:
        names = [f"{parent}/{child}" for parent in level for child in range(FAN_OUT)][: count - len(nodes)]
        nodes += [(name, properties(len(nodes) + number)) for number, name in enumerate(names)]
        level = names
    return nodes


def add_all(system: System, nodes: Sequence[tuple[str, Properties]], chunk: int = CHUNK) -> None:
    """Add nodes in commits of ``chunk`` nodes."""
    for at in range(0, len(nodes), chunk):
        system.add(nodes[at : at + chunk])


def powers(most: int) -> Iterator[int]:
    """Yield 1, 2, 4 … up to ``most``."""
    number = 1
    while number <= most:
        yield number
        number *= 2
