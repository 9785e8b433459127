"""What a run deletes besides the cells of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hbasemk.format import schema
from hbasemk.kernel.collection import leases, memos
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Delete


class Kind(NamedTuple):
    """Cells of one kind. ``find`` yields the exact versions that nothing needs once the horizon is a given revision."""

    name: str
    table: str
    find: Callable[[RetryingStore, int], Iterator[Delete]]


KINDS: Final = (
    Kind(memos.KIND, schema.CLUSTER, memos.old_memos),
    Kind(leases.KIND, schema.CLUSTER, leases.old_leases),
)
