"""The commands on the MicroKernel interface and branches."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hbasemk import MicroKernel, connect
from tests.support.commands import run_captured

ROOT = Path(__file__).parents[2]


class Tool:
    """The command line on one repository."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capture = capture

    stderr = ""
    """The standard error of the last command."""

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        ended, out, self.stderr = run_captured(self._capture, "--url", self.url, *arguments, stdin=stdin)
        assert ended == code, self.stderr
        if code > 1:
            assert self.stderr.startswith(("hbasemk: ", "Usage: "))
        return out.strip()


@pytest.fixture
def tool(url: str, capfd: pytest.CaptureFixture[str]) -> Tool:
    made = Tool(url, capfd)
    made("init")
    return made


def test_commit_nodes_diff_and_log(tool: Tool) -> None:
    first = tool("commit", '+"/a":{"title":"x","b":{}}', "-m", "first")
    second = tool("commit", "--path", "/a", stdin=b'^"title":1.10 -"b"')
    assert json.loads(tool("nodes", "/a")) == {"title": 1.1, ":childNodeCount": 0}
    assert '"title":1.10' in tool("nodes", "/a")
    assert json.loads(tool("nodes", "/", "--at", first, "-d", "2"))["a"]["b"] == {":childNodeCount": 0}
    assert json.loads(tool("nodes", "/", "-d", "-1")) == {":childNodeCount": 1}
    tool("nodes", "/", "-d", "-2", code=2)
    assert tool("nodes", "/none", code=1) == ""
    assert tool("diff", first, code=1).splitlines() == ['-"/a/b"', '^"/a/title":1.10']
    assert tool("diff", second, second) == ""
    assert "first" in tool("log")
    tool("commit", '+"/a":{', code=2)
    tool("commit", '-"/none"', code=1)
    tool("diff", "zz", code=2)


PRINT_WITH_LITTLE_MEMORY = """
import contextlib, sys
from hbasemk.cli.main import main
from tests.support.memory_use import little_memory
with little_memory(int(sys.argv[1])), contextlib.suppress(SystemExit):
    main(sys.argv[2:])
"""


def test_a_large_diff_is_printed_in_parts(tool: Tool) -> None:
    with connect(tool.url, poll_interval=0) as repository:
        before = repository.head.revision
        for number in range(40):
            repository.run(lambda tx: tx.add(f"/n{number}", {"text": f"{number:06}" * 40_000}))  # noqa: B023

    words = ["30000000", "--url", tool.url, "diff", before]
    ran = subprocess.run(
        [sys.executable, "-c", PRINT_WITH_LITTLE_MEMORY, *words], capture_output=True, check=False, cwd=ROOT
    )

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(ran.stdout) > 9_600_000
    with connect(tool.url, poll_interval=0) as repository:
        text = MicroKernel(repository).diff(before, repository.head.revision)
    assert ran.stdout.decode() == text + "\n"


def test_branch_commit_rebase_reset_merge(tool: Tool) -> None:
    tool("commit", '+"/a":{"n":1}')
    root = tool("branch")
    one = tool("commit", "--on", root, '^"/a/n":2')
    two = tool("commit", "--on", one, '+"/a/x":{}')
    assert tool("branch", "--reset", two, one) == one
    tool("commit", '^"/a/n":3')
    tool("merge", one, code=3)
    assert f"hbasemk branch --rebase {one}" in tool.stderr
    assert "property 'n' of /a," in tool.stderr
    assert "Repository.run" not in tool.stderr
    rebased = tool("branch", "--rebase", one)
    assert tool.stderr == "hbasemk: conflict: /a/:conflict\n"
    assert json.loads(tool("nodes", "/a/:conflict", "--at", rebased))["changeChangedProperty"]["n"] == 2
    clean = tool("commit", "--on", rebased, '-"/a/:conflict" ^"/a/n":4')
    merged = tool("merge", clean, "-m", "done")
    assert tool("cat", "/a", "-p", "n") == "4"
    assert merged in tool("log", "-n", "1")
    assert tool("branch", "--sweep", "3600") == ""
    assert len(tool("branch", "--sweep", "0").splitlines()) == 2
    tool("branch", "--sweep", "1", "--rebase", clean, code=2)


def test_the_message_of_a_branch_describes_its_merge(tool: Tool) -> None:
    def newest_message() -> str:
        return json.loads(tool("log", "-n", "1", "--output", "json"))["message"]

    tool("commit", '+"/a":{"n":1}')
    draft = tool("branch", "-m", "a draft\nof two lines")
    draft = tool("commit", "--on", draft, '^"/a/m":1', "-m", "step")
    assert tool("branches").endswith("\ta draft")
    tool("commit", '^"/a/n":2')
    draft = tool("branch", "--rebase", draft)
    assert tool("branches").endswith("\ta draft")
    tool("merge", draft)
    assert newest_message() == "a draft\nof two lines"
    other = tool("commit", "--on", tool("branch", "--message", "a draft"), '^"/a/m":2')
    tool("merge", other, "-m", "published")
    assert newest_message() == "published"
    tool("merge", tool("commit", "--on", tool("branch", "-m", "a draft"), '^"/a/m":3'), "-m", "")
    assert newest_message() == ""
    last = tool("branch")
    for words in (["--rebase", last], ["--reset", last, last], ["--sweep", "0"]):
        tool("branch", *words, "-m", "x", code=2)
        assert f"-m is the message of a new branch, and {words[0]} creates none" in tool.stderr
    assert tool("branches").startswith(last)


def test_a_merge_without_effect_leaves_the_branch_open_as_its_help_says(tool: Tool) -> None:
    head = tool("commit", '+"/a":{"n":1}')
    branch = tool("branch", "-m", "nothing yet")
    assert tool("merge", branch) == head
    assert tool("branches").startswith(branch)
    tool("merge", tool("commit", "--on", branch, '^"/a/n":2'))
    assert tool("branches") == ""
    shown = " ".join(tool("merge", "--help").split())
    assert "A branch without effect makes no revision and stays open" in shown
    assert "hbasemk branch --abandon REVISION" in shown


def test_a_rebase_without_conflicts_prints_only_the_revision(tool: Tool) -> None:
    base = tool("commit", '+"/a":{"n":1} +"/b":{}')
    revision = tool("commit", "--on", tool("branch", base), '^"/a/n":2')
    trunk = tool("commit", '^"/b/n":3')
    later = tool("commit", '^"/b/n":4')
    rebased = tool("branch", "--rebase", revision, trunk)
    assert tool.stderr == ""
    assert json.loads(tool("nodes", "/", "--at", rebased, "-d", "1"))["b"]["n"] == 3
    tool("branch", trunk, "--rebase", later, code=1)
    assert json.loads(tool("nodes", "/", "--at", tool("merge", rebased)))["a"]["n"] == 2


def test_a_branch_is_abandoned(tool: Tool) -> None:
    tool("commit", '+"/a":{"n":1}')
    kept, given_up = tool("branch", "-m", "kept"), tool("branch", "-m", "given up")
    newest = tool("commit", "--on", given_up, '^"/a/n":2')
    tool("branch", "--abandon", given_up, code=1)
    assert f"its branch continues at {newest}" in tool.stderr
    assert tool("branch", "--abandon", newest) == ""
    assert tool("branches").split("\t")[0] == kept
    tool("merge", newest, code=1)
    assert "its branch was abandoned" in tool.stderr
    tool("branch", "--abandon", newest, code=1)
    assert "its branch was abandoned" in tool.stderr
    tool("branch", kept, "--abandon", kept, code=2)
    assert f"--abandon takes no BASE, got {kept}; leave it out" in tool.stderr
    tool("branch", "--abandon", kept, "-m", "x", code=2)
    assert "-m is the message of a new branch, and --abandon creates none" in tool.stderr
    tool("branch", "--abandon", kept, "--sweep", "1", code=2)
    assert "expected at most one of --rebase, --reset, --abandon and --sweep" in tool.stderr
    assert tool("branches").split("\t")[0] == kept


def test_blobs(tool: Tool, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(content)
    blob = tool("blob", "put", str(source))
    assert tool("blob", "put", stdin=content) == blob
    tool("blob", "get", blob, str(target))
    assert target.read_bytes() == content
    # A blob that cannot be read leaves an existing file as it is.
    kept = target.read_bytes()
    for missing in ("00" * 32, "x"):
        tool("blob", "get", missing, code=1)
        tool("blob", "get", missing, str(target), code=1)
        assert target.read_bytes() == kept
    assert [one.name for one in target.parent.iterdir() if one.name.startswith(".hbasemk")] == []
    if os.path.exists("/dev/full"):
        tool("blob", "get", blob, "/dev/full", code=1)
        assert tool.stderr == "hbasemk: /dev/full: No space left on device\n"


def test_watch(tool: Tool) -> None:
    tool("commit", '+"/a":{}')
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hbasemk",
            "--url",
            tool.url,
            "--output",
            "json",
            "watch",
            "/a",
            "-n",
            "1",
            "--timeout",
            "60",
        ],
        stdout=subprocess.PIPE,
    ) as running:
        number = 0
        while running.poll() is None:
            tool("commit", f'+"/b{number}":{{}}', "-m", "elsewhere")
            tool("commit", f'+"/ab{number}":{{}}', "-m", "beside")
            tool("commit", f'^"/a/n":{number}', "-m", "here")
            number += 1
        assert running.stdout is not None
        (line,) = running.stdout.read().splitlines()
    assert json.loads(line)["message"] == "here"


def test_a_watch_begins_at_a_token_a_revision_or_a_time(tool: Tool) -> None:
    first = tool("commit", '+"/a":{}')
    tool("watch", "--timeout", "0")
    token = tool.stderr.split()[-1]
    time.sleep(0.02)
    moment = datetime.datetime.now(datetime.timezone.utc).isoformat()
    time.sleep(0.02)
    tool("commit", '+"/b":{}', "-m", "second")
    for since in (token, first, moment):
        (shown,) = tool("watch", "--since", since, "--timeout", "0").splitlines()
        assert shown.endswith("\tsecond")
    # The repository is not so old.
    tool("watch", "--since", "1h30m", "--timeout", "0", code=1)
    assert "has no revision that is known to be committed before" in tool.stderr


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "w1.AAAA", "00"])
def test_a_watch_since_something_else_is_an_error_of_usage(tool: Tool, since: str) -> None:
    tool("watch", "--since", since, "--timeout", "0", code=2)
    assert since in tool.stderr


def test_diff_of_paths_shows_deeper_changes_as_their_nodes_below_the_depth(tool: Tool) -> None:
    tree = '+"/a":{"b":{"c":{"d":{}},"e":{"f":{}}},"k":{}} +"/g":{"h":{}} +"/i":{"j":{}}'
    first = tool("commit", tree)
    tool("commit", '^"/a/b/c/d/n":1 ^"/a/b/e/f/n":1 ^"/a/b/n":1 -"/a/k" -"/g" ^"/i/n":1 +"/new":{"below":{"it":{}}}')

    def paths(*options: str) -> list[str]:
        return tool("diff", first, "--paths", *options, code=1).splitlines()

    # The children of a node that was added or removed belong to it.
    assert paths("-d", "0") == ["/a", "/g", "/i", "/new"]
    assert paths("-d", "1") == ["/g", "/i", "/new", "/a/b", "/a/k"]
    assert paths("-d", "2") == ["/g", "/i", "/new", "/a/b", "/a/k", "/g/h", "/new/below", "/a/b/c", "/a/b/e"]
    assert paths("-d", "9") == paths() == paths("-d", "-1")
    assert paths("-d", "0", "--path", "/a") == ["/a/b", "/a/k"]
    assert paths("-d", "0", "--path", "/a/b") == ["/a/b", "/a/b/c", "/a/b/e"]
    assert paths("-d", "0", "--path", "/a/b/c") == ["/a/b/c/d"]
    shown = [
        json.loads(line) for line in tool("diff", first, "--paths", "-d", "0", "--output", "json", code=1).splitlines()
    ]
    assert shown == [{"path": "/a"}, {"path": "/g"}, {"path": "/i"}, {"path": "/new"}]


def test_diff_of_paths_shows_what_diff_shows(tool: Tool) -> None:
    first = tool("commit", '+"/a":{"b":{"c":{"d":{}}}} +"/e":{"f":{}}')
    tool("commit", '^"/a/b/c/d/n":1 -"/e/f"')
    tool("diff", first, "-d", "0", code=1)
    for depth in range(5):
        text = tool("diff", first, "-d", str(depth), code=1)
        printed = tool("diff", first, "--paths", "-d", str(depth), code=1)
        named = {re.sub("/n$", "", line.split('"')[1]) for line in text.splitlines()}
        assert set(printed.splitlines()) == named


@pytest.mark.parametrize("depth", ["1", "-1"])
def test_differences_in_reserved_names_only_are_differences(tool: Tool, depth: str) -> None:
    first = tool("commit", '+"/a":{}')
    with connect(tool.url, poll_interval=0) as repository:
        with repository.transaction() as tx:
            tx.set("/a", ":hash", "x")
            tx.set("/a", ":childNodeCount", 7)
            tx.add("/:id")
        second = repository.head.revision

    assert tool("diff", first, second, "-d", depth, "--paths", code=1).splitlines() == ["/:id", "/a"]
    assert tool("diff", first, second, "-d", depth, code=1) == ""
    assert "only in the reserved names :childNodeCount, :hash, :id; --paths shows their nodes" in tool.stderr
    assert json.loads(tool("diff", first, second, "-d", depth, "--output", "json", code=1)) == {"diff": ""}
    assert tool("diff", second, second) == ""
    assert tool.stderr == ""


def test_log_of_a_branch_shows_its_own_revisions_and_then_those_of_trunk(tool: Tool) -> None:
    base = tool("commit", '+"/a":{}', "-m", "base")
    root = tool("branch")
    one = tool("commit", "--on", root, '+"/b":{}', "-m", "one")
    two = tool("commit", "--on", one, '^"/a/n":1', "-m", "two")
    tool("commit", '+"/later":{}', "-m", "later")

    def log(*words: str) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in tool("log", *words, "--output", "json").splitlines()]
        return [(line["revision"], line["message"]) for line in lines]

    trunk = log("--until", base)
    assert trunk[0] == (base, "base")
    assert log("--until", two) == [(two, "two"), (one, "one"), *trunk]
    assert log("--until", one) == [(one, "one"), *trunk]
    assert log("--until", root) == trunk
    assert log("/a", "--until", two) == [(two, "two"), (base, "base")]
    assert log("/b", "--until", two) == [(one, "one")]
    assert log("-n", "1", "--until", two) == [(two, "two")]
    assert tool("log", "/b", "--paths", "--until", two) == "/b"
    tool("log", "/b", "--until", root, code=1)
    tool("log", "/later", "--until", two, code=1)
    assert "a branch's revision" in " ".join(tool("log", "--help").split())


def test_open_branches_are_listed(tool: Tool) -> None:
    assert tool("branches") == ""
    base = tool("commit", '+"/a":{}')
    first = tool("branch")
    newest = tool("commit", "--on", first, '+"/b":{}')
    with connect(tool.url) as repository:
        second = repository.branch("first line\nsecond line").revision
        found = repository.branches()
        lines = [line.split("\t") for line in tool("branches").splitlines()]
        assert [(line[0], line[3]) for line in lines] == [(newest, ""), (second, "first line")]
        assert [line[2] for line in lines] == [one.writer for one in found]
        assert all(line[1].endswith("Z") for line in lines)
        shown = [json.loads(line) for line in tool("branches", "--output", "json").splitlines()]
    assert [one["message"] for one in shown] == ["", "first line\nsecond line"]
    for one, branch in zip(shown, found, strict=True):
        assert list(one) == ["revision", "first", "base", "begun", "time", "writer", "message"]
        assert (one["revision"], one["first"], one["base"]) == (branch.revision, branch.first, base)
    tool("merge", newest)
    tool("branch", "--sweep", "0")
    assert tool("branches") == ""


@pytest.mark.parametrize("option", ["--rebase", "--abandon"])
def test_an_unknown_revision_is_not_called_one_of_trunk(tool: Tool, option: str) -> None:
    tool("branch", option, "66290b3600000000", code=1)
    assert "66290b3600000000 is not known" in tool.stderr
    tool("branch", option, tool("commit", '+"/a":{}'), code=1)
    assert "is a trunk revision" in tool.stderr
