"""The benchmark of whole trees runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hbasemk
from tests.support.repositories import Checked


def ended(*arguments: str) -> tuple[int, str, str]:
    """Run the benchmark; return its exit code, its output and its errors."""
    command = [sys.executable, "-m", "benchmarks.whole_trees", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_each_kind_of_work_has_figures_and_was_done(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    code, printed, errors = ended(url, "120", "--workers", "2")
    assert (code, errors) == (0, "")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in printed.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        "check",
        "JSON export",
        "JSON import",
        "JSON import, verified",
        "file import, 1 worker",
        "file import, 2 workers",
    ]
    with hbasemk.connect(url) as repository:
        counted = {top: sum(1 for _ in repository.head.walk(f"/{top}")) for top in repository.head.children("/")}
    # All nodes and the top.
    assert counted == dict.fromkeys(("tree", "json", "verified", "files1", "files2"), 121)


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
