"""hbasemk and the raw calls on HBase, as the benchmarks use them, do what they are measured at."""

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

    def test_what_is_not_possible_is_refused_and_changes_nothing(self, system: System) -> None:
        # It makes its calls and looks at nothing: four for each commit.
        system.add([("/a", {"value": 1})])
        system.add([("/a", {"value": 2})])
        assert dict(system.read("/a") or {}) == {"value": 2}

    def test_a_change_that_met_another_is_done_again_and_counted(self, system: System) -> None:
        # It reads right before it writes, so that it meets nobody unless at the very same moment.
        system.add([("/a", {"value": 1})])
        other = type(system).join(system.connect())
        other.increment("/a", "value")
        system.increment("/a", "value")
        assert dict(other.read("/a") or {}) == {"value": 3}
        other.close()

    def test_siblings_added_by_several_processes_are_all_there(self, system: System) -> None:
        system.add([("/shared", {})])
        other = type(system).join(system.connect())
        for number in range(20):
            (system, other)[number % 2].add([(f"/shared/{number:02}", {"n": number})])
        assert system.children("/shared", None, 100) == [f"{number:02}" for number in range(20)]
        # A subtree's rows are named by whoever added them.
        assert (system.subtree("/shared"), other.subtree("/shared")) == (10, 10)
        other.close()

    def test_a_history_made_in_batches_is_that_many_versions(self, system: System) -> None:
        system.add([("/a", {"value": -1})])
        mark = system.mark()
        assert system.age("/a", "value", 2500, lambda: False) == 2500
        assert dict(system.read("/a") or {}) == {"value": 2499}
        assert dict(system.read_at(mark, "/a") or {}) == {"value": -1}
