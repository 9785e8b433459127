"""A store that notes each time that a caller waits, where calls are made together or in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hbasemk.store.abc import CheckAndWrite, Get, Put, Row
from hbasemk.store.memory import MemoryStore
from tests.support.joint import JointStore

T = TypeVar("T")


class Waits(JointStore):
    """Notes each wait, with the calls that the caller waits for."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.waits: list[str] = []
        self.after = lambda call: self.waits.append(f"{call.method} {call.table}")

    def take(self) -> list[str]:
        """Return the waits so far, and forget them."""
        found, self.waits = self.waits, []
        return found

    def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        return self._together(lambda: super(Waits, self).check_and_write_then_read(check, table, get))

    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        return self._together(lambda: super(Waits, self).check_and_write_both(first, second))

    def write_and_read(
        self, table: str, puts: Sequence[Put], gets: Sequence[Get], *, durable: bool = True
    ) -> list[Row]:
        return self._together(lambda: super(Waits, self).write_and_read(table, puts, gets, durable=durable))

    def run_parallel(self, first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
        """Run two calls as one wait, in place of :meth:`Runtime.run_parallel`."""
        return self._together(lambda: (first(), second()))

    def _together(self, call: Callable[[], T]) -> T:
        before = len(self.waits)
        result = call()
        self.waits[before:] = [" and ".join(self.waits[before:])]
        return result
