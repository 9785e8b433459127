"""The shared store as one simulated process uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hbasemk.store.abc import Arrivals, Column, Decision, Delete, DeleteBelow, Get, Put, Row, Scan
from hbasemk.store.sizes import size_of_rows
from hbasemk.testing.trace import Step
from hbasemk.testing.wrapped import WrappedStore

if TYPE_CHECKING:
    from hbasemk.testing.simulation import Actor

T = TypeVar("T")


class SimulatedStore(WrappedStore):
    """The shared store as one actor uses it: any event may happen at every row."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.simulator.store)
        self._actor = actor

    def _step(
        self,
        method: str,
        table: str,
        what: object,
        do: Callable[[], T],
        condition: tuple[Column, bytes | None] | None = None,
    ) -> T:
        """Execute one atomic step with the simulator's faults."""
        actor = self._actor
        return actor.simulator.step(actor, Step(method, table, what, condition), do)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Read row by row: a batch is not a snapshot."""
        rows: list[Row] = []
        for get in gets:
            rows += self._step("read", table, get, partial(self.inner.read, table, (get,)))
        return rows

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Read row by row, up to the first row with which the values have ``most_bytes``."""
        rows: list[Row] = []
        for get in gets:
            rows += self.read(table, (get,))
            most_bytes -= size_of_rows(rows[-1:])
            if most_bytes <= 0:
                break
        return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write row by row in a random order: a batch may be applied in part."""
        for put in self._actor.simulator.shuffled(puts):
            self._step("write", table, put, partial(self.inner.write, table, (put,), durable=durable))

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete row by row in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            self._step("delete", table, delete, partial(self.inner.delete, table, (delete,)))

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete row by row in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            self._step("delete_below", table, delete, partial(self.inner.delete_below, table, (delete,)))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete row by row in a random order."""
        for row in self._actor.simulator.shuffled(rows):
            self._step("delete_rows", table, row, partial(self.inner.delete_rows, table, (row,)))

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Compare and set; sometimes twice, as HBase's own client does, and then the second answer counts."""
        do = partial(self.inner.check_and_write, table, column, expected, put, durable=durable)
        answer = self._step("check_and_write", table, put, do, (column, expected))
        simulator = self._actor.simulator
        if simulator.happens(simulator.twice):
            answer = self._step("check_and_write", table, put, do, (column, expected))
        return answer

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Scan in batches of a few rows, so that other processes can run in between."""
        rows: list[Row] = []
        size = self._actor.simulator.scan_rows
        while len(rows) < scan.limit:
            part = min(size, scan.limit - len(rows))
            start = scan.start
            if rows:
                start = rows[-1].key if scan.reverse else rows[-1].key + b"\0"
            again = bool(rows) and scan.reverse
            request = scan._replace(start=start, limit=part + again)
            found = self._step("scan", table, request, partial(self.inner.scan, table, request))
            if again and found and found[0].key == start:
                found = found[1:]
            rows += found[:part]
            if len(found) < part:
                break
        return rows

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Iterable[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
        *,
        unchanged_since: tuple[str, int] | None = None,
        durable: bool = True,
    ) -> int | None:
        """Execute the whole transaction as one step."""
        return self._step(
            "write_if",
            decision.table,
            decision.put,
            lambda: self.inner.write_if(
                table, puts, gets, judge, decision, also, unchanged_since=unchanged_since, durable=durable
            ),
        )

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Read a few writes at a time, so that other processes can run in between."""
        few = min(limit, self._actor.simulator.scan_rows)
        return self._step("arrivals", table, after, partial(self.inner.arrivals, table, after, few, columns))

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Passed on as one step."""
        self._step("forget_arrivals", table, upto, partial(self.inner.forget_arrivals, table, upto))

    def close(self) -> None:
        """Do nothing: the shared store stays open."""
