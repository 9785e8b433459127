"""Infer the writer of each read and the order of each key's versions.

This module reports the anomalies of single reads: values of aborted transactions (G1a), values overwritten in their
own transaction (G1b), values that nobody wrote, and reads that differ within one transaction or one snapshot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.parts import expanded
from hbasemk.testing.history.records import (
    NEVER,
    SERIALIZABLE,
    Add,
    History,
    HistoryError,
    Transaction,
    Value,
    Write,
    age,
)

UNKNOWN: Final = ""
"""A placeholder for a writer's id: the writer of the value is unknown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A read of another transaction's version; ``writer`` is that transaction's id, None for the initial state."""

    reader: str
    key: str
    writer: str | None
    depended_on: bool


@dataclass(slots=True)
class Versions:
    """The versions of a history.

    ``order`` holds the committed writers of each key from old to new, if known. ``next`` maps each writer to the writers
    of the versions right after (None: the first version).
    """

    history: History
    seen: list[Seen] = field(default_factory=list)
    order: dict[str, list[str]] = field(default_factory=dict)
    next: dict[str, dict[str | None, list[str]]] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    took_effect: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _External:
    """A transaction's first read of a key from its snapshot."""

    key: str
    value: Value
    version: str | None
    depended_on: bool
    is_set: bool = False

    def differs(self, other: _External) -> bool:
        """Return whether the two reads are of different versions."""
        return self._content() != other._content() or (
            self.version is not None and other.version is not None and self.version != other.version
        )

    def _content(self) -> Hashable:
        """Return what distinguishes the value: an absent set is empty, and its elements have no order."""
        if self.is_set and (self.value is None or isinstance(self.value, tuple)):
            return frozenset(typed(element) for element in self.value or ())
        return typed(self.value)


def typed(value: Value) -> Hashable:
    """Return a key that differs for values of different types; in Python 1, 1.0 and True are equal."""
    return (type(value), tuple(map(typed, value)) if isinstance(value, tuple) else value)


def infer(history: History) -> Versions:
    """Infer the versions of a history, and the anomalies visible at this point."""
    return _Inference(expanded(history)).run()


class _Inference:
    def __init__(self, history: History) -> None:
        self.found = Versions(history)
        self.history = history
        self.by_value: dict[tuple[str, Hashable], list[tuple[Transaction, bool]]] = {}
        self.by_revision: dict[str, Transaction] = {}
        self.elements: dict[tuple[str, Hashable], Transaction] = {}
        self.writers: dict[str, list[Transaction]] = {}
        self.removed: set[str] = set()
        self.sets: set[str] = set()
        self.external: dict[str, list[_External]] = {}
        self.places: dict[str, dict[str, int]] = {}

    def run(self) -> Versions:
        for one in self.history:
            self._index(one)
        for one in self.history:
            self.external[one.id] = list(self._reads(one))
        self._take_effect()
        for key, writers in self.writers.items():
            self._order(key, [one for one in writers if one.id in self.found.took_effect])
        for one in self.history:
            for read in self.external[one.id]:
                self._resolve(one, read)
        self._follow()
        self._stable()
        return self.found

    def report(self, kind: Kind, text: str, *involved: str) -> None:
        self.found.anomalies.append(Anomaly(kind, text, tuple(dict.fromkeys(involved))))

    # --- the tables --------------------------------------------------------------------------------------

    def _index(self, one: Transaction) -> None:
        last: dict[str, Value] = {}
        for operation in one.operations:
            if isinstance(operation, Write):
                if operation.key in last and last[operation.key] is not None:
                    self.by_value.setdefault((operation.key, typed(last[operation.key])), []).append((one, False))
                last[operation.key] = operation.value
            elif isinstance(operation, Add):
                other = self.elements.setdefault((operation.key, typed(operation.element)), one)
                if other is not one:
                    raise HistoryError(f"{other.id} and {one.id} both add {operation.element!r} to {operation.key}")
        for key, value in last.items():
            if value is not None:
                self.by_value.setdefault((key, typed(value)), []).append((one, True))
            elif one.outcome != "aborted":
                self.removed.add(key)
        added = {operation.key for operation in one.operations if isinstance(operation, Add)}
        self.sets |= added
        if added & set(last):
            raise HistoryError(f"{one.id} both writes and adds to {sorted(added & set(last))}")
        for key in {**last, **dict.fromkeys(added)}:
            self.writers.setdefault(key, []).append(one)
        if one.revision is not None and one.writes:
            other = self.by_revision.setdefault(one.revision, one)
            if one.outcome == "committed":
                self.by_revision[one.revision] = one
            if other is not one and "unknown" not in {one.outcome, other.outcome}:
                self.report(
                    Kind.SAME_REVISION, f"{other.id} and {one.id} both made revision {one.revision}", other.id, one.id
                )

    def _reads(self, one: Transaction) -> Iterator[_External]:
        """Yield each key's first read from the snapshot; report reads that contradict the transaction itself."""
        first: dict[str, _External] = {}
        written: dict[str, Value] = {}
        added: dict[str, set[Hashable]] = {}
        for operation in one.operations:
            key = operation.key
            if isinstance(operation, Write):
                written[key] = operation.value
            elif isinstance(operation, Add):
                added.setdefault(key, set()).add(typed(operation.element))
            elif key in written:
                if typed(operation.value) != typed(written[key]):
                    self.report(
                        Kind.INTERNAL,
                        f"{one.id} wrote {key} = {written[key]!r} and then read {operation.value!r}",
                        one.id,
                    )
            else:
                value = operation.value
                if key in added:
                    shown = set(map(typed, value)) if isinstance(value, tuple) else set()
                    if not added[key] <= shown:
                        self.report(
                            Kind.INTERNAL,
                            f"{one.id} added elements to {key} and then read {value!r} without them",
                            one.id,
                        )
                    if isinstance(value, tuple):
                        value = tuple(part for part in value if typed(part) not in added[key])
                read = _External(key, value, operation.version, operation.depended_on, key in self.sets)
                self._first(one, first, read)
        return iter(first.values())

    def _first(self, one: Transaction, first: dict[str, _External], read: _External) -> None:
        before = first.setdefault(read.key, read)
        before.depended_on = before.depended_on or read.depended_on
        if before.differs(read):
            self.report(
                Kind.UNREPEATABLE,
                f"{one.id} read {read.key} = {before.value!r} and then {read.value!r}, without writing it",
                one.id,
            )

    def _take_effect(self) -> None:
        """Collect the committed transactions, and the unknown ones whose effects another transaction read."""
        effective = self.found.took_effect
        effective.update(one.id for one in self.history if one.outcome == "committed" and one.writes)
        for reads in self.external.values():
            for read in reads:
                for one in self._candidates(read):
                    if one.outcome == "unknown":
                        effective.add(one.id)

    def _candidates(self, read: _External) -> list[Transaction]:
        if read.version is not None and read.version in self.by_revision:
            return [self.by_revision[read.version]]
        if isinstance(read.value, tuple) and (
            found := [one for part in read.value if (one := self.elements.get((read.key, typed(part))))]
        ):
            return found
        return [one for one, _ in self.by_value.get((read.key, typed(read.value)), ())]

    # --- the order of versions ---------------------------------------------------------------------------

    def _order(self, key: str, writers: list[Transaction]) -> None:
        if all(one.revision is not None for one in writers):
            self.found.order[key] = [one.id for one in sorted(writers, key=lambda one: age(one.revision or ""))]
            self.places[key] = {id_: at for at, id_ in enumerate(self.found.order[key])}
        written: dict[Hashable, Transaction] = {}
        for one in writers:
            value = self._final(one, key)
            other = written.setdefault(typed(value), one)
            if value is not None and other is not one:
                raise HistoryError(f"{other.id} and {one.id} both wrote {key} = {value!r}; every write must be unique")

    def _final(self, one: Transaction, key: str) -> Value:
        found: Value = None
        for operation in one.operations:
            if isinstance(operation, Write) and operation.key == key:
                found = operation.value
        return found

    def _follow(self) -> None:
        """Determine which version follows which: by the revisions, or where a writer read the version it overwrote."""
        for key, order in self.found.order.items():
            before: list[str | None] = [None, *order]
            self.found.next[key] = {one: [then] for one, then in zip(before, order, strict=False)}
        for seen in self.found.seen:
            key = seen.key
            if key in self.found.order or seen.reader not in self.found.took_effect:
                continue
            if any(one.id == seen.reader for one in self.writers.get(key, ())):
                self.found.next.setdefault(key, {}).setdefault(seen.writer, []).append(seen.reader)
        for key, following in self.found.next.items():
            for writer, others in following.items():
                if len(others) > 1:
                    self.report(
                        Kind.LOST_UPDATE,
                        f"{' and '.join(others)} each read {key} as {writer or 'nobody'} left it, overwrote it and committed",
                        *others,
                    )

    # --- reads -------------------------------------------------------------------------------------------

    def _resolve(self, one: Transaction, read: _External) -> None:
        took_effect = one.outcome == "committed" or one.id in self.found.took_effect
        depended_on = took_effect and (read.depended_on or one.isolation == SERIALIZABLE)
        writer = self._writer(one, read)
        if writer != UNKNOWN:
            self.found.seen.append(Seen(one.id, read.key, writer, depended_on))

    def _writer(self, one: Transaction, read: _External) -> str | None:
        """Return the id of the read value's writer, None for the initial state, UNKNOWN if it cannot be determined."""
        key, value = read.key, read.value
        if read.version == NEVER:
            return None
        if read.version is not None:
            found = self.by_revision.get(read.version)
            if found is None or not any(writer is found for writer in self.writers.get(key, ())):
                self.report(
                    Kind.UNWRITTEN,
                    f"{one.id} read {key} = {value!r} as revision {read.version} left it, which did not write it",
                    one.id,
                )
                return UNKNOWN
            return self._effective(one, read, found)
        if value is None or (value == () and (key, typed(value)) not in self.by_value):
            return UNKNOWN if key in self.removed else None
        if isinstance(value, tuple) and key in self.sets:
            return self._of_set(one, key, value)
        candidates = self.by_value.get((key, typed(value)), [])
        if not candidates:
            self.report(Kind.UNWRITTEN, f"{one.id} read {key} = {value!r}, which nobody wrote", one.id)
            return UNKNOWN
        candidates = sorted(candidates, key=lambda found: (found[0].id in self.found.took_effect, found[1]))
        writer, final = candidates[-1]
        if writer.id in self.found.took_effect and not final:
            self.report(
                Kind.G1B,
                f"{one.id} read {key} = {value!r}, which {writer.id} itself overwrote before it committed",
                one.id,
                writer.id,
            )
            return UNKNOWN
        return self._effective(one, read, writer)

    def _effective(self, one: Transaction, read: _External, writer: Transaction) -> str:
        if writer is one:
            self.report(Kind.INTERNAL, f"{one.id} read {read.key} = {read.value!r} before it wrote it", one.id)
            return UNKNOWN
        if writer.id in self.found.took_effect:
            return writer.id
        self.report(
            Kind.G1A,
            f"{one.id} read {read.key} = {read.value!r}, which {writer.id} wrote, and that one is {writer.outcome}",
            one.id,
            writer.id,
        )
        return UNKNOWN

    def _of_set(self, one: Transaction, key: str, value: tuple[Value, ...]) -> str | None:
        shown = set(map(typed, value))
        writers: dict[str, Transaction] = {}
        for part in value:
            writer = self.elements.get((key, typed(part)))
            if writer is None:
                self.report(Kind.UNWRITTEN, f"{one.id} read {part!r} in {key}, which nobody added", one.id)
                return UNKNOWN
            if self._effective(one, _External(key, part, None, False), writer) == UNKNOWN:
                return UNKNOWN
            writers[writer.id] = writer
        for writer in writers.values():
            added = [x.element for x in writer.operations if isinstance(x, Add) and x.key == key]
            read = [element for element in added if typed(element) in shown]
            if len(read) < len(added):
                self.report(
                    Kind.G1B,
                    f"{one.id} read {sorted(map(repr, read))} in {key}, only a part of what {writer.id} added to it",
                    one.id,
                    writer.id,
                )
                return UNKNOWN
        order = self.found.order.get(key)
        if order is None:
            return UNKNOWN
        if not writers:
            return None
        newest = max(self.places[key][writer] for writer in writers)
        for number in range(newest):
            if order[number] not in writers:
                then = next(writer for writer in order[number + 1 :] if writer in writers)
                self.report(
                    Kind.LOST_UPDATE,
                    f"{then} added to {key} without having what {order[number]} had added before, as {one.id} read: {value!r}",
                    order[number],
                    then,
                    one.id,
                )
                return UNKNOWN
        return order[newest]

    def _stable(self) -> None:
        """Check that a snapshot of an instance always reads the same."""
        first_reads: dict[tuple[str, str, str], tuple[str, _External]] = {}
        for one in self.history:
            if one.snapshot is None:
                continue
            for read in self.external[one.id]:
                place = (one.instance, one.snapshot, read.key)
                other, before = first_reads.setdefault(place, (one.id, read))
                if before.differs(read):
                    self.report(
                        Kind.UNSTABLE,
                        f"in snapshot {one.snapshot} of {one.instance}, {other} read {read.key} = {before.value!r}, "
                        f"and {one.id} {read.value!r}",
                        other,
                        one.id,
                    )
