"""What tests of the collection share: a retention, and commits on the newest head."""

from __future__ import annotations

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance

HOUR = 3600.0
RETENTION_MS = 3_600_000


def commit(instance: Instance, *operations: Operation) -> int:
    """Poll, commit the operations, and return the revision."""
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=1, max_poll_age=0)
