"""What tests of the collection share: a retention, and commits on the newest head."""

from __future__ import annotations

import pytest

from hbasemk.kernel.collection import collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence

HOUR = 3600.0
RETENTION_MS = 3_600_000
BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
"""Run the tests on a store that orders all writes, as SQLite, and on one that does not, as HBase."""


def commit(instance: Instance, *operations: Operation) -> int:
    """Poll, commit the operations, and return the revision."""
    instance.runtime.sleep(0.01)  # So that it polls before: without an order, polls estimate the store's clock.
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=1, max_poll_age=0)


def set_grace(patch: pytest.MonkeyPatch, grace: float, trust: float | None = None) -> None:
    """Let collectors wait ``grace`` seconds before they delete, and readers rely on a horizon for ``trust`` seconds."""
    for name in ("GRACE", "GRACE_APART"):
        patch.setattr(collector, name, grace)
    if trust is not None:
        patch.setattr(fence, "TRUST", trust)
