"""hbasemk and the baseline on HBase fulfil the contract of systems under test."""

from __future__ import annotations

import pytest

from benchmarks.system import System
from tests.support.benchmarks import SystemContract
from tests.support.hbase import HBase

pytestmark = pytest.mark.integration


class OnHBase(SystemContract):
    @pytest.fixture
    def place(self, hbase: HBase) -> str:
        return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"


class TestDistributedHbasemk(OnHBase):
    target = "benchmarks.systems.hbasemk:DistributedHbasemk"


class TestRawThrift2(OnHBase):
    target = "benchmarks.systems.hbase_baseline:RawThrift2"

    def test_invalid_changes_are_rejected_and_change_nothing(self, system: System) -> None:
        # The baseline makes its four calls for each commit and ignores the answers.
        system.add([("/a", {"value": 1})])
        system.add([("/a", {"value": 2})])
        assert dict(system.read("/a") or {}) == {"value": 2}

    def test_a_conflicting_change_is_retried_and_counted(self, system: System) -> None:
        # The baseline reads immediately before it writes, so only simultaneous writers conflict.
        system.add([("/a", {"value": 1})])
        other = type(system).join(system.address())
        other.increment("/a", "value")
        system.increment("/a", "value")
        assert dict(other.read("/a") or {}) == {"value": 3}
        other.close()

    def test_siblings_of_several_processes_all_exist(self, system: System) -> None:
        system.add([("/shared", {})])
        other = type(system).join(system.address())
        for number in range(20):
            (system, other)[number % 2].add([(f"/shared/{number:02}", {"n": number})])
        assert system.children("/shared", None, 100) == [f"{number:02}" for number in range(20)]
        # Each connection knows only the rows that it added.
        assert (system.subtree("/shared"), other.subtree("/shared")) == (10, 10)
        other.close()

    def test_a_history_in_batches_has_one_version_for_each_commit(self, system: System) -> None:
        system.add([("/a", {"value": -1})])
        mark = system.mark()
        assert system.make_history("/a", "value", 2500, lambda: False) == 2500
        assert dict(system.read("/a") or {}) == {"value": 2499}
        assert dict(system.read_at(mark, "/a") or {}) == {"value": -1}
