"""The order of turns: systems and operations that are compared with each other take turns."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.harness import Call, Contender, Harness
from benchmarks.registry import Entry
from benchmarks.results import Run
from benchmarks.scenarios import multiprocess, reading
from benchmarks.scenarios.multiprocess import Round
from benchmarks.sizes import TINY, Sizes
from benchmarks.system import System

ENTRY = Entry("hbasemk", "sqlite", "hbasemk", "benchmarks.systems.hbasemk:EmbeddedHbasemk")
BASELINE = Entry("baseline", "sqlite", "baseline", "benchmarks.systems.sqlite_baseline:PlainSqlite")

COMMITS = 40


def test_operations_of_one_comparison_take_turns(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []
    before: list[int] = []

    def fail(_: System, turn: int) -> None:
        if turn == 1:
            raise RuntimeError("on purpose")

    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY], str(tmp_path), TINY) as harness:
        harness.compare_calls(
            {
                "one": lambda _, turn: calls.append(("one", turn)),
                "two": lambda _, turn: calls.append(("two", turn)),
                "failing": fail,
            },
            harness.tree("turns"),
            turns=3,
            before=lambda _, turn: before.append(turn),
        )
    assert [sorted(calls[place : place + 2]) for place in range(0, len(calls), 2)] == [
        [("one", turn), ("two", turn)] for turn in (-1, 0, 1, 2)
    ]
    assert before == [-1] * 3 + [0] * 3 + [1] * 3 + [2] * 2
    found = {result.operation: result for result in run.results}
    assert (found["one"].samples, found["two"].samples) == (3, 3)
    assert found["failing"].failed
    assert found["failing"].median is None
    assert len(run.results) == 3


def test_no_call_follows_one_of_the_same_system_within_a_turn(tmp_path: Path) -> None:
    calls: list[tuple[int, str, str]] = []

    def record(operation: str) -> Call:
        return lambda system, turn: calls.append((turn, type(system).name, operation))

    with Harness(Run("r", "sqlite", {}), [ENTRY, BASELINE], str(tmp_path), TINY) as harness:
        harness.compare_calls({name: record(name) for name in ("one", "two")}, harness.tree("turns"), turns=3)
    assert len(calls) == len(set(calls)) == 4 * 4
    followed = [(first[1], second[1]) for first, second in pairwise(calls) if first[0] == second[0]]
    assert all(first != second for first, second in followed), calls


def test_no_call_pays_for_collections_that_the_objects_of_other_calls_cause(tmp_path: Path) -> None:
    thresholds = young, middle, _ = gc.get_threshold()
    sizes = {"few": young // 4, "some": young * 3 // 2, "many": young * (middle + 2) + young // 2}
    generations: dict[str, list[list[int]]] = {name: [] for name in sizes}
    running = ""
    kept = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and running:
            generations[running][-1].append(info["generation"])

    def keep(name: str) -> Call:
        def call(_: System, turn: int) -> None:
            nonlocal running
            generations[name].append([])
            running = name
            kept.append([[turn] for _ in range(sizes[name])])
            running = ""

        return call

    with Harness(Run("r", "sqlite", {}), [BASELINE], str(tmp_path), TINY) as harness:
        contenders = harness.tree("turns")
        gc.callbacks.append(note)
        try:
            for names in (["few", "some", "many"], ["some"]):
                harness.compare_calls({name: keep(name) for name in names}, contenders, turns=30)
        finally:
            gc.callbacks.remove(note)
    assert not any(generations["few"])
    # A call pays for its own objects in each turn, as in a program of a user.
    for name in ("some", "many"):
        first, *others = generations[name]
        assert first
        assert [one for one in others if one != first] == []
    assert gc.get_threshold() == thresholds


def test_no_node_is_read_twice_in_warm_reads_with_few_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(reading, "_check", lambda _, path: read.append(path))
    with Harness(Run("r", "sqlite", {}), [ENTRY], str(tmp_path), replace(TINY, turns=4)) as harness:
        reading.read_nodes(harness)
    # A turn to warm up and four measured ones come before those of cold reads.
    warm = read[-7:-2]
    assert len(set(warm)) == 5, warm


def test_kinds_of_commits_of_several_processes_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, str, int]] = []

    def measured(harness: Harness, contender: object, kind: str, count: int, turn: int) -> Round:
        calls.append((turn, kind, count))
        if kind == "missing":
            raise NotImplementedError
        return Round(COMMITS, turn, COMMITS / (1.0 + turn), [1.0 + turn] * COMMITS)

    monkeypatch.setattr(multiprocess, "_round", measured)
    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY], str(tmp_path), Sizes(rounds=2, commits=COMMITS)) as harness:
        multiprocess.compare_kinds(harness, "turns", {"a": "first", "missing": "absent", "b": "second"}, [1, 2])
    assert calls == [
        *((0, "a", 1), (0, "a", 2), (0, "missing", 1), (0, "b", 1), (0, "b", 2)),
        *((1, "a", 1), (1, "a", 2), (1, "b", 1), (1, "b", 2)),
    ]
    medians = {result.operation: result.median for result in run.results}
    assert medians == {
        "1 process absent": None,
        **{f"{count} first": 1.5 for count in ("1 process", "2 processes")},
        **{f"{count} first: retries": 0.5 for count in ("1 process", "2 processes")},
        **{f"{count} first: time of a commit": 1.5 for count in ("1 process", "2 processes")},
        **{f"{count} second": 1.5 for count in ("1 process", "2 processes")},
        **{f"{count} second: retries": 0.5 for count in ("1 process", "2 processes")},
        **{f"{count} second: time of a commit": 1.5 for count in ("1 process", "2 processes")},
    }


def test_the_commits_that_the_time_limit_leaves_out_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(harness: Harness, contender: object, kind: str, count: int, turn: int) -> Round:
        return Round(COMMITS // 4 if turn else COMMITS, 3, 1.0, [0.1])

    monkeypatch.setattr(multiprocess, "_round", measured)
    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY], str(tmp_path), Sizes(rounds=2, commits=COMMITS)) as harness:
        multiprocess.compare_kinds(harness, "turns", {"a": "first"}, [2])
    rates, retries, _ = run.results
    assert rates.note == "cut short: 50 of 80 commits"
    # A round with a quarter of its commits would have four times as many retries.
    assert retries.median == 7.5


def test_a_round_ends_at_the_time_limit(tmp_path: Path) -> None:
    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY], str(tmp_path), Sizes(rounds=1, commits=10**9, time_limit=1)) as harness:
        multiprocess.compare_kinds(harness, "turns", {"disjoint": "first"}, [1])
    rates, _, times = run.results
    assert rates.note.startswith("cut short: ")
    assert rates.note.endswith(" of 1,000,000,000 commits")
    # Each commit has its time.
    assert f"cut short: {times.samples:,} of 1,000,000,000 commits" == rates.note


def test_an_operation_that_fails_in_a_later_round_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(harness: Harness, contender: object, kind: str, count: int, turn: int) -> Round:
        if (count, turn) == (2, 1):
            raise RuntimeError("on purpose")
        return Round(COMMITS, 0, 1.0, [0.1])

    monkeypatch.setattr(multiprocess, "_round", measured)
    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY], str(tmp_path), Sizes(rounds=2, commits=COMMITS)) as harness:
        multiprocess.compare_kinds(harness, "turns", {"a": "first"}, [1, 2])
    assert [(result.operation, result.median, result.failed) for result in run.results] == [
        ("2 processes first", None, True),
        ("1 process first", COMMITS, False),
        ("1 process first: retries", 0, False),
        ("1 process first: time of a commit", 0.1, False),
    ]


def test_systems_take_turns_at_the_latency_of_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[bool, int, str]] = []

    def measured(harness: Harness, contender: Contender, refreshing: bool, turn: int) -> list[float]:
        calls.append((refreshing, turn, contender.entry.key))
        if turn == 2 and contender.entry is BASELINE:
            raise RuntimeError("on purpose")
        return [0.1]

    monkeypatch.setattr(multiprocess, "_wait", measured)
    run = Run("r", "sqlite", {})
    with Harness(run, [ENTRY, BASELINE], str(tmp_path), replace(TINY, rounds=3)) as harness:
        multiprocess.visibility_latency(harness)
    assert [(turn, system) for refreshing, turn, system in calls if refreshing] == [
        *((0, "hbasemk"), (0, "baseline")),
        *((1, "baseline"), (1, "hbasemk")),
        *((2, "hbasemk"), (2, "baseline")),
    ]
    found = [result for result in run.results if "explicit" in result.operation]
    assert [(result.system, result.samples, result.failed) for result in found] == [
        ("baseline", 0, True),
        ("hbasemk", 3, False),
    ]
