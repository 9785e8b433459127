"""An index from the ``:hash`` values that ``get_nodes`` returned to revisions and paths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from hbasemk.kernel.instance import Instance

LIMIT: Final = 10_000
"""The index's capacity. It always holds all hashes of the last call that returned any."""


class Hashes:
    """The revision and path of each returned hash. Thread-safe.

    In a forked child, the repository has a new instance, and another thread of the parent may have held the lock. There
    :meth:`of` returns a copy with a new lock.
    """

    def __init__(self, instance: Instance, known: Mapping[str, tuple[int, str]] | None = None) -> None:
        self._instance = instance
        runtime = instance.runtime
        self._lock = runtime.lock()
        self._known = OrderedDict(known or {})

    def of(self, instance: Instance) -> Hashes:
        """Return this index if it belongs to ``instance``, else a copy for the new instance."""
        return self if instance is self._instance else Hashes(instance, self._known)

    def find(self, value: str) -> tuple[int, str] | None:
        """Return the revision and path of a hash; None if no call returned it or it was evicted."""
        return self._known.get(value)

    def remember(self, shown: Mapping[str, tuple[int, str]]) -> None:
        """Add the hashes of one call, and evict the oldest ones."""
        if not shown:
            return
        with self._lock:
            for value, position in shown.items():
                self._known[value] = position
                self._known.move_to_end(value)
            while len(self._known) > max(LIMIT, len(shown)):
                self._known.popitem(last=False)
