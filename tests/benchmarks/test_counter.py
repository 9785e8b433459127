"""The benchmark of one counter runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

from pathlib import Path

from tests.support.benchmark_programs import cells, ended
from tests.support.repositories import Checked


def test_each_stage_prints_the_exact_sum_and_one_call(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    code, printed, errors = ended("counter", url, "50", "--processes", "2", "--together", "2")
    assert (code, errors) == (0, "")
    rows = cells(printed)
    assert [
        (adjusts, commits, conflicts, value, calls) for adjusts, commits, conflicts, _, value, calls, *_ in rows
    ] == [
        ("4", "2", "0", "4", "1"),
        ("40", "20", "0", "40", "1"),
        ("50", "26", "0", "50", "1"),
    ]


def test_a_failure_of_a_worker_is_an_error() -> None:
    # A repository in memory belongs to one process.
    code, _, errors = ended("counter", "memory://x", "10")
    assert code == 1
    assert errors.startswith("Error: ")


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("counter", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
