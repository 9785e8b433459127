"""Python's garbage collector in comparisons: a measured call pays for the collections that its own objects cause, and no others.

Otherwise the objects of one call can cause a collection in the next one, in each turn again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def own_collections() -> Iterator[Callable[[], None]]:
    """Yield a function that prepares the collector for a measured call. The collector skips objects that exist already."""
    thresholds = gc.get_threshold()
    young, middle, old = thresholds

    def collect_young() -> None:
        # A full collection before each call would empty the processor's caches. It runs when it is due.
        gc.collect(1 if gc.get_count()[2] <= old else 2)
        # This collection counts towards the next full one, so a call with many objects would begin that one too early.
        gc.set_threshold(young, middle, old + gc.get_count()[2])

    gc.collect()
    gc.freeze()
    try:
        yield collect_young
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
