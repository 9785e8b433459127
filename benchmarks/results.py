"""Results of a run: one record for each measurement, with the environment. They are stored as JSON lines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TextIO

from hbasemk.errors import InvalidValueError

PERCENTILE_NEEDS: Final = 100
"""The samples without which there is no 99th percentile."""


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement of one system.

    ``unit`` is ``s`` (for one operation), ``1/s``, ``B``, or the counted thing. ``samples`` is the number of samples, ``low``
    the smallest one, and ``p25`` and ``p75`` are the quartiles. ``p99`` is the 99th percentile, or None if there are fewer than
    :data:`PERCENTILE_NEEDS` samples. ``median`` is None if there are no samples; ``note`` then gives the reason.
    """

    store: str
    scenario: str
    operation: str
    system: str
    name: str
    role: str
    unit: str
    samples: int = 0
    median: float | None = None
    p25: float | None = None
    p75: float | None = None
    low: float | None = None
    p99: float | None = None
    note: str = ""
    failed: bool = False

    @property
    def better(self) -> str:
        """Return ``more`` if larger figures are better, else ``less``."""
        return "more" if self.unit == "1/s" else "less"


@dataclass(slots=True)
class Run:
    """The results of one run on one store."""

    run: str
    store: str
    environment: dict[str, Any]
    results: list[Result] = field(default_factory=list)

    def find(self, scenario: str, operation: str, system: str) -> Result | None:
        """Return one measurement, or None if the run does not have it."""
        for result in self.results:
            if (result.scenario, result.operation, result.system) == (scenario, operation, system):
                return result
        return None

    def groups(self) -> Iterator[tuple[str, str, list[Result]]]:
        """Yield each scenario and operation with the results of all systems, in the order of measurement."""
        grouped: dict[tuple[str, str], list[Result]] = {}
        for result in self.results:
            grouped.setdefault((result.scenario, result.operation), []).append(result)
        for (scenario, operation), found in grouped.items():
            yield scenario, operation, found


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """Return the number, median, quartiles, minimum and 99th percentile of samples, as fields of :class:`Result`."""
    if len(samples) > 1:
        p25, _, p75 = statistics.quantiles(samples, n=4, method="inclusive")
    else:
        p25 = p75 = samples[0]
    return {
        "samples": len(samples),
        "median": statistics.median(samples),
        "p25": p25,
        "p75": p75,
        "low": min(samples),
        "p99": statistics.quantiles(samples, n=100, method="inclusive")[-1]
        if len(samples) >= PERCENTILE_NEEDS
        else None,
    }


def write(run: Run, out: TextIO) -> None:
    """Write a run as JSON lines: first the run with its environment, then its results."""
    with Writer(run, out) as writer:
        for result in run.results:
            writer.write(result)


class Writer:
    """Writes a run as JSON lines while it is measured, so that an interruption loses no result. A context manager.

    Another line with the environment follows if the environment has changed at the end.
    """

    def __init__(self, run: Run, out: TextIO) -> None:
        self._run = run
        self._out = out
        self._head = ""

    def write(self, result: Result) -> None:
        """Write one result."""
        self._line({"kind": "result", "run": self._run.run, **asdict(result)})

    def __enter__(self) -> Writer:
        self._write_head()
        return self

    def __exit__(self, *_: object) -> None:
        self._write_head()

    def _write_head(self) -> None:
        run = self._run
        head = {"kind": "run", "run": run.run, "store": run.store, "environment": run.environment}
        if (text := json.dumps(head)) != self._head:
            self._line(head)
            self._head = text

    def _line(self, found: dict[str, Any]) -> None:
        self._out.write(json.dumps(found) + "\n")
        self._out.flush()


_TYPES: Final[dict[Any, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float | None": (float, int, type(None)),
}
_RESULT: Final = {one.name: _TYPES[one.type] for one in fields(Result)}
_RUN: Final = {"run": (str,), "store": (str,), "environment": (dict,)}
_ENVIRONMENT: Final = {"left_out": (dict,), "packages": (dict,), "load": (list,)}


def _check(found: dict[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    """Raise an error for a value of another type, and for a number that is not finite."""
    for name, value in found.items():
        if name in types and type(value) not in types[name]:
            raise TypeError(
                f"{name} must be {' or '.join(one.__name__ for one in types[name])}, not {type(value).__name__}"
            )
        if isinstance(value, (int, float)) and not math.isfinite(value):
            raise ValueError(f"{name} must be finite")


def read(files: Iterable[Path]) -> list[Run]:
    """Read the runs from files of JSON lines. Raises InvalidValueError for other content, and OSError."""
    runs: dict[str, Run] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidValueError(
                f"{file} must be a file of benchmark results in UTF-8, got other bytes ({error})"
            ) from error
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found = json.loads(line)
                if found["kind"] == "run":
                    _check(found, _RUN)
                    _check(found["environment"], _ENVIRONMENT)
                    run = runs.setdefault(found["run"], Run(found["run"], found["store"], {}))
                    run.environment = found["environment"]
                else:
                    _check(found, _RESULT)
                    given = {name: value for name, value in found.items() if name in _RESULT}
                    runs[found["run"]].results.append(Result(**given))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise InvalidValueError(
                    f"{file}, line {number} must be a benchmark result as --json writes it, got another text ({error!r})"
                ) from error
    return list(runs.values())
