"""A worker of a history: it runs transactions in one instance, and retries or repeats them as an application does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from hbasemk.errors import (
    ClockSkewError,
    CommitUnknownError,
    ConflictError,
    InvalidChangeError,
    LeaseLostError,
    NodeExistsError,
    NodeNotFoundError,
    StoreError,
)
from hbasemk.format import revisions
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.history.recorder import Attempt, Moments, Recorder
from hbasemk.testing.history.records import (
    SNAPSHOT,
    Transaction,
)
from hbasemk.transaction import Isolation, source_of

FAILED: Final = (
    ConflictError,
    NodeNotFoundError,
    NodeExistsError,
    InvalidChangeError,
    LeaseLostError,
    ClockSkewError,
    StoreError,
)
"""The errors of a commit that leaves nothing behind."""

Change = Callable[[Attempt], None]


class Chance(Protocol):
    """The source of a workload's choices: a ``random.Random`` or the simulator's."""

    def random(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        ...

    def choice(self, seq: Sequence[Any], /) -> Any:
        """Return one of the things."""
        ...


class Worker(Recorder):
    """Runs transactions in one instance, one after the other, and records each of them.

    Each worker of a history has another ``number`` below ``workers``. ``generation`` grows now and then in runs that last,
    so that values which collect things stay short.
    """

    def __init__(
        self,
        name: str,
        instance: Instance,
        sink: Callable[[Transaction], None],
        moments: Moments,
        chance: Chance,
        *,
        number: int = 0,
        workers: int = 64,
        weakened: Isolation | None = None,
        generation: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name, instance, sink, moments, weakened)
        self.chance = chance
        self.generation = generation
        self.unknown: list[str] = []
        self.insisted: list[str] = []
        """The calls that retry after conflicts until they commit."""
        self._number, self._workers = number, workers
        self._bits: dict[int, int] = {}
        self._old: list[View] = []

    def bit(self, generation: int) -> int:
        """Return the exponent of a power of two that no other worker adds to a number of this generation."""
        count = self._bits[generation] = self._bits.get(generation, -1) + 1
        return count * self._workers + self._number

    def sleep(self, seconds: float) -> None:
        """Let other processes continue."""
        self.instance.runtime.sleep(seconds)

    # --- transactions that write -------------------------------------------------------------------------

    def transact(self, change: Change, isolation: Isolation | None = None, retry_timeout: float = 5.0) -> None:
        """Run a change on the head and again after conflicts, or once, on a snapshot that may have grown old.

        ``isolation`` None: either. ``retry_timeout`` in seconds.
        """
        if isolation is None:
            isolation = "serializable" if self.chance.random() < 0.2 else SNAPSHOT
        if self.chance.random() < 0.6:
            self._again(change, isolation, retry_timeout)
        else:
            self._once(change, isolation)

    def prepare(self, change: Change) -> None:
        """Run a change that must succeed; raises the error that prevents it."""
        self._again(change, SNAPSHOT, 30.0)

    def _again(self, change: Change, isolation: Isolation, retry_timeout: float) -> None:
        attempts: list[Attempt] = []
        call = self.tag()
        self.insisted.append(call)
        polled = self.moments()

        def make(view: View) -> ChangeSource:
            if attempts:
                attempts[-1].record("aborted", polled=polled)
            attempts.append(Attempt(self, view, call, isolation))
            return self._prepare(attempts[-1], change, polled)

        self._end(
            attempts, polled, lambda: self.instance.commit(make, call, retry_timeout=retry_timeout, max_poll_age=0)
        )

    def _once(self, change: Change, isolation: Isolation) -> None:
        old = bool(self._old) and self.chance.random() < 0.15
        polled = None
        with contextlib.suppress(StoreError):
            polled = None if old or self.chance.random() < 0.4 else self._poll()
        base = self.chance.choice(self._old) if old else self.instance.head()
        attempt = Attempt(self, base, self.tag(), isolation, ordered=not old)

        def commit() -> int:
            source = self._prepare(attempt, change, polled)
            self.sleep(self.chance.choice((0.0, 0.005, 0.3)))
            if self.chance.random() < 0.4:
                # The background thread of a repository may do this at any time.
                self.instance.poll()
            attempt.committing = self.moments()
            return self.instance.commit_on(attempt.view, source, attempt.call)

        self._end([attempt], polled, commit)

    def _prepare(self, attempt: Attempt, change: Change, polled: float | None) -> ChangeSource:
        change(attempt)
        attempt.committing = self.moments()
        attempt.record("unknown", ended=False, polled=polled)
        return source_of(attempt.changes)

    def _end(self, attempts: list[Attempt], polled: float | None, commit: Callable[[], int]) -> None:
        try:
            revision = commit()
        except CommitUnknownError as error:
            self.unknown.append(error.revision)
            attempts[-1].record("unknown", ended=False, polled=polled, revision=error.revision)
        except FAILED as error:
            lost = error.revision if isinstance(error, ConflictError) else None
            if attempts:
                attempts[-1].record("aborted", polled=polled, revision=lost)
        else:
            number = revisions.to_text(revision) if attempts[-1].writes else None
            attempts[-1].record("committed", polled=polled, revision=number)

    # --- transactions that only read ---------------------------------------------------------------------

    def read(self, read: Change, again: Change | None = None) -> None:
        """Read from a snapshot: the newest one, after a poll or not, or an older one once more.

        ``again`` is read some time later from the same one.
        """
        old = bool(self._old) and self.chance.random() < 0.3
        try:
            polled = self._poll() if not old and self.chance.random() < 0.6 else None
            snapshot = self.chance.choice(self._old) if old else self.instance.head()
            attempt = Attempt(self, snapshot, self.tag(), SNAPSHOT, ordered=not old)
            if not old:
                self._old = [*self._old[-20:], snapshot]
            try:
                read(attempt)
                if again is not None:
                    self.sleep(self.chance.choice((0.0, 0.005, 0.3)))
                    again(attempt)
            finally:
                attempt.record("committed", polled=polled)
        except StoreError:
            return

    def _poll(self) -> float:
        polled = self.moments()
        self.instance.poll()
        return polled

    def maintain(self) -> None:
        """Do the work of a background thread, which this process does not have; this also moves the watermark."""
        with contextlib.suppress(StoreError, LeaseLostError):
            self.instance.maintain()
            if self.instance.lease.held:
                self.instance.recovery.advance()
