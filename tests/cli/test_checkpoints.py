"""The commands on checkpoints, and durations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hbasemk import connect
from hbasemk.cli import output
from hbasemk.cli.times import When, seconds_of
from hbasemk.format import schema
from hbasemk.format.checkpoint import list_column
from hbasemk.repository import instance_of
from hbasemk.store.abc import NewCell, Put
from tests.support.commands import run_captured

Run = Callable[..., tuple[int, str, str]]


class Made(NamedTuple):
    run: Run
    url: str
    first: str


@pytest.fixture
def made(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("HBASEMK_URL", url)
    with connect(url) as repository:
        repository.run(lambda tx: tx.add("/a"))
        first = repository.head.revision
        repository.run(lambda tx: tx.add("/b"))

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_captured(capfd, *arguments)

    return Made(run, url, first)


def test_checkpoints_are_made_listed_extended_and_released(made: Made) -> None:
    run = made.run
    code, out, _ = run("checkpoint", "make", "2h", "--at", made.first, "-m", "before\nthe import")
    assert code == 0
    name, until, message = out.rstrip("\n").split("\t")
    assert name.startswith(f"{made.first}-")
    assert message == "before"
    _, out, _ = run("checkpoint", "make", "1d12h")
    newest = out.split("\t")[0]
    assert run("checkpoint", "list")[1].splitlines()[0] == f"{name}\t{until}\t{message}"
    assert [line.split("\t")[0] for line in run("checkpoint", "list")[1].splitlines()] == [name, newest]
    assert run("ls", "--at", made.first)[1] == "a\n"
    code, out, _ = run("checkpoint", "extend", name, "3h")
    assert code == 0
    assert out.split("\t")[1] > until
    assert "checkpoints" in run("status")[1]
    assert run("checkpoint", "release", name, newest)[0] == 0
    assert run("checkpoint", "list")[1] == ""
    for command in (("release", name), ("extend", name, "1h"), ("release", "x"), ("release", f"{'f' * 16}-{0:08x}")):
        code, out, err = run("checkpoint", *command)
        assert (code, out) == (1, "")
        assert "there is no checkpoint" in err


def test_a_checkpoint_that_does_not_exist_does_not_keep_the_others_from_being_released(made: Made) -> None:
    run = made.run
    names = [run("checkpoint", "make", "1h")[1].split("\t")[0] for _ in range(3)]
    code, out, err = run("checkpoint", "release", names[0], "none", names[1], names[1])
    assert (code, out) == (1, "")
    none, twice = err.splitlines()
    assert "there is no checkpoint 'none'" in none
    assert f"there is no checkpoint '{names[1]}': it has been released" in twice
    assert [line.split("\t")[0] for line in run("checkpoint", "list")[1].splitlines()] == [names[2]]
    assert "If one of them does not exist" in run("checkpoint", "release", "--help")[1]


def test_a_damaged_list_does_not_block_other_checkpoints(made: Made) -> None:
    run = made.run
    first = run("checkpoint", "make", "1h", "--at", made.first)[1].split("\t")[0]
    others = [run("checkpoint", "make", "1h")[1].split("\t")[0] for _ in range(2)]
    for text in (made.first, "f" * 16):
        assert f"no damaged checkpoint keeps revision {text}" in run("checkpoint", "release", text)[2]
    with connect(made.url) as repository:
        revision = int(made.first, 16)
        cells = [NewCell(*list_column(revision), b"short")]
        instance_of(repository).store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, cells)])
    code, out, err = run("checkpoint", "list")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (1, others)
    assert f"the checkpoints of revision {made.first} are damaged" in err
    code, out, err = run("status")
    assert (code, others[0] in out) == (0, True)
    assert f"`hbasemk checkpoint release {made.first}`" in err
    assert run("checkpoint", "extend", others[0], "2h")[0] == 0
    code, _, err = run("checkpoint", "release", first, others[0])
    assert (code, "a checkpoint must be a digest of 4 bytes" in err) == (1, True)
    # What the damaged list keeps is not known, so only the user can end it.
    assert run("checkpoint", "release", made.first)[0] == 0
    assert [line.split("\t")[0] for line in run("checkpoint", "list")[1].splitlines()] == [others[1]]
    assert run("check")[0] == 0
    code, _, err = run("checkpoint", "release", made.first)
    assert (code, "no damaged checkpoint keeps revision" in err) == (1, True)


def test_json_has_the_fields_of_the_python_api(made: Made) -> None:
    assert made.run("checkpoint", "make", "2h", "--at", made.first, "-m", "why\nlong")[0] == 0
    with connect(made.url) as repository:
        (found,) = repository.checkpoints()
    until = output.moment(found.until.timestamp() * 1000)
    expected = {
        "name": found.name,
        "revision": found.revision,
        "until": until,
        "expired": False,
        "message": found.message,
    }
    for arguments in (("list",), ("extend", found.name, "1s")):
        _, out, _ = made.run("checkpoint", *arguments, "--output", "json")
        assert json.loads(out) == expected
    assert json.loads(made.run("status", "--output", "json")[1])["checkpoints"] == [expected]


def test_expired_checkpoints_are_marked(made: Made) -> None:
    def shown(command: str) -> list[str]:
        return [line.strip() for line in made.run(*command.split())[1].splitlines() if "-" in line and "past" in line]

    name, until, _ = made.run("checkpoint", "make", "0.001s", "-m", "past")[1].split("\t")
    assert made.run("checkpoint", "make", "1h", "-m", "new")[0] == 0
    time.sleep(0.1)
    assert shown("checkpoint list") == [f"{name}\t{until} (expired)\tpast"]
    assert f"{name}  {until} (expired)  past" in shown("status")
    listed = [json.loads(line) for line in made.run("checkpoint", "list", "--output", "json")[1].splitlines()]
    assert [(one["message"], one["expired"]) for one in listed] == [("past", True), ("new", False)]
    assert listed[0]["until"] == until
    assert json.loads(made.run("status", "--output", "json")[1])["checkpoints"] == listed
    assert made.run("checkpoint", "release", name)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("make", "0s"), "lifetime must be a number of seconds, more than 0"),
        (("make", "999999w"), "at most"),
        (("make", "soon"), "'soon' is not a duration; expected numbers with the units"),
        (("make", "-1h"), "'-1h' is not a duration; expected numbers with the units"),
        (("make",), "Missing argument"),
        (("make", "1h", "--at", "x"), "not a revision id"),
        (("make", "1h", "-m", "x" * 1025), "at most 1024 bytes"),
        (("release",), "Missing argument"),
    ],
)
def test_bad_arguments_are_usage_errors(made: Made, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = made.run("checkpoint", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert made.run("checkpoint", "list")[1] == ""


@pytest.mark.parametrize(("revision", "message"), [("0" * 16, "not known in"), (None, "keeps a snapshot of trunk")])
def test_revisions_that_cannot_be_kept_are_refused(made: Made, revision: str | None, message: str) -> None:
    if revision is None:
        with connect(made.url) as repository:
            revision = repository.branch().revision
    code, out, err = made.run("checkpoint", "make", "1h", "--at", revision)
    assert (code, out) == (1, "")
    assert message in err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5d", 129_600.0),
        ("2w", 1_209_600.0),
        ("", None),
        ("5", None),
        ("h", None),
        ("1h 2m", None),
        ("1H", None),
        ("-1h", None),
        ("1e3s", None),
        ("\u0661h", None),
    ],
)
def test_durations(text: str, seconds: Any) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["66221d610235100d", "1d1d1d1d1d1d1d1d"])
def test_a_text_of_16_hexadecimal_digits_is_a_revision_and_no_duration(text: str) -> None:
    assert seconds_of(text) is not None
    assert When().convert(text, None, None) == text


def test_a_command_reads_a_revision_that_looks_like_a_duration(made: Made) -> None:
    code, out, err = made.run("ls", "--at", "06221d610235100d")
    assert (code, out) == (1, "")
    assert "revision 06221d610235100d is not known" in err


def test_times_are_exact_to_the_last_one() -> None:
    assert output.moment(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert output.moment(253_402_300_800_000) == "253402300800000 ms since 1970"
