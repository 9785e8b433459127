"""Recording of running transactions: their reads and writes, times, snapshots and outcomes.

Works on the kernel's instances, so that the same workload runs in the simulator and in real processes. A transaction's
line is written before its commit begins, with an unknown end, and again when its end is known: whatever kills the
process in between, the history has what it may have done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from hbasemk.errors import (
    ClockSkewError,
    CommitUnknownError,
    ConflictError,
    InvalidChangeError,
    LeaseLostError,
    NodeDeletedError,
    NodeExistsError,
    NodeNotFoundError,
    StoreError,
)
from hbasemk.format import revisions
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.history.parts import EACH, part
from hbasemk.testing.history.records import (
    NEVER,
    SNAPSHOT,
    Add,
    Ending,
    Operation,
    Read,
    Transaction,
    Value,
    Write,
    frozen,
)
from hbasemk.transaction import Isolation, source_of
from hbasemk.transaction import Transaction as Changes

TAG: Final = "by"
"""The property that identifies the writer that added a node."""
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

Change = Callable[["Attempt"], None]


class Chance(Protocol):
    """The source of a workload's choices: a ``random.Random`` or the simulator's."""

    def random(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        ...

    def choice(self, seq: Sequence[Any], /) -> Any:
        """Return one of the things."""
        ...


class Moments:
    """A clock for a history that never returns the same time twice; ``now`` returns the time in any unit."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = float("-inf")

    def __call__(self) -> float:
        """Return the time, later than all earlier ones."""
        self._last = max(self._now(), self._last + 1e-6)
        return self._last


class Attempt:
    """One attempt at a transaction: changes and reads go through it to the kernel's transaction, and are recorded.

    A node's key is its path, and its value is the tag of the transaction that added it; a property's key is ``path#name``.
    """

    def __init__(self, worker: Worker, view: View, call: str, isolation: Isolation, *, ordered: bool = True) -> None:
        self.worker = worker
        self.view = view
        self.id = worker.tag()
        self.call = call
        self.begun = worker.moments()
        self.isolation = isolation
        self.ordered = ordered
        self.changes = Changes(worker.instance, view, call, worker.weakened or isolation)
        self.operations: list[Operation] = []
        self.committing: float | None = None

    def tag(self) -> str:
        """Return a value that no other transaction writes."""
        return self.worker.tag()

    # --- properties --------------------------------------------------------------------------------------

    def get(self, path: str, name: str) -> Value:
        """Read a property of a node that is never removed."""
        value: Value = frozen(self.changes.get(path, name))
        self.operations.append(Read(f"{path}#{name}", value))
        return value

    def get_all(self, path: str) -> dict[str, Value]:
        """Read all properties of a node that is never removed."""
        found = {name: frozen(value) for name, value in self.changes.properties(path).items()}
        self.operations += (Read(f"{path}#{name}", value) for name, value in found.items())
        return found

    def set(self, path: str, name: str, value: Value) -> None:
        """Write a property; the value must be unique."""
        self.changes.set(path, name, list(value) if isinstance(value, tuple) else value)  # type: ignore[arg-type]
        self.operations.append(Write(f"{path}#{name}", value))

    def repeat(self, path: str, name: str, value: Value = None) -> None:
        """Set a property to its present value, after ``value`` if that is given; the node must never be removed.

        So the commit depends on it. It is not read through the transaction, which stays a list of operations.
        """
        found = self.worker.instance.require(self.view, path).properties.get(name)
        if value is not None:
            self.changes.set(path, name, value)  # type: ignore[arg-type]
        self.changes.set(path, name, found)
        self.operations.append(Read(f"{path}#{name}", frozen(found), depended_on=True))

    def expect(self, path: str, names: Iterable[str]) -> dict[str, Value]:
        """Expect the node's version in the snapshot, and return these properties; the node must never be removed.

        So the commit depends on all of them. They are not read through the transaction.
        """
        node = self.worker.instance.require(self.view, path)
        found = {name: frozen(node.properties.get(name)) for name in names}
        self.changes.expect(path, node.version)
        self.operations += (Read(f"{path}#{name}", value, depended_on=True) for name, value in found.items())
        return found

    def expect_none(self, path: str) -> bool:
        """Expect that there is no node, if there is none in the snapshot; return whether there is none."""
        if self.worker.instance.node(self.view, path) is not None:
            return False
        self.operations.append(Read(path, None, depended_on=True, version=self._removed_by(path)))
        self.changes.expect(path, None)
        return True

    def count(self, path: str, name: str, bit: int) -> None:
        """Increment a number by a power of two that no other transaction adds, so that its value identifies the writers."""
        self.changes.increment(path, name, 1 << bit)
        self.operations.append(Add(f"{path}#{name}", bit))

    def counted(self, path: str, name: str) -> None:
        """Read a number that only :meth:`count` changes."""
        value = self.changes.get(path, name)
        assert value is None or isinstance(value, int)
        self.operations.append(Read(f"{path}#{name}", bits(value or 0)))

    def adjust(self, path: str, name: str, bit: int) -> None:
        """Adjust a number by a power of two that no other transaction adds; each is a key of its own in the history."""
        self.changes.adjust(path, name, 1 << bit)
        self.operations.append(Write(part(f"{path}#{name}", bit), 1))

    def reset(self, path: str, name: str, bit: int | None = None) -> None:
        """Set a number to a power of two without reading it, which removes all others; None: unset it."""
        self.changes.set(path, name, None if bit is None else 1 << bit)
        if bit is None and name not in self.worker.instance.require(self.view, path).properties:
            # This writes nothing. It is not read through the transaction, which must not depend on it.
            return
        key = f"{path}#{name}"
        self.operations.append(Write(key + EACH, None))
        if bit is not None:
            self.operations.append(Write(part(key, bit), 1))

    def adjusted(self, path: str, name: str) -> None:
        """Read a number that only :meth:`adjust` and :meth:`reset` change: its value shows which adjusts it includes."""
        value = self.changes.get(path, name)
        assert value is None or isinstance(value, int)
        self.operations.append(Read(f"{path}#{name}{EACH}", bits(value or 0)))

    # --- nodes -------------------------------------------------------------------------------------------

    def nodes(self, paths: Sequence[str], properties: Iterable[str] = ()) -> dict[str, bool]:
        """Read whether nodes exist, which transactions added them, and some properties that are always written with them."""
        found = self.changes.load(paths)
        for path in paths:
            node = found[path]
            gone = self._removed_by(path) if node is None else None
            for key, name in ((path, TAG), *((f"{path}#{name}", name) for name in properties)):
                value = None if node is None else frozen(node.get(name, "missing"))
                self.operations.append(Read(key, value, version=gone))
        return {path: node is not None for path, node in found.items()}

    def listed(self, parent: str, names: Sequence[str]) -> list[str]:
        """List the children of a node that is never removed, with the possible ``names``, and read each child.

        One that is listed and not there, or there and not listed, is recorded as a value that nobody wrote.
        """
        shown = self.changes.children(parent)
        paths = [f"{parent}/{name}" for name in names]
        exists = self.nodes(paths)
        for path, name in zip(paths, names, strict=True):
            if exists[path] != (name in shown):
                self.operations.append(Read(path, f"listed: {name in shown}, there: {exists[path]}"))
        return shown

    def add(self, path: str, properties: Iterable[str] = (), parent: str | None = None) -> None:
        """Add a node unless it exists, or its ``parent``, if that can be removed, is missing."""
        needed = (path,) if parent is None else (parent, path)
        there = self.nodes(needed)
        if there[path] or (parent is not None and not there[parent]):
            return
        self._rely(needed)
        tag = self.tag()
        self.changes.add(path, dict.fromkeys((TAG, *properties), tag))
        self.operations += (Write(key, tag) for key in (path, *(f"{path}#{name}" for name in properties)))

    def remove(self, path: str, properties: Iterable[str] = (), below: Sequence[str] = ()) -> None:
        """Remove a node and its possible descendants if it exists."""
        there = self.nodes((path, *below))
        if there[path]:
            self._rely((path, *below))
            self.changes.remove(path)
            gone = [path, *(f"{path}#{name}" for name in properties), *(one for one in below if there[one])]
            self.operations += (Write(key, None) for key in gone)

    def touch(self, path: str, name: str) -> None:
        """Write a property of a node that can be removed, if the node exists."""
        if self.nodes((path,))[path]:
            self._rely((path,))
            self.set(path, name, self.tag())

    def _rely(self, keys: Sequence[str]) -> None:
        """Make a commit that changes something depend on this read (section 4 of the protocol)."""
        last = {operation.key: operation for operation in self.operations if isinstance(operation, Read)}
        self.operations += (replace(last[key], depended_on=True) for key in keys)

    def _removed_by(self, path: str) -> str:
        error = self.worker.instance.reader.missing(self.view, path)
        return error.deleted_in if isinstance(error, NodeDeletedError) else NEVER

    # --- the record --------------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether the attempt changes anything."""
        return any(not isinstance(operation, Read) for operation in self.operations)

    def record(self, outcome: Ending, *, ended: bool = True, **more: Any) -> None:
        """Write the record; the last one of a transaction counts."""
        transaction = Transaction(
            self.id,
            self.worker.name,
            tuple(self.operations),
            outcome,
            self.begun,
            self.worker.moments() if ended else None,
            snapshot=revisions.to_text(self.view.revision),
            isolation=self.isolation,
            ordered=self.ordered,
            call=self.call,
            committing=self.committing,
        )
        self.worker.sink(replace(transaction, **more))


def bits(number: int) -> tuple[int, ...]:
    """Return the powers of two of which a number is the sum."""
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)


class Worker:
    """Runs transactions in one instance, one after the other, and records each of them.

    Each worker of a history has another ``number`` below ``workers``. ``weakened`` is what the kernel is
    asked for in place of each transaction's isolation, to show that the checker finds what then happens. ``generation``
    grows now and then in runs that last, so that values which collect things stay short.
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
        self.name = name
        self.instance = instance
        self.sink = sink
        self.moments = moments
        self.chance = chance
        self.weakened = weakened
        self.generation = generation
        self.unknown: list[str] = []
        self.insisted: list[str] = []
        """The calls that retry after conflicts until they commit."""
        self._number, self._workers = number, workers
        self._tags = 0
        self._bits: dict[int, int] = {}
        self._old: list[View] = []

    def tag(self) -> str:
        """Return a unique name or value."""
        self._tags += 1
        return f"{self.name}.{self._tags}"

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
