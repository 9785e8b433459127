"""The benchmarks on HBase: every scenario runs, stays within its budgets, and leaves no table."""

from __future__ import annotations

import os

import pytest

from benchmarks import runner
from benchmarks.registry import Entry
from benchmarks.sizes import TINY
from tests.support.benchmarks import checked_trees, tables
from tests.support.budgets import assert_whole, assert_within_budgets
from tests.support.hbase import HBase

__all__ = ["checked_trees"]

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("checked_trees")]


def test_every_operation_stays_within_its_budget_on_hbase(hbase: HBase) -> None:
    entry = Entry("hbasemk", "hbase", "hbasemk", "tests.support.counted:CountedDistributed")
    assert_within_budgets(entry, f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}")


@pytest.mark.proof
def test_all_scenarios_run_on_all_systems_on_hbase(hbase: HBase, monkeypatch: pytest.MonkeyPatch) -> None:
    if hbase.thrift1 is None:
        pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
    monkeypatch.setitem(os.environ, "HBASEMK_BENCH_THRIFT1", f"{hbase.host}:{hbase.thrift1}")
    prefix = hbase.new_prefix()
    messages: list[str] = []
    run = runner.measure(runner.place_of(hbase.url(prefix)), TINY, report=messages.append)
    assert_whole(run, messages)
    assert {result.system for result in run.results} == {
        "hbasemk",
        "baseline",
        "published_2013",
        "published_2013_happybase",
    }
    (polls,) = (result.median for result in run.results if result.operation == "idle: polls per second")
    assert polls, "the scenario idle does not recognize polls"
    assert tables(hbase, prefix) == []
