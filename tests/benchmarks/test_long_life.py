"""The benchmark of a node with many revisions measures each stage, and collects at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.benchmark_programs import cells, ended
from tests.support.hbase import HBase
from tests.support.repositories import Checked

TURNS = "20"
"""Far fewer than a measurement makes: on HBase, each turn opens two repositories."""


def run(url: str, young: str) -> None:
    code, printed, errors = ended("long_life", url, young, "10", "50", "--turns", TURNS)
    assert (code, errors) == (0, "")
    rows = cells(printed)
    assert [row[0] for row in rows[:2]] == ["10", "50"]
    collected = re.fullmatch(r"70, collected \((\d+) cells\)", rows[2][0])
    assert collected, rows[2][0]
    assert int(collected[1]) >= 69
    for row in rows:
        assert all(re.fullmatch(r"[\d.]+ ms \([\d.]+\)", cell) for cell in row[1:]), row


def test_each_stage_has_a_row_and_old_revisions_are_collected(tmp_path: Path, checked: Checked) -> None:
    run(*(checked(f"sqlite:///{tmp_path / name}.db") for name in ("old", "young")))


@pytest.mark.integration
def test_each_stage_has_a_row_and_old_revisions_are_collected_on_hbase(hbase: HBase, checked: Checked) -> None:
    run(*(checked(hbase.url(hbase.new_prefix())) for _ in range(2)))


@pytest.mark.integration
@pytest.mark.proof
def test_each_stage_has_rows_with_one_and_two_files(hbase: HBase, checked: Checked) -> None:
    if hbase.container is None:
        pytest.skip("it compacts tables in the container of HBase")
    url, young = (checked(hbase.url(hbase.new_prefix())) for _ in range(2))
    code, printed, errors = ended("long_life", url, young, "10", "--turns", TURNS, "--container", hbase.container.name)
    assert (code, errors) == (0, "")
    titles = [re.sub(r"\(\d+", "(n", row[0]) for row in cells(printed)]
    collected = "70, collected (n cells)"
    assert titles == [f"{title}{state}" for title in ("10", collected) for state in ("", ", one file", ", two files")]


def test_a_container_is_refused_for_sqlite(tmp_path: Path, checked: Checked) -> None:
    url, young = (checked(f"sqlite:///{tmp_path / name}.db") for name in ("old", "young"))
    code, printed, errors = ended("long_life", url, young, "10", "--container", "none")
    assert (code, errors) == (1, f"Error: --container needs repositories on HBase, got {url}; leave it out\n")
    assert printed.count("\n") == 3


@pytest.mark.parametrize(
    ("stages", "options", "message"),
    [
        (["50", "10"], [], "at least 70 after 50, got 10"),
        (["50", "50"], [], "at least 70 after 50, got 50"),
        (["10", "50", "69"], [], "at least 70 after 50, got 69"),
        (["10", "60"], ["--container", "none"], "at least 70 after 10, got 60"),
    ],
)
def test_a_stage_that_the_rows_before_it_reach_is_refused(
    stages: list[str], options: list[str], message: str, tmp_path: Path
) -> None:
    urls = [f"sqlite:///{tmp_path / name}.db" for name in ("old", "young")]
    code, printed, errors = ended("long_life", *urls, *stages, "--turns", TURNS, *options)
    assert (code, printed) == (2, "")
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("long_life", "nowhere", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
