"""What one run shares with the parts that delete cells of one kind: the horizon, the counts, and the deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hbasemk.kernel.batches import batched
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Delete, DeleteBelow

ROWS: Final = 100
"""The number of rows from which one call deletes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, of which all readers know the horizon. Unless it ``writes``, it only counts.

    ``pause`` is called with the number of rows after each call that deletes, ``progress`` with a word and the number of those
    that are done. ``full``: look at everything, not only at what the horizon has passed since the last run.
    """

    instance: Instance
    horizon: int
    cells: Counter[str]
    writes: bool
    pause: Callable[[int], None]
    full: bool = False
    progress: Callable[[str, int], None] = lambda *_: None

    def delete(self, kind: str, table: str, deletes: Iterable[Delete]) -> None:
        """Delete exactly these versions of cells, and count them."""
        for part in batched(deletes, ROWS):
            self.cells[kind] += sum(len(one.cells) for one in part)
            if self.writes:
                self.instance.store.delete(table, part)
                self.pause(len(part))

    def delete_below(self, kind: str, table: str, deletes: Iterable[DeleteBelow]) -> None:
        """Delete ranges of versions, and count the columns."""
        for part in batched(deletes, ROWS):
            self.cells[kind] += sum(len(one.cells) for one in part)
            if self.writes:
                self.instance.store.delete_below(table, part)
                self.pause(len(part))

    def delete_rows(self, kind: str, table: str, keys: Sequence[bytes]) -> None:
        """Delete whole rows, and count the rows."""
        for part in batched(keys, ROWS):
            self.cells[kind] += len(part)
            if self.writes:
                self.instance.store.delete_rows(table, part)
                self.pause(len(part))
