"""Fixtures of the tests on real HBase."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, running_cluster
from tests.support.hbase import engine_missing


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster for the tests of one file."""
    reason = engine_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_cluster() as found:
        yield found
