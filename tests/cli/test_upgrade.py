"""``hbasemk upgrade`` on repositories of format 1."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hbasemk import Settings, connect
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.upgrade import Upgraded
from hbasemk.opening import open_store
from hbasemk.store.abc import Store
from tests.support.commands import run_captured
from tests.support.older import set_format
from tests.support.repositories import Checked

SETTINGS = Settings(lease_ms=1_000, max_clock_skew_ms=100)


def make_old(url: str) -> None:
    """Give a repository format 1."""
    store, _, _ = open_store(url)
    set_format(store, 1)
    store.close()


@pytest.fixture
def old(tmp_path: Path, checked: Checked) -> str:
    """A file of format 1 with three revisions, whose writer has just closed it."""
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    with connect(url, settings=SETTINGS, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"v": 1}))
        repo.run(lambda tx: tx.set("/a", "v", 2))
    make_old(url)
    return url


def test_the_command_says_what_it_did(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_captured(capsys, "--url", old, "status")
    assert (code, out) == (1, "")
    assert "has format 1, and this version of hbasemk uses format 2" in err
    assert "run `hbasemk upgrade`" in err
    time.sleep(0.3)
    code, out, err = run_captured(capsys, "--url", old, "--output", "json", "upgrade")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert done.pop("location").endswith("content.db")
    assert (done["format"], done["done"]) == (2, "upgraded from format 1 to format 2")
    assert done["revisions_numbered"] > 0
    assert done["pending_revisions_aborted"] == 0
    code, out, err = run_captured(capsys, "--url", old, "upgrade")
    assert (code, err) == (0, "")
    assert "nothing to do: the repository has format 2" in out
    assert "aborted" not in out
    done = json.loads(run_captured(capsys, "--url", old, "--output", "json", "upgrade")[1])
    assert (done["revisions_numbered"], done["pending_revisions_aborted"]) == (0, 0)
    code, out, err = run_captured(capsys, "--url", old, "--output", "json", "status")
    assert (code, json.loads(out)["format"]) == (0, 2)
    with connect(old, create=False, poll_interval=0) as repo:
        assert repo.head["/a"]["v"] == 2
        assert len(list(repo.log())) == 3


@pytest.mark.parametrize("command", [("check",), ("check", "--repair"), ("recover",), ("cat", "/a"), ("ls",)])
def test_no_command_calls_another_format_damage(
    old: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_captured(capsys, "--url", old, *command)
    assert (code, out) == (1, "")
    assert "has format 1, and this version of hbasemk uses format 2" in err
    store, _, _ = open_store(old)
    set_format(store, 3)
    store.close()
    code, out, err = run_captured(capsys, "--url", old, *command)
    assert (code, out) == (1, "")
    assert "has format 3, and this version of hbasemk knows formats up to 2" in err
    store, _, _ = open_store(old)
    set_format(store, 2)
    store.close()


def test_unknown_formats_and_downgrades_are_usage_errors(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    time.sleep(0.3)
    assert run_captured(capsys, "--url", old, "upgrade", "--to", "2")[0] == 0
    for number, said in (("1", "cannot be downgraded to format 1"), ("3", "must be an int from 1 to 2"), ("x", "'x'")):
        code, out, err = run_captured(capsys, "--url", old, "upgrade", "--to", number)
        assert (code, out) == (2, "")
        assert said in err


def test_the_command_names_the_process_that_uses_the_repository(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        make_old(url)
        code, out, err = run_captured(capsys, "--url", url, "upgrade")
    assert (code, out) == (4, "")
    assert "may still use it (its lease is over at 20" in err
    assert "pid" in err
    assert "It has format 1." in err
    store, _, _ = open_store(url)
    set_format(store, 2)
    store.close()


@pytest.mark.parametrize(("parameter", "seconds"), [("", 60.0), ("?retry_timeout=5", 5.0)])
def test_the_url_limits_the_retries(
    tmp_path: Path, parameter: str, seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits: list[float] = []

    def upgrade(_store: Store, runtime: Runtime, *_: object) -> Upgraded:
        limits.append(runtime.retry_timeout)
        return Upgraded(2, 2)

    monkeypatch.setattr("hbasemk.kernel.upgrade.upgrade", upgrade)
    assert run_captured(capsys, "--url", f"sqlite:///{tmp_path}/new.db{parameter}", "upgrade")[0] == 0
    assert limits == [seconds]
