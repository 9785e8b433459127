"""The state of objects as a value: what remains of a process that has ended is equal if nothing can tell it apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Set
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.testing.simulation import SimulatedRuntime

OUTSIDE = (
    Callable,
    AbstractContextManager,
    ModuleType,
    RetryingStore,
    SimulatedRuntime,
    WeakValueDictionary,
    random.Random,
)
"""Not part of the state: code, locks, what all processes share, and the views that callers happen to hold."""


def state_of(*things: object, but: str = "") -> Hashable:
    """Return a value that is equal for objects of equal state: their attributes, and those of the objects they refer to.

    Attributes of the name ``but`` do not count.
    """
    places: dict[int, int] = {}

    def of(thing: Any) -> Hashable:
        if thing is None or isinstance(thing, (int, float, str, bytes)):
            return thing
        if isinstance(thing, OUTSIDE):  # type: ignore[arg-type]
            return None
        if id(thing) in places:
            return "the object number", places[id(thing)]
        places[id(thing)] = len(places)
        if isinstance(thing, Mapping):
            return "mapping", tuple((of(key), of(value)) for key, value in thing.items())
        if isinstance(thing, Set):
            return "set", frozenset(map(of, thing))
        if isinstance(thing, (list, tuple)):
            return "sequence", tuple(map(of, thing))
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        names = [name for name in (*getattr(thing, "__dict__", ()), *slots) if name not in ("__weakref__", but)]
        return type(thing).__name__, tuple((name, of(getattr(thing, name))) for name in names if hasattr(thing, name))

    return tuple(map(of, things))
