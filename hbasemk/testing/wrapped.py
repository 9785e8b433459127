"""Stores that wrap another store, to count its calls or to make them fail on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

from hbasemk.errors import StoreUnknownError
from hbasemk.store.abc import (
    Arrivals,
    Column,
    Decision,
    Delete,
    DeleteBelow,
    Get,
    Put,
    Row,
    Scan,
    Store,
    Table,
)
from hbasemk.store.delegating import DelegatingStore

T = TypeVar("T")


class Call(NamedTuple):
    """One call of a store: the method's name, the table, and the number of rows it names (for a scan: 1)."""

    method: str
    table: str
    rows: int


class WrappedStore(DelegatingStore):
    """A store that passes every data call to ``inner`` through :meth:`around`, which a subclass overrides."""

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Make the call; subclasses count, delay or fail it here."""
        raise NotImplementedError(f"{type(self).__name__} does not define what to do around {call.method}")

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Passed on, unobserved."""
        self.inner.create_tables(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Passed on, unobserved."""
        self.inner.verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Passed on, unobserved."""
        self.inner.drop_tables(tables)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Passed on."""
        return self.around(Call("read", table, len(gets)), lambda: self.inner.read(table, gets))

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Passed on, as a read."""
        return self.around(Call("read", table, len(gets)), lambda: self.inner.read_first(table, gets, most_bytes))

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Passed on."""
        return self.around(Call("scan", table, 1), lambda: self.inner.scan(table, scan))

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Passed on."""
        self.around(Call("write", table, len(puts)), lambda: self.inner.write(table, puts, durable=durable))

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Passed on."""
        return self.around(
            Call("check_and_write", table, 1),
            lambda: self.inner.check_and_write(table, column, expected, put, durable=durable),
        )

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
        """Passed on."""
        return self.around(
            Call("write_if", table, len(puts)),
            lambda: self.inner.write_if(
                table, puts, gets, judge, decision, also, unchanged_since=unchanged_since, durable=durable
            ),
        )

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Passed on."""
        return self.around(Call("arrivals", table, 1), lambda: self.inner.arrivals(table, after, limit, columns))

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Passed on."""
        self.around(Call("forget_arrivals", table, 1), lambda: self.inner.forget_arrivals(table, upto))

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Passed on."""
        self.around(Call("delete", table, len(deletes)), lambda: self.inner.delete(table, deletes))

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Passed on."""
        self.around(Call("delete_below", table, len(deletes)), lambda: self.inner.delete_below(table, deletes))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Passed on."""
        self.around(Call("delete_rows", table, len(rows)), lambda: self.inner.delete_rows(table, rows))


@dataclass
class Traffic:
    """The data sent to and received from a store: rows, cells (each version of a column is one) and their bytes.

    A cell's bytes are those of its qualifier, its value and 8 for the timestamp; a row's key counts once.
    """

    calls: int = 0
    rows_read: int = 0
    cells_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    cells_written: int = 0
    bytes_written: int = 0


class CountingStore(WrappedStore):
    """A store that counts round trips by method and table, and the transferred data."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self._traffic: dict[str, Traffic] = {}

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Count the call and make it."""
        self.calls.append(call)
        traffic = self._of(call.table)
        traffic.calls += 1
        result = do()
        if isinstance(result, Arrivals):
            self._came(call.table, result.rows)
        elif isinstance(result, list):
            self._came(call.table, result)
        return result

    def _came(self, table: str, rows: Sequence[Row]) -> None:
        traffic = self._of(table)
        for key, cells in rows:
            if cells:
                traffic.rows_read += 1
                traffic.cells_read += len(cells)
                traffic.bytes_read += _size(key, ((cell.qualifier, cell.value) for cell in cells))

    def _of(self, table: str) -> Traffic:
        return self._traffic.setdefault(table, Traffic())

    def _count_writes(self, table: str, puts: Sequence[Put]) -> None:
        traffic = self._of(table)
        for key, cells, _ in puts:
            traffic.rows_written += 1
            traffic.cells_written += len(cells)
            traffic.bytes_written += _size(key, (cell[1:3] for cell in cells))

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Counted."""
        self._count_writes(table, puts)
        super().write(table, puts, durable=durable)

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Counted, whether it is applied or not."""
        self._count_writes(table, (put,))
        return super().check_and_write(table, column, expected, put, durable=durable)

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
        """Count the rows that the judge receives as read, and the puts as sent, even if the judge refuses."""

        def shown(rows: list[Row]) -> bool:
            end = len(rows) - len(also)
            self._came(table, rows[:end])
            for (other, _), row in zip(also, rows[end:], strict=True):
                self._came(other, (row,))
            return judge(rows)

        self._count_writes(table, puts)
        self._count_writes(decision.table, (decision.put, *decision.with_puts))
        return super().write_if(
            table, puts, gets, shown, decision, also, unchanged_since=unchanged_since, durable=durable
        )

    def take(self) -> Counter[tuple[str, str]]:
        """Return and reset the number of calls of each kind."""
        calls, self.calls = self.calls, []
        return Counter((call.method, call.table) for call in calls)

    def traffic(self, *but: str) -> Traffic:
        """Return and reset the transferred data, except that of some tables; deletes count only as calls."""
        found, self._traffic = self._traffic, {}
        counted = [asdict(traffic) for table, traffic in found.items() if table not in but]
        return Traffic(**{name: sum(one[name] for one in counted) for name in asdict(Traffic())})


def _size(key: bytes, columns: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the size of a row in bytes, from the qualifiers and values of its cells."""
    return len(key) + sum(8 + len(qualifier) + len(value) for qualifier, value in columns)


class FaultyStore(WrappedStore):
    """A store that fails calls on purpose.

    ``before`` and ``after`` are called with each call before and after it is applied; what they raise is what the
    caller gets. So an error raised by ``after`` is a lost reply.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: Callable[[Call], Any] | None = None
        self.after: Callable[[Call], Any] | None = None

    def change_counter(self) -> int | None:
        """Call the hooks as for a data call: a process that cannot reach a store cannot read its counter either."""
        return self.around(Call("change_counter", "", 0), super().change_counter)

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Call the hooks before and after the call."""
        if self.before is not None:
            self.before(call)
        result = do()
        if self.after is not None:
            self.after(call)
        return result


def lost_reply(call: Call) -> StoreUnknownError:
    """Return the error for a call that was applied and whose answer was lost."""
    return StoreUnknownError(f"the reply to {call.method} on {call.table} was lost on purpose")
