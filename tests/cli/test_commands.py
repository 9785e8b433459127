"""All commands: help, pipes and progress."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hbasemk import connect
from tests.support.commands import DONE, USAGE, Run
from tests.support.imports import SMALL, write_files


def test_help_imports_nothing_heavy() -> None:
    check = (
        "import sys; from hbasemk.cli.main import cli; "
        "loaded = {'rich', 'thriftpy2', 'sqlite3', 'multiprocessing', 'asyncio'} & set(sys.modules); "
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_every_command_has_help_and_is_listed(run: Run) -> None:
    listed = run("--help").out
    for command in ("init", "import", "export", "ls", "cat", "set", "rm", "mv", "cp", "log", "status"):
        assert f"\n  {command} " in listed
        ran = run(command, "--help")
        assert ran.code == DONE
        assert "Usage: hbasemk" in ran.out


@pytest.mark.parametrize("group", [(), ("blob",), ("checkpoint",)])
def test_a_group_without_a_command_shows_its_help(run: Run, group: tuple[str, ...]) -> None:
    ran = run(*group)
    shown = ran.out + ran.err
    assert shown.strip() == run(*group, "--help").out.strip()
    assert ran.out or ran.code == USAGE


def test_no_summary_of_a_command_is_cut_off(run: Run) -> None:
    for help_text in (run("--help").out, run("blob", "--help").out, run("checkpoint", "--help").out):
        summaries = help_text.partition("Commands:")[2]
        assert summaries
        assert "..." not in summaries, summaries


def test_a_closed_pipe_is_not_an_error(url: str) -> None:
    with connect(url) as repository, repository.transaction() as tx:
        for number in range(5_000):
            tx.add(f"/node-with-a-long-name-{number:08}")
    with subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "--url", url, "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""


def test_progress_is_shown_on_a_terminal_only(run: Run, tmp_path: Path, url: str) -> None:
    import pty

    top = write_files(tmp_path / "docs", SMALL)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "--url", url, "--output", "json", "import", str(top), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as running:
        os.close(theirs)
        shown = io.BytesIO()
        while True:
            try:
                shown.write(os.read(ours, 4096))
            except OSError:
                # The end of a terminal's output on Linux.
                break
        os.close(ours)
        assert running.stdout is not None
        printed = json.loads(running.stdout.read())
    assert b"import to /docs" in shown.getvalue()
    assert printed["differences"] == 0
    # Without a terminal no progress is printed.
    assert run("import", str(top), "--workers", "1").err == ""
