"""Stores in memory that a process shares by name: there from the first opening until the last closing.

The openings are counted, so that what is gone when does not depend on when Python frees an object.
"""

from __future__ import annotations

import threading

from hbasemk.store.memory import MemoryStore


class NamedStore(MemoryStore):
    """One opening of the store of a name; made by :meth:`NamedStores.open`."""

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
        """End this opening; what the store holds goes with the last one. Idempotent."""
        super().close()
        stores, self._stores = self._stores, None
        if stores is not None:
            stores.closed(self._name)


class NamedStores:
    """The stores in memory that are open, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[MemoryStore, int]] = {}

    def open(self, name: str) -> NamedStore:
        """One more opening of the store of this name, which is made if nobody has it open. To be closed."""
        with self._lock:
            cells, openings = self._open.get(name, (None, 0))
            if cells is None:
                cells = MemoryStore()
            self._open[name] = cells, openings + 1
        return NamedStore(cells, name, self)

    def closed(self, name: str) -> None:
        """One opening has ended."""
        with self._lock:
            cells, openings = self._open.pop(name)
            if openings > 1:
                self._open[name] = cells, openings - 1
