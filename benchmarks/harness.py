"""Comparing systems turn by turn in one run, and keeping their trees.

In every comparison system A, B, C … take one turn each, then A, B, C … the next, beginning with another one each time; so
what else the machine does, or how warm it is, meets all of them alike.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.registry import Entry
from benchmarks.results import Result, Run, spread
from benchmarks.sizes import Sizes
from benchmarks.system import System
from benchmarks.workers import Workers

WARM_UP = 5
"""A fifth as many turns as are measured come before them."""


class TooSlowError(Exception):
    """A preparation would have taken longer than anybody waits for."""


@dataclass(slots=True)
class Contender:
    """A system with a tree of its own."""

    entry: Entry
    system: System


class Harness:
    """One run on one store: makes trees for the systems, compares them, collects results.

    ``place`` is a folder, or ``host:port/prefix`` of an HBase. What a system cannot do, or fails at, becomes a result
    without figures; the others go on. A context manager: at its end all trees are removed.
    """

    def __init__(
        self,
        run: Run,
        entries: Sequence[Entry],
        place: str,
        sizes: Sizes,
        tell: Callable[[str], None] = lambda _: None,
        sink: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self.run = run
        self.entries = entries
        self.sizes = sizes
        self.scenario = ""
        self._place = place
        self._tell = tell
        self._sink = sink
        self._trees: dict[str, list[Contender]] = {}
        self._folder: Path | None = None
        self._workers: Workers | None = None
        self._made = f"{uuid.uuid4().hex[:6]}"

    # --- trees ---------------------------------------------------------------------------------------------

    def tree(self, name: str, where: Callable[[Entry], bool] = lambda entry: entry.alone) -> list[Contender]:
        """Each system's tree of this name, made and empty when it is first asked for.

        ``where`` chooses the systems: by itself those that are worth a comparison in one process.
        """
        made = self._trees.get(name)
        if made is None:
            made = self._trees[name] = []
            for entry in self.entries:
                if where(entry):
                    try:
                        made.append(Contender(entry, entry.load().create(self.place_of(name, entry))))
                    except NotImplementedError as error:
                        self.run.environment.setdefault("left_out", {})[entry.key] = str(error)
                    except Exception as error:  # whatever it is, the others go on
                        self.failed(entry, f"creating the tree {name!r}", error)
        return list(made)

    def drop(self, name: str) -> None:
        """Remove the trees of this name."""
        for contender in self._trees.pop(name, ()):
            try:
                contender.system.close()
            except Exception as error:
                self.failed(contender.entry, f"closing the tree {name!r}", error)

    @property
    def server(self) -> str:
        """``host:port`` of the HBase."""
        return self._place.partition("/")[0]

    def place_of(self, name: str, entry: Entry) -> str:
        """Where a system's tree of a name is made."""
        if entry.store == "hbase":
            return f"{self._place}{self._made}_{name}_{entry.key}_"
        if self._folder is None:
            Path(self._place).mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="hbasemk-bench-", dir=self._place))
        return str(self._folder / f"{name}-{entry.key}")

    @property
    def workers(self) -> Workers:
        """Processes that wait for work; started when first asked for."""
        if self._workers is None:
            self._workers = Workers()
        return self._workers

    # --- measuring -----------------------------------------------------------------------------------------

    def prepare(self, contenders: list[Contender], action: Callable[[System], Any], what: str = "preparing") -> None:
        """Do something with each system that is not measured; one that fails is left out of ``contenders``."""
        for contender in list(contenders):
            try:
                action(contender.system)
            except TooSlowError as error:
                contenders.remove(contender)
                self.missing(contender.entry, what, str(error))
            except Exception as error:
                contenders.remove(contender)
                self.failed(contender.entry, what, error)

    def compare(
        self,
        operation: str,
        contenders: Sequence[Contender],
        call: Callable[[System, int], Any],
        *,
        turns: int,
        loops: int = 1,
        before: Callable[[System, int], Any] | None = None,
        warm_up: bool = True,
    ) -> None:
        """Seconds of ``call(system, turn)``, turn by turn; it does the operation ``loops`` times.

        Turns count from 0; those before, which are not measured, are negative. ``before`` is called before each turn and
        not measured. A system that has taken ``sizes.patience`` seconds is cut short.
        """
        self._tell(f"{self.scenario}: {operation}")
        samples: dict[int, list[float]] = {number: [] for number in range(len(contenders))}
        spent = dict.fromkeys(samples, 0.0)
        active = list(samples)
        gc.collect()
        # What systems hold by now is no part of what a turn costs.
        gc.freeze()
        try:
            for turn in range(-max(1, turns // WARM_UP) if warm_up else 0, turns):
                start = turn % max(1, len(active))
                for number in active[start:] + active[:start]:
                    contender = contenders[number]
                    try:
                        if before is not None:
                            before(contender.system, turn)
                        began = time.perf_counter()
                        call(contender.system, turn)
                        taken = time.perf_counter() - began
                    except Exception as error:
                        active.remove(number)
                        self._not_measured(contender, operation, error)
                        continue
                    spent[number] += taken
                    if turn >= 0 or spent[number] > self.sizes.patience:
                        samples[number].append(taken / loops)
                    if spent[number] > self.sizes.patience:
                        active.remove(number)
        finally:
            gc.unfreeze()
        for number, contender in enumerate(contenders):
            if samples[number]:
                short = "cut short" if len(samples[number]) < turns and number not in active else ""
                self.add(contender, operation, "s", samples[number], note=short)

    def add(self, contender: Contender, operation: str, unit: str, samples: Sequence[float], note: str = "") -> None:
        """Take a measurement made in another way."""
        self.note(contender.entry, operation, unit, samples, note)

    def note(self, entry: Entry, operation: str, unit: str, samples: Sequence[float], note: str = "") -> None:
        """The same for a system that has no tree here."""
        self._take(entry, operation, unit=unit, note=note, **spread(samples))

    def missing(self, entry: Entry, operation: str, note: str) -> None:
        """Say why there is no measurement; that is no failure."""
        self._take(entry, operation, unit="", note=note)

    def failed(self, entry: Entry, operation: str, error: Exception) -> None:
        """Say that a system failed."""
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        self._tell(f"{entry.key} failed, {operation}: {''.join(traceback.format_exception(error))}")
        self._take(entry, operation, unit="", note=text.splitlines()[-1], failed=True)

    def _not_measured(self, contender: Contender, operation: str, error: Exception) -> None:
        if isinstance(error, NotImplementedError):
            self.missing(contender.entry, operation, "not possible")
        else:
            self.failed(contender.entry, operation, error)

    def _take(self, entry: Entry, operation: str, **given: Any) -> None:
        name = entry.load().name
        result = Result(entry.store, self.scenario, operation, entry.key, name, entry.role, **given)
        self.run.results.append(result)
        self._sink(result)

    def patience(self) -> Callable[[], bool]:
        """A function that tells when the patience with a preparation that begins now is at an end."""
        deadline = time.monotonic() + self.sizes.patience
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
