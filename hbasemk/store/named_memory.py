"""Stores in memory that a process shares by name.

A :class:`NamedStore` is one handle. Handles are counted: the contents disappear when the last handle is closed, whenever
Python frees the objects.
"""

from __future__ import annotations

import threading

from hbasemk.store.memory import MemoryStore


class NamedStore(MemoryStore):
    """One handle on a named store; :meth:`NamedStores.open` creates it."""

    def __init__(self, cells: MemoryStore, name: str, stores: NamedStores) -> None:
        super().__init__()
        self._share(cells)
        self._name = name
        self._stores: NamedStores | None = stores

    @property
    def location(self) -> str:
        """The URL."""
        return f"memory://{self._name}"

    def close(self) -> None:
        """Close this handle; the contents disappear with the last one. Idempotent."""
        super().close()
        stores, self._stores = self._stores, None
        if stores is not None:
            stores.closed(self._name)


class NamedStores:
    """The memory stores that this process has open, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[MemoryStore, int]] = {}

    def open(self, name: str) -> NamedStore:
        """Return one more handle on the named store, creating the store for the first; the caller closes it."""
        with self._lock:
            cells, handles = self._open.get(name, (None, 0))
            if cells is None:
                cells = MemoryStore(transactions=True)
            self._open[name] = cells, handles + 1
        return NamedStore(cells, name, self)

    def closed(self, name: str) -> None:
        """Record that one handle was closed."""
        with self._lock:
            cells, handles = self._open.pop(name)
            if handles > 1:
                self._open[name] = cells, handles - 1
