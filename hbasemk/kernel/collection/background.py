"""Collection in the background of a writer, in small steps between polls."""

from __future__ import annotations

from typing import Final

from hbasemk.errors import FormatError, StoreError
from hbasemk.format import schema
from hbasemk.kernel.collection import raising, retention
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Get, NewCell, Put

EVERY: Final = 600.0
"""Seconds between two runs; the first one comes at a random moment of this time."""
AGAIN: Final = 60.0
"""Seconds until the next attempt if a run cannot begin because the store fails."""
WINDOWS: Final = 2
"""The number of windows of the journal that one step collects; polls wait meanwhile."""
REST: Final = 4.0
"""After a step the process rests for so many times its duration, so that commits beside it keep most of their rate."""


class BackgroundCollection:
    """Collects for an instance while it holds a lease. Each call of :meth:`step` does a little.

    A run publishes a horizon, waits until all readers know it, and deletes up to it. Runs of several processes do no harm; a
    cell in the settings row keeps most of them from doing the same work at the same time.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._retention_ms = 0
        self._running = False
        self._claimed = b""
        self._rest_until = float("-inf")
        self._due = runtime.monotonic() + EVERY * runtime.random.random()
        self.report = Report()

    def step(self, instance: Instance) -> None:
        """Continue a run, or begin one if it is due. No round trip otherwise, and while a run rests.

        Raises StoreError, and ClockSkewError if ages cannot be decided; a later step tries again.
        """
        if instance.store.read_only or not instance.lease.held:
            return
        if self._running:
            began = instance.runtime.monotonic()
            # A run that is not over when the next one is due has too much to do for a rest.
            if began < min(self._rest_until, self._due):
                return
            try:
                done = Collector(instance).collect(self._retention_ms, self.report, WINDOWS)
                self._running = not done or instance.store.give_back_space()
            except FormatError:
                # What is damaged stays so. The next run comes as if this one had ended.
                self._running = False
                raise
            ended = instance.runtime.monotonic()
            self._rest_until = ended + REST * (ended - began)
        elif instance.runtime.monotonic() >= self._due:
            self._due = instance.runtime.monotonic() + EVERY
            try:
                self._begin(instance)
            except FormatError:
                # What is damaged stays so.
                raise
            except StoreError:
                self._due = instance.runtime.monotonic() + AGAIN
                raise

    def _begin(self, instance: Instance) -> None:
        """Begin a run, unless another process has begun one recently."""
        found = retention.read(instance)
        if found is not None:
            # It raises ClockSkewError. A process that cannot collect leaves the run to others.
            raising.oldest_needed(instance, found)
            if self._claim(instance):
                self._retention_ms = found
                collector = Collector(instance)
                collector.publish(found)
                self._rest_until = instance.runtime.monotonic() + collector.grace
                self._running = True
                self._claimed = b""

    def _claim(self, instance: Instance) -> bool:
        """Return whether no other process has begun a run recently, and record that this one does.

        If this process has claimed a run that it could not begin, the claim still holds.
        """
        store = instance.store
        (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.COLLECTING,))])
        found = row.cells[0].value if row.cells else None
        now = instance.lease.time()
        if found is not None and found == self._claimed:
            return True
        # A time in the future is from a clock that was wrong.
        if found is not None and now - EVERY * 500 < int.from_bytes(found, "big") <= now:
            return False
        self._claimed = now.to_bytes(8, "big")
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.COLLECTING, self._claimed)])
        return store.check_and_write(schema.CLUSTER, schema.COLLECTING, found, put)
