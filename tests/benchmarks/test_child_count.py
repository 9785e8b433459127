"""The benchmark of child counts runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.repositories import Checked


def ended(*arguments: str) -> tuple[int, str, str]:
    """Run the benchmark; return its exit code, its output and its errors."""
    command = [sys.executable, "-m", "benchmarks.child_count", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_every_phase_prints_the_right_count(tmp_path: Path, checked: Checked) -> None:
    code, printed, errors = ended(checked(f"sqlite:///{tmp_path / 'content.db'}"), "20")
    assert (code, errors) == (0, "")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in printed.splitlines()[2:]]
    assert [count for label, count, *_ in rows if "count" in label] == ["20", "20", "120", "120"]


def test_a_wrong_url_and_a_request_for_help_show_no_traceback() -> None:
    code, printed, errors = ended("nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
    code, printed, errors = ended("--help")
    assert (code, errors) == (0, "")
    assert "CHILDREN" in printed
