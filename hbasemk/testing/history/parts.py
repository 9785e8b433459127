"""Numbers that are sums of powers of two, each added by one transaction: every power is a key of its own.

A transaction that reads the number, or sets it, reads or writes all these keys, also those that are not in the sum. It
records one operation on the key that ends in :data:`EACH`, because it cannot know them; :func:`expanded` knows them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.testing.history.records import History, Operation, Read, Write

EACH: Final = "/*"
"""The end of a key that stands for all parts of a number. A read has the tuple of the parts that it shows."""


def part(key: str, bit: int) -> str:
    """Return the key of one power of two in a number."""
    return f"{key}/{bit}"


def expanded(history: History) -> History:
    """Return the history with an operation on each part instead of those on :data:`EACH`."""
    parts: dict[str, dict[str, None]] = {}
    for one in history:
        for operation in one.operations:
            key, slash, bit = operation.key.rpartition("/")
            if slash and bit.isdigit():
                parts.setdefault(key, {})[operation.key] = None
            elif operation.key.endswith(EACH) and isinstance(operation, Read) and isinstance(operation.value, tuple):
                parts.setdefault(key, {}).update((f"{key}/{shown}", None) for shown in operation.value)

    def each(operation: Operation) -> Iterator[Operation]:
        if not operation.key.endswith(EACH):
            yield operation
            return
        key = operation.key[: -len(EACH)]
        for name in parts.get(key, ()):
            if isinstance(operation, Read):
                shown = isinstance(operation.value, tuple) and int(name.rpartition("/")[2]) in operation.value
                yield Read(name, 1 if shown else None, operation.depended_on)
            else:
                yield Write(name, None)

    found = {one.id: tuple(more for operation in one.operations for more in each(operation)) for one in history}
    changed = {id_: operations for id_, operations in found.items() if operations != history.by_id[id_].operations}
    return history.replaced(operations=changed) if changed else history
