"""Every scenario of the benchmarks runs, and asks no more of the store than is written here; times are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.registry import Entry
from benchmarks.results import Run
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import TINY
from hbasemk import Settings, connect
from tests.support.benchmarks import checked_trees, damage_in
from tests.support.budgets import assert_whole, assert_within_budgets
from tests.support.counted import CountedEmbedded

__all__ = ["checked_trees"]

pytestmark = pytest.mark.usefixtures("checked_trees")


def test_no_operation_asks_more_of_the_store_than_its_budget(tmp_path: Path) -> None:
    entry = Entry("hbasemk", "sqlite", "ours", "tests.support.counted:CountedEmbedded")
    assert_within_budgets(entry, str(tmp_path))


def test_opening_takes_as_many_calls_among_few_revisions_as_among_many(tmp_path: Path) -> None:
    # With little skew allowed the watermark follows soon.
    connect(f"sqlite:///{tmp_path / CountedEmbedded.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = CountedEmbedded.create(str(tmp_path))
    calls: list[int] = []
    for commits in (600, 3000):
        system.add([(f"/{commits}", {"n": -1})])
        system.age(f"/{commits}", "n", commits, lambda: False)
        other = CountedEmbedded.join(system.connect())
        assert isinstance(other, CountedEmbedded)
        assert other.read(f"/{commits}") is not None
        used = other.counting.traffic()
        assert used.rows_read <= 5
        calls.append(used.calls)
        other.close()
    assert calls[0] == calls[1] <= 5
    assert damage_in(system) == []
    system.close()


@pytest.mark.slow
def test_all_scenarios_run_on_all_embedded_systems(tmp_path: Path) -> None:
    told: list[str] = []
    run = runner.measure(runner.place_of(str(tmp_path)), TINY, tell=told.append)
    assert_whole(run, told)
    assert {result.system for result in run.results} == {"hbasemk", "floor", "zodb", "relstorage", "zeo"}
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    from benchmarks.harness import Harness

    good = Entry("hbasemk", "sqlite", "ours", "benchmarks.systems.hbasemk:EmbeddedHbasemk")
    bad = Entry("floor", "sqlite", "floor", "tests.support.counted:FailsToSet")
    run = Run("r", "sqlite", {})
    told: list[str] = []
    with Harness(run, [bad, good], str(tmp_path), TINY, told.append) as harness:
        harness.scenario = "set"
        SCENARIOS["set"](harness)
    failed, found = run.results
    assert (failed.system, failed.median, failed.failed) == ("floor", None, True)
    assert "on purpose" in failed.note
    assert any("Traceback" in text for text in told)
    assert (found.system, found.samples) == ("hbasemk", TINY.turns)


def test_a_system_whose_package_is_missing_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "benchmarks.peers.zodb", raising=False)
    monkeypatch.setitem(sys.modules, "ZODB.FileStorage", None)
    found, left_out = runner.choose("sqlite", ["hbasemk", "zodb"])
    assert [entry.key for entry in found] == ["hbasemk"]
    assert "zodb needs ZODB" in left_out["zodb"]
