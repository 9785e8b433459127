"""Scenarios of several processes: commits at once on nodes of their own, on a shared one, below one parent; and how soon one
process sees what another has committed.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from benchmarks.harness import Contender, Harness
from benchmarks.registry import Entry
from benchmarks.scenarios.nodes import powers, properties
from benchmarks.system import Properties
from benchmarks.workers import Gate

OWN: Final = 10
"""Nodes of each process."""
KINDS: Final = {
    "disjoint": "on disjoint nodes",
    "shared": "with 10 % on a shared node",
    "siblings": "adding children below one parent",
}
PAUSE: Final = 0.03
"""Seconds between two commits that another process waits for, if it asks all the time."""
SLOW_PAUSE: Final = 0.31
"""The same if it waits to be told; no multiple of a polling interval."""
LOOK: Final = 0.0002
"""Seconds between two looks of the one who waits."""
GIVE_UP: Final = 10.0


def processes(harness: Harness) -> None:
    """1, 2, 4 … processes that commit at once; commits a second of all together, and what had to be done again."""
    sizes = harness.sizes
    contenders = harness.tree("several", lambda entry: entry.several)
    for kind, words in KINDS.items():
        rates: dict[tuple[int, int], list[float]] = {}
        retries: dict[tuple[int, int], list[float]] = {}
        active = list(range(len(contenders)))
        spent = dict.fromkeys(active, 0.0)
        for turn in range(sizes.rounds):
            for count in powers(sizes.processes):
                for number in active[turn % max(1, len(active)) :] + active[: turn % max(1, len(active))]:
                    contender = contenders[number]
                    began = time.monotonic()
                    try:
                        rate, again = _round(harness, contender, kind, count, turn)
                    except Exception as error:
                        active.remove(number)
                        harness.failed(contender.entry, f"{count} processes {words}", error)
                        continue
                    rates.setdefault((count, number), []).append(rate)
                    retries.setdefault((count, number), []).append(again)
                    spent[number] += time.monotonic() - began
            active = [number for number in active if spent[number] < sizes.patience]
        for count in powers(sizes.processes):
            for number, contender in enumerate(contenders):
                if (count, number) in rates:
                    label = operation(kind, count)
                    short = "" if len(rates[count, number]) == sizes.rounds else "cut short"
                    harness.add(contender, label, "1/s", rates[count, number], short)
                    harness.add(contender, f"{label}: retries", "retries", retries[count, number])
    harness.drop("several")


def operation(kind: str, count: int) -> str:
    """The name of a measurement of some processes."""
    return f"{count} process{'es' if count > 1 else ''} {KINDS[kind]}"


def _round(harness: Harness, contender: Contender, kind: str, count: int, turn: int) -> tuple[float, int]:
    """Commits a second, and retries, of so many processes."""
    base = f"/{kind}{count}.{turn}"
    nodes: list[tuple[str, Properties]] = [(base, {"number": 0})]
    for number in range(count):
        nodes.append((f"{base}/{number}", {}))
        nodes += [(f"{base}/{number}/{own}", properties(own)) for own in range(OWN)]
    contender.system.add(nodes)
    commits = max(1, harness.sizes.commits // count)
    address = contender.system.connect()
    told = harness.workers.run(
        [
            (commit, (contender.entry, address, base, kind, number, commits, harness.sizes.patience / 4))
            for number in range(count)
        ]
    )
    seconds = max(one.ended for one in told) - min(one.began for one in told)
    return sum(one.commits for one in told) / seconds, sum(one.retries for one in told)


class Done(NamedTuple):
    """What one process did, and when on the machine's monotonic clock."""

    began: float
    ended: float
    commits: int
    retries: int


def commit(
    gate: Gate, entry: Entry, address: str, base: str, kind: str, number: int, commits: int, patience: float
) -> Done:
    """One of the processes: so many commits, or as many as it gets done in ``patience`` seconds."""
    system = entry.load().join(address)
    try:
        own = f"{base}/{number}"
        # What a first commit does besides (a lease, a connection) is not what is compared.
        system.set(own, "ready", 1)
        system.refresh()
        before = system.retries
        gate()
        began = time.monotonic()
        done = 0
        for turn in range(commits):
            if time.monotonic() - began > patience:
                break
            done += 1
            if kind == "siblings":
                system.add([(f"{base}/{number}-{turn}", properties(turn))])
            elif kind == "shared" and turn % 10 == number % 10:
                system.increment(base, "number")
            else:
                # Never the value that is there, which would be no change.
                system.set(f"{own}/{turn % OWN}", "number", OWN + turn)
        return Done(began, time.monotonic(), done, system.retries - before)
    finally:
        system.close()


def seen(harness: Harness) -> None:
    """Seconds from the call that commits until another process reads it: asking all the time, and waiting to be told."""
    sizes = harness.sizes
    contenders = harness.tree("seen", lambda entry: entry.several)
    harness.prepare(contenders, lambda system: system.add([("/seen", {"number": 0})]))
    # Polls of hbasemk look at what was committed within the allowed clock skew; now that is nothing.
    time.sleep(sizes.settle_seconds)
    harness.compare(
        "look for news when there are none",
        contenders,
        lambda system, _: system.refresh(),
        turns=sizes.turns,
    )
    for asking in (True, False):
        words = "until another process sees a commit, " + ("asking" if asking else "told by itself")
        waits: dict[int, list[float]] = {}
        chosen = [one for one in range(len(contenders)) if asking or contenders[one].system.notices]
        for turn in range(sizes.rounds):
            for number in list(chosen):
                contender = contenders[number]
                try:
                    waits.setdefault(number, []).extend(_wait(harness, contender, asking, turn))
                except Exception as error:
                    chosen.remove(number)
                    harness.failed(contender.entry, words, error)
        for number, found in waits.items():
            if found:
                harness.add(contenders[number], words, "s", found)
    harness.drop("seen")


def _wait(harness: Harness, contender: Contender, asking: bool, turn: int) -> list[float]:
    """For some commits, how long it took until they were seen."""
    first = 1 + 2 * turn * harness.sizes.long_turns + (0 if asking else harness.sizes.long_turns)
    values = range(first, first + harness.sizes.long_turns)
    address = contender.system.connect()
    begun, found = harness.workers.run(
        [
            (write, (contender.entry, address, values, PAUSE if asking else SLOW_PAUSE)),
            (watch, (contender.entry, address, values, asking)),
        ]
    )
    return [met - began for began, met in zip(begun, found, strict=True)]


def write(gate: Gate, entry: Entry, address: str, values: range, pause: float) -> list[float]:
    """The process that commits: when each commit began."""
    system = entry.load().join(address)
    try:
        system.set("/seen", "ready", 1)
        gate()
        begun = []
        for value in values:
            time.sleep(pause)
            begun.append(time.monotonic())
            system.set("/seen", "number", value)
        return begun
    finally:
        system.close()


def watch(gate: Gate, entry: Entry, address: str, values: range, asking: bool) -> list[float]:
    """The process that waits: when each value, or one after it, was first read."""
    system = entry.load().join(address)
    try:
        system.refresh()
        gate()
        met: list[float] = []
        last = time.monotonic()
        while len(met) < len(values):
            if asking:
                system.refresh()
            found = system.read("/seen")
            now = time.monotonic()
            value = -1 if found is None else int(found["number"])
            while value in values and len(met) <= value - values.start:
                met.append(now)
                last = now
            if now - last > GIVE_UP:
                raise TimeoutError(f"{values[len(met)]} was not seen within {GIVE_UP:g} s")
            time.sleep(LOOK)
        return met
    finally:
        system.close()
