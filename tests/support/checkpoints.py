"""What tests of checkpoints share."""

from __future__ import annotations

from hbasemk.kernel import checkpoints
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View

HOUR = 3_600_000
"""In ms."""


def kept(instance: Instance) -> dict[int, int]:
    """Return the last expiry of each revision."""
    found: dict[int, int] = {}
    for one in checkpoints.all_of(instance):
        found[one.revision] = max(one.until_ms, found.get(one.revision, 0))
    return found


def keep_shared(instance: Instance, view: View, until_ms: int) -> None:
    """Keep a view by a checkpoint that others may share."""
    checkpoints.keep(instance, view, until_ms, shared=True)
