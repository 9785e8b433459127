"""The benchmark of one counter runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.repositories import Checked


def ended(*arguments: str) -> tuple[int, str, str]:
    """Run the benchmark; return its exit code, its output and its errors."""
    command = [sys.executable, "-m", "benchmarks.counter", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_each_stage_prints_the_exact_sum_and_one_call(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    code, printed, errors = ended(url, "50", "--processes", "2", "--together", "2")
    assert (code, errors) == (0, "")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in printed.splitlines()[2:]]
    assert [
        (adjusts, commits, conflicts, value, calls) for adjusts, commits, conflicts, _, value, calls, *_ in rows
    ] == [
        ("4", "2", "0", "4", "1"),
        ("40", "20", "0", "40", "1"),
        ("50", "26", "0", "50", "1"),
    ]


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
