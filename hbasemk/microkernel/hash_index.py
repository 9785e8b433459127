"""An index from the ``:hash`` values that ``get_nodes`` returned to snapshots and paths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from hbasemk.kernel.instance import Instance

LIMIT: Final = 10_000
"""The index's capacity. It always holds all hashes of the last call that returned any."""


class Shown(NamedTuple):
    """Where a hash was shown: the revision, the name of its view (None: another instance showed it), and the path."""

    revision: int
    view: str | None
    path: str


class Hashes:
    """Where each returned hash was shown. Thread-safe.

    In a forked child, the repository has a new instance, and another thread of the parent may have held the lock. There
    :meth:`of` returns a copy with a new lock.
    """

    def __init__(self, instance: Instance, known: Mapping[str, Shown] | None = None) -> None:
        self._instance = instance
        runtime = instance.runtime
        self._lock = runtime.lock()
        self._known = OrderedDict(known or {})

    def of(self, instance: Instance) -> Hashes:
        """Return this index if it belongs to ``instance``, else a copy for the new instance."""
        if instance is self._instance:
            return self
        return Hashes(instance, {value: shown._replace(view=None) for value, shown in self._known.items()})

    def find(self, value: str) -> Shown | None:
        """Return where a hash was shown; None if no call returned it or it was evicted."""
        return self._known.get(value)

    def remember(self, shown: Mapping[str, Shown]) -> None:
        """Add the hashes of one call, and evict the oldest ones."""
        if not shown:
            return
        with self._lock:
            for value, position in shown.items():
                self._known[value] = position
                self._known.move_to_end(value)
            while len(self._known) > max(LIMIT, len(shown)):
                self._known.popitem(last=False)
