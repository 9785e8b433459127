"""The aims, and what a run says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.results import Result, Run


@dataclass(frozen=True, slots=True)
class Reached:
    """One aim: in words, what was reached in words, and whether that is enough (None: not measured)."""

    store: str
    aim: str
    reached: str
    enough: bool | None


def evaluate(runs: list[Run]) -> list[Reached]:
    """All aims on the stores of these runs."""
    told: list[Reached] = []
    for run in runs:
        told += _HBASE(run) if run.store == "hbase" else _EMBEDDED(run)
        told += _idle(run)
    return told


def _on_hbase(run: Run) -> Iterator[Reached]:
    yield _times(run, "a conflict-free commit of one node", "set", "set one property", 1.25, "its raw calls", floor)
    hot = _median(run, "read", "read a node, hot", "hbasemk")
    rate = None if hot is None else 1 / hot
    yield _told(
        run,
        "reads at head from the cache: at least 300,000 a second",
        "" if rate is None else f"{rate:,.0f} a second",
        None if rate is None else rate >= 300_000,
    )
    yield _times(run, "a read of a node that is not cached", "read", "read a node, warm", 1.15, "a raw get", floor)
    for shape in ("flat", "pyramid"):
        pattern = f"read a subtree of .* nodes, {shape}, cold"
        yield _times(run, f"a subtree, {shape}", "subtree", pattern, 1.3, "the raw multi-gets", floor)
    yield _scaling(run)
    yield _siblings(run)


def _embedded(run: Run) -> Iterator[Reached]:
    for what, scenario, pattern, least in (
        ("durable commits a second, one property set", "set", "set one property", 1.0),
        ("durable commits a second, one node added", "add", "add one node", 1.0),
        ("cold reads a second", "read", "read a node, cold", 1.0),
        ("warm reads a second", "read", "read a node, warm", 1.0),
        ("bulk load, nodes a second", "load", "bulk load of .*", 2.0),
    ):
        yield _faster(run, what, scenario, pattern, least)


_HBASE: Callable[[Run], Iterator[Reached]] = _on_hbase
_EMBEDDED: Callable[[Run], Iterator[Reached]] = _embedded


def _idle(run: Run) -> Iterator[Reached]:
    calls = _median(run, "idle", "idle: calls for each poll", "hbasemk")
    yield _told(
        run,
        "an idle poll is one call",
        "" if calls is None else f"{calls:.2f} calls",
        None if calls is None else calls <= 1,
    )
    share = _median(run, "idle", "idle: share of a core", "hbasemk")
    yield _told(
        run,
        "an idle instance takes less than 1 % of a core",
        "" if share is None else f"{share:.2f} %",
        None if share is None else share < 1,
    )


# --- looking results up -------------------------------------------------------------------------------------


def floor(result: Result) -> bool:
    """Whether a result is the floor's."""
    return result.role == "floor"


def peer(result: Result) -> bool:
    """Whether a result is a peer's."""
    return result.role == "peer"


def _matching(run: Run, scenario: str, pattern: str) -> list[Result]:
    return [
        result
        for result in run.results
        if result.scenario == scenario and result.median is not None and re.fullmatch(pattern, result.operation)
    ]


def _median(run: Run, scenario: str, pattern: str, system: str) -> float | None:
    return next((one.median for one in _matching(run, scenario, pattern) if one.system == system), None)


def _told(run: Run, aim: str, reached: str, enough: bool | None) -> Reached:
    return Reached(run.store, aim, reached or "not measured", enough)


def _times(
    run: Run, what: str, scenario: str, pattern: str, most: float, other: str, which: Callable[[Result], bool]
) -> Reached:
    ours = _median(run, scenario, pattern, "hbasemk")
    others = [result.median for result in _matching(run, scenario, pattern) if which(result) and result.median]
    aim = f"{what}: at most {most:g} times {other}"
    if ours is None or not others:
        return _told(run, aim, "", None)
    times = ours / min(others)
    return _told(run, aim, f"{times:.2f} times", times <= most)


def _faster(run: Run, what: str, scenario: str, pattern: str, least: float) -> Reached:
    ours = _median(run, scenario, pattern, "hbasemk")
    others = [result for result in _matching(run, scenario, pattern) if peer(result) and result.median]
    aim = f"{what}: at least {least:g} times the better of ZODB and RelStorage"
    if ours is None or not others:
        return _told(run, aim, "", None)
    best = min(others, key=lambda result: result.median or 0)
    times = (best.median or 0) / ours
    return _told(run, aim, f"{times:.2f} times {best.name}", times >= least)


def _scaling(run: Run) -> Reached:
    aim = "4 processes on disjoint nodes: at least 1.8 times one, or the floor's own scaling if that is less"
    rates = {
        (system, count): _median(run, "processes", f"{count} process(es)? on disjoint nodes", system)
        for system in ("hbasemk", "floor")
        for count in (1, 4)
    }
    if not all(rates.values()):
        return _told(run, aim, "", None)
    ours, floors = ((rates[system, 4] or 0) / (rates[system, 1] or 1) for system in ("hbasemk", "floor"))
    return _told(run, aim, f"{ours:.2f} times, the floor {floors:.2f} times", ours >= min(1.8, floors))


def _siblings(run: Run) -> Reached:
    aim = "siblings added by 8 processes at once: no retries"
    again = _median(run, "processes", "8 processes adding children below one parent: retries", "hbasemk")
    return _told(run, aim, "" if again is None else f"{again:g} retries", None if again is None else again == 0)
