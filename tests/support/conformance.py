"""Run single tests of the conformance suite, without pytest's fixtures."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from hbasemk.store.abc import ALL_VERSIONS, Store, Table
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.store import StoreConformance, Tables
from hbasemk.testing.store.base import C, D


def run_test(shared: MemoryStore, test: str, **arguments: Any) -> None:
    """Run one test of the suite as pytest does, with handles on one store and new tables."""
    function = getattr(StoreConformance(), test)
    wanted = inspect.signature(function).parameters
    handles: list[Store] = [copy.copy(shared) for _ in range(StoreConformance.HANDLES)]
    tables = Tables(
        many=Table("many", (C, D), ALL_VERSIONS),
        one=Table("one", (D,), 1, arrivals=True),
        ends=Table("ends", (D,), ALL_VERSIONS),
    )
    other = Table("p_other", (D,), 1, arrivals=True)
    handles[0].create_tables([*tables, other])
    given = {
        "handles": handles,
        "store": handles[0],
        "tables": tables,
        "row": b"row/",
        "prefix": "p_",
        "new_table": Table("p_new", (C, D), ALL_VERSIONS),
        "other": other,
        "open_store": lambda: copy.copy(shared),
        **arguments,
    }
    function(**{name: given[name] for name in wanted})
