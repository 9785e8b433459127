"""Scenarios of several processes: concurrent commits, and the latency until another process sees a commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.harness import Contender, Harness
from benchmarks.registry import Entry
from benchmarks.scenarios.nodes import powers, properties
from benchmarks.sizes import Sizes
from benchmarks.system import Properties
from benchmarks.workers import Gate

OWN: Final = 10
"""Nodes that each process owns."""
KINDS: Final = {
    "disjoint": "on disjoint nodes",
    "shared": "with 10 % on a shared node",
    "siblings": "adding children below one parent",
}
TIME: Final = ": time of a commit"
"""The end of the name of an operation whose figures are the seconds of a single commit, with its retries."""
PAUSE: Final = 0.03
"""Seconds between two commits while the reader refreshes explicitly."""
POLLED_PAUSE: Final = 0.31
"""Seconds between two commits while the reader polls in the background; not a multiple of the polling interval."""
READ_INTERVAL: Final = 0.0002
"""Seconds between two reads of the waiting process."""
VISIBLE_WITHIN: Final = 10.0
"""Seconds after which a commit that is still not visible is an error."""


def processes(harness: Harness) -> None:
    """Commit from 1, 2, 4 … processes at once: commits per second of all together, retries, and the time of a commit."""
    compare_kinds(harness, "multiprocess", KINDS, list(powers(harness.sizes.processes)))


def compare_kinds(harness: Harness, tree: str, kinds: Mapping[str, str], counts: Sequence[int]) -> None:
    """Commit from each number of processes at once, with each kind of commits; ``kinds`` has their words.

    The kinds take turns too: their rates are compared with each other. The retries of a round that the time limit cuts short
    are scaled to its planned commits.
    """
    sizes = harness.sizes
    contenders = harness.tree(tree, lambda entry: entry.multiprocess)
    active = {kind: list(contenders) for kind in kinds}
    rounds: dict[tuple[str, int, str], list[Round]] = {}
    spent: dict[tuple[str, str], float] = {}
    for turn in range(sizes.rounds):
        for kind, words in kinds.items():
            chosen = active[kind]
            start = turn % max(1, len(chosen))
            for count in counts:
                for contender in chosen[start:] + chosen[:start]:
                    entry = contender.entry
                    start_time = time.monotonic()
                    try:
                        done = _round(harness, contender, kind, count, turn)
                    except NotImplementedError:
                        chosen.remove(contender)
                        harness.record_missing(entry, operation(words, count), "not possible")
                        continue
                    except Exception as error:
                        chosen.remove(contender)
                        # An operation that fails has no figures, as in the harness.
                        rounds.pop((kind, count, entry.key), None)
                        harness.record_failure(entry, operation(words, count), error)
                        continue
                    rounds.setdefault((kind, count, entry.key), []).append(done)
                    spent[kind, entry.key] = spent.get((kind, entry.key), 0.0) + time.monotonic() - start_time
            active[kind] = [one for one in chosen if spent.get((kind, one.entry.key), 0.0) < sizes.time_limit]
    for kind, words in kinds.items():
        for count in counts:
            for contender in contenders:
                found = rounds.get((kind, count, contender.entry.key))
                if found is not None:
                    label = operation(words, count)
                    planned = commits_of_each(sizes, count) * count
                    made, most = sum(one.commits for one in found), planned * sizes.rounds
                    short = "" if made == most else f"cut short: {made:,} of {most:,} commits"
                    harness.record(contender, label, "1/s", [one.commits / one.seconds for one in found], short)
                    again = [one.retries * planned / one.commits for one in found]
                    harness.record(contender, f"{label}: retries", "retries", again)
                    harness.record(contender, f"{label}{TIME}", "s", [each for one in found for each in one.times])
    harness.drop(tree)


def operation(words: str, count: int) -> str:
    """Return the operation name of a measurement with ``count`` processes."""
    return f"{count} process{'es' if count > 1 else ''} {words}"


def commits_of_each(sizes: Sizes, count: int) -> int:
    """Return the commits that each of ``count`` processes makes in a round without a time limit."""
    return max(1, sizes.commits // count)


class Round(NamedTuple):
    """The commits and retries of all processes of a round, its seconds, and those of each commit with its retries."""

    commits: int
    retries: int
    seconds: float
    times: list[float]


def _round(harness: Harness, contender: Contender, kind: str, count: int, turn: int) -> Round:
    """Commit from ``count`` processes."""
    base = f"/{kind}{count}.{turn}"
    nodes: list[tuple[str, Properties]] = [(base, {"number": 0})]
    for number in range(count):
        nodes.append((f"{base}/{number}", {}))
        nodes += [(f"{base}/{number}/{own}", properties(own)) for own in range(OWN)]
    contender.system.add(nodes)
    commits = commits_of_each(harness.sizes, count)
    address = contender.system.address()
    outcomes = harness.workers.run(
        [
            (commit, (contender.entry, address, base, kind, number, commits, harness.sizes.time_limit / 4))
            for number in range(count)
        ]
    )
    seconds = max(one.ended for one in outcomes) - min(one.started for one in outcomes)
    return Round(
        sum(one.commits for one in outcomes),
        sum(one.retries for one in outcomes),
        seconds,
        [each for one in outcomes for each in one.times],
    )


class WorkResult(NamedTuple):
    """The work of one process, with its start and end on the machine's monotonic clock, and the seconds of each commit."""

    started: float
    ended: float
    commits: int
    retries: int
    times: Sequence[float] = ()


def commit(
    gate: Gate, entry: Entry, address: str, base: str, kind: str, number: int, commits: int, time_limit: float
) -> WorkResult:
    """Make ``commits`` commits in a worker process, or fewer if ``time_limit`` seconds pass."""
    system = entry.load().join(address)
    try:
        own = f"{base}/{number}"
        # The first commit also acquires a lease and connects; the measurement excludes that.
        system.set(own, "ready", 1)
        if kind.startswith("adjust"):
            # The first adjust may create a counter.
            system.adjust(own, "ready", 1)
            system.adjust(base, "number", 1)
        system.refresh()
        before = system.retries
        gate()
        times: list[float] = []
        started = last = time.monotonic()
        for turn in range(commits):
            if last - started > time_limit:
                break
            if kind == "siblings":
                system.add([(f"{base}/{number}-{turn}", properties(turn))])
            elif kind == "adjust own":
                system.adjust(own, "ready", 1)
            elif kind == "adjust one":
                system.adjust(base, "number", 1)
            elif kind == "increment one" or (kind == "shared" and turn % 10 == number % 10):
                system.increment(base, "number")
            else:
                # A new value each time: setting the current value would not be a change.
                system.set(f"{own}/{turn % OWN}", "number", OWN + turn)
            began, last = last, time.monotonic()
            times.append(last - began)
        return WorkResult(started, last, len(times), system.retries - before, times)
    finally:
        system.close()


def visibility_latency(harness: Harness) -> None:
    """Measure the seconds from the call of a commit until another process reads its value.

    The reader refreshes explicitly before each read, or waits for background polling.
    """
    sizes = harness.sizes
    contenders = harness.tree("visibility_latency", lambda entry: entry.multiprocess)
    harness.prepare(contenders, lambda system: system.add([("/visible", {"number": 0})]))
    # Wait until hbasemk has moved the watermark past these commits.
    time.sleep(sizes.skew_wait_seconds)
    harness.compare(
        "refresh without new commits",
        contenders,
        lambda system, _: system.refresh(),
        turns=sizes.turns,
    )
    for refreshing in (True, False):
        mode = "explicit refresh" if refreshing else "background polling"
        label = f"commit visible in another process, {mode}"
        waits: dict[int, list[float]] = {}
        chosen = [one for one in range(len(contenders)) if refreshing or contenders[one].system.background_refresh]
        for turn in range(sizes.rounds):
            start = turn % max(1, len(chosen))
            for number in chosen[start:] + chosen[:start]:
                contender = contenders[number]
                try:
                    waits.setdefault(number, []).extend(_wait(harness, contender, refreshing, turn))
                except Exception as error:
                    chosen.remove(number)
                    waits.pop(number, None)
                    harness.record_failure(contender.entry, label, error)
        for number, found in sorted(waits.items()):
            harness.record(contenders[number], label, "s", found)
    harness.drop("visibility_latency")


def _wait(harness: Harness, contender: Contender, refreshing: bool, turn: int) -> list[float]:
    """Return the seconds from the start of each commit until the other process read its value."""
    first = 1 + 2 * turn * harness.sizes.long_turns + (0 if refreshing else harness.sizes.long_turns)
    values = range(first, first + harness.sizes.long_turns)
    address = contender.system.address()
    started, visible = harness.workers.run(
        [
            (write, (contender.entry, address, values, PAUSE if refreshing else POLLED_PAUSE)),
            (watch, (contender.entry, address, values, refreshing)),
        ]
    )
    return [read - start for start, read in zip(started, visible, strict=True)]


def write(gate: Gate, entry: Entry, address: str, values: range, pause: float) -> list[float]:
    """Commit each value in a worker process. Returns the start time of each commit."""
    system = entry.load().join(address)
    try:
        system.set("/visible", "ready", 1)
        gate()
        started = []
        for value in values:
            time.sleep(pause)
            started.append(time.monotonic())
            system.set("/visible", "number", value)
        return started
    finally:
        system.close()


def watch(gate: Gate, entry: Entry, address: str, values: range, refreshing: bool) -> list[float]:
    """Read in a worker process. Returns for each value when the process first read it or a later one."""
    system = entry.load().join(address)
    try:
        system.refresh()
        gate()
        times: list[float] = []
        last = time.monotonic()
        while len(times) < len(values):
            if refreshing:
                system.refresh()
            found = system.read("/visible")
            now = time.monotonic()
            value = -1 if found is None else int(found["number"])
            while value in values and len(times) <= value - values.start:
                times.append(now)
                last = now
            if now - last > VISIBLE_WITHIN:
                raise TimeoutError(f"{values[len(times)]} was not visible within {VISIBLE_WITHIN:g} s")
            time.sleep(READ_INTERVAL)
        return times
    finally:
        system.close()
