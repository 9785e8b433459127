"""Crash points: an action is stopped at each of its store calls, row by row, in every way a store or a process can fail.

A site is a small repository with a live watcher. Each point runs on a copy, so that thousands of points are quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hbasemk.check import IntegrityCheck
from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Delete, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support.runtime import World, open_instance
from tests.support.uncached import without_cache

T = TypeVar("T")

REFUSED = "refused"
LOST = "reply lost"
LOST_BEFORE = "reply lost, not applied"
DIED = "died"
DIED_BACKWARDS = "died, rows applied from the last on"
AWAY = "away from then on"
AWAY_LOST = "away after it was applied"
WAYS = (REFUSED, LOST, LOST_BEFORE, DIED, DIED_BACKWARDS, AWAY, AWAY_LOST)

SETTLE_SECONDS = 16.0
"""The lease, the allowed skew, and a second."""


class Died(BaseException):
    """The process died; no handler catches this."""


class Steps(WrappedStore):
    """Makes each written or deleted row, and each other call, one step; one step can fail."""

    def __init__(self, inner: Store, rows: int = 1000) -> None:
        super().__init__(inner)
        self.steps = 0
        self.fails_at = -1
        self.way = ""
        self._kind = ""
        self.log: list[str] = []
        self._rows = rows
        self._before = 0
        self._gone = False
        self._dead = False

    @property
    def batch_rows(self) -> int:
        """Return a small size, to make commits of several batches."""
        return self._rows

    def __getstate__(self) -> object:
        """Return what later calls depend on: the number of steps and the way only as long as a step is still to fail."""
        left = self.fails_at - self.steps
        ahead = (left, self.way, self._kind) if left >= 0 else None
        return self.inner, self._rows, self._before, self._gone, self._dead, ahead

    def fail(self, at: int, way: str, kind: str = "") -> None:
        """Let a step fail, counted from now on: among all steps, or those of one kind, such as "write nodes"."""
        self.steps, self.fails_at, self.way, self._kind = 0, at, way, kind

    def heal(self) -> None:
        """Make the store reachable again."""
        self.fails_at = -1
        self._gone = False

    @property
    def dead(self) -> bool:
        """Return whether the process that uses this has died."""
        return self._dead

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Run one step."""
        if self._dead:
            raise Died
        if self._gone:
            raise StoreNotAppliedError("the store is away")
        self.log.append(f"{call.method} {call.table}")
        counts = self._kind in ("", self.log[-1])
        here = counts and self.steps == self.fails_at
        self.steps += counts
        if not here:
            return do()
        if self.way in (REFUSED, AWAY):
            self._gone = self.way == AWAY
            # A store never reports "not applied" for a batch that is applied in part.
            raise (StoreUnknownError if self._before else StoreNotAppliedError)(f"{call.method} failed on purpose")
        if self.way == LOST_BEFORE:
            raise StoreUnknownError(f"{call.method} never arrived, on purpose, and nobody knows")
        do()
        if self.way in (DIED, DIED_BACKWARDS):
            self._dead = True
            raise Died
        self._gone = self.way == AWAY_LOST
        raise StoreUnknownError(f"the reply to {call.method} was lost on purpose")

    def _each(self, rows: Sequence[T], do: Callable[[T], None]) -> None:
        try:
            for row in reversed(rows) if self.way == DIED_BACKWARDS else rows:
                do(row)
                self._before += 1
        finally:
            self._before = 0

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Row by row."""
        self._each(puts, lambda put: super(Steps, self).write(table, [put], durable=durable))

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Row by row."""
        self._each(deletes, lambda delete: super(Steps, self).delete(table, [delete]))

    def close(self) -> None:
        """Do nothing: the store is shared."""


def tree(instance: Instance, snapshot: View | None = None) -> dict[str, dict[str, object]]:
    """Return the tree of a snapshot (None: a newly polled head), without the cache."""
    if snapshot is None:
        instance.poll()
        snapshot = instance.head()
    with without_cache(instance):
        top = instance.reader.node(snapshot, "/")
        assert top is not None
        found: dict[str, dict[str, object]] = {"/": dict(top.properties)}
        for level in instance.reader.levels(snapshot, "/"):
            found.update({state.path: dict(state.properties) for state in level})
    return found


@dataclass
class Site:
    """One copy of a repository: the store, its clock, the acting instance (through steps) and a watching one."""

    store: MemoryStore
    world: World
    mac: int = 2
    rows: int = 1000
    state: Any = None
    steps: Steps = field(init=False)
    acting: Instance = field(init=False)
    watcher: Instance = field(init=False)
    opened: int = 0

    def begin(self, *, acts: bool = True) -> None:
        """Open the watcher, and the instance that acts, with its lease claimed."""
        self.steps = Steps(self.store, self.rows)
        if acts:
            self.watcher = self.open(0x30)
            self.acting = open_instance(self.steps, self.world, mac=self.mac, seed=1000)
            self.acting.clock.next(0)
            self.steps.log.clear()

    def open(self, mac: int) -> Instance:
        """Open one more instance on the bare store."""
        self.opened += 1
        return open_instance(self.store, self.world, mac=mac, seed=self.opened)

    def copy(self) -> Site:
        """Return a copy with new instances."""
        world = World(int(self.world.ms))
        return Site(self.store.clone(world.clock), world, self.mac, self.rows, self.state, opened=self.opened)


def live_on(site: Site, one: Instance, seconds: float = SETTLE_SECONDS) -> None:
    """Run background maintenance of an instance for so many seconds."""
    left = seconds
    while left > 0:
        site.world.advance(min(4.0, left))
        left -= 4.0
        one.poll()
        one.maintain()


def problems(instance: Instance) -> list[str]:
    """Return the problems that the integrity check finds."""
    return [str(problem) for problem in IntegrityCheck(instance).run()]
