"""``python -m benchmarks``: options, results, exit codes, and what reaches a terminal or a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import main
from benchmarks.harness import Harness
from benchmarks.results import read
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import FULL
from benchmarks.system import System
from benchmarks.systems.sqlite_baseline import PlainSqlite
from tests.support.benchmarks import checked_trees
from tests.support.terminal import controls, on_terminal

__all__ = ["checked_trees"]

pytestmark = pytest.mark.usefixtures("checked_trees")

DONE, NO, USAGE = range(3)
TITLE = "\x1b]0;owned\x07"
"""Sets the title of a terminal's window."""


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as found:
        main(arguments)
    return int(found.value.code or 0)


SMALL = ("--scenario", "set", "--system", "hbasemk", "--system", "baseline", "--size", "turns=3")


def test_the_command_measures_and_writes_the_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results, markdown, plots = tmp_path / "r.jsonl", tmp_path / "R.md", tmp_path / "plots"
    place = tmp_path / "trees"
    outputs = ("--json", str(results), "--markdown", str(markdown), "--plots", str(plots), "--remark", "for a test")
    assert ended(str(place), "--quick", *SMALL, *outputs) == 0
    out, err = capfd.readouterr()
    assert "set one property" in out
    assert "set: set one property" in err
    (run,) = read([results])
    assert [(result.system, result.samples) for result in run.results] == [("hbasemk", 3), ("baseline", 3)]
    assert run.environment["remark"] == "for a test"
    assert run.environment["sizes"]["turns"] == 3
    assert "| set one property |" in markdown.read_text()
    assert (plots / "sqlite-set.svg").read_text().startswith("<?xml")
    assert list(place.iterdir()) == []


def test_the_command_reports_the_newest_earlier_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "r.jsonl"
    for turns in ("3", "4"):
        assert ended(str(tmp_path / "t"), "--quick", *SMALL, "--size", f"turns={turns}", "--json", str(results)) == 0
    capfd.readouterr()
    assert ended("--output", "json", "--from", str(results)) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["run", "result", "result"]
    assert lines[1]["samples"] == 4


def test_the_command_lists_scenarios_systems_and_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    assert ended("--list") == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert {name for kind, name, _ in rows if kind == "scenario"} == set(SCENARIOS)
    assert {name for kind, name, _ in rows if kind == "system"} >= {"hbasemk", "baseline", "zodb", "published_2013"}
    assert ["size", "memory"] in [row[:2] for row in rows]
    assert f"{FULL.memory:,}" in next(about for kind, name, about in rows if (kind, name) == ("size", "memory"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no place"),
        (("folder", "--scenario", "nothing"), "unknown scenario nothing"),
        (("folder", "--system", "nothing"), "no system named nothing"),
        (("folder", "--system", "hbasemk", "--system", "base-line"), "no system named base-line"),
        (("folder", "--system", "published_2013"), "no system named published_2013 on sqlite"),
        (("folder", "--size", "turns=many"), "a size must be NAME=NUMBER"),
        (("memory://",), "hbase://host:port"),
    ],
)
def test_the_command_rejects_invalid_arguments_before_it_measures(
    arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(*arguments) == 2
    assert words in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", "--markdown", "--plots"])
def test_an_output_that_cannot_be_written_is_an_error_before_the_run(
    option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert ended(str(tmp_path / "trees"), "--quick", *SMALL, option, str(tmp_path / "file" / "r")) != 0
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(tmp_path / "file") in err
    assert not (tmp_path / "trees").exists()


def test_a_markdown_file_of_other_bytes_is_an_error_before_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "R.md").write_bytes(b"\xff")
    assert ended(str(tmp_path / "trees"), "--quick", *SMALL, "--markdown", str(tmp_path / "R.md")) == USAGE
    assert "R.md must be a Markdown file in UTF-8" in capfd.readouterr().err
    assert not (tmp_path / "trees").exists()


def test_a_second_place_that_is_wrong_is_an_error_before_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(str(tmp_path / "trees"), "memory://", "--quick", *SMALL) == USAGE
    assert "memory://" in capfd.readouterr().err
    assert not (tmp_path / "trees").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_folder_is_an_error_before_the_run(
    place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert ended(str(tmp_path / "trees"), str(tmp_path / place), "--quick", *SMALL) == USAGE
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{str(tmp_path / place)!r} must be a folder" in err


def test_a_scenario_that_is_given_twice_runs_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ended(str(tmp_path), "--quick", *SMALL, "--scenario", "set") == DONE
    assert capfd.readouterr().err.count("set: set one property") == 1


def test_an_interruption_keeps_the_results_until_then(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(harness: Harness) -> None:
        harness.run.environment["left_out"]["other"] = "on purpose"
        raise KeyboardInterrupt

    monkeypatch.setitem(SCENARIOS, "add", interrupt)
    results = tmp_path / "r.jsonl"
    assert ended(str(tmp_path / "t"), "--quick", *SMALL, "--scenario", "add", "--json", str(results)) == 130
    (run,) = read([results])
    assert [(result.system, result.samples) for result in run.results] == [("hbasemk", 3), ("baseline", 3)]
    assert run.environment["left_out"] == {"other": "on purpose"}


def test_a_missing_package_is_named_and_a_run_without_systems_has_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "benchmarks.peers.zodb", raising=False)
    monkeypatch.setitem(sys.modules, "ZODB.FileStorage", None)
    only = ("--quick", "--scenario", "set", "--size", "turns=3", "--system", "zodb")
    assert ended(str(tmp_path), *only) == NO
    assert "pip install -e '.[bench]'" in capfd.readouterr().err


def test_a_system_that_is_not_possible_here_is_left_out_with_its_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(place: str) -> System:
        raise NotImplementedError("set THE_GATEWAY=host:port")

    monkeypatch.setattr(PlainSqlite, "create", impossible)
    assert ended(str(tmp_path), "--quick", *SMALL) == DONE
    out, err = capfd.readouterr()
    assert "baseline is left out: set THE_GATEWAY=host:port" in err
    assert "baseline was left out: set THE_GATEWAY=host:port" in out
    assert "pip install" not in err
    assert ended(str(tmp_path), *SMALL[:2], "--system", "baseline") == NO


def process(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks", *arguments], **options)


@pytest.mark.parametrize(("code", "arguments"), [(DONE, ("--list",)), (USAGE, ())], ids=["--list", "nothing"])
def test_the_command_ends_with_the_codes_of_the_guide(
    code: int, arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(*arguments) == code
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert ("Error: " in err) == (code != DONE)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_error() -> None:
    with (
        open("/dev/full", "wb") as full,
        process(["--list"], stdout=full, stderr=subprocess.PIPE) as running,
    ):
        _, messages = running.communicate()
    assert running.returncode == NO
    assert messages.splitlines()[-1].startswith(b"hbasemk: ")
    assert messages.splitlines()[-1].endswith(b"No space left on device")
    assert messages.count(b"No space left") == 1
    assert b"Traceback" not in messages
    assert b"Exception ignored" not in messages


def test_no_control_character_of_an_argument_reaches_a_terminal(tmp_path: Path) -> None:
    commands = {"wrong file": ("--from", f"/nowhere/{TITLE}\nx")}
    shown = on_terminal(commands, str(tmp_path), module="benchmarks.command")["wrong file"]
    assert shown.code == USAGE, shown.data
    assert controls(shown.text) == [], shown.data
    assert shown.data != b""
    assert "Traceback" not in shown.text


def test_a_closed_pipe_ends_the_tables_without_an_error(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    line = (
        '{"kind": "run", "run": "r", "store": "sqlite", "environment": {"left_out": {}}}\n'
        '{"kind": "result", "run": "r", "store": "sqlite", "scenario": "s", "operation": "o", "system": "hbasemk", '
        '"name": "hbasemk", "role": "hbasemk", "unit": "s", "samples": 1, "median": 1.0, "p25": 1.0, "p75": 1.0, "low": 1.0}\n'
    )
    (tmp_path / "found").write_text(line)
    reader, writer = os.pipe()
    os.close(reader)
    with process(["--from", str(tmp_path / "found")], stdout=writer, stderr=subprocess.PIPE) as running:
        os.close(writer)
        _, messages = running.communicate()

    assert (running.returncode, messages) == (DONE, b"")


def test_results_that_are_not_text_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    with process(["--from", str(tmp_path / "binary")], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        out, messages = running.communicate()

    assert (running.returncode, out, messages.count(b"\n")) == (USAGE, b"", 1)
    assert b"binary" in messages
