"""Every scenario of the benchmarks runs, and asks no more of the store than is written here; times are not looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hbasemk import Settings, connect
from hbasemk.bench import runner
from hbasemk.bench.registry import Entry
from hbasemk.bench.results import Run, read
from hbasemk.bench.scenarios import SCENARIOS
from hbasemk.bench.sizes import FULL, TINY
from hbasemk.cli.main import main
from tests.support.bench_systems import checked_trees, damage_in
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


# --- the command ------------------------------------------------------------------------------------------


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as found:
        main(arguments if "bench" in arguments else ["bench", *arguments])
    return int(found.value.code or 0)


SMALL = ("--scenario", "set", "--system", "hbasemk", "--system", "floor", "--size", "turns=3")


def test_the_command_measures_and_writes_what_it_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results, markdown, plots = tmp_path / "r.jsonl", tmp_path / "R.md", tmp_path / "plots"
    place = tmp_path / "trees"
    wanted = ("--json", str(results), "--markdown", str(markdown), "--plots", str(plots), "--remark", "for a test")
    assert ended(str(place), "--quick", *SMALL, *wanted) == 0
    out, err = capfd.readouterr()
    assert "set one property" in out
    assert "set: set one property" in err
    (run,) = read([results])
    assert [(result.system, result.samples) for result in run.results] == [("hbasemk", 3), ("floor", 3)]
    assert run.environment["remark"] == "for a test"
    assert run.environment["sizes"]["turns"] == 3
    assert "| set one property |" in markdown.read_text()
    assert (plots / "sqlite-set.svg").read_text().startswith("<?xml")
    assert list(place.iterdir()) == []


def test_the_command_shows_the_newest_of_what_was_found_earlier(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "r.jsonl"
    for turns in ("3", "4"):
        assert ended(str(tmp_path / "t"), "--quick", *SMALL, "--size", f"turns={turns}", "--json", str(results)) == 0
    capfd.readouterr()
    assert ended("--output", "json", "bench", "--from", str(results)) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["run", "result", "result"]
    assert lines[1]["samples"] == 4


def test_the_command_lists_what_can_be_chosen(capfd: pytest.CaptureFixture[str]) -> None:
    assert ended("--list") == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert {name for kind, name, _ in rows if kind == "scenario"} == set(SCENARIOS)
    assert {name for kind, name, _ in rows if kind == "system"} >= {"hbasemk", "floor", "zodb", "literal"}
    assert ["size", "memory"] in [row[:2] for row in rows]
    assert f"{FULL.memory:,}" in next(about for kind, name, about in rows if (kind, name) == ("size", "memory"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no place"),
        (("folder", "--scenario", "nothing"), "no scenario nothing"),
        (("folder", "--system", "nothing"), "there are the systems"),
        (("folder", "--size", "turns=many"), "sizes are whole numbers"),
        (("memory://",), "hbase://host:port"),
    ],
)
def test_the_command_says_what_is_wrong_before_it_measures(
    arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(*arguments) == 2
    assert words in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    from hbasemk.bench.harness import Harness

    good = Entry("hbasemk", "sqlite", "ours", "hbasemk.bench.systems.ours:EmbeddedHbasemk")
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

    monkeypatch.delitem(sys.modules, "hbasemk.bench.peers.zodb", raising=False)
    monkeypatch.setitem(sys.modules, "ZODB.FileStorage", None)
    found, left_out = runner.choose("sqlite", ["hbasemk", "zodb"])
    assert [entry.key for entry in found] == ["hbasemk"]
    assert "zodb needs ZODB" in left_out["zodb"]
