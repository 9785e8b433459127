"""Exit codes: those of the guide, output that cannot be written, and no traceback for any stored or given text."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hbasemk
from hbasemk import CommitUnknownError, Repository, connect
from hbasemk.format import revisions
from tests.support.commands import run_captured
from tests.support.repositories import problems

DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)
INTERRUPTED = 130
TERMINATED = 143
GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


class Place:
    """A repository with some nodes, a branch that conflicts with trunk, and a blob."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'content.db'}"
        with connect(self.url, poll_interval=0) as repository:
            self.first = repository.head.revision
            repository.run(lambda tx: [tx.add("/a", {"n": 1}), tx.add("/a/b"), tx.add("/gone")], "made")
            branch = repository.branch()
            branch.run(lambda tx: tx.set("/a", "n", 2))
            self.branch = branch.revision
            repository.run(lambda tx: [tx.set("/a", "n", 3), tx.remove("/gone")], "changed")
            self.head = repository.head.revision
            self.blob = repository.blobs.write(b"content").id
        (folder / "file.json").write_text('{"properties": {}, "children": {}}')
        (folder / "text").write_bytes(b"text")
        (folder / "files").mkdir()
        (folder / "files" / "one").write_bytes(b"1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    with connect(made.url, create=False, poll_interval=0) as repository:
        assert problems(repository) == []


Ran = tuple[int, str, str]
Run = Callable[..., Ran]


@pytest.fixture
def run(place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HBASEMK_URL", place.url)
    monkeypatch.delenv("HBASEMK_DEBUG", raising=False)
    monkeypatch.chdir(place.folder)

    return partial(run_captured, capfd)


# --- the table in the guide -------------------------------------------------------------------------------

NOWHERE = "/no/where"
NO_STORE = "sqlite:///missing.db"

TABLE: list[tuple[int, str]] = [
    (DONE, "init"),
    (NO, "init --url sqlite:///text"),
    (USAGE, "init --epoch 2009-07-01 --url sqlite:///new.db"),
    (USAGE, "init --epoch 2020-01-01"),
    (USAGE, "init --lease 1"),
    (UNREACHABLE, "init --url sqlite:///no-such-folder/new.db"),
    (DONE, "status"),
    (UNREACHABLE, f"status --url {NO_STORE}"),
    (DONE, "ls"),
    (DONE, "ls /a/b"),
    (NO, f"ls {NOWHERE}"),
    (NO, "ls /gone"),
    (USAGE, "ls a"),
    (USAGE, "ls --at x"),
    (NO, "ls --at {unknown}"),
    (UNREACHABLE, "ls --url hbase://127.0.0.1:1/"),
    (DONE, "cat /a"),
    (NO, f"cat {NOWHERE}"),
    (NO, "cat /a -p x"),
    (USAGE, "cat"),
    (DONE, "log"),
    (DONE, "log /a"),
    (DONE, "log /a/b"),
    (DONE, "log /gone"),
    (NO, f"log {NOWHERE}"),
    (NO, "log /a --until {first}"),
    (DONE, "log --until {first}"),
    (DONE, "log --until {branch}"),
    (NO, "log /none --until {branch}"),
    (NO, "log /a/n"),
    (USAGE, "log a"),
    (USAGE, "log -n 0"),
    (DONE, "nodes /a"),
    (NO, f"nodes {NOWHERE}"),
    (USAGE, "nodes --filter x"),
    (DONE, "diff {head}"),
    (NO, "diff {first}"),
    (NO, "diff {first} --paths"),
    (NO, "diff {unknown}"),
    (DONE, "diff {head} --path /a"),
    (DONE, "diff {head} --path /a --paths"),
    (NO, f"diff {{head}} --path {NOWHERE}"),
    (NO, f"diff {{head}} --path {NOWHERE} --paths"),
    (NO, "diff {first} --path /gone"),
    (USAGE, "diff {head} --path a"),
    (USAGE, "diff x"),
    (DONE, "watch --timeout 0"),
    (USAGE, "watch --timeout -1"),
    (DONE, "set /a n 4"),
    (NO, f"set {NOWHERE} n 4"),
    (USAGE, "set /a n x -t integer"),
    (USAGE, "set /a .. 4"),
    (USAGE, "set /a n 4 -m {long}"),
    (USAGE, "rm /a -m {long}"),
    (USAGE, "merge {branch} -m {long}"),
    (DONE, "rm /a"),
    (NO, f"rm {NOWHERE}"),
    (NO, "rm /"),
    (DONE, "mv /a /c"),
    (NO, "mv /a /a/b/c"),
    (DONE, "cp /a /c"),
    (NO, "cp /a /a/b"),
    (DONE, 'commit +"/c":{}'),
    (NO, 'commit -"/no"'),
    (USAGE, "commit +"),
    (CONFLICT, 'commit ^"/a/n":9 --on {old}'),
    (DONE, "branch"),
    (DONE, "branch --rebase {branch}"),
    (NO, "branch --rebase {head}"),
    (USAGE, "branch --rebase x"),
    (USAGE, "branch {head} --sweep 1"),
    (USAGE, "branch {head} --reset {branch} {branch}"),
    (USAGE, "branch --sweep nan"),
    (USAGE, "branch --sweep inf"),
    (USAGE, "branch --sweep 1e308"),
    (CONFLICT, "merge {branch}"),
    (NO, "merge {head}"),
    (USAGE, "merge x"),
    (DONE, "blob put text"),
    (USAGE, "blob put missing"),
    (DONE, "blob get {blob}"),
    (NO, "blob get x"),
    (NO, "blob get {blob} no-such-folder/x"),
    (DONE, "import files"),
    (DONE, "import -f json file.json --at /copy"),
    (NO, "import -f json file.json"),
    (USAGE, "import missing"),
    (USAGE, "import text"),
    (DONE, "export /a -f json"),
    (DONE, "export /a -f json out.json"),
    (NO, f"export {NOWHERE} -f json"),
    (NO, "export /a -f json no-such-folder/x"),
    (USAGE, "export /a"),
    (DONE, "check"),
    (DONE, "check --path /a"),
    (DONE, "check --path /gone"),
    (NO, f"check --path {NOWHERE}"),
    (NO, "check --path /a/n"),
    (USAGE, "check --path a"),
    (UNREACHABLE, f"check --url {NO_STORE}"),
    (DONE, "recover"),
    (USAGE, "recover --branches nan"),
    (USAGE, "recover --branches inf"),
    (USAGE, "recover --branches 1e308"),
    (DONE, "recover --branches 3162240000"),
    (USAGE, "fly"),
    (USAGE, "ls --wings"),
    (DONE, "--help"),
    (DONE, "--version"),
]


@pytest.mark.parametrize(("code", "line"), TABLE, ids=[line for _, line in TABLE])
def test_commands_end_with_the_codes_of_the_guide(run: Run, place: Place, code: int, line: str) -> None:
    unknown = revisions.to_text(revisions.from_text(place.first) + 0x10000)
    facts = {**vars(place), "unknown": unknown, "long": "x" * 65_537}
    with connect(place.url, poll_interval=0) as repository:
        entries = list(repository.log())
    facts["old"] = entries[1].revision
    words = [re.sub(r"\{(\w+)\}", lambda found: str(facts[found[1]]), word) for word in line.split()]

    ended, out, err = run(*words)

    assert ended == code, err
    assert "Traceback" not in err
    named = "hbasemk: " in err or "Error: " in err
    if words[0] not in {"init", "branch", "diff", "watch"}:
        assert named == (code != DONE), err
    if words[0] in {"log", "check"} and code == NO:
        assert out == ""
        assert any(word in err for word in words if word.startswith("/"))


def test_the_guide_lists_every_code() -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("### Exit codes")[2].partition("\n#")[0]
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)]
    assert listed == sorted({code for code, _ in TABLE} | {INTERRUPTED, TERMINATED})


def test_an_unknown_outcome_ends_with_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise CommitUnknownError("unknown", revision="r1")

    monkeypatch.setattr(Repository, "run", unknown)
    assert run("set", "/a", "n", "1") == (CONFLICT, "", "hbasemk: unknown\n")


def test_an_interruption_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Repository, "refresh", interrupted)
    # click ends the line in which a terminal shows ^C.
    assert run("ls") == (INTERRUPTED, "", "\nhbasemk: interrupted\n")


@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Permission denied", "some\nfile"), OSError("no number"), ConnectionResetError(104, "reset")],
)
def test_an_error_of_the_system_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Repository, "refresh", broken)
    code, out, err = run("ls")
    assert (code, out, err.count("\n")) == (NO, "", 1)
    assert "Errno" not in err


# --- how long ids last ------------------------------------------------------------------------------------


def test_init_prints_when_ids_end_and_how_to_get_more(run: Run) -> None:
    code, out, err = run("init", "--url", "sqlite:///new.db")
    assert (code, len(out)) == (DONE, 17)
    assert "2030-06-03T21:56:53.887Z" in err
    assert "init --epoch DATE" in err
    code, out, err = run("init", "--url", "sqlite:///later.db", "--epoch", "2025-01-01", "--output", "json")
    assert (code, err) == (DONE, "")
    assert '"ids_run_out": "2042-06-03T21:56:53.887Z"' in out


def test_init_says_that_a_repository_exists_already(run: Run) -> None:
    code, first, _ = run("init", "--url", "sqlite:///new.db")
    assert code == DONE
    code, out, err = run("init", "--url", "sqlite:///new.db")
    assert (code, out) == (DONE, first)
    assert err == "hbasemk: the repository exists already and was not changed\n"
    code, out, err = run("init", "--url", "sqlite:///new.db", "--retention", "3d")
    assert (code, out) == (DONE, first)
    assert err == "hbasemk: the repository exists already; only its retention was set\n"
    for name, created in (("new", "false"), ("other", "true")):
        code, out, err = run("init", "--url", f"sqlite:///{name}.db", "--output", "json")
        assert (code, err) == (DONE, "")
        assert f'"created": {created}' in out


def test_status_prints_how_to_get_more_ids(run: Run) -> None:
    _, out, _ = run("status")
    assert "2030-06-03T21:56:53.887Z" in out
    assert "init --epoch DATE" in out


def test_an_epoch_that_leaves_less_than_a_year_creates_nothing(run: Run, place: Place) -> None:
    code, out, err = run("init", "--url", "sqlite:///new.db", "--epoch", "2009-07-01")
    assert (code, out) == (USAGE, "")
    assert "2009-07-01" in err
    assert "a year" in err
    assert run("ls", "--url", "sqlite:///new.db")[0] == UNREACHABLE


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("log -n x", "'x' is not an integer; expected one of at least 1"),
        ("log -n 0", "'0' is out of range; expected an integer of at least 1"),
        ("import files -w 1.5", "'1.5' is not an integer; expected one from 1 to 64"),
        ("diff 2h -d -2", "'-2' is out of range; expected an integer of at least -1"),
        ("nodes / -d -2", "'-2' is out of range; expected an integer from -1 to 9223372036854775807"),
        (f"nodes / -d {2**63}", f"'{2**63}' is out of range; expected an integer from -1 to {2**63 - 1}"),
        (f"nodes / -n {2**63}", f"'{2**63}' is out of range; expected an integer from -1 to {2**63 - 1}"),
        (f"nodes / --offset {2**63}", f"'{2**63}' is out of range; expected an integer from 0 to {2**63 - 1}"),
        ("upgrade --to x", "'x' is not an integer; expected one of at least 1"),
        ("upgrade --to 0", "'0' is out of range; expected an integer of at least 1"),
        ("branch --sweep -1", "'-1' is out of range; expected a number of seconds from 0 to 3162240000"),
        ("recover --branches -1", "'-1' is out of range; expected a number of seconds from 0 to 3162240000"),
        ("watch --timeout -1", "'-1' is out of range; expected a number of seconds of at least 0"),
        ("watch --timeout inf", "'inf' is not a finite number of seconds, such as 90 or 0.5"),
        ("import files --retry-timeout x", "'x' is not a number of seconds, such as 90 or 0.5"),
        ("import files --retry-timeout nan", "'nan' is not a number of seconds, such as 90 or 0.5"),
        ("export / out --retry-timeout -1", "'-1' is out of range; expected a number of seconds of at least 0"),
        ("retention -5d", "'-5d' is not a duration; expected one such as 48h, 7d or 1d12h, or forever"),
        ("checkpoint make -2h", "'-2h' is not a duration; expected numbers with the units"),
        ("checkpoint extend x -2h", "'-2h' is not a duration; expected numbers with the units"),
        ("init --lease 1s", "'1s' is not an integer; expected one of at least 1000"),
        (
            "init --epoch tomorrow",
            "'tomorrow' is not a date; expected one such as 2025-01-31, or 2025-01-31T12:00:00 in UTC",
        ),
        ("init --epoch 2025-02-30", "'2025-02-30' is not a date"),
    ],
)
def test_a_number_or_date_that_is_not_one_is_shown_with_what_was_expected(run: Run, line: str, message: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out) == (USAGE, "")
    assert message in err
    assert "--epoch DATE" in run("init", "--help")[1]


# --- output that goes nowhere -----------------------------------------------------------------------------

PRINTING = [
    "ls",
    "ls --output json",
    "cat /a",
    "cat /a -p n",
    "log",
    "status",
    "nodes",
    "diff {first}",
    "diff {first} --paths",
    "set /a n 7",
    "branch",
    "blob get {blob}",
    "export /a -f json",
    "check",
    "recover",
    "import -f json file.json",
    "init",
    "--help",
    "ls --help",
    "--version",
]


def process(place: Place, line: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    words = [word.format(**vars(place)) if "{" in word else word for word in line.split()]
    return subprocess.run(
        [sys.executable, "-m", "hbasemk", *words],
        check=False,
        cwd=place.folder,
        env={**os.environ, "HBASEMK_URL": place.url},
        **options,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_error_of_every_command(place: Place) -> None:
    for line in PRINTING:
        with open("/dev/full", "wb") as full:
            ran = process(place, line, stdout=full, stderr=subprocess.PIPE)
        assert ran.returncode == NO, line
        assert ran.stderr.splitlines()[-1] == b"hbasemk: standard output: No space left on device", line
        assert ran.stderr.count(b"No space left") == 1, line
        assert b"Traceback" not in ran.stderr, line
        assert b"Exception ignored" not in ran.stderr, line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("line", ["set /a/b n 7", "rm /a/b", 'commit +"/made":{}', "merge {other}"])
@pytest.mark.parametrize("stdout", ["/dev/full", "&-"])
def test_a_change_whose_revision_cannot_be_printed_is_reported(place: Place, line: str, stdout: str) -> None:
    with connect(place.url, poll_interval=0) as repository:
        branch = repository.branch()
        branch.run(lambda tx: tx.set("/", "n", 2))
        words = line.replace("{other}", branch.revision).split()
        script = f"{sys.executable} -m hbasemk {shlex.join(words)} >{stdout}"
        environment = {**os.environ, "HBASEMK_URL": place.url}
        ran = subprocess.run(["bash", "-c", script], check=False, capture_output=True, env=environment)
        revision = repository.refresh().revision
    first, last = ran.stderr.decode().splitlines()
    assert ran.returncode == NO
    assert first == f"hbasemk: the change is committed, in revision {revision}, which cannot be printed"
    assert last.startswith("hbasemk: standard output: ")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file here whose reads fail")
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("blob put {file}", "/proc/self/mem"),
        ("blob put", "standard input"),
        ("import -f json {file} --at /new", "/proc/self/mem"),
        ("import -f json - --at /new", "standard input"),
    ],
)
def test_an_error_of_a_read_names_the_file(place: Place, line: str, name: str) -> None:
    with open("/proc/self/mem", "rb") as unreadable:
        ran = process(place, line.replace("{file}", "/proc/self/mem"), stdin=unreadable, capture_output=True)
    assert (ran.returncode, ran.stdout) == (NO, b"")
    assert ran.stderr.splitlines()[-1] == f"hbasemk: {name}: Input/output error".encode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("line", "code"), [("ls", DONE), ("ls /none", NO), ("ls a", USAGE), ("merge {branch}", CONFLICT)]
)
def test_messages_that_cannot_be_written_change_no_exit_code(place: Place, line: str, code: int) -> None:
    with open("/dev/full", "wb") as full:
        ran = process(place, line, stdout=subprocess.PIPE, stderr=full)
    assert ran.returncode == code


@pytest.mark.parametrize(
    "line",
    ["ls", "blob get {blob}", "cat /a -p n", "--version", "--help", "ls --help", "blob get --help"],
)
def test_a_closed_standard_output_is_an_error(place: Place, line: str) -> None:
    words = " ".join(word.format(**vars(place)) for word in line.split())
    script = f"{sys.executable} -m hbasemk {words} >&-"
    ran = subprocess.run(
        ["bash", "-c", script],
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=place.folder,
        env={**os.environ, "HBASEMK_URL": place.url},
    )
    assert (ran.returncode, ran.stderr) == (NO, b"hbasemk: standard output: Bad file descriptor\n")


def test_a_change_text_that_is_not_utf8_is_wrong_usage(place: Place) -> None:
    ran = process(place, "commit", input=b'+"/\xff":{}', capture_output=True)
    assert ran.returncode == USAGE
    assert b"not UTF-8" in ran.stderr
    assert b"Traceback" not in ran.stderr
    script = f"{sys.executable} -m hbasemk commit <&-"
    closed = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, env={**os.environ, "HBASEMK_URL": place.url}
    )
    assert closed.returncode == USAGE
    assert b"standard input is closed" in closed.stderr


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, INTERRUPTED, "interrupted"), (signal.SIGTERM, TERMINATED, "interrupted by SIGTERM")],
)
def test_an_interruption_while_the_output_pipe_is_full_is_one_line(
    place: Place, number: int, code: int, message: str
) -> None:
    with connect(place.url, poll_interval=0) as repository, repository.transaction() as tx:
        for child in range(1000):
            tx.add(f"/a/{child:0200}")
    theirs, ours = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "ls", "/a", "--url", place.url], stdout=ours, stderr=subprocess.PIPE
    ) as running:
        room = select.poll()
        room.register(ours, select.POLLOUT)
        while room.poll(0):
            # Wait until the pipe is full and the process waits for a reader.
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(number)
        _, stderr = running.communicate()
    os.close(ours)
    os.close(theirs)
    assert (running.returncode, stderr.strip()) == (code, f"hbasemk: {message}".encode())


def test_blob_get_ignores_the_output_format_and_says_so(run: Run, place: Place) -> None:
    assert run("--output", "json", "blob", "get", place.blob)[1] == run("blob", "get", place.blob)[1] != ""
    assert "ignores --output" in " ".join(run("blob", "get", "--help")[1].split())


def test_the_version_is_one_line(run: Run) -> None:
    assert run("--version") == (DONE, f"hbasemk, version {hbasemk.__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("ls --at x", "--at"),
        ("cat /a --at x", "--at"),
        ("log --until x", "--until"),
        ("nodes --at x", "--at"),
        ("export /a -f json --at x", "--at"),
        ('commit +"/c":{} --on x', "--on"),
        ("diff x", "BEFORE"),
        ("diff {head} x", "AFTER"),
        ("branch x", "BASE"),
        ("branch --rebase x", "--rebase"),
        ("branch --reset {branch} x", "--reset"),
        ("merge x", "REVISION"),
    ],
)
def test_a_text_that_is_not_a_revision_is_wrong_usage_of_the_option(
    run: Run, place: Place, line: str, named: str
) -> None:
    words = [re.sub(r"^\{(\w+)\}$", lambda found: str(vars(place)[found[1]]), word) for word in line.split()]
    code, out, err = run(*words)
    assert (code, out) == (USAGE, "")
    assert "'x' is not a revision id" in err
    assert named in err
    assert "wanted" not in err
