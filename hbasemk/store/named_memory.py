"""Stores in memory that a process shares by name.

A :class:`NamedStore` is one handle. The contents disappear when the last handle is closed, whenever Python frees the
objects.
"""

from __future__ import annotations

from hbasemk.interrupts import Deferred
from hbasemk.store.atfork import ForkSafeLock
from hbasemk.store.memory import MemoryStore


class NamedStore(MemoryStore):
    """One handle on a named store; :meth:`NamedStores.open` creates it."""

    def __init__(self, name: str, stores: NamedStores) -> None:
        super().__init__()
        self._name = name
        self._stores = stores

    def share(self, cells: MemoryStore) -> None:
        """Share the cells of a store from now on."""
        self._share(cells)

    @property
    def location(self) -> str:
        """The URL."""
        return f"memory://{self._name}"

    def close(self) -> None:
        """Close this handle; the contents disappear with the last one. Idempotent."""
        with Deferred():
            super().close()
            self._stores.closed(self, self._name)


class NamedStores:
    """The memory stores that this process has open, by name."""

    def __init__(self) -> None:
        self._fork_safe = ForkSafeLock()
        self._lock = self._fork_safe.lock
        self._open: dict[str, tuple[MemoryStore, list[NamedStore]]] = {}

    def open(self, name: str) -> NamedStore:
        """Return one more handle on the named store, creating the store for the first; the caller closes it."""
        # Before the lock: a new store waits for the end of a fork, and a fork waits for the lock.
        new, handle = MemoryStore(transactions=True), NamedStore(name, self)
        try:
            with self._lock:
                cells, handles = self._open.get(name) or (new, [])
                handle.share(cells)
                self._open[name] = cells, [*handles, handle]
                return handle
        except BaseException:
            # No caller receives it, and a store lives as long as one of its handles.
            handle.close()
            raise

    def closed(self, handle: NamedStore, name: str) -> None:
        """Forget a closed handle, and the store with the last one. Idempotent."""
        with self._lock:
            if name in self._open:
                cells, handles = self._open[name]
                left = [one for one in handles if one is not handle]
                if left:
                    self._open[name] = cells, left
                else:
                    del self._open[name]
