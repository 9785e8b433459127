"""Processes that conflict on HBase take turns, so each of them commits."""

from __future__ import annotations

import pytest

from tests.support import taking_turns
from tests.support.hbase import HBase


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(240)
def test_every_process_gets_its_share_of_one_property(hbase: HBase) -> None:
    taking_turns.run(hbase.url(hbase.new_prefix()))
