"""The published algorithm fulfils the contract of systems under test, through Thrift1 and through Thrift2."""

from __future__ import annotations

import pytest

from tests.support.benchmarks import SystemContract, load
from tests.support.hbase import HBase

pytestmark = pytest.mark.integration


class Published2013(SystemContract):
    supports_diff = False
    adjusts = False

    def test_changes_of_different_properties_of_one_node_conflict(self, place: str) -> None:
        # hbasemk does not have these conflicts; their cost is part of the measurement.
        system = load(self.target).create(place)
        other = type(system).join(system.address())
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


class TestThroughThrift2(Published2013):
    target = "benchmarks.peers.published_2013:Published2013Thrift2System"

    @pytest.fixture
    def place(self, hbase: HBase) -> str:
        return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"


class TestThroughThrift1(Published2013):
    target = "benchmarks.peers.published_2013:Published2013Thrift1System"

    @pytest.fixture
    def place(self, hbase: HBase, monkeypatch: pytest.MonkeyPatch) -> str:
        if hbase.thrift1 is None:
            pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
        # As in a run of all systems on one place: that of Thrift2, and Thrift1 named beside it.
        monkeypatch.setenv("HBASEMK_BENCH_THRIFT1", f"{hbase.host}:{hbase.thrift1}")
        return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"

    def test_a_gateway_of_the_other_kind_is_rejected(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HBASEMK_BENCH_THRIFT1")
        with pytest.raises(NotImplementedError, match="HBASEMK_BENCH_THRIFT1"):
            load(self.target).create(place)
