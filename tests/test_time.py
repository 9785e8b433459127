"""Snapshots by time, and times of snapshots and log entries, in the API and in commands."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import InvalidValueError, Repository, UnknownRevisionError, connect
from hbasemk.format import moments
from hbasemk.kernel import time_travel
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.commands import run_captured
from tests.support.runtime import World, open_instance
from tests.support.straggler import add

UTC = datetime.timezone.utc
SECOND = datetime.timedelta(seconds=1)


def now() -> datetime.datetime:
    """The present, between two milliseconds in which nothing was committed."""
    time.sleep(0.005)
    found = datetime.datetime.now(UTC)
    time.sleep(0.005)
    return found


def test_a_time_gives_the_snapshot_before_it(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 1}))
        first, between = repo.head, now()
        repo.run(lambda tx: tx.set("/a", "n", 2))
        assert repo.at(time=between)["/a"]["n"] == 1
        assert repo.at(time=between).revision == first.revision
        east = datetime.timezone(datetime.timedelta(hours=9))
        assert repo.at(time=between.astimezone(east)).revision == first.revision
        assert repo.at(time=now())["/a"]["n"] == 2
        kept = repo.checkpoint(60, repo.at(time=between))
        assert kept.snapshot["/a"]["n"] == 1


def test_a_commit_in_the_millisecond_of_the_moment_is_not_known_to_be_before_it(world: World) -> None:
    store = MemoryStore(world.clock)
    instance = open_instance(store, world)
    world.advance(1)
    before = instance.head()
    add(instance, "/a")
    moment = datetime.datetime.fromtimestamp(int(world.ms) / 1000, UTC) + datetime.timedelta(microseconds=400)
    world.advance(5)
    assert time_travel.view_before(instance, moments.ms_of(moment)).revision == before.revision


def test_times_are_aware(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        before = now()
        repo.run(lambda tx: tx.add("/a"))
        (entry,) = repo.log("/a")
        assert entry.time == repo.head.time
        assert entry.time.tzinfo is UTC
        assert before - SECOND <= entry.time <= now() + SECOND
        assert entry.time.timestamp() * 1000 == pytest.approx(entry.time_ms)


EAST = datetime.timezone(datetime.timedelta(hours=5))
"""The first hours of the year 1 are before it in UTC."""


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, TypeError, "exactly one of revision and time"),
        ({"revision": "0" * 16, "time": datetime.datetime.now(UTC)}, TypeError, "exactly one of revision and time"),
        ({"time": 5}, TypeError, "time must be a datetime with a time zone, got 5"),
        ({"time": "2h"}, TypeError, "time must be a datetime with a time zone"),
        (
            {"time": datetime.datetime(2026, 1, 1)},
            InvalidValueError,
            "time must be a datetime with a time zone, such as",
        ),
        ({"time": datetime.datetime(9999, 1, 1, tzinfo=UTC)}, InvalidValueError, "time must not be in the future"),
        ({"time": datetime.datetime(1, 1, 1, tzinfo=UTC)}, UnknownRevisionError, "its first one is"),
        ({"time": datetime.datetime(1, 1, 1, tzinfo=EAST)}, UnknownRevisionError, "before 0001-01-01T00:00:00"),
    ],
)
def test_bad_times_are_refused(
    real_store: MemoryStore, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with Repository(real_store, poll_interval=0) as repo, pytest.raises(kind, match=message):
        repo.at(**arguments)


def test_commands_read_at_a_time(
    url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("HBASEMK_URL", url)
    with connect(url) as repo:
        repo.run(lambda tx: tx.add("/a"))
        between = now()
        repo.run(lambda tx: tx.add("/b"))
    time.sleep(0.005)
    run: Callable[..., tuple[int, str, str]] = lambda *words: run_captured(capfd, *words)  # noqa: E731
    iso = between.isoformat()
    assert run("ls", "--at", iso)[1] == "a\n"
    assert run("ls", "--at", iso.replace("+00:00", "Z"))[1] == "a\n"
    assert run("ls", "--at", iso.replace("+00:00", ""))[1] == "a\n"
    assert run("ls", "--at", "0s")[1] == "a\nb\n"
    assert len(run("log", "--until", iso)[1].splitlines()) == 2
    assert run("export", "-f", "json", "--at", iso, "/", str(tmp_path / "out.json"))[0] == 0
    assert run("checkpoint", "make", "1h", "--at", iso)[0] == 0
    code, _, err = run("ls", "--at", "2h")
    assert code == 1
    assert "no revision that is known to be committed before" in err
    for bad in ("soon", "2026-13-01", "2026-01-01T", "9999-01-01", ""):
        code, _, err = run("ls", "--at", bad)
        assert code == 2, bad
        assert "Error" in err or "future" in err


def test_commands_by_time_show_a_commit_that_was_decided_after_a_higher_revision(
    url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HBASEMK_URL", url)
    file = url.removeprefix("sqlite:///")
    slow_store = FaultyStore(SqliteStore(file))
    with Repository(slow_store, poll_interval=0) as slow, Repository(SqliteStore(file), poll_interval=0) as quick:
        slow.run(lambda tx: tx.add("/a"))
        quick.run(lambda tx: tx.add("/b"))
        made: list[None] = []

        def before(call: Call) -> None:
            if late.attempted is not None and not made:
                made.append(None)
                quick.run(lambda tx: tx.add("/quick"), "quick")

        with slow.transaction("late") as late:
            late.add("/late")
            slow_store.before = before
        slow_store.before = None
        moment = now()
        newest = quick.at(time=moment)
        assert late.revision is not None
        assert late.revision < newest.revision
        messages = ["quick", "late", "", "", "created"]
        assert [entry.message for entry in quick.log(until=newest)] == messages
        iso = moment.isoformat()
        assert run_captured(capfd, "ls", "--at", iso)[1].split() == ["a", "b", "late", "quick"]
        logged = run_captured(capfd, "log", "--output", "json", "--until", iso)[1]
        assert [json.loads(line)["message"] for line in logged.splitlines()] == messages
        assert run_captured(capfd, "log", "/late", "--until", iso)[0] == 0
        assert run_captured(capfd, "log", "/none", "--until", iso)[2].count(newest.revision) == 1
        assert "late" in run_captured(capfd, "nodes", "--at", iso)[1]
        assert run_captured(capfd, "nodes", "/late", "--at", iso)[0] == 0
        assert run_captured(capfd, "nodes", "/none", "--at", iso)[0] == 1
