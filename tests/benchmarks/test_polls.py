"""The benchmark of polls runs as its page says, and reports a wrong URL in one line."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hbasemk
from benchmarks import polls
from hbasemk import Repository
from tests.support.benchmark_programs import cells, ended
from tests.support.hbase import HBase
from tests.support.repositories import Checked


def rows_of(url: str) -> list[list[str]]:
    """Return the number of writers, the phase, the calls and the new revisions of each row."""
    code, printed, errors = ended("polls", url, "2", "3", "--seconds", "1")
    assert (code, errors) == (0, "")
    rows = cells(printed)
    assert [row[:2] for row in rows] == [[count, phase] for count in "23" for phase in ("idle", "one commit", "busy")]
    busy = [float(cell.replace(",", "")) for row in rows[2::3] for cell in row[6:8]]
    assert all(number > 0 for number in busy), "the writers were not busy"
    return [[*row[:2], row[4], row[6]] for row in rows[:2] + rows[3:5]]


def test_each_number_of_writers_has_a_row_for_each_phase(tmp_path: Path, checked: Checked) -> None:
    rows = rows_of(checked(f"sqlite:///{tmp_path / 'content.db'}"))
    assert [row[3] for row in rows] == ["0.0", "1.0", "0.0", "1.0"]


def test_several_processes_share_the_writers_and_the_rate(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    code, printed, errors = ended("polls", url, "3", "--processes", "2", "--rate", "20", "--seconds", "1")
    assert (code, errors) == (0, "")
    assert [row[7] for row in cells(printed)][:2] == ["0", "0"]
    # The shares are 13.3 and 6.7. On a slow machine the processes make fewer commits.
    assert 2 <= int(cells(printed)[2][7]) <= 21
    with hbasemk.connect(url) as repo:
        assert sorted(name for name in repo.head.children("/") if not name.startswith("alone")) == ["0", "1", "2"]


def test_a_slow_machine_does_not_mix_the_phases(
    tmp_path: Path, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a CI run, single commits took until the writers were busy, and one poll showed two revisions."""
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    hbasemk.connect(url).close()
    commit = polls._set

    def slowly(repository: Repository, path: str, value: int) -> None:
        commit(repository, path, value)
        if path == "/alone0":
            time.sleep(1.2)

    monkeypatch.setattr(polls, "_set", slowly)
    gate = threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(polls.read, gate.wait, url, 0, 1.0)
        written = threads.submit(polls.write, gate.wait, url, 0, 1, 1.0, 20.0)
        assert [one.revisions for one in read.result()[:2]] == [0.0, 1.0]
        assert written.result() > 0


@pytest.mark.integration
def test_an_idle_poll_is_one_call_and_a_poll_of_one_commit_three_on_hbase(hbase: HBase, checked: Checked) -> None:
    # Two of the three run at the same time.
    assert rows_of(checked(hbase.url(hbase.new_prefix()))) == [
        ["2", "idle", "1.00", "0.0"],
        ["2", "one commit", "3.00", "1.0"],
        ["3", "idle", "1.00", "0.0"],
        ["3", "one commit", "3.00", "1.0"],
    ]


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("polls", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
