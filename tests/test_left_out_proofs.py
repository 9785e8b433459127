"""At the end of a run, pytest says how many cases of proofs the expression of `-m` left out (`tests/conftest.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = "tests/microkernel/test_random.py"
"""A file with one test, which runs a fifth of its steps by default, and all in the proof, on each kind of store."""


def left_out(*arguments: str) -> list[str]:
    """Collect the tests of the file; return the lines about cases that were left out."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", FILE, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert "/6 tests collected" in done.stdout
    return [line for line in done.stdout.splitlines() if "left out" in line]


@pytest.mark.parametrize("keyword", ["fifth or all", "sqlite"])
def test_the_cases_that_the_marks_leave_out_are_counted(keyword: str) -> None:
    count = 3 if keyword == "fifth or all" else 1
    expected = [f"{count} cases of proofs were left out; scripts/proof runs them"]
    assert left_out("-m", "not proof", "-k", keyword) == expected


@pytest.mark.parametrize("marks", [["-m", "not cluster"], []], ids=" ".join)
def test_cases_that_a_keyword_leaves_out_are_not_counted(marks: list[str]) -> None:
    assert left_out(*marks, "-k", "sqlite") == []


def test_cases_that_a_keyword_leaves_out_are_not_counted_if_the_marks_leave_out_none() -> None:
    assert left_out("-m", "not proof", "-k", "fifth and sqlite") == []
