"""Commands that fail: one line, and the exit code of the kind of error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hbasemk import CommitUnknownError, ConflictError, Repository, connect
from tests.support.commands import CONFLICT, NO, UNREACHABLE, USAGE, Run, assert_one_line


def test_without_a_repository_the_usage_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HBASEMK_URL")

    ran = run("ls")

    assert ran.code == USAGE
    assert "HBASEMK_URL" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("ls", "--wings"),
        ("set", "/a", "count"),
        ("set", "/a", "count", "1", "--unset"),
        ("set", "/a", "count", "many", "--type", "integer"),
        ("set", "/a", "count", "--unst"),
        ("set", "/a", "--unst", "1"),
        ("set", "--creat", "/a", "count", "1"),
        ("set", "/a", "count", "-x"),
        ("set", "/a", "count", "-1x"),
        ("set", "/a", "--unst", "--", "1"),
        ("set", "-m", "--", "/a", "count", "--unst"),
        ("set", "/a", "yes", "maybe", "--type", "boolean"),
        ("set", "/a", "count", "{", "--type", "json"),
        ("set", "/a", "count", "null", "--type", "json"),
        ("set", "/a", "count", '{"an": "object"}', "--type", "json"),
        ("ls", "relative"),
        ("ls", "/a/../c"),
        ("ls", "--at", "yesterday"),
        ("ls", "--url", "ftp://somewhere"),
        ("ls", "--url", "http://[::1"),
        ("ls", "--url", "sqlite:///x?colour=red"),
        ("rm",),
        ("export", "/a"),
        ("import", "/no/such/directory"),
        ("import", ".", "--workers", "0"),
        ("import", ".", "--url", "memory://"),
        ("init", "--url", "memory://"),
        ("ls", "--url", "memory://shared"),
        ("watch", "--url", " Memory://"),
        ("log", "-n", "0"),
        ("init", "--lease", "1"),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(
    run: Run, tree: None, url: str, arguments: tuple[str, ...]
) -> None:
    with connect(url) as repository:
        before = repository.refresh().revision

    ran = run(*arguments)

    assert ran.code == USAGE
    assert ran.out == ""
    assert ran.err != ""
    assert "Traceback" not in ran.err
    with connect(url) as repository:
        assert repository.refresh().revision == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("ls", "/nowhere"), "/nowhere"),
        (("cat", "/nowhere"), "/nowhere"),
        (("cat", "/a", "-p", "colour"), "colour"),
        (("rm", "/nowhere"), "/nowhere"),
        (("rm", "/"), "root"),
        (("mv", "/a", "/a/b/c"), "/a"),
        (("mv", "/a", "/c"), "/c"),
        (("cp", "/nowhere", "/d"), "/nowhere"),
        (("set", "/nowhere", "x", "1"), "/nowhere"),
        (("export", "/nowhere", "out"), "/nowhere"),
    ],
)
def test_an_impossible_request_ends_with_1_and_one_line(
    run: Run, tree: None, arguments: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(run(*arguments), NO, named)


def test_a_missing_repository_ends_with_4_and_is_not_created(run: Run, tmp_path: Path) -> None:
    assert_one_line(run("ls"), UNREACHABLE, str(tmp_path / "content.db"))
    assert os.listdir(tmp_path) == []


def test_a_missing_revision_ends_with_1(run: Run, tree: None, url: str) -> None:
    with connect(url) as repository:
        text = repository.head.revision
    # A counter that no writer has reached in this millisecond.
    other = f"{int(text, 16) + 0x50:016x}"

    assert_one_line(run("ls", "--at", other), NO, other)


def test_an_unreachable_store_ends_with_4(run: Run) -> None:
    assert_one_line(run("ls", "--url", "hbase://127.0.0.1:1/"), UNREACHABLE, "127.0.0.1:1")


def test_a_file_that_is_not_a_repository_is_left_alone(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"something else entirely, and of some length" * 100)
    before = other.read_bytes()

    for command in ("ls", "init"):
        ran = run(command, "--url", f"sqlite:///{other}")
        assert_one_line(ran, ran.code, str(other))
        assert ran.code in {NO, UNREACHABLE}
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("lost", path="/a", column="title", revision="r1", other="r2"),
        CommitUnknownError("unknown", revision="r1"),
    ],
)
def test_a_conflict_ends_with_3(run: Run, tree: None, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def lose(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Repository, "run", lose)

    assert_one_line(run("set", "/a", "title", "new"), CONFLICT, str(error))


@pytest.mark.parametrize("where", ["before", "behind", "environment"])
def test_debug_shows_where_an_error_comes_from(
    run: Run, tree: None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "environment":
        monkeypatch.setenv("HBASEMK_DEBUG", "1")
    ran = run(*["--debug"] * (where == "before"), "ls", "/nowhere", *["--debug"] * (where == "behind"))

    assert ran.code == NO
    assert "Traceback" in ran.err
    assert "NodeNotFoundError" in ran.err
