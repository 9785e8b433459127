"""The benchmark of child counts runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

from pathlib import Path

import hbasemk
from tests.support.benchmark_programs import cells, ended
from tests.support.repositories import Checked


def test_every_phase_prints_the_right_count(tmp_path: Path, checked: Checked) -> None:
    code, printed, errors = ended("child_count", checked(f"sqlite:///{tmp_path / 'content.db'}"), "20")
    assert (code, errors) == (0, "")
    rows = cells(printed)
    assert [count for label, count, *_ in rows if "count" in label] == ["20", "20", "120", "120"]


def test_a_repository_that_is_not_new_shows_no_traceback(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    with hbasemk.connect(url) as repository:
        repository.run(lambda tx: tx.add("/n"))
    code, _, errors = ended("child_count", url, "20")
    assert code == 1
    assert errors.startswith("Error: node /n already exists")
    assert errors.count("\n") == 1


def test_a_wrong_url_and_a_request_for_help_show_no_traceback() -> None:
    code, printed, errors = ended("child_count", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
    code, printed, errors = ended("child_count", "--help")
    assert (code, errors) == (0, "")
    assert "CHILDREN" in printed
