"""The harness: it owns the trees of the systems and compares the systems turn by turn.

In each round of a comparison every system takes one turn, and each round starts with another system. Operations that are
compared with each other take turns in the same way. Other load on the machine and its temperature therefore affect all alike.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from benchmarks.garbage import own_collections
from benchmarks.registry import Entry
from benchmarks.results import Result, Run, spread
from benchmarks.sizes import Sizes
from benchmarks.system import System
from benchmarks.workers import Workers

Call: TypeAlias = Callable[[System, int], Any]
"""What a system does in a turn; the number is the turn's."""
WARM_UP = 5
"""One warm-up turn for each five measured turns."""


class TooSlowError(Exception):
    """A preparation reached the time limit."""


@dataclass(slots=True)
class Contender:
    """A system under test with its own tree."""

    entry: Entry
    system: System


@dataclass(slots=True, eq=False)
class _Measurement:
    """One operation of one system: the seconds of its measured turns, and of all its turns."""

    operation: str
    call: Call
    contender: Contender
    samples: list[float] = field(default_factory=list)
    spent: float = 0.0


class Harness:
    """One run on one store: create trees, compare systems, collect results.

    ``place`` is a folder, or ``host:port/prefix`` of an HBase. If a system does not support an operation or fails, its result
    has no figures and the other systems continue. A context manager; its exit removes all trees.
    """

    def __init__(
        self,
        run: Run,
        entries: Sequence[Entry],
        place: str,
        sizes: Sizes,
        report: Callable[[str], None] = lambda _: None,
        on_result: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self.run = run
        self.entries = entries
        self.sizes = sizes
        self.scenario = ""
        self._place = place
        self._report = report
        self._on_result = on_result
        self._trees: dict[str, list[Contender]] = {}
        self._folder: Path | None = None
        self._workers: Workers | None = None
        self._run_prefix = uuid.uuid4().hex[:6]

    # --- trees ---------------------------------------------------------------------------------------------

    def tree(self, name: str, include: Callable[[Entry], bool] = lambda entry: entry.single_process) -> list[Contender]:
        """Return each system's tree of this name. The first call creates the trees, empty.

        ``include`` selects the systems; the default selects those for scenarios of one process.
        """
        contenders = self._trees.get(name)
        if contenders is None:
            contenders = self._trees[name] = []
            for entry in self.entries:
                if include(entry):
                    try:
                        contenders.append(Contender(entry, entry.create(self.place_of(name, entry))))
                    except NotImplementedError as error:
                        self.leave_out(entry, error)
                    except Exception as error:  # the other systems continue
                        self.record_failure(entry, f"creating the tree {name!r}", error)
        return list(contenders)

    def leave_out(self, entry: Entry, error: NotImplementedError) -> None:
        """Note and report, once, that a system is not possible here."""
        left_out = self.run.environment.setdefault("left_out", {})
        if entry.key not in left_out:
            self._report(f"{entry.key} is left out: {error}")
        left_out[entry.key] = str(error)

    def drop(self, name: str) -> None:
        """Remove the trees of this name."""
        for contender in self._trees.pop(name, ()):
            try:
                contender.system.close()
            except Exception as error:
                self.record_failure(contender.entry, f"closing the tree {name!r}", error)

    @property
    def server(self) -> str:
        """``host:port`` of the HBase."""
        return self._place.partition("/")[0]

    def place_of(self, name: str, entry: Entry) -> str:
        """Return the place of a system's tree of this name."""
        if entry.store == "hbase":
            return f"{self._place}{self._run_prefix}_{name}_{entry.key}_"
        if self._folder is None:
            Path(self._place).mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="hbasemk-bench-", dir=self._place))
        return str(self._folder / f"{name}-{entry.key}")

    @property
    def workers(self) -> Workers:
        """The worker processes, created on first use."""
        if self._workers is None:
            self._workers = Workers()
        return self._workers

    # --- measuring -----------------------------------------------------------------------------------------

    def prepare(self, contenders: list[Contender], action: Callable[[System], Any], what: str = "preparing") -> None:
        """Call ``action`` with each system, without measuring. Removes systems that fail from ``contenders``."""
        for contender in list(contenders):
            try:
                action(contender.system)
            except TooSlowError as error:
                contenders.remove(contender)
                self.record_missing(contender.entry, what, str(error))
            except Exception as error:
                contenders.remove(contender)
                self.record_failure(contender.entry, what, error)

    def compare(
        self,
        operation: str,
        contenders: Sequence[Contender],
        call: Call,
        *,
        turns: int,
        loops: int = 1,
        before: Call | None = None,
        warm_up: bool = True,
    ) -> None:
        """Measure the seconds of ``call(system, turn)``, turn by turn. One call does the operation ``loops`` times.

        Measured turns count from 0; warm-up turns are negative. Each turn starts with an unmeasured call of ``before``.
        The harness cuts a system short after ``sizes.time_limit`` seconds.
        """
        self.compare_calls({operation: call}, contenders, turns=turns, loops=loops, before=before, warm_up=warm_up)

    def compare_calls(
        self,
        calls: Mapping[str, Call],
        contenders: Sequence[Contender],
        *,
        turns: int,
        loops: int = 1,
        before: Call | None = None,
        warm_up: bool = True,
    ) -> None:
        """Measure several operations whose times are compared with each other; the rest is as in :meth:`compare`.

        ``calls`` has the call of each operation. In each turn, the systems make the first call one after another, then the
        second one, and so on. So each call finds the processor's caches as the call of another system has left them.
        """
        measured = [
            _Measurement(operation, call, contender) for operation, call in calls.items() for contender in contenders
        ]
        self._report(f"{self.scenario}: {', '.join(calls)}")
        active = list(measured)
        with own_collections() as collect_young:
            for turn in range(-max(1, turns // WARM_UP) if warm_up else 0, turns):
                start = turn % max(1, len(active))
                for one in active[start:] + active[:start]:
                    system = one.contender.system
                    try:
                        if before is not None:
                            before(system, turn)
                        collect_young()
                        start_time = time.perf_counter()
                        one.call(system, turn)
                        taken = time.perf_counter() - start_time
                    except Exception as error:
                        active.remove(one)
                        one.samples.clear()
                        self._not_measured(one.contender, one.operation, error)
                        continue
                    one.spent += taken
                    if turn >= 0 or one.spent > self.sizes.time_limit:
                        one.samples.append(taken / loops)
                    if one.spent > self.sizes.time_limit:
                        active.remove(one)
        for one in measured:
            if one.samples:
                short = "cut short" if len(one.samples) < turns else ""
                self.record(one.contender, one.operation, "s", one.samples, note=short)

    def record(self, contender: Contender, operation: str, unit: str, samples: Sequence[float], note: str = "") -> None:
        """Record a measurement that a scenario made itself."""
        self.record_entry(contender.entry, operation, unit, samples, note)

    def record_entry(self, entry: Entry, operation: str, unit: str, samples: Sequence[float], note: str = "") -> None:
        """Record a measurement of a system that has no tree in this harness."""
        self._append(entry, operation, unit=unit, note=note, **spread(samples))

    def record_missing(self, entry: Entry, operation: str, note: str) -> None:
        """Record why there is no measurement. This does not count as a failure."""
        self._append(entry, operation, unit="", note=note)

    def record_failure(self, entry: Entry, operation: str, error: Exception) -> None:
        """Record and report the failure of a system."""
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        self._report(f"{entry.key} failed at {operation}: {''.join(traceback.format_exception(error))}")
        self._append(entry, operation, unit="", note=text.splitlines()[-1], failed=True)

    def _not_measured(self, contender: Contender, operation: str, error: Exception) -> None:
        if isinstance(error, NotImplementedError):
            self.record_missing(contender.entry, operation, "not possible")
        else:
            self.record_failure(contender.entry, operation, error)

    def _append(self, entry: Entry, operation: str, **fields: Any) -> None:
        name = entry.load().name
        result = Result(entry.store, self.scenario, operation, entry.key, name, entry.role, **fields)
        self.run.results.append(result)
        self._on_result(result)

    def start_time_limit(self) -> Callable[[], bool]:
        """Return a function that returns True once ``sizes.time_limit`` seconds from now have passed."""
        deadline = time.monotonic() + self.sizes.time_limit
        return lambda: time.monotonic() > deadline

    # --- the end -------------------------------------------------------------------------------------------

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._trees):
            self.drop(name)
        if self._workers is not None:
            self._workers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
