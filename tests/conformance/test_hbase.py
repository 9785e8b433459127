"""The HBase store passes the conformance suite, on a real HBase."""

from __future__ import annotations

import pytest

from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.testing.store import OpenStore, StoreConformance
from tests.support.hbase import HBase


@pytest.mark.integration
class TestHBase(StoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls, hbase_server: HBase) -> OpenStore:
        return lambda: HBaseStore([Address(hbase_server.host, hbase_server.thrift2)])
