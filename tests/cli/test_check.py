"""The maintenance commands: check and recover."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hbasemk
from hbasemk.cli import maintenance
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.sqlite import SqliteStore
from hbasemk.system import SystemRuntime
from tests.support.commands import run_captured
from tests.support.tables import Tables


class Tool:
    """The command line on one repository."""

    def __init__(self, path: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capture = capture
        self.url = f"sqlite:///{path}"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        ended, out, err = run_captured(self.capture, "--url", self.url, *arguments)
        assert ended == code, out + err
        assert "Traceback" not in err
        return out

    def lines(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Run a command and return its JSON output."""
        return [json.loads(line) for line in self(*arguments, "--output", "json", code=code).splitlines()]


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    made = Tool(tmp_path / "content.db", capfd)
    with hbasemk.connect(
        made.url, poll_interval=0, settings=hbasemk.Settings(lease_ms=1000, max_clock_skew_ms=1000)
    ) as repo:
        repo.run(lambda tx: [tx.add("/a", {"n": 1}), tx.add("/a/b"), tx.add("/c")])
    return made


@pytest.fixture
def tables(tool: Tool) -> Iterator[Tables]:
    store = SqliteStore(str(tool.path))
    runtime = SystemRuntime()

    def opened(_: int) -> Instance:
        return Instance.open(store, runtime)

    yield Tables(store, opened, runtime.sleep, runtime.now_ms)
    store.close()


def test_several_processes_find_what_one_finds(tool: Tool, tables: Tables) -> None:
    with hbasemk.connect(tool.url, poll_interval=0) as repo, repo.transaction() as tx:
        for number in range(6000):
            tx.add(f"/c/{number}", {"n": number})
    for number in range(0, 6000, 1000):
        tables.remove(schema.NODES, paths.key(f"/c/{number}"), schema.property_column("n"))
    command = [sys.executable, "-m", "hbasemk", "--url", tool.url, "check", "--output", "json", "--workers"]
    alone, several = (subprocess.run([*command, number], capture_output=True) for number in ("1", "3"))
    assert (alone.returncode, several.returncode) == (several.returncode, 1)
    assert alone.stderr == several.stderr == b""
    assert len(alone.stdout.splitlines()) > 6
    assert sorted(alone.stdout.splitlines()) == sorted(several.stdout.splitlines())


def test_the_progress_on_a_terminal_leaves_the_process_without_other_threads() -> None:
    """A check forks its workers only then."""
    shown = (
        "import threading; from hbasemk.cli import output\n"
        "with output.row_progress('check') as progress: progress('nodes', 7); print(threading.active_count())"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    ended = subprocess.run([sys.executable, "-c", shown], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    assert (ended.returncode, ended.stdout) == (0, b"1\n")
    assert b"check" in os.read(ours, 10_000)
    os.close(ours)


def test_a_check_has_at_least_one_process(tool: Tool) -> None:
    code, _, err = run_captured(tool.capture, "--url", tool.url, "check", "--workers", "0")
    assert code == 2
    assert "'0' is out of range; expected an integer from 1 to 64" in err


def test_a_whole_repository_is_whole(tool: Tool) -> None:
    printed = tool("check").splitlines()
    assert [line.split() for line in printed] == [
        ["cluster", "checked", "2"],
        ["nodes", "checked", "4"],
        ["journal", "checked", "2"],
        ["damage", "0"],
        ["leftovers", "0"],
        ["notes", "0"],
    ]
    assert tool.lines("check", "--blobs") == [
        {
            "summary": {
                "cluster_checked": 2,
                "nodes_checked": 4,
                "journal_checked": 2,
                "damage": 0,
                "leftovers": 0,
                "notes": 0,
            }
        }
    ]


def test_a_damaged_lease_is_shown_and_repaired(tool: Tool, tables: Tables) -> None:
    tables.put(schema.CLUSTER, schema.machine_key(7), (schema.LEASE, b"short", None))
    (facts,) = [json.loads(tool("status", "--output", "json"))]
    damaged = {"machine": "0007", "holder": "unknown", "until": None, "state": "damaged; run `hbasemk check --repair`"}
    assert damaged in facts["leases"]
    assert "  0007  unknown  damaged; run `hbasemk check --repair`\n" in tool("status")
    assert "is damaged. Until it is repaired, no instance recovers pending revisions of machine id 0007" in tool(
        "check", code=1
    )
    (found, _) = tool.lines("check", "--repair")
    assert found["done"].startswith("replaced it by a lease that expires soon")
    tool("check")
    assert "damaged;" not in tool("status")


def test_problems_are_reported_and_repaired(tool: Tool, tables: Tables) -> None:
    revision = tables.forge(RowChange("/a", "changed", (), ["ghost"]))
    first = tool("check", code=1).splitlines()[0].split("\t")
    assert first[:4] == ["damage", "dangling child", "/a/ghost", revisions.to_text(revision)]
    assert first[-1] == "can be repaired"
    found, summary = tool.lines("check", code=1)
    assert found == {
        "severity": "damage",
        "kind": "dangling child",
        "path": "/a/ghost",
        "revision": revisions.to_text(revision),
        "detail": "its parent lists it, but there is no such node",
        "repairable": True,
    }
    assert summary["summary"]["damage"] == 1
    found, summary = tool.lines("check", "--repair")
    assert "its parent no longer lists it" in found["done"]
    assert summary["summary"]["repaired"] == 1
    assert summary["summary"]["left"] == 0
    assert len(tool.lines("check")) == 1
    assert tool("ls", "/a").split() == ["b"]
    assert "repair" in tool("log", "-n", "1")


def test_unrepairable_problems_are_reported_again(tool: Tool, tables: Tables) -> None:
    revision = tables.commit(hbasemk.kernel.commit.operations.SetProperty("/a", "n", 2))
    tables.put(schema.NODES, paths.key("/a"), (schema.property_column("n"), b"\x77", revision))
    found, summary = tool.lines("check", "--repair", code=1)
    assert (found["kind"], found["done"]) == ("undecodable value", None)
    assert summary["summary"] | {"left": 1, "repaired": 0} == summary["summary"]
    assert len(tool.lines("check", code=1)) == 2


def test_one_subtree(tool: Tool, tables: Tables) -> None:
    tables.forge(RowChange("/a/b", "changed", (), ["ghost"]))
    assert len(tool.lines("check", "--path", "/a", code=1)) == 2
    assert len(tool.lines("check", "--path", "/a/b", code=1)) == 2
    assert tool.lines("check", "--path", "/c")[0]["summary"]["nodes_checked"] == 1
    tool("check", "--path", "c", code=2)


def test_one_subtree_has_no_blobs_of_its_own(tool: Tool, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_captured(capfd, "--url", tool.url, "check", "--path", "/a", "--blobs")
    assert (code, out) == (2, "")
    assert "--blobs cannot be combined with --path /a" in err
    blob = tool("blob", "put", __file__).strip()
    (facts,) = tool.lines("check", "--path", "/", "--blobs")
    assert facts["summary"]["nodes_checked"] == 4
    assert facts["summary"]["blobs_checked"], blob


def test_blobs_are_read_when_asked(tool: Tool, tables: Tables) -> None:
    blob = tool("blob", "put", __file__).strip()
    tables.remove(schema.BLOBS, bytes.fromhex(blob) + bytes(4), (schema.DATA, b"data"))
    tool("check")
    (found, _) = tool.lines("check", "--blobs", code=1)
    assert (found["kind"], found["path"]) == ("missing chunk of a blob", blob)
    assert found["detail"].endswith("write its content again with `hbasemk blob put --replace`")
    assert tool("blob", "put", __file__).strip() == blob
    assert len(tool.lines("check", "--blobs", code=1)) == 2
    assert tool("blob", "put", "--replace", __file__).strip() == blob
    tool("check", "--blobs")


def test_blobs_are_counted_and_not_their_chunks(tool: Tool, tables: Tables, tmp_path: Path) -> None:
    for name, size in ("small", 10), ("empty", 0), ("large", 3_000_000):
        (tmp_path / name).write_bytes(bytes(size))
        tool("blob", "put", str(tmp_path / name))
    # An unfinished upload is none.
    tables.put(schema.BLOBS, bytes(36), ((schema.DATA, b"data"), b"part", None))
    assert tool.lines("check", "--blobs")[-1]["summary"]["blobs_checked"] == 3
    assert "blobs checked    3\n" in tool("check", "--blobs")


def test_a_note_is_not_a_problem(tool: Tool, tables: Tables) -> None:
    tables.put(schema.BLOBS, bytes(36), ((schema.DATA, b"data"), b"part", None))
    (found, _) = tool.lines("check", "--blobs")
    assert (found["severity"], found["kind"], found["repairable"]) == ("note", "unfinished upload", False)


def test_a_repository_that_cannot_be_opened_reports_the_reason(tool: Tool, tables: Tables) -> None:
    revision = tables.commit(hbasemk.kernel.commit.operations.SetProperty("/a", "n", 2))
    tables.journal(revision, (schema.DATA, schema.CHANGES), b"\x01[[")
    (found, _) = tool.lines("check", code=1)
    assert (found["kind"], found["revision"]) == ("undecodable changes", revisions.to_text(revision))
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, b"1", None))
    tool("ls", code=1)
    assert "wrong watermark" in [line.get("kind") for line in tool.lines("check", "--repair", code=1)]
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.SETTINGS, b"{", None))
    assert tool.lines("check", code=1)[0]["kind"] == "undecodable settings"
    assert "`hbasemk check` lists" not in tool("check", code=1)


def test_recover_lists_the_revisions_that_it_ended(tool: Tool, tables: Tables) -> None:
    pending = tables.dead_writer(RowChange("/a", "changed", ["p"]))
    unswept = tables.dead_writer(RowChange("/a", "changed", ["q"]), aborted=True)
    tables.wait(2.5)
    printed = tool.lines("check", code=1)
    assert {line.get("kind") for line in printed[:-1]} >= {"pending revision of a dead writer"}
    *ended, last = tool.lines("recover")
    assert [(one["result"], one["revision"]) for one in ended] == [
        ("aborted", revisions.to_text(pending)),
        ("swept", revisions.to_text(unswept)),
    ]
    assert last["summary"]["aborted"] == 1
    tool("check")
    assert tool("recover").split()[:4] == ["aborted", "0", "swept", "0"]


def test_recover_abandons_branches_on_request(tool: Tool) -> None:
    root = tool("branch").strip()
    assert len(tool.lines("recover", "--branches", "3600")) == 1
    (ended, _) = tool.lines("recover", "--branches", "0")
    assert (ended["result"], ended["revision"]) == ("branch", root)
    tool("check")


def test_progress_is_shown_on_a_terminal_only(tool: Tool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hbasemk", "--url", tool.url, "check"]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, check=True, text=True, timeout=60, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass
    os.close(ours)
    assert b"check" in shown
    assert b"rows" in shown
    assert "rows" not in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["notes", "0"]
    piped = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert piped.stderr == ""
    forced = {**environment, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    piped = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60, env=forced)
    assert piped.stderr == ""


def test_many_problems_of_one_kind_are_summarised(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(maintenance, "SHOWN", 2)
    with hbasemk.connect(tool.url, poll_interval=0) as repo:
        head = revisions.from_text(repo.head.revision)
    store = SqliteStore(str(tool.path))
    cells = [NewCell(schema.DATA, b"\x01x%d" % number, b"\x02\x01", head) for number in range(7)]
    store.write(schema.NODES, [Put(paths.key("/c"), cells)])
    store.close()
    *shown, facts = tool.lines("check", code=1)
    assert [one["kind"] for one in shown] == ["undeclared cell"] * 2
    assert facts["summary"]["damage"] == 7
    assert len(tool.lines("check", "--all", code=1)) == 8
    code, out, err = run_captured(capfd, "--url", tool.url, "check")
    assert (code, "undeclared cell: 5 more" in err) == (1, True), out
