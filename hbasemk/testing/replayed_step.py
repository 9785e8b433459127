"""Repeat the store's part of a step without its process, on a store that contains only the rows that the step touches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from hbasemk.errors import HbasemkError
from hbasemk.format.schema import TABLES
from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.trace import Step


class StepReplay:
    """A small store whose clock shows ``now_ms`` forever."""

    def __init__(self, now_ms: int) -> None:
        self._store = MemoryStore(lambda: now_ms)
        self._store.create_tables(TABLES)
        store = self._store
        self._calls: dict[str, Callable[[str, Any], object]] = {
            "read": lambda table, get: store.read(table, (get,)),
            "scan": store.scan,
            "write": lambda table, put: store.write(table, (put,)),
            "delete": lambda table, delete: store.delete(table, (delete,)),
            "delete_below": lambda table, delete: store.delete_below(table, (delete,)),
            "delete_rows": lambda table, row: store.delete_rows(table, (row,)),
        }

    def make(
        self, step: Step, row: bytes | None, rows: Mapping[bytes, tuple[Cell, ...]]
    ) -> tuple[Hashable, tuple[Cell, ...]]:
        """Make a step on these rows; return its answer (see :func:`answer_of`), and the cells of ``row`` after it."""
        store, table = self._store, step.table
        store.write(table, [Put(key, [NewCell(*cell[:2], cell[3], cell[2]) for cell in rows[key]]) for key in rows])
        try:
            if step.condition is not None:
                answer: object = store.check_and_write(table, *step.condition, step.what)
            else:
                answer = self._calls[step.method](table, step.what)
        except HbasemkError as error:
            answer = repr(error)
        after = () if row is None else tuple(store.read(table, (Get(row, versions=ALL_VERSIONS),))[0].cells)
        store.delete_rows(table, [*rows, *([] if row is None else [row])])
        return answer_of(answer), after


def answer_of(result: Any) -> Hashable:
    """Return the result of a step in a form that can be compared."""
    return tuple((row.key, tuple(row.cells)) for row in result) if isinstance(result, list) else result
