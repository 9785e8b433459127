"""The commands retention and collect, the option --retention of init, and the lines of status."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hbasemk
from hbasemk.cli.collection import Retention, shown
from hbasemk.kernel.collection import collector, retention
from hbasemk.kernel.settings import LONGEST_MS
from tests.support.collecting import set_grace
from tests.support.commands import run_captured

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(url: str, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the repository; return its exit code, and its output or its messages."""

    def call(*words: str) -> tuple[int, str]:
        code, out, err = run_captured(capfd, "--url", url, *words)
        return code, (out or err).strip()

    return call


def test_the_retention_is_shown_and_changed(command: Command, url: str) -> None:
    assert command("init")[0] == 0
    assert command("retention") == (0, "7d")
    assert command("retention", "48h") == (0, "2d")
    assert command("retention", "forever") == (0, "forever")
    with hbasemk.connect(url) as repo:
        assert repo.retention is None
        repo.retention = 90
        assert repo.retention == 90
        repo.retention = None
    code, message = command("collect")
    assert (code, "has no retention limit" in message) == (2, True)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("59s", "from 60 to"),
        ("0s", "from 60 to"),
        ("-1s", "no such option|not a duration"),
        ("7", "not a duration"),
        ("x", "not a duration"),
        ("1.5", "not a duration"),
        ("0.9m", "from 60 to"),
        ("999999999w", "from 60 to"),
    ],
)
def test_a_wrong_retention_creates_and_changes_nothing(
    command: Command, given: str, problem: str, tmp_path: Path
) -> None:
    for before in (("init", "--retention"), ("retention",)):
        code, message = command(*before, given)
        assert code == 2
        assert any(one in message.lower() for one in problem.split("|")), message
        if before[0] == "init":
            assert list(tmp_path.iterdir()) == []
            assert command("init")[0] == 0
    assert command("retention") == (0, "7d")


@pytest.mark.parametrize("seconds", [0, 59, float("inf"), float("nan"), -1, 1e15, 1e300])
def test_a_wrong_retention_in_a_program_changes_nothing(url: str, seconds: float) -> None:
    with hbasemk.connect(url) as repo:
        with pytest.raises(hbasemk.InvalidValueError, match="retention must be"):
            repo.retention = seconds
        assert repo.retention == 7 * 86_400


@pytest.mark.parametrize("seconds", [10**10, 10**30, 10**400])
def test_a_retention_that_is_too_long_is_refused_with_the_limit(url: str, seconds: int) -> None:
    with hbasemk.connect(url) as repo:
        with pytest.raises(
            hbasemk.InvalidValueError,
            match="from 60 to 549755813, or None for no limit, got (10{10}|10{30}|an int of 1329 bits); nothing was changed$",
        ):
            repo.retention = seconds
        assert repo.retention == 7 * 86_400


def test_init_sets_the_retention(command: Command) -> None:
    assert command("init", "--retention", "90m")[0] == 0
    assert command("retention") == (0, "90m")
    assert command("retention", "1d12h") == (0, "36h")
    assert command("retention", "1.5m") == (0, "90s")


def test_collect_deletes_and_says_what(command: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SHORTEST_MS", 1000)
    set_grace(monkeypatch, 0.1)
    # Journal rows stay: after two retentions they would go, too, which is soon on a slow machine.
    monkeypatch.setattr(collector.Collector, "_forgotten_at", lambda *_: 0)
    assert command("init", "--retention", "1s")[0] == 0
    for number in range(3):
        assert command("set", "/", "p", str(number))[0] == 0
    time.sleep(1.1)
    with hbasemk.connect(url, collect=False) as repo:
        first = list(repo.log())[-1].revision
        head = repo.head.revision
        code, estimate = command("--output", "json", "collect", "--dry-run")
        assert code == 0
        assert repo.oldest is None
        code, done = command("--output", "json", "collect", "--rows-per-second", "100000")
        assert (code, json.loads(done)) == (0, json.loads(estimate))
        kinds = json.loads(done)
        assert kinds["superseded_versions"] > 0
        # Each command before used another machine id, because the lease of the one before had just ended.
        assert kinds["cells"] == kinds["superseded_versions"] + kinds["leases"]
        repo.refresh()
        assert repo.oldest == head
        with pytest.raises(hbasemk.RevisionCollectedError) as raised:
            repo.at(first)
        assert raised.value.oldest == head
        assert [entry.revision for entry in repo.log()] == [head]
        branch = repo.branch()
        code, status = command("--output", "json", "status")
        facts = json.loads(status)
        assert (facts["retention"], facts["oldest_readable"], facts["collected_up_to"]) == ("1s", head, head)
        repo.run(lambda tx: tx.set("/", "p", 9))
        time.sleep(1.1)
        repo.run(lambda tx: tx.set("/", "p", 10))
        assert json.loads(command("--output", "json", "collect")[1])["horizon"] == head
        waits = json.loads(command("--output", "json", "status")[1])["collection_waits_for"]
        assert waits is None or waits == f"branch {branch.revision}"
    code, message = command("cat", "/", "--at", first)
    assert (code, "older than the retention" in message) == (1, True)
    # The check afterwards allows no shorter retention than users may set.
    assert command("retention", "60s")[0] == 0


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_collect_says_what_holds_it_back(
    command: Command, url: str, monkeypatch: pytest.MonkeyPatch, dry: tuple[str, ...]
) -> None:
    """It did not say that it waited for an expired checkpoint."""
    monkeypatch.setattr(retention, "SHORTEST_MS", 100)
    set_grace(monkeypatch, 0.1)
    assert command("init", "--retention", "0.1s")[0] == 0

    def text(name: str, *words: str) -> str:
        return next(line for line in command(*words)[1].splitlines() if line.startswith(name)).split("  ")[-1].strip()

    def waits() -> tuple[str, str | None, bool | None]:
        time.sleep(0.2)
        found = json.loads(command("--output", "json", "collect", *dry)[1])
        return text("waits for", "collect", *dry), found["waits_for"], found["waits_for_expired"]

    def write(number: int) -> None:
        repo.run(lambda tx: tx.set("/", "p", number))
        time.sleep(0.2)

    assert waits() == ("nothing", None, None)
    with hbasemk.connect(url, collect=False) as repo:
        write(1)
        held = repo.checkpoint(0.001, message="past")
        write(2)
        write(3)
    name = f"checkpoint {held.revision}"
    hint = "(expired; `hbasemk checkpoint release` ends it)"
    assert waits() == (f"{name} {hint}", name, True)
    if not dry:
        # A run has moved the watermark.
        assert text("collection waits for", "status") == f"{name} {hint}"
        assert json.loads(command("--output", "json", "status")[1])["collection_waits_for"] == name
    assert command("checkpoint", "release", held.name)[0] == 0
    assert waits() == ("nothing", None, None)
    with hbasemk.connect(url, collect=False) as repo:
        kept = repo.checkpoint(3600)
        write(4)
        write(5)
    assert waits() == (f"checkpoint {kept.revision}", f"checkpoint {kept.revision}", False)
    assert command("retention", "60s")[0] == 0


@pytest.mark.parametrize("given", ["12d3h25m7s", "60.001s", "549755813.887s", "549755813s", "548999999.5s"])
def test_a_command_accepts_the_retention_that_it_shows(command: Command, given: str) -> None:
    assert command("init", "--retention", given)[0] == 0
    printed = command("retention")
    assert command("retention", printed[1]) == printed
    assert Retention().convert(printed[1], None, None) == Retention().convert(given, None, None)
    assert json.loads(command("--output", "json", "status")[1])["retention"] == printed[1]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (60_000, "60s"),
        (1500, "1.5s"),
        (7_200_000, "2h"),
        (1_049_107_000, "1049107s"),
        (LONGEST_MS, "549755813.887s"),
        (None, "forever"),
    ],
)
def test_durations_are_shown_as_they_are_given(ms: int | None, text: str) -> None:
    assert shown(ms) == text
