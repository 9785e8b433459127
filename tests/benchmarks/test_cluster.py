"""The benchmark of several writers on a cluster runs as its page says, leaves no table, and reports a wrong URL in one line."""

from __future__ import annotations

import pytest

from benchmarks.cluster import KINDS
from tests.support.benchmark_programs import ended
from tests.support.benchmarks import tables
from tests.support.hbase import HBase


@pytest.mark.integration
@pytest.mark.proof
def test_a_row_follows_for_each_kind_and_number_of_writers(hbase: HBase) -> None:
    prefix = hbase.new_prefix()
    options = ("--rounds", "1", "--commits", "8", "--writers", "1", "--writers", "2", "--writers", "1")
    code, printed, errors = ended("cluster", hbase.url(prefix), *options)
    assert code == 0, errors
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")][2:]
    assert [(kind, int(writers)) for kind, writers, *_ in rows] == [(kind, count) for kind in KINDS for count in (1, 2)]
    # A rate has a median above 0, so every writer has committed.
    assert all(float(figure.split(" ")[0]) > 0 for _, _, *figures in rows for figure in figures)
    if hbase.thrift1 is not None:
        assert tables(hbase, prefix) == []


def test_a_wrong_url_shows_no_traceback() -> None:
    code, printed, errors = ended("cluster", "hbase://a:1,b:1/")
    assert (code, printed) == (1, "")
    assert errors == "Error: 'hbase://a:1,b:1/' does not name one host; expected hbase://host:port/?prefix=name_\n"
