"""Record histories of real processes on a real store, which are killed and paused while they run.

The conductor starts workers, disturbs them for a while, and ends them. Then a fresh instance resolves pending outcomes,
reads everything and checks the repository.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hbasemk.check import IntegrityCheck, Problem
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import Settings
from hbasemk.opening import connect
from hbasemk.repository import Repository, instance_of
from hbasemk.testing.history.anomalies import Anomaly
from hbasemk.testing.history.recorder import Attempt, Moments
from hbasemk.testing.history.records import History
from hbasemk.testing.history.resolve_outcomes import judge
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.worker_process import MOST_WORKERS, appending, read_all
from hbasemk.testing.history.workloads import WORKLOADS

SHORT: Final = Settings(max_clock_skew_ms=500, lease_ms=2000)
"""Settings with short leases."""
PAST_THE_LEASE: Final = (SHORT.lease_ms + SHORT.max_clock_skew_ms) / 1000 + 0.5
A_MOMENT: Final = 0.3
"""The time in seconds of a pause that has no consequences."""
ENDING: Final = 60.0
"""The time in seconds that a worker may take to end after SIGTERM."""

Harm = Callable[[], object]


@dataclass
class RunReport:
    """The result of a run; ``harm`` counts the disturbances of the workers, by name."""

    history: History
    anomalies: list[Anomaly]
    problems: list[Problem]
    harm: dict[str, int]

    def explain(self) -> str:
        """Return the counterexamples and the problems of the integrity check."""
        found = [anomaly.explain(self.history) for anomaly in self.anomalies]
        return "\n\n".join([*found, *map(str, self.problems)])

    def __str__(self) -> str:
        outcomes = [one.outcome for one in self.history]
        ends = ", ".join(f"{outcomes.count(end)} {end}" for end in sorted(set(outcomes)))
        harm = ", ".join(f"{name} {count} times" for name, count in self.harm.items())
        return (
            f"{len(self.history)} transactions of {len({one.instance for one in self.history})} instances ({ends}); "
            f"{harm}; {len(self.anomalies)} anomalies, {len(self.problems)} problems"
        )


@dataclass
class Conductor:
    """Starts, disturbs and ends the workers of one history.

    ``url`` is the repository's URL; ``workers_url`` is the URL that the workers use. ``directory`` receives the history; it
    must have none yet. ``more`` are further kinds of disturbances, by name.
    """

    url: str
    directory: Path
    seed: int
    workers_url: str = ""
    workers: int = 4
    more: Mapping[str, Harm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._origin = time.monotonic()
        self._moments = Moments(time.monotonic)
        self._running: list[subprocess.Popen[bytes]] = []
        self._paused: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._started = 0
        self._harm: dict[str, int] = {}
        self._next: list[str] = []

    def run(self, seconds: float) -> RunReport:
        """Create the repository, run the workers, and check their history; raises RuntimeError if a worker fails by itself."""
        if any(self.directory.glob("*.history")):
            raise ValueError(
                f"directory must have no files of another history, got {str(self.directory)!r}; remove them, or use another one"
            )
        with connect(self.url, settings=SHORT, poll_interval=0) as repository:
            self._worker("setup", repository).prepare(_prepare)
        try:
            for _ in range(self.workers):
                self._start()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(self._chance.uniform(0.2, 1.5))
                self._do_harm()
                self._wake(time.monotonic())
                self._check_running()
            while self._paused:
                time.sleep(0.1)
                self._wake(time.monotonic())
            self._end()
        finally:
            for process in self._running:
                process.kill()
                process.wait()
        return self._judge()

    # --- processes ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        number = self._started
        if number == MOST_WORKERS:
            return
        self._started += 1
        command = [sys.executable, "-m", "hbasemk.testing.history.worker_process", self.workers_url or self.url]
        command += [str(self._file(f"w{number}")), f"--number={number}", f"--seed={self.seed * 1000 + number}"]
        with self._file(f"w{number}.err").open("wb") as errors:
            self._running.append(subprocess.Popen([*command, f"--origin={self._origin}"], stderr=errors))

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.history" if "." not in name else self.directory / name

    def _do_harm(self) -> None:
        """Disturb a worker; each round uses all kinds in a new order, so that a short run has each of them."""
        kinds: dict[str, Harm] = {
            "killed": self._kill,
            "paused": lambda: self._pause(A_MOMENT),
            "paused past the lease": lambda: self._pause(PAST_THE_LEASE),
            **self.more,
        }
        if not self._next:
            self._next = self._chance.sample(list(kinds), len(kinds))
        name = next((one for one in self._next if kinds[one]() is not False), None)
        if name is None:
            self._next = []
        else:
            self._next.remove(name)
            self._harm[name] = self._harm.get(name, 0) + 1

    def _awake(self) -> list[subprocess.Popen[bytes]]:
        asleep = [process for _, process in self._paused]
        return [process for process in self._running if process not in asleep and process.poll() is None]

    def _kill(self) -> bool:
        awake = self._awake()
        if not awake or self._started == MOST_WORKERS:
            return False
        process = self._chance.choice(awake)
        process.kill()
        process.wait()
        self._running.remove(process)
        self._start()
        return True

    def _pause(self, seconds: float) -> bool:
        awake = self._awake()
        if len(awake) < 2:
            return False
        process = self._chance.choice(awake)
        process.send_signal(signal.SIGSTOP)
        self._paused.append((time.monotonic() + seconds, process))
        return True

    def _wake(self, now: float) -> None:
        for wakes_at, process in list(self._paused):
            if wakes_at <= now:
                self._paused.remove((wakes_at, process))
                process.send_signal(signal.SIGCONT)

    def _check_running(self) -> None:
        for process in self._running:
            if process.poll() is not None:
                raise RuntimeError(
                    f"a worker ended unexpectedly with status {process.returncode}; see {self.directory}"
                )

    def _end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            # A worker that has just started may not handle SIGTERM yet.
            if process.wait(ENDING) not in (0, -signal.SIGTERM):
                raise RuntimeError(f"a worker ended with status {process.returncode}; see {self.directory}")

    # --- the end -----------------------------------------------------------------------------------------

    def _worker(self, name: str, repository: Repository) -> Worker:
        return Worker(
            name,
            instance_of(repository),
            appending(self._file(name)),
            self._moments,
            self._chance,
            number=MOST_WORKERS - 1,
            workers=MOST_WORKERS,
        )

    def _judge(self) -> RunReport:
        time.sleep(PAST_THE_LEASE)
        with connect(self.url, create=False, poll_interval=0) as repository:
            fresh_instance = instance_of(repository)
            fresh_instance.clock.next(0)
            fresh_instance.maintain()
            # Another instance sweeps a losing revision only after its writer's lease has expired.
            time.sleep(PAST_THE_LEASE)
            fresh_instance.poll()
            fresh_instance.maintain()
            # Late rows, which no poll returns: instances search for them only once an hour.
            fresh_instance.recovery.recover_late()
            polled = self._moments()
            fresh_instance.poll()
            attempt = Attempt(
                self._worker("fresh_instance", repository), fresh_instance.head(), "fresh_instance.all", "snapshot"
            )
            read_all(attempt)
            attempt.record("committed", polled=polled)
            recorded = History.load(sorted(self.directory.glob("*.history")))
            self._all_ended(recorded, fresh_instance)
            history, anomalies = judge(recorded, fresh_instance)
            return RunReport(history, anomalies, list(IntegrityCheck(fresh_instance).run()), self._harm)

    def _all_ended(self, history: History, fresh_instance: Instance) -> None:
        for one in history:
            if one.outcome == "unknown" and one.revision is not None:
                outcome = fresh_instance.outcome(int(one.revision, 16))
                if outcome is Outcome.PENDING:
                    raise RuntimeError(f"revision {one.revision} is still pending after its writer's lease has expired")


def _prepare(attempt: Attempt) -> None:
    for workload in WORKLOADS.values():
        workload.prepare(attempt)
