"""The benchmark of the collection deletes all old versions, and compares commits and space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hbasemk
from tests.support.benchmark_programs import ended
from tests.support.hbase import HBase
from tests.support.repositories import Checked, tree


def run(url: str, copy: str) -> list[list[str]]:
    """Run the benchmark with 60 nodes, compare the repository with the copy, and return the cells of both tables."""
    code, printed, errors = ended("collection", url, copy, "4000", "--nodes", "60", "--turn", "0.05")
    assert (code, errors) == (0, "")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line]
    assert rows[0] == ["", "alone", "beside the other", "ratio"]
    assert [row[0] for row in rows[2:4]] == ["versions collected per second", "commits per second"]
    assert rows[4] == ["bytes", "with 4,000 old versions", "collected", "fresh copy", "collected ÷ copy"]
    for row in rows[2:4]:
        assert all(re.fullmatch(r"[\d,]+", cell) for cell in row[1:3]), row
        assert re.fullmatch(r"\d+\.\d\d|-", row[3]), row
    with hbasemk.connect(url, create=False) as one, hbasemk.connect(copy, create=False) as other:
        assert {path: props for path, props in tree(one).items() if path != "/"} == {
            path: props for path, props in tree(other).items() if path != "/"
        }
    return rows[6:]


@pytest.mark.slow
def test_it_prints_rates_and_space(tmp_path: Path, checked: Checked) -> None:
    url, copy = (checked(f"sqlite:///{tmp_path / name}.db") for name in ("content", "copy"))
    file, vacuumed = run(url, copy)
    assert (file[0], vacuumed[0]) == ("the file", "the file after VACUUM")
    before, after = (int(cell.replace(",", "")) for cell in vacuumed[1:3])
    assert after < before


@pytest.mark.integration
@pytest.mark.proof
def test_it_prints_rates_and_space_on_hbase(hbase: HBase, checked: Checked) -> None:
    url, copy = (checked(hbase.url(hbase.new_prefix())) for _ in range(2))
    nodes, journal = run(url, copy)
    assert (nodes[0], journal[0]) == ("nodes", "journal")
    before, after, fresh = (int(cell.replace(",", "")) for cell in nodes[1:4])
    assert after < before / 2
    assert after <= 1.1 * fresh


def test_places_that_do_not_suit_are_refused_before_the_run(tmp_path: Path) -> None:
    url, copy, used = (f"sqlite:///{tmp_path / name}.db" for name in ("content", "copy", "used"))
    with hbasemk.connect(used) as repository:
        repository.run(lambda tx: tx.add("/a"))
    for arguments, words in (
        ((url, url), "is also the repository at COPY"),
        ((url, used), "must be a new repository"),
        ((url, copy, "--container", "x"), "--container needs repositories on HBase"),
    ):
        code, printed, errors = ended("collection", *arguments, "100", "--nodes", "10", "--turn", "0.05")
        assert (code, printed, errors.count("\n")) == (1, "", 1)
        assert words in errors


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("collection", "nowhere", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
