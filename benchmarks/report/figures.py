"""Format figures, and compare systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.registry import entries
from benchmarks.results import Result, Run

_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "1/s": ((1, "/s"),),
    "%": ((1, "%"),),
}


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor and the name of the unit that suits a value."""
    scales = _SCALES.get(unit, ((1, ""),))
    return next((one for one in scales if abs(value) >= one[0]), scales[-1])


def quantity(value: float, unit: str) -> str:
    """Format a value with its unit, in three significant digits."""
    factor, name = _scale(value, unit)
    return f"{_digits(value / factor)} {name}".rstrip()


def _digits(value: float) -> str:
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def with_spread(result: Result, *, brief: bool = False) -> str:
    """Format the median, and in brackets the quartiles and the 99th percentile, unless ``brief``."""
    if result.median is None:
        return "failed" if result.failed else "-"
    factor, name = _scale(result.median, result.unit)
    spread = ""
    if not brief and result.p25 is not None and result.p75 is not None and result.p25 != result.p75:
        highest = "" if result.p99 is None else f", p99 {quantity(result.p99, result.unit)}"
        spread = f" ({_digits(result.p25 / factor)}-{_digits(result.p75 / factor)}{highest})"
    return f"{_digits(result.median / factor)} {name}".rstrip() + spread


@dataclass(frozen=True, slots=True)
class Line:
    """One operation with the result of each system."""

    scenario: str
    operation: str
    found: dict[str, Result]

    @property
    def to_baseline(self) -> float | None:
        """hbasemk's median divided by the baseline's."""
        return self._ratio([self.found["baseline"]] if "baseline" in self.found else [])

    @property
    def to_peer(self) -> float | None:
        """hbasemk's median divided by that of the best peer."""
        return self._ratio([result for result in self.found.values() if result.role == "peer"])

    def _ratio(self, others: Sequence[Result]) -> float | None:
        own = self.found.get("hbasemk")
        medians = [result.median for result in others if result.median]
        if own is None or own.median is None or own.unit == "retries" or not medians:
            return None
        return own.median / (max(medians) if own.better == "more" else min(medians))


def lines(run: Run) -> list[Line]:
    """Return all operations of a run."""
    return [
        Line(scenario, operation, {result.system: result for result in found})
        for scenario, operation, found in run.groups()
    ]


def columns(run: Run, scenario: str | None = None) -> dict[str, str]:
    """Return the keys and names of systems with results in a scenario (default: any), in the registry's order."""
    names = {result.system: result.name for result in run.results if scenario in {None, result.scenario}}
    return {entry.key: names[entry.key] for entry in entries(run.store) if entry.key in names}  # type: ignore[arg-type]


def headers(columns: dict[str, str]) -> list[str]:
    """Return the headers of a table of operations, without the first one; :func:`cells` returns the cells below them."""
    found: list[str] = []
    for key, name in columns.items():
        found.append(name)
        if key == "hbasemk" and len(columns) > 1:
            found += ["÷ baseline", "÷ best peer"] if set(columns) - {"hbasemk", "baseline"} else ["÷ baseline"]
    return found


def cells(line: Line, columns: dict[str, str], *, brief: bool = False) -> list[str]:
    """Return the cells of a line below :func:`headers`. ``brief`` omits the quartiles."""
    found: list[str] = []
    for key in columns:
        found.append(with_spread(line.found[key], brief=brief) if key in line.found else "")
        if key == "hbasemk" and len(columns) > 1:
            found.append(ratio(line.to_baseline))
            if set(columns) - {"hbasemk", "baseline"}:
                found.append(ratio(line.to_peer))
    return found


def ratio(value: float | None) -> str:
    """Format a ratio."""
    return "" if value is None else f"{value:.2f}"


def notes(run: Run) -> list[str]:
    """Return the notes below the tables: systems left out, measurements cut short, failures."""
    notes = [f"{key} was left out: {reason}" for key, reason in run.environment.get("left_out", {}).items()]
    for result in run.results:
        if result.note and result.note != "not possible":
            state = "failed" if result.failed else ("" if result.median is None else "measured in part")
            notes.append(": ".join(part for part in (result.name, result.operation, state, result.note) if part))
    return notes


def describe(run: Run) -> str:
    """Describe the environment in one paragraph."""
    found = run.environment
    packages = ", ".join(f"{name} {version}" for name, version in found.get("packages", {}).items())
    parts = [
        found.get("when"),
        found.get("python"),
        found.get("system"),
        f"{found.get('cores')} cores ({found.get('processor')})",
        f"SQLite {found.get('sqlite')}",
        packages,
        f"load average at the start {', '.join(map(str, found.get('load', ())))}",
        found.get("remark"),
    ]
    return "; ".join(str(part) for part in parts if part)
