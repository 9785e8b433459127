"""The published algorithm, as it stands beside hbasemk in the benchmarks, works: through Thrift1 and through Thrift2."""

from __future__ import annotations

import pytest

from tests.support.benchmarks import SystemContract, load
from tests.support.hbase import HBase

pytestmark = pytest.mark.integration


class Literal(SystemContract):
    tells_changes = False

    def test_conflicts_of_rows_that_do_not_touch_the_same_property_are_conflicts_all_the_same(self, place: str) -> None:
        # What hbasemk does not have; here it belongs to what is measured.
        system = load(self.target).create(place)
        other = type(system).join(system.connect())
        try:
            system.add([("/a", {"one": 1, "two": 2})])
            other.refresh()
            system.set("/a", "one", 3)
            other.set("/a", "two", 4)
            assert other.retries == 1
            assert dict(other.read("/a") or {}) == {"one": 3, "two": 4}
        finally:
            other.close()
            system.close()


class TestThroughThrift2(Literal):
    target = "benchmarks.peers.published_2013:LiteralThrift2System"

    @pytest.fixture
    def place(self, hbase: HBase) -> str:
        return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"


class TestThroughThrift1(Literal):
    target = "benchmarks.peers.published_2013:LiteralSystem"

    @pytest.fixture
    def place(self, hbase: HBase, monkeypatch: pytest.MonkeyPatch) -> str:
        if hbase.thrift1 is None:
            pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
        # As in a run of all systems on one place: that of Thrift2, and Thrift1 named beside it.
        monkeypatch.setenv("HBASEMK_BENCH_THRIFT1", f"{hbase.host}:{hbase.thrift1}")
        return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"

    def test_a_gateway_of_the_other_kind_is_told_apart(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HBASEMK_BENCH_THRIFT1")
        with pytest.raises(NotImplementedError, match="HBASEMK_BENCH_THRIFT1"):
            load(self.target).create(place)
