"""The ``:hash`` values that were shown, so that they can be looked up as paths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from hbasemk.kernel.instance import Instance

LIMIT: Final = 10_000
"""How many are remembered; those of the last call that showed any always are."""


class Hashes:
    """Where each hash was seen: revision and path. Safe to be used by many threads.

    In a forked child, where the repository has an instance of its own, another thread may have held the lock: there
    :meth:`of` gives one with a new lock that knows the same.
    """

    def __init__(self, instance: Instance, known: Mapping[str, tuple[int, str]] | None = None) -> None:
        self._instance = instance
        self._lock = instance.runtime.lock()
        self._known = OrderedDict(known or {})

    def of(self, instance: Instance) -> Hashes:
        """These, or what an instance that has taken over begins with."""
        return self if instance is self._instance else Hashes(instance, self._known)

    def find(self, value: str) -> tuple[int, str] | None:
        """Revision and path, None for what has not been shown or was forgotten."""
        return self._known.get(value)

    def remember(self, shown: Mapping[str, tuple[int, str]]) -> None:
        """What one call has shown, for which older ones are forgotten."""
        if not shown:
            return
        with self._lock:
            for value, where in shown.items():
                self._known[value] = where
                self._known.move_to_end(value)
            while len(self._known) > max(LIMIT, len(shown)):
                self._known.popitem(last=False)
