"""What tests of the collection share: a retention, and commits on the newest head."""

from __future__ import annotations

import pytest

from hbasemk.format import paths, schema
from hbasemk.kernel.collection import collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import ALL_VERSIONS, Get, Store

HOUR = 3600.0
RETENTION_MS = 3_600_000
BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
"""Run the tests on a store that orders all writes, as SQLite, and on one that does not, as HBase."""


def commit(instance: Instance, *operations: Operation) -> int:
    """Poll, commit the operations, and return the revision."""
    instance.runtime.sleep(0.01)  # So that it polls before: without an order, polls estimate the store's clock.
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=1, max_poll_age=0)


def set_grace(patch: pytest.MonkeyPatch, grace: float, trust: float | None = None, *, searched_ms: int = 0) -> None:
    """Let collectors wait ``grace`` seconds before they delete, and readers rely on a horizon for ``trust`` seconds.

    The journal rows of ``searched_ms`` below the horizon stay, also if the retention is shorter.
    """
    patch.setattr(collector, "SEARCHED_MS", searched_ms)
    for name in ("GRACE", "GRACE_APART"):
        patch.setattr(fence, name, grace)
    if trust is not None:
        patch.setattr(fence, "TRUST", trust)


def collect(instance: Instance, **options: bool) -> collector.Report:
    """Collect what is older than the retention of the tests."""
    return collector.Collector(instance).run(RETENTION_MS, **options)


def cells(store: Store, path: str) -> list[tuple[bytes, int]]:
    """Return the columns and versions of a node's row."""
    (row,) = store.read(schema.NODES, [Get(paths.key(path), versions=ALL_VERSIONS)])
    return [(cell.qualifier, cell.timestamp) for cell in row.cells]
