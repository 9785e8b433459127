"""Large work lets Python look for garbage more rarely: it creates many objects, most of which it needs to its end.

By default, Python's collector of cyclic garbage looks at the new objects after each 700 of them, and sometimes at all. In a
commit of 10,000 nodes it finds nothing and takes a quarter of the processor time, in an export a tenth.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RARELY: Final = 20_000
"""The number of new objects after which the collector runs meanwhile. Garbage of other threads waits no longer than that."""


def collected_rarely(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate large work: while it runs, :func:`gc.get_threshold` begins with :data:`RARELY`, unless it is greater or 0.

    If two threads do such work at the same time, the first one to end restores the value. After an interruption by a signal the
    value may stay; a later collection then frees the same objects.
    """
    if sys.implementation.name != "cpython":  # pragma: no cover - the collectors of other implementations differ
        return call

    @functools.wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        before = gc.get_threshold()
        if not 0 < before[0] < RARELY:
            return call(*args, **kwargs)
        try:
            gc.set_threshold(RARELY, *before[1:])
            return call(*args, **kwargs)
        finally:
            if gc.get_threshold()[0] == RARELY:
                gc.set_threshold(*before)

    return wrapped
