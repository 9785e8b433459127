"""One run: the systems that can be had, the scenarios that were asked for, the results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from benchmarks.environment import environment
from benchmarks.harness import Harness
from benchmarks.registry import Entry, MissingPackageError, Store, entries
from benchmarks.results import Result, Run
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import Sizes
from hbasemk.errors import InvalidValueError


class Place(NamedTuple):
    """Where trees are made: the store, and what :meth:`System.create` makes places of."""

    store: Store
    where: str


def place_of(text: str) -> Place:
    """The place that a folder, or the URL of an HBase or of a folder, names; raises InvalidValueError."""
    parts = urlsplit(text)
    if parts.scheme == "hbase":
        if not parts.hostname:
            raise InvalidValueError(f"{text!r} is no URL of an HBase; write hbase://host:port/?prefix=name_")
        prefix = parse_qs(parts.query).get("prefix", ["bench_"])[0]
        return Place("hbase", f"{parts.hostname}:{parts.port or 9090}/{prefix}")
    if parts.scheme == "sqlite":
        return Place("sqlite", parts.path[1:] or ".")
    if parts.scheme:
        raise InvalidValueError(f"{text!r}: benchmarks run in a folder, or on hbase://host:port/?prefix=name_")
    return Place("sqlite", text)


def choose(store: Store, wanted: Sequence[str]) -> tuple[list[Entry], dict[str, str]]:
    """The systems of a store (only those of some keys, if any are given), and why others are left out."""
    found: list[Entry] = []
    left_out: dict[str, str] = {}
    for entry in entries(store):
        if wanted and entry.key not in wanted:
            continue
        try:
            entry.load()
            found.append(entry)
        except MissingPackageError as error:
            left_out[entry.key] = str(error)
    return found, left_out


def measure(
    place: Place,
    sizes: Sizes,
    *,
    scenarios: Sequence[str] = (),
    systems: Sequence[str] = (),
    remark: str = "",
    tell: Callable[[str], None] = lambda _: None,
    sink: Callable[[Result], None] = lambda _: None,
) -> Run:
    """Run scenarios (all, if none are named) on the systems of a place's store.

    ``tell`` gets a line now and then, ``sink`` each result at once. Raises InvalidValueError for an unknown scenario.
    """
    unknown = [name for name in scenarios if name not in SCENARIOS]
    if unknown:
        raise InvalidValueError(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    chosen, left_out = choose(place.store, systems)
    run = Run(uuid.uuid4().hex[:8], place.store, environment(sizes, remark))
    run.environment["left_out"] = left_out
    for key, reason in left_out.items():
        tell(f"{key} is left out: {reason}")
    with Harness(run, chosen, place.where, sizes, tell, sink) as harness:
        for name in scenarios or SCENARIOS:
            harness.scenario = name
            SCENARIOS[name](harness)
    return run
