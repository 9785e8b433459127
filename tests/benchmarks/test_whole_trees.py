"""The benchmark of whole trees runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

from pathlib import Path

import hbasemk
from hbasemk.processes import usable_processors
from tests.support.benchmark_programs import cells, ended
from tests.support.repositories import Checked


def test_each_kind_of_work_has_figures_and_was_done(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    code, printed, errors = ended("whole_trees", url, "120", "--workers", "2")
    assert (code, errors) == (0, "")
    rows = cells(printed)
    processors = usable_processors()
    assert [row[0] for row in rows] == [
        "check, 1 worker",
        *([f"check, {processors} workers"] if processors > 1 else []),
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
    code, printed, errors = ended("whole_trees", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
