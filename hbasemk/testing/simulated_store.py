"""The shared store as one simulated process uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hbasemk.store.abc import Arrivals, Column, Decision, Delete, DeleteBelow, Get, Put, Row, Scan
from hbasemk.testing.trace import Step
from hbasemk.testing.wrapped import Call, WrappedStore

if TYPE_CHECKING:
    from hbasemk.testing.simulation import Actor

T = TypeVar("T")


class SimulatedStore(WrappedStore):
    """The shared store as one actor uses it: any event may happen at every row."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.simulator.store)
        self._actor = actor
        self._what: Any = None
        self._condition: tuple[Column, bytes | None] | None = None

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Execute one atomic step with the simulator's faults."""
        condition = self._condition if call.method == "check_and_write" else None
        return self._actor.simulator.step(self._actor, Step(call.method, call.table, self._what, condition), do)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Read row by row: a batch is not a snapshot."""
        rows = []
        for get in gets:
            self._what = get
            rows += super().read(table, (get,))
        return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write row by row in a random order: a batch may be applied in part."""
        for put in self._actor.simulator.shuffled(puts):
            self._what = put
            super().write(table, (put,), durable=durable)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete row by row in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            self._what = delete
            super().delete(table, (delete,))

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete row by row in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            self._what = delete
            super().delete_below(table, (delete,))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete row by row in a random order."""
        for row in self._actor.simulator.shuffled(rows):
            self._what = row
            super().delete_rows(table, (row,))

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Compare and set; sometimes twice, as HBase's own client does, and then the second answer counts."""
        self._what, self._condition = put, (column, expected)
        answer = super().check_and_write(table, column, expected, put, durable=durable)
        simulator = self._actor.simulator
        if simulator.happens(simulator.twice):
            self._what, self._condition = put, (column, expected)
            answer = super().check_and_write(table, column, expected, put, durable=durable)
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
            self._what = request
            found = super().scan(table, request)
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
        gets: Sequence[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
        *,
        unchanged_since: tuple[str, int] | None = None,
        durable: bool = True,
    ) -> int | None:
        """Execute the whole transaction as one step."""
        return self._actor.simulator.step(
            self._actor,
            Step("write_if", decision.table, decision.put),
            lambda: self.inner.write_if(
                table, puts, gets, judge, decision, also, unchanged_since=unchanged_since, durable=durable
            ),
        )

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Read a few writes at a time, so that other processes can run in between."""
        self._what = after
        return super().arrivals(table, after, min(limit, self._actor.simulator.scan_rows), columns)

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Passed on as one step."""
        self._what = upto
        super().forget_arrivals(table, upto)

    def close(self) -> None:
        """Do nothing: the shared store stays open."""
