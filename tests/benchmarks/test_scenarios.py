"""Every scenario runs and stays within the budgets of store calls. The tests ignore times."""

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


@pytest.mark.no_cover
def test_every_operation_stays_within_its_budget(tmp_path: Path) -> None:
    entry = Entry("hbasemk", "sqlite", "hbasemk", "tests.support.counted:CountedEmbedded")
    assert_within_budgets(entry, str(tmp_path))


def test_opening_takes_the_same_calls_with_few_and_many_revisions(tmp_path: Path) -> None:
    # With a small allowed skew the watermark advances soon.
    connect(f"sqlite:///{tmp_path / CountedEmbedded.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = CountedEmbedded.create(str(tmp_path))
    calls: list[int] = []
    for commits in (600, 3000):
        system.add([(f"/{commits}", {"n": -1})])
        system.make_history(f"/{commits}", "n", commits, lambda: False)
        other = CountedEmbedded.join(system.address())
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
    messages: list[str] = []
    run = runner.measure(runner.place_of(str(tmp_path)), TINY, report=messages.append)
    assert_whole(run, messages)
    assert {result.system for result in run.results} == {"hbasemk", "baseline", "zodb", "relstorage", "zeo"}
    assert list(tmp_path.iterdir()) == []


def test_a_failing_system_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    from benchmarks.harness import Harness

    good = Entry("hbasemk", "sqlite", "hbasemk", "benchmarks.systems.hbasemk:EmbeddedHbasemk")
    bad = Entry("baseline", "sqlite", "baseline", "tests.support.counted:FailsToSet")
    run = Run("r", "sqlite", {})
    messages: list[str] = []
    with Harness(run, [bad, good], str(tmp_path), TINY, messages.append) as harness:
        harness.scenario = "set"
        SCENARIOS["set"](harness)
    failed, found = run.results
    assert (failed.system, failed.median, failed.failed) == ("baseline", None, True)
    assert "on purpose" in failed.note
    assert any("Traceback" in text for text in messages)
    assert (found.system, found.samples) == ("hbasemk", TINY.turns)


def test_a_system_with_a_missing_package_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "benchmarks.peers.zodb", raising=False)
    monkeypatch.setitem(sys.modules, "ZODB.FileStorage", None)
    found, left_out = runner.choose("sqlite", ["hbasemk", "zodb"])
    assert [entry.key for entry in found] == ["hbasemk"]
    assert "zodb needs ZODB" in left_out["zodb"]
