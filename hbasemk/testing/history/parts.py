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
    resets: dict[str, str | None] = {}  # a part that was written with a reset -> the revision of the reset
    for one in history:
        reset: set[str] = set()
        for operation in one.operations:
            key, slash, bit = operation.key.rpartition("/")
            if slash and bit.isascii() and bit.isdigit():
                parts.setdefault(key, {})[operation.key] = None
                if key in reset and isinstance(operation, Write):
                    resets[operation.key] = one.revision
            elif operation.key.endswith(EACH) and isinstance(operation, Write):
                reset.add(operation.key[: -len(EACH)])
            elif operation.key.endswith(EACH) and isinstance(operation, Read) and isinstance(operation.value, tuple):
                parts.setdefault(key, {}).update((f"{key}/{shown}", None) for shown in operation.value)

    def each(operation: Operation) -> Iterator[Operation]:
        if not operation.key.endswith(EACH):
            yield operation
            return
        key = operation.key[: -len(EACH)]
        if isinstance(operation, Read):
            shown = [f"{key}/{bit}" for bit in operation.value] if isinstance(operation.value, tuple) else []
            # A part of a reset is in the number, so the reset is the last one before the read, and removed what is absent.
            removed_by = next((resets[name] for name in shown if name in resets), None)
            for name in parts.get(key, ()):
                is_in = name in shown
                yield Read(name, 1 if is_in else None, operation.depended_on, None if is_in else removed_by)
        else:
            yield from (Write(name, None) for name in parts.get(key, ()))

    found = {one.id: tuple(more for operation in one.operations for more in each(operation)) for one in history}
    changed = {id_: operations for id_, operations in found.items() if operations != history.by_id[id_].operations}
    return history.replaced(operations=changed) if changed else history
