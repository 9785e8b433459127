"""The benchmarks on HBase: every scenario runs, within the same budgets as on one machine, and leaves no table."""

from __future__ import annotations

import os

import pytest

from benchmarks import runner
from benchmarks.registry import Entry
from benchmarks.sizes import TINY
from tests.support.benchmarks import checked_trees
from tests.support.budgets import assert_whole, assert_within_budgets
from tests.support.hbase import HBase

__all__ = ["checked_trees"]

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("checked_trees")]


def tables(hbase: HBase, prefix: str) -> list[str]:
    """The names of tables with a prefix, as HBase's other gateway tells them."""
    happybase = pytest.importorskip("happybase")
    connection = happybase.Connection(hbase.host, hbase.thrift1)
    try:
        return [name.decode() for name in connection.tables() if name.decode().startswith(prefix)]
    finally:
        connection.close()


def test_no_operation_asks_more_of_hbase_than_its_budget(hbase: HBase) -> None:
    entry = Entry("hbasemk", "hbase", "ours", "tests.support.counted:CountedDistributed")
    assert_within_budgets(entry, f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}")


@pytest.mark.proof
def test_all_scenarios_run_on_all_systems_on_hbase(hbase: HBase, monkeypatch: pytest.MonkeyPatch) -> None:
    if hbase.thrift1 is None:
        pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
    monkeypatch.setitem(os.environ, "HBASEMK_BENCH_THRIFT1", f"{hbase.host}:{hbase.thrift1}")
    prefix = hbase.new_prefix()
    told: list[str] = []
    run = runner.measure(runner.place_of(hbase.url(prefix)), TINY, tell=told.append)
    assert_whole(run, told)
    assert {result.system for result in run.results} == {"hbasemk", "floor", "literal", "literal-happybase"}
    assert tables(hbase, prefix) == []
