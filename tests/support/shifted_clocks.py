"""Processes whose clocks step at random moments share one repository; some are paused or killed. Nothing may be lost.

A longer run than the test's, for example half an hour::

    python -m tests.support.shifted_clocks sqlite:////tmp/content.db --seconds 1800
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.support.load import load

WRITERS: Final = 4
OFFSETS: Final = (-10.0, -3.0, -0.5, 0.0, 0.0, 1.0, 4.0, 60.0, 600.0)
"""Seconds by which a process's wall clock is wrong. On HBase a process commits nothing while it is more than 5 s wrong."""
JUMPS: Final = (0.0, 0.0, 1.0, 4.0, -1.0)
"""Seconds by which the monotonic clocks jump ahead, or stand still (negative)."""
ERRORS: Final = {"StoreNotAppliedError", "ConflictError"}
ERRORS_ON_HBASE: Final = {*ERRORS, "ClockSkewError", "CommitUnknownError"}
"""The errors that writers and the merging process may raise: a step of the monotonic clock ends the time limit of a call."""


class Clocks:
    """Replaces this process's clocks by ones that step."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._wall = self._steady = 0.0
        self._last: dict[str, float] = {}
        self._lock = threading.Lock()
        self._time, self._time_ns, self._monotonic = time.time, time.time_ns, time.monotonic
        self._gettime = time.clock_gettime

    def install(self) -> None:
        """Replace the functions of the ``time`` module, and step the clocks in a thread from now on."""
        vars(time).update(
            time=lambda: self._time() + self._wall,
            time_ns=lambda: self._time_ns() + int(self._wall * 10**9),
            monotonic=lambda: self._never_back("monotonic", self._monotonic()),
            clock_gettime=lambda clock: self._never_back(str(clock), self._gettime(clock)),
        )
        threading.Thread(target=self._step, daemon=True).start()

    def _never_back(self, clock: str, now: float) -> float:
        with self._lock:
            self._last[clock] = max(self._last.get(clock, now), now + self._steady)
            return self._last[clock]

    def _step(self) -> None:
        while True:
            time.sleep(self._chance.uniform(0.05, 1.5))
            self._wall = self._chance.choice(OFFSETS)
            self._steady += self._chance.choice(JUMPS)


def install(chance: random.Random) -> None:
    """Replace the clocks of this process."""
    Clocks(chance).install()


def run(url: str, seconds: float, seed: str, folder: Path, longest_pause: float) -> dict[str, Any]:
    """Run all processes for so many seconds, check what they left, and return counts of what happened.

    ``longest_pause`` is that of SIGSTOP in seconds. Raises AssertionError for anything that was lost or wrong.
    """
    chance = random.Random(seed)
    allowed = ERRORS if url.startswith("sqlite") else ERRORS_ON_HBASE
    pauses = kills = 0
    roles = [*(f"write{number}" for number in range(WRITERS)), "read", "merge"]
    with load(url, seed, folder, roles, install) as processes:
        running = processes.running
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(0.2, 1.0))
            role = chance.choice(list(running))
            if role.startswith("write") and chance.random() < 0.2:
                running[role].kill()
                running.pop(role).join()
                processes.start(f"write{len(processes.names)}")
                kills += 1
            elif chance.random() < 0.5:
                os.kill(running[role].pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0.1, longest_pause))
                os.kill(running[role].pid, signal.SIGCONT)
                pauses += 1
            processes.check_alive()
        counts = processes.end()
        assert set(counts["errors"]) <= {f"{role}: {error}" for role in ("write", "merge") for error in allowed}, (
            counts["errors"]
        )
        return {**counts, "pauses": pauses, "kills": kills}


def main() -> None:
    """Run for as long as the command line says, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--longest-pause", type=float, default=30)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    given = parser.parse_args()
    print("seed", given.seed, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(given.url, given.seconds, given.seed, Path(folder), given.longest_pause)))


if __name__ == "__main__":
    main()
