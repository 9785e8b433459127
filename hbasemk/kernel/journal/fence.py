"""The fence between readers and the collector: which horizon a reader must respect.

A collector publishes a horizon, waits for the grace time, and deletes only then. A reader knows the horizon from its polls,
without another call. A read counts if, *after* it, the reader knows a horizon that was current less than :data:`TRUST`
seconds ago and that the view contains: deletion for a later horizon has not begun. See ``docs/protocol.md``, section 9.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import RevisionCollectedError
from hbasemk.format import revisions, schema
from hbasemk.format.horizon import NONCE_BYTES, Horizon
from hbasemk.format.trim_level import NOTHING_TRIMMED, TrimLevel
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Decision, Get, NewCell, Put, Row, Store

TRUST: Final = 5.0
"""Seconds for which a reader trusts a horizon that it has read."""
GRACE: Final = 10.0
"""Seconds between the publication of a horizon and the first deletion, if all processes on the store share one clock."""
GRACE_APART: Final = 60.0
"""As :data:`GRACE`, if they measure time on machines of their own: a machine may stand still without noticing it."""


class Learned:
    """A revision that only rises, and when this instance learned it. The caller excludes other threads."""

    __slots__ = ("_times", "revision")

    def __init__(self, revision: int, now: float) -> None:
        self.revision = revision
        self._times = [(revision, now)]

    def learn(self, revision: int, now: float, grace: float) -> None:
        """Record a revision; a lower one changes nothing. Forget what :meth:`before` does not need ``grace`` seconds ago."""
        if revision > self.revision:
            self.revision = revision
            self._times.append((revision, now))
            self.before(now - grace)

    def before(self, since: float) -> int:
        """Return the highest revision that this instance has known since a time; 0 if there is none."""
        times = self._times
        while len(times) > 1 and times[1][1] <= since:
            del times[0]
        return times[0][0] if times[0][1] <= since else 0


class Fence:
    """What one instance knows of the horizon, and of the trim level in a store that does not order all writes. Thread-safe."""

    def __init__(self, store: RetryingStore, runtime: Runtime, horizon: int) -> None:
        self._store = store
        self._runtime = runtime
        self._lock = runtime.lock()
        self._horizon = Learned(horizon, runtime.monotonic())
        self._trimmed = Learned(0, runtime.monotonic())
        self._known_at = float("-inf")
        self._passed: tuple[int, int] | None = None

    @property
    def horizon(self) -> int:
        """The newest horizon that this instance has read."""
        return self._horizon.revision

    @property
    def trimmed(self) -> int:
        """In a store that does not order all writes: the newest trim level that this instance has read."""
        return self._trimmed.revision

    @property
    def grace(self) -> float:
        """Seconds between the publication of a horizon or trim level and the first deletion."""
        return GRACE if self._store.supports_transactions else GRACE_APART

    @property
    def is_trusted(self) -> bool:
        """Whether deletion for a later horizon than :attr:`horizon` cannot have begun yet."""
        return self.is_recent(self._known_at)

    def is_recent(self, began: float) -> bool:
        """Return whether deletion for what was published since this moment cannot have begun yet."""
        return self._runtime.monotonic() - began < TRUST

    def learn(self, horizon: int, began: float) -> None:
        """Record the horizon that a read found; ``began``: when the read began, by the monotonic clock."""
        with self._lock:
            if horizon > self._horizon.revision:
                self._horizon.learn(horizon, self._runtime.monotonic(), self.grace)
            self._known_at = max(self._known_at, began)

    def learn_trim_level(self, trimmed: int) -> None:
        """Record the trim level that a read found."""
        with self._lock:
            self._trimmed.learn(trimmed, self._runtime.monotonic(), self.grace)

    @property
    def known_horizon(self) -> int:
        """The highest horizon that this instance has known for the grace time, so that all readers know it; 0: none."""
        with self._lock:
            return self._horizon.before(self._runtime.monotonic() - self.grace)

    @property
    def known_trim_level(self) -> int:
        """The same of the trim level."""
        with self._lock:
            return self._trimmed.before(self._runtime.monotonic() - self.grace)

    def refresh(self) -> int:
        """Read the horizon now. One round trip. Raises FormatError if polls have read a higher one in the journal."""
        began = self._runtime.monotonic()
        known = self.horizon
        found = read_horizon(self._store).revision
        if found < known and self._store.supports_transactions:
            # One transaction writes both, so one of the two is damaged. Readers and collectors must not use it.
            raise schema.damaged(
                f"the horizon is {revisions.to_text(found)}, and polls have read {revisions.to_text(known)} in the journal",
                *place(self._store),
            )
        self.learn(found, began)
        return self.horizon

    def has_passed(self, view: View) -> bool:
        """Return whether :meth:`passes` was called for a view at this position at the present horizon."""
        return view.extent is None and self._passed == (view.position, self.horizon)

    def passes(self, view: View, horizon: int) -> None:
        """Record that a view contains all of trunk up to a horizon."""
        if view.extent is None:
            self._passed = view.position, horizon


def protect(store: RetryingStore, runtime: Runtime, floor: int, found: Row | None = None) -> bool:
    """Make sure that no collector passes a new branch or checkpoint, whose row or cell has just been written.

    ``floor`` is the id up to which its view contains all of trunk. ``found`` is the row of the horizon, if the caller has read it
    after that write, by :func:`get_horizon`. Returns False if the horizon has passed the view already; the caller then ends the
    branch or checkpoint. One round trip, none with ``found``; more if a collector raises the horizon at this moment.

    A collector announces a horizon, lists branches and checkpoints, and then publishes a horizon that passes none of them. So
    it finds what was written before the announcement. A higher one that is found here is withdrawn, so that its collector
    lists again.
    """
    horizon = read_horizon(store) if found is None else _decode(store, found)
    while floor < horizon.announced:
        if floor < horizon.revision:
            return False
        if replace(store, horizon, Horizon(horizon.revision, horizon.revision, new_nonce(runtime))):
            break
        horizon = read_horizon(store)
    return True


def allows(store: Store, floor: int, row: Row) -> bool:
    """Return whether no collector passes a branch that the transaction writes which has read ``row`` by :func:`get_horizon`.

    As :func:`protect`.
    """
    return floor >= _decode(store, row).announced


def replace(store: RetryingStore, found: Horizon, new: Horizon) -> bool:
    """Change the horizon cell by compare-and-set; return whether it has the new content."""
    table, row, column = place(store)
    expected = None if found == Horizon() else found.encode()
    return (
        store.check_and_write(table, column, expected, Put(row, [NewCell(*column, new.encode())]))
        # After a lost reply, the repeated request finds what the first one wrote.
        or read_horizon(store) == new
    )


def publish(store: RetryingStore, announced: Horizon, new: Horizon) -> bool:
    """Publish a horizon that was announced, by compare-and-set, where every poll learns it; return whether it is published."""
    if new.revision == announced.revision or not store.supports_transactions:
        if new.revision > announced.revision:
            show_to_claims(store, new)
        return replace(store, announced, new)
    table, row, column = place(store)
    # The same transaction writes the journal row by which polls learn it.
    notice = Put(schema.revision_key(schema.NOTICE), [NewCell(*schema.NOTICE_HORIZON, new.revision.to_bytes(8, "big"))])
    decision = Decision(table, column, announced.encode(), Put(row, [NewCell(*column, new.encode())]))
    return bool(store.write_if(schema.JOURNAL, [notice], (), lambda _: True, decision)) or read_horizon(store) == new


def publish_trim_level(store: RetryingStore, found: TrimLevel, new: TrimLevel) -> bool:
    """Publish a trim level by compare-and-set, where every poll learns it; return whether it is published."""
    data = new.encode()
    table, row, column = trim_level_place(store)
    expected = None if found == NOTHING_TRIMMED else found.encode()
    put = Put(row, [NewCell(*column, data)])
    if not store.supports_transactions:
        return store.check_and_write(table, column, expected, put) or read_trim_level(store) == new
    # The same transaction writes the journal row by which polls learn it. So the last write of that row is never forgotten.
    notice = Put(schema.revision_key(schema.NOTICE), [NewCell(*schema.NOTICE_TRIMMED, data)])
    decision = Decision(table, column, expected, put)
    return bool(store.write_if(schema.JOURNAL, [notice], (), lambda _: True, decision)) or read_trim_level(store) == new


def read_trim_level(store: RetryingStore) -> TrimLevel:
    """Read up to where rows of the journal may be deleted. One round trip."""
    table, key, column = trim_level_place(store)
    (row,) = store.read(table, [Get(key, columns=(column,))])
    return TrimLevel.decode(row.cells[0].value if row.cells else None, (table, key, column))


def trim_level_place(store: Store) -> tuple[str, bytes, Column]:
    """Return the table, row and column of the trim level, as :func:`place` does for the horizon."""
    row = schema.SETTINGS_ROW if store.supports_transactions else schema.LOGS_TAIL
    return schema.CLUSTER, row, schema.TRIMMED


def unrecorded(store: RetryingStore, revision: int) -> RevisionCollectedError:
    """Return the error for a revision whose row of the journal has been deleted. One round trip."""
    text, oldest = revisions.to_text(revision), revisions.to_text(read_horizon(store).revision)
    return RevisionCollectedError(
        f"revision {text} is no longer recorded: it is older than the retention of the repository at {store.location}; the "
        f"oldest snapshot that can be read is {oldest}. Read the present state, or begin a new watch.",
        revision=text,
        oldest=oldest,
    )


def show_to_claims(store: RetryingStore, new: Horizon) -> None:
    """Copy a horizon, before it is published, to the settings row. Claims of machine ids read it there (``ids/lease.py``).

    The copy only rises. It may be above the horizon: then a claim begins later than it must.
    """
    while True:
        (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.HORIZON,))])
        data = row.cells[0].value if row.cells else None
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.HORIZON, new.encode())])
        if Horizon.decode(data).revision >= new.revision or store.check_and_write(
            schema.CLUSTER, schema.HORIZON, data, put
        ):
            return


def new_nonce(runtime: Runtime) -> bytes:
    """Return random bytes for a new content of the horizon cell."""
    return runtime.random.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")


def read_horizon(store: RetryingStore) -> Horizon:
    """Read the horizon cell. One round trip."""
    table, get = get_horizon(store)
    return _decode(store, *store.read(table, [get]))


def get_horizon(store: Store) -> tuple[str, Get]:
    """Return the read of the horizon cell: its table, and the get."""
    table, key, column = place(store)
    return table, Get(key, columns=(column,))


def _decode(store: Store, row: Row) -> Horizon:
    return Horizon.decode(row.cells[0].value if row.cells else None, place(store))


def place(store: Store) -> tuple[str, bytes, Column]:
    """Return the table, row and column of the horizon cell.

    In a store that orders all writes, polls learn a new horizon from a row of the journal (:func:`publish`). In others the
    cell itself is in the row after the writers' logs, which every poll reads.
    """
    if store.supports_transactions:
        return schema.CLUSTER, schema.SETTINGS_ROW, schema.HORIZON
    return schema.CLUSTER, schema.LOGS_TAIL, schema.HORIZON
