"""Performance targets, and whether runs meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.results import Result, Run
from benchmarks.scenarios.adjust import KINDS, SLOTS, reading
from benchmarks.scenarios.writing import COMMIT, CYCLE, CYCLE_BESIDE


@dataclass(frozen=True, slots=True)
class TargetResult:
    """A target and the measured figure, both as text. ``met`` is None if there is no measurement."""

    store: str
    target: str
    measured: str
    met: bool | None


def evaluate(runs: list[Run]) -> list[TargetResult]:
    """Evaluate all targets for the stores of these runs."""
    evaluated: list[TargetResult] = []
    for run in runs:
        evaluated += _HBASE(run) if run.store == "hbase" else _EMBEDDED(run)
        evaluated += _branches(run)
        evaluated += _idle(run)
    return evaluated


def _on_hbase(run: Run) -> Iterator[TargetResult]:
    yield _times(
        run, "a conflict-free commit of one node", "set", "set one property", 1.25, "its raw calls", is_baseline
    )
    hot = _median(run, "read", "read a node, hot", "hbasemk")
    rate = None if hot is None else 1 / hot
    yield _result(
        run,
        "reads at head from the cache: at least 300,000 per second",
        "" if rate is None else f"{rate:,.0f} per second",
        None if rate is None else rate >= 300_000,
    )
    yield _times(
        run, "a read of a node that is not cached", "read", "read a node, warm", 1.15, "a raw get", is_baseline
    )
    for shape in ("flat", "pyramid"):
        pattern = f"read a subtree of .* nodes, {shape}, cold"
        yield _times(run, f"a subtree, {shape}", "subtree", pattern, 1.3, "the raw multi-gets", is_baseline)
    yield _scaling(run)
    yield _siblings(run)
    yield from _adjusts(run, 5)


def _embedded(run: Run) -> Iterator[TargetResult]:
    for what, scenario, pattern, least in (
        ("durable commits per second, one property set", "set", "set one property", 1.0),
        ("durable commits per second, one node added", "add", "add one node", 1.0),
        ("cold reads per second", "read", "read a node, cold", 1.0),
        ("warm reads per second", "read", "read a node, warm", 1.0),
        ("bulk load, nodes per second", "load", "bulk load of .*", 2.0),
    ):
        yield _faster(run, what, scenario, pattern, least)
    yield from _adjusts(run, 3)


def _branches(run: Run) -> Iterator[TargetResult]:
    commit = _median(run, "branch", COMMIT, "hbasemk")
    for operation, most in ((CYCLE, 6), (CYCLE_BESIDE, 7)):
        target = f"{operation}: at most {most} times a commit"
        yield _compared(run, target, commit, _median(run, "branch", operation, "hbasemk"), most=most)


def _adjusts(run: Run, increments: float) -> Iterator[TargetResult]:
    """``increments``: how many times faster than increments the adjusts of one number must be."""
    rates = {kind: _median(run, "adjust_processes", f"8 processes {words}", "hbasemk") for kind, words in KINDS.items()}
    retries = _median(run, "adjust_processes", f"8 processes {KINDS['adjust one']}: retries", "hbasemk")
    found = "" if retries is None else f"{retries:g} retries"
    yield _result(run, "8 processes adjusting one number: no retries", found, retries == 0 if found else None)
    for other, least in (("adjust own", 0.9), ("disjoint", 0.9), ("increment one", increments)):
        target = f"8 processes adjusting one number: at least {least:g} times the rate of {KINDS[other]}"
        yield _compared(run, target, rates[other], rates["adjust one"], least=least)
    set_one, adjust_one = (_median(run, "adjust", f"{what} one number", "hbasemk") for what in ("set", "adjust"))
    yield _compared(
        run, "one process adjusting: at least 0.95 times the rate of setting", adjust_one, set_one, least=0.95
    )
    plain = _median(run, "adjust", reading(0), "hbasemk")
    for count, most in zip(SLOTS, (1.05, 1.2, 2), strict=True):
        target = f"{reading(count)}: at most {most:g} times a number after as many commits"
        yield _compared(run, target, plain, _median(run, "adjust", reading(count), "hbasemk"), most=most)


_HBASE: Callable[[Run], Iterator[TargetResult]] = _on_hbase
_EMBEDDED: Callable[[Run], Iterator[TargetResult]] = _embedded


def _idle(run: Run) -> Iterator[TargetResult]:
    calls = _median(run, "idle", "idle: calls per poll", "hbasemk")
    yield _result(
        run,
        "an idle poll is one call",
        "" if calls is None else f"{calls:.2f} calls",
        None if calls is None else calls <= 1,
    )
    share = _median(run, "idle", "idle: share of a core", "hbasemk")
    yield _result(
        run,
        "an idle instance takes less than 1 % of a core",
        "" if share is None else f"{share:.2f} %",
        None if share is None else share < 1,
    )


# --- finding results -------------------------------------------------------------------------------------


def is_baseline(result: Result) -> bool:
    """Return whether a result belongs to the baseline."""
    return result.role == "baseline"


def is_peer(result: Result) -> bool:
    """Return whether a result belongs to a peer."""
    return result.role == "peer"


def _matching(run: Run, scenario: str, pattern: str) -> list[Result]:
    return [
        result
        for result in run.results
        if result.scenario == scenario and result.median is not None and re.fullmatch(pattern, result.operation)
    ]


def _median(run: Run, scenario: str, pattern: str, system: str) -> float | None:
    return next((one.median for one in _matching(run, scenario, pattern) if one.system == system), None)


def _result(run: Run, target: str, measured: str, met: bool | None) -> TargetResult:
    return TargetResult(run.store, target, measured or "not measured", met)


def _compared(
    run: Run, target: str, first: float | None, second: float | None, *, least: float = 0, most: float = float("inf")
) -> TargetResult:
    if not first or second is None:
        return _result(run, target, "", None)
    times = second / first
    return _result(run, target, f"{times:.2f} times", least <= times <= most)


def _times(
    run: Run, what: str, scenario: str, pattern: str, most: float, other: str, select: Callable[[Result], bool]
) -> TargetResult:
    own = _median(run, scenario, pattern, "hbasemk")
    others = [result.median for result in _matching(run, scenario, pattern) if select(result) and result.median]
    target = f"{what}: at most {most:g} times {other}"
    if own is None or not others:
        return _result(run, target, "", None)
    times = own / min(others)
    return _result(run, target, f"{times:.2f} times", times <= most)


def _faster(run: Run, what: str, scenario: str, pattern: str, least: float) -> TargetResult:
    own = _median(run, scenario, pattern, "hbasemk")
    others = [result for result in _matching(run, scenario, pattern) if is_peer(result) and result.median]
    target = f"{what}: at least {least:g} times the better of ZODB and RelStorage"
    if own is None or not others:
        return _result(run, target, "", None)
    best = min(others, key=lambda result: result.median or 0)
    times = (best.median or 0) / own
    return _result(run, target, f"{times:.2f} times {best.name}", times >= least)


def _scaling(run: Run) -> TargetResult:
    target = "4 processes on disjoint nodes: at least 1.8 times one, or the baseline's own scaling if that is less"
    rates = {
        (system, count): _median(run, "processes", f"{count} process(es)? on disjoint nodes", system)
        for system in ("hbasemk", "baseline")
        for count in (1, 4)
    }
    if not all(rates.values()):
        return _result(run, target, "", None)
    own, baseline = ((rates[system, 4] or 0) / (rates[system, 1] or 1) for system in ("hbasemk", "baseline"))
    return _result(run, target, f"{own:.2f} times, the baseline {baseline:.2f} times", own >= min(1.8, baseline))


def _siblings(run: Run) -> TargetResult:
    target = "siblings added by 8 processes at once: no retries"
    retries = _median(run, "processes", "8 processes adding children below one parent: retries", "hbasemk")
    return _result(
        run, target, "" if retries is None else f"{retries:g} retries", None if retries is None else retries == 0
    )
