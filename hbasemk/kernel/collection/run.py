"""What one run shares with the parts that delete cells of one kind: the horizon, the counts, and the deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hbasemk.kernel.batches import batched
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Delete, DeleteBelow

T = TypeVar("T")

ROWS: Final = 100
"""The number of rows from which one call deletes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, of which all readers know the horizon. Unless it ``writes``, it only counts.

    ``pause`` is called with the number of rows after each call that deletes, ``progress`` with a word and the number of those
    that are done. ``full``: look at everything, not only at what the horizon has passed since the last run. ``forgotten``: the
    id up to which marks of deletions are deleted.
    """

    instance: Instance
    horizon: int
    cells: Counter[str]
    writes: bool
    pause: Callable[[int], None]
    full: bool = False
    forgotten: int = 0
    progress: Callable[[str, int], None] = lambda *_: None

    def delete(self, kind: str, table: str, deletes: Iterable[Delete]) -> None:
        """Delete exactly these versions of cells, and count them."""
        store = self.instance.store
        self._send(kind, deletes, lambda one: len(one.cells), lambda part: store.delete(table, part))

    def delete_below(self, kind: str, table: str, deletes: Iterable[DeleteBelow]) -> None:
        """Delete ranges of versions, and count the columns."""
        store = self.instance.store
        self._send(kind, deletes, lambda one: len(one.cells), lambda part: store.delete_below(table, part))

    def delete_rows(self, kind: str, table: str, keys: Iterable[bytes]) -> None:
        """Delete whole rows, and count the rows."""
        store = self.instance.store
        self._send(kind, keys, lambda _: 1, lambda part: store.delete_rows(table, part))

    def _send(
        self, kind: str, items: Iterable[T], count: Callable[[T], int], send: Callable[[Sequence[T]], None]
    ) -> None:
        for part in batched(items, ROWS):
            self.cells[kind] += sum(map(count, part))
            if self.writes:
                send(part)
                self.pause(len(part))
