"""Recording of running transactions: their reads and writes, times, snapshots and outcomes.

Works on the kernel's instances, so that the same workload runs in the simulator and in real processes. A transaction's
line is written before its commit begins, with an unknown end, and again when its end is known: whatever kills the
process in between, the history has what it may have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from hbasemk.errors import (
    NodeDeletedError,
)
from hbasemk.format import revisions
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.history.parts import EACH, part
from hbasemk.testing.history.records import (
    NEVER,
    Add,
    Ending,
    Operation,
    Read,
    Transaction,
    Value,
    Write,
    frozen,
)
from hbasemk.transaction import Isolation
from hbasemk.transaction import Transaction as Changes

TAG: Final = "by"
"""The property that identifies the writer that added a node."""


class Moments:
    """A clock for a history that never returns the same time twice; ``now`` returns the time in any unit."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = float("-inf")

    def __call__(self) -> float:
        """Return the time, later than all earlier ones."""
        self._last = max(self._now(), self._last + 1e-6)
        return self._last


class Recorder:
    """Gives the transactions of one instance unique names and times, and passes on what they record.

    ``weakened`` is the isolation that the kernel is asked for in place of each transaction's own, to show that the checker
    finds what then happens.
    """

    def __init__(
        self,
        name: str,
        instance: Instance,
        sink: Callable[[Transaction], None],
        moments: Moments,
        weakened: Isolation | None,
    ) -> None:
        self.name = name
        self.instance = instance
        self.sink = sink
        self.moments = moments
        self.weakened = weakened
        self._tags = 0

    def tag(self) -> str:
        """Return a unique name or value."""
        self._tags += 1
        return f"{self.name}.{self._tags}"


class Attempt:
    """One attempt at a transaction: changes and reads go through it to the kernel's transaction, and are recorded.

    A node's key is its path, and its value is the tag of the transaction that added it; a property's key is ``path#name``.
    """

    def __init__(
        self, recorder: Recorder, view: View, call: str, isolation: Isolation, *, ordered: bool = True
    ) -> None:
        self.recorder = recorder
        self.view = view
        self.id = recorder.tag()
        self.call = call
        self.begun = recorder.moments()
        self.isolation = isolation
        self.ordered = ordered
        self.changes = Changes(recorder.instance, view, call, recorder.weakened or isolation)
        self.operations: list[Operation] = []
        self.committing: float | None = None

    def tag(self) -> str:
        """Return a value that no other transaction writes."""
        return self.recorder.tag()

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
        found = self.recorder.instance.require(self.view, path).properties.get(name)
        if value is not None:
            self.changes.set(path, name, value)  # type: ignore[arg-type]
        self.changes.set(path, name, found)
        self.operations.append(Read(f"{path}#{name}", frozen(found), depended_on=True))

    def expect(self, path: str, names: Iterable[str]) -> dict[str, Value]:
        """Expect the node's version in the snapshot, and return these properties; the node must never be removed.

        So the commit depends on all of them. They are not read through the transaction.
        """
        node = self.recorder.instance.require(self.view, path)
        found = {name: frozen(node.properties.get(name)) for name in names}
        self.changes.expect(path, node.version)
        self.operations += (Read(f"{path}#{name}", value, depended_on=True) for name, value in found.items())
        return found

    def expect_none(self, path: str) -> bool:
        """Expect that there is no node, if there is none in the snapshot; return whether there is none."""
        if self.recorder.instance.node(self.view, path) is not None:
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
        if bit is None and name not in self.recorder.instance.require(self.view, path).properties:
            # This writes nothing. It is not read through the transaction: the change itself must rely on the absence.
            self.operations.append(Read(f"{path}#{name}{EACH}", bits(0)))
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
        error = self.recorder.instance.reader.missing(self.view, path)
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
            self.recorder.name,
            tuple(self.operations),
            outcome,
            self.begun,
            self.recorder.moments() if ended else None,
            snapshot=revisions.to_text(self.view.revision),
            isolation=self.isolation,
            ordered=self.ordered,
            call=self.call,
            committing=self.committing,
        )
        self.recorder.sink(replace(transaction, **more))


def bits(number: int) -> tuple[int, ...]:
    """Return the powers of two of which a number is the sum."""
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)
