"""What tests of the collection share: a retention, and commits on the newest head."""

from __future__ import annotations

import pytest

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance

HOUR = 3600.0
RETENTION_MS = 3_600_000
BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
"""Run the tests on a store that orders all writes, as SQLite, and on one that does not, as HBase."""


def commit(instance: Instance, *operations: Operation) -> int:
    """Poll, commit the operations, and return the revision."""
    instance.runtime.sleep(0.01)  # So that it polls before: without an order, polls estimate the store's clock.
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=1, max_poll_age=0)
