"""Reads that bypass the node cache of an instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading.cache import NodeCache


@contextmanager
def without_cache(instance: Instance) -> Iterator[None]:
    """Let an instance read everything from the store. Its cache stays as it is."""
    reader = instance.reader
    kept, reader._cache = reader._cache, NodeCache(instance.runtime.lock(), 0)
    try:
        yield
    finally:
        reader._cache = kept
