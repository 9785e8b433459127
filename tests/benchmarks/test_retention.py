"""The benchmark of a long run with a short retention measures size and latencies, draws them, and checks what it wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hbasemk
from benchmarks.retention import WrongReadError, group_in
from tests.support.benchmark_programs import ended
from tests.support.hbase import HBase
from tests.support.repositories import Checked


def run(url: str, plot: Path) -> None:
    options = ("--seconds", "4", "--every", "0.5", "--nodes", "50", "--writers", "2", "--readers", "1")
    code, printed, errors = ended("retention", url, *options, "--plot", str(plot))
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:7]]
    assert [row[0] for row in rows] == ["begin", "first third", "second third", "last third", "end"]
    for row in rows[1:4]:
        assert int(row[4]) > 0, row
        assert int(row[7]) > 0, row
        assert all(re.fullmatch(r"[\d.]+ ms", row[place]) for place in (5, 6, 8, 9)), row
    assert lines[-1] == "The integrity check found nothing."
    assert plot.read_text().startswith("<?xml")
    with hbasemk.connect(url, create=False) as repository:
        assert repository.retention == 60


def test_it_measures_and_draws_each_part(tmp_path: Path, checked: Checked) -> None:
    pytest.importorskip("matplotlib")
    run(checked(f"sqlite:///{tmp_path / 'content.db'}"), tmp_path / "plot.svg")


@pytest.mark.integration
def test_it_measures_and_draws_each_part_on_hbase(tmp_path: Path, hbase: HBase, checked: Checked) -> None:
    pytest.importorskip("matplotlib")
    run(checked(hbase.url(hbase.new_prefix())), tmp_path / "plot.svg")


def test_a_reader_finds_a_torn_group_and_a_missing_node() -> None:
    with hbasemk.connect("memory://", poll_interval=0) as repository:
        repository.run(lambda tx: [tx.add("/a", {"turn": 1}), tx.add("/b", {"turn": 1})])
        assert group_in(repository.head, ["/a", "/b"]) == (1,)
        repository.run(lambda tx: tx.set("/b", "turn", 2))
        for group in (["/a", "/b"], ["/a", "/c"]):
            with pytest.raises(WrongReadError, match="expected one value"):
                group_in(repository.head, group)


@pytest.mark.parametrize(
    ("name", "words"),
    [("no/folder/plot.svg", "No such file"), ("plot.txt", "an ending such as .svg"), ("plot", ".svg")],
)
def test_a_plot_that_cannot_be_drawn_is_an_error_before_the_run(tmp_path: Path, name: str, words: str) -> None:
    pytest.importorskip("matplotlib")
    options = ("--seconds", "1", "--every", "0.5", "--nodes", "50", "--plot", str(tmp_path / name))
    code, printed, errors = ended("retention", f"sqlite:///{tmp_path / 'content.db'}", *options)
    assert (code != 0, printed) == (True, "")
    assert words in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [("--rate", "0"), ("--rate", "-1"), ("--every", "0"), ("--collect-every", "0"), ("--writers", "11")]
)
def test_options_without_a_meaning_are_refused(tmp_path: Path, options: tuple[str, str]) -> None:
    code, printed, errors = ended("retention", f"sqlite:///{tmp_path / 'content.db'}", "--nodes", "50", *options)
    assert (code != 0, printed) == (True, "")
    assert "Traceback" not in errors
    assert options[0] in errors
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("retention", "nowhere")
    assert (code, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
