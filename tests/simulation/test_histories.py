"""Histories of simulated runs: none has an anomaly, and histories alone find mutants of the kernel.

``HBASEMK_HISTORY_SEEDS=first:last`` runs others, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.errors import ConflictError
from hbasemk.kernel.commit.committer import Committer
from hbasemk.testing.choices import shrink
from hbasemk.testing.history import History, Kind, Read, Transaction, Write
from hbasemk.testing.history.simulated import Run, Simulated
from hbasemk.testing.history.workloads import SERIAL, WORKLOADS
from hbasemk.testing.history.workloads.workload import Workload
from tests.support import proof
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import ids, journal, outcomes, read_back, reading
from tests.support.simulation.schedules import store_like

SEEDS = proof.seeds("HBASEMK_HISTORY_SEEDS", sample=20, proof=120, chunk=100)
MIXED = [*WORKLOADS.values()]
RUNS: dict[str, tuple[Sequence[Workload], int]] = {
    **{name: ((workload,), 5) for name, workload in WORKLOADS.items()},
    "all together": (MIXED, 12),
}
FLOORS = {
    "registers": 4.0,
    "lists": 4.5,
    "bank": 4.0,
    "counters": 4.5,
    "children": 1.7,
    "subtrees": 2.0,
    "versions": 4.0,
    "skew": 4.5,
    "phantoms": 3.4,
    "adjusts": 5.0,
    "ledger": 5.5,
    "all together": 9.0,
}
"""The least number of committed transactions that wrote, in a history: about half of the average."""


def ran(seed: int, workloads: Sequence[Workload], turns: int, **options: Any) -> Simulated:
    """One history; every fourth seed runs without faults, every third on a store like SQLite, another third on one like HBase."""
    return Run(seed, workloads, turns=turns, faults=not without_faults(seed), **store_like(seed), **options).finish()


def without_faults(seed: int) -> bool:
    """Return whether the histories of a seed run without faults."""
    return seed % 4 == 3


def wrote(found: Simulated) -> int:
    """Return how many transactions wrote and committed, without the first one."""
    return sum(one.outcome == "committed" and one.writes and one.instance != "setup" for one in found.history)


def shortest(seed: int, workloads: Sequence[Workload], turns: int, found: Simulated) -> Simulated:
    """Shrink the run to a minimal one with the same kind of anomaly."""

    def fails(choices: list[int]) -> bool:
        try:
            again = ran(seed, workloads, turns, choices=choices)
        except Exception:
            return False
        return any(anomaly.kind is found.anomalies[0].kind for anomaly in again.anomalies)

    return ran(seed, workloads, turns, choices=shrink(found.simulator.chance.drawn, fails, 500))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_no_history_has_an_anomaly(seeds: range, name: str) -> None:
    workloads, turns = RUNS[name]
    transactions = written = 0
    for seed in seeds:
        try:
            found = ran(seed, workloads, turns)
            transactions += len(found.history)
            written += wrote(found)
            if found.anomalies:
                short = shortest(seed, workloads, turns, found)
                print(*short.simulator.trace, sep="\n")
                pytest.fail(short.explain())
            assert [str(problem) for problem in IntegrityCheck(found.fresh_instance).run()] == []
            if without_faults(seed):
                assert found.refused() == []
        except BaseException:
            print(f"repeat with HBASEMK_HISTORY_SEEDS={seed}:{seed + 1} pytest -k {name.split()[0]!r}")
            raise
    print(f"{name}: {len(seeds)} histories, {transactions} transactions, {written} of them wrote; no anomalies")
    assert len(seeds) < 20 or written >= FLOORS[name] * len(seeds)


@pytest.mark.parametrize("name", RUNS)
def test_a_kernel_that_refuses_commits_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workloads, turns = RUNS[name]

    def refuse(*_: Any, **__: Any) -> int:
        raise ConflictError("refused", path="/", column="", revision=None, other="")

    run = Run(3, workloads, faults=False, turns=turns)
    monkeypatch.setattr(Committer, "on_head", refuse)
    monkeypatch.setattr(Committer, "on_base", refuse)
    found = run.finish()
    assert found.anomalies == []
    assert wrote(found) == 0
    assert found.refused()


@pytest.mark.parametrize(
    ("isolation", "met", "others", "refused"),
    [
        ("snapshot", "/a#x", "snapshot", False),
        ("snapshot", "/a#y", "snapshot", True),
        ("serializable", "/a#y", "snapshot", False),
        ("serializable", "/b#x", "snapshot", True),
        ("snapshot", "/a#y", "serializable", False),
        ("snapshot", "/b#x", "serializable", True),
    ],
)
def test_a_conflict_without_an_overlapping_commit_is_reported(
    isolation: str, met: str, others: str, refused: bool
) -> None:
    # Longer runs found this: a serializable transaction may lose to another property of a node that it read, and so may
    # a transaction that writes a node that a serializable one read.
    found = Run(3, [WORKLOADS["registers"]], faults=False, turns=0).finish()
    tried = (Read("/a#x", None), Write("/a#x", "one"))
    one = Transaction("1", "one", tried, "aborted", 1.0, 2.0, isolation=isolation, call="one")
    other = Transaction("2", "other", (Write(met, "other"),), "committed", 1.0, 2.0, isolation=others, call="other")
    assert replace(found, history=History([one, other]), insisted=[]).refused() == (["one"] if refused else [])


@pytest.mark.parametrize(("ended", "refused"), [(0.8, False), (0.4, True)])
def test_a_commit_between_the_opening_and_the_first_transaction_of_an_instance_is_a_rival(
    ended: float, refused: bool
) -> None:
    found = Run(3, [WORKLOADS["registers"]], faults=False, turns=0).finish()
    one = Transaction("1", "one", (Write("/a#x", "one"),), "aborted", 1.0, 2.0, call="one")
    other = Transaction("2", "other", (Write("/a#x", "other"),), "committed", 0.3, ended, call="other")
    history = History([one, other])
    assert replace(found, history=history, insisted=[], opened={"one": 0.5}).refused() == (["one"] if refused else [])


def test_a_seed_gives_the_same_history() -> None:
    for seed in range(4):
        one, other = (ran(seed, MIXED, 5) for _ in range(2))
        assert list(one.history) == list(other.history)


@pytest.mark.parametrize("workload", SERIAL, ids=lambda one: one.name)
def test_without_serializable_the_checker_finds_write_skew(workload: Workload) -> None:
    for seed in range(200):
        found = ran(seed, [workload], 5, weakened="snapshot")
        kinds = {anomaly.kind for anomaly in found.anomalies}
        # The weakened commits do not depend on their reads, so others may change them meanwhile.
        assert kinds <= {Kind.WRITE_SKEW, Kind.G2, Kind.INVARIANT, Kind.OVERTAKEN}, found.explain()
        if Kind.WRITE_SKEW in kinds:
            print(f"write skew was found in history {seed}:\n{found.explain()}")
            return
    pytest.fail("no write skew in 200 histories")


MUTANTS = [
    read_back.no_read_back,
    read_back.read_back_before_writing,
    journal.bound_too_high,
    journal.bound_without_later_arrivals,
    outcomes.put_for_compare_and_set,
    outcomes.aborting_without_compare_and_set,
    outcomes.pending_taken_for_aborted,
    ids.ids_below_seen_revisions,
    reading.cache_not_invalidated,
    reading.own_states_cached_despite_arrivals_between,
    read_back.deleted_not_read_back,
    read_back.last_revision_not_read_back,
    read_back.child_not_read_back,
    read_back.changes_without_effect_rely_on_nothing,
    outcomes.roll_back_forgotten,
    journal.everything_below_the_head_is_visible,
    reading.an_earlier_life_shows,
    read_back.expectations_not_depended_on,
    read_back.expected_absence_not_depended_on,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants([read_back.reads_not_read_back, *MUTANTS], sample=2))
def test_a_mutant_of_the_kernel_is_found_by_a_history(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    kinds = list(WORKLOADS.values())
    for seed in search("histories", mutant.__name__, 2000):
        try:
            found = Run(seed, [kinds[seed % len(kinds)]], faults=seed // len(kinds) % 2 == 1).finish()
        except Exception as error:
            # The kernel itself raised an error, but here only histories count.
            print(f"history {seed} was not recorded: {error!r}")
            continue
        if found.anomalies:
            explanation = found.anomalies[0].explain(found.history)
            print(f"{mutant.__name__} was found by history {seed}, {kinds[seed % len(kinds)].name}:\n{explanation}")
            return
    pytest.fail(f"{mutant.__name__} was not found in 2000 histories")
