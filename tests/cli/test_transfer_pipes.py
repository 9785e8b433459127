"""The exit codes of imports and exports whose reader has ended: a failure stays one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hbasemk import Transaction, connect
from hbasemk.format import limits
from tests.support.commands import DONE, NO

DEEP = "/a" * limits.MAX_DEPTH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a repository, and of things to import and to export."""

    def tree(tx: Transaction) -> None:
        tx.add("/more")
        tx.add("/more/than-the-file")
        tx.add("/files")
        tx.add("/files/without", {":kind": "file"})
        tx.add("/empty", {":kind": "directory"})

    with connect(f"sqlite:///{tmp_path / 'content.db'}", poll_interval=0) as repository:
        repository.run(tree)
    (tmp_path / "tree.json").write_text("{}")
    (tmp_path / "blob.json").write_text(f'{{"properties": {{"x": {{"$blob": "{"ab" * 32}"}}}}}}')
    (tmp_path / "top").mkdir()
    (tmp_path / "top/file").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"import top -w 1 --at {DEEP}", NO),
        (f"import top -w 1 --no-verify --at {DEEP}", NO),
        ("import top -w 1", DONE),
        ("import -f json tree.json --at /more", NO),
        ("import -f json blob.json --at /blob", NO),
        ("import -f json tree.json --at /new", DONE),
        ("export /files out", NO),
        ("export /empty out", DONE),
    ],
    ids=lambda value: str(value).replace(DEEP, "DEEP"),
)
def test_the_exit_code_does_not_depend_on_a_reader(folder: Path, line: str, code: int, form: str) -> None:
    run: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    theirs, ours = os.pipe()
    os.close(theirs)
    # Without a buffer, the command meets the broken pipe at the first line of its result.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HBASEMK_URL": f"sqlite:///{folder / 'content.db'}"}
    words = [sys.executable, "-m", "hbasemk", "--output", form, *line.split()]
    with run(words, stdout=ours, stderr=subprocess.PIPE, cwd=folder, env=environment) as running:
        os.close(ours)
        _, stderr = running.communicate()

    assert running.returncode == code
    assert (stderr == b"") == (code == DONE)
    assert b"pipe" not in stderr
