"""The HBase store passes the conformance suite, on a real HBase."""

from __future__ import annotations

import pytest

from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.testing.store import OpenStore, StoreConformance
from hbasemk.testing.store.machine import Model
from tests.support.hbase import HBase
from tests.support.proof import PROOF


class OnHBase:
    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls, hbase_server: HBase) -> OpenStore:
        return lambda: HBaseStore([Address(hbase_server.host, hbase_server.thrift2)])


@pytest.mark.integration
class TestHBase(OnHBase, StoreConformance):
    EXAMPLES = 30


@PROOF
@pytest.mark.integration
class TestMoreRandomCalls(OnHBase, Model):
    pass
