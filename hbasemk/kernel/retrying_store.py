"""The store as the kernel uses it: every idempotent call is retried, and divided into calls of a moderate size.

This module is the only one that retries single calls. It is in the kernel, because a retry waits by the ``Runtime`` and
for as long as the operation's time limit allows (``retry``).

No call carries more than ``Store.batch_rows`` rows. No call that writes carries more than ``Store.batch_bytes`` bytes,
unless a single cell is larger. A row that is larger is written in several calls, so it is not atomic. No call that
reads carries more than ``batch_bytes`` bytes of keys and qualifiers, unless they are at most 16. A get that has more is
divided by its columns, so it does not read its row atomically.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from hbasemk.errors import HbasemkError, StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.batches import delete_batches, fit, fitting, parts_of, put_batches
from hbasemk.kernel.read_sizes import ReadSizes
from hbasemk.kernel.retry import retry_call
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import (
    Arrivals,
    CheckAndWrite,
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
from hbasemk.store.delegating import DelegatingStore, ReadOnce
from hbasemk.store.sizes import is_full, size_of_rows

T = TypeVar("T")
U = TypeVar("U")


class RetryingStore(DelegatingStore):
    """A store whose calls are retried, except within :func:`~hbasemk.kernel.retry.run_with_retries`.

    All calls of the contract may be sent twice, with one exception: :meth:`check_and_write` answers False if an earlier
    attempt was applied and its reply was lost. Its callers then read the row. A call that must be sent at most once goes
    to :attr:`once`.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        super().__init__(store)
        self._runtime = runtime
        self._stopped: HbasemkError | None = None
        self._sizes = ReadSizes()

    def stop(self, error: HbasemkError) -> None:
        """Let every later call raise ``error``."""
        self._stopped = error

    @ReadOnce
    def supports_joint_calls(self) -> bool:
        """As the store itself."""
        return self.inner.supports_joint_calls

    @property
    def once(self) -> Store:
        """The store itself, for calls that must not be retried."""
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        return self.inner

    def _retry(self, call: Callable[[], T], in_doubt: Callable[[], None] | None = None) -> T:
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        return retry_call(self._runtime, call, in_doubt)

    def _retry_first(
        self, both: Callable[[], T], first: Callable[[], U], in_doubt: Callable[[], None] | None = None
    ) -> T | U:
        """Make two calls in one round trip; after a failure, retry only the first of them."""
        attempts = itertools.chain[Callable[[], T | U]]((both,), itertools.repeat(first))
        return self._retry(lambda: next(attempts)(), in_doubt)

    def change_counter(self) -> int | None:
        """As the inner store, without retries. Raises the error of :meth:`stop`, so that idle instances notice it."""
        return self.once.change_counter()

    def give_way(self, at_most: float) -> bool:
        """Wait before a commit if others should go first; see :meth:`Store.give_way`."""
        return self._retry(partial(self.inner.give_way, at_most))

    # --- tables ------------------------------------------------------------------------------------------

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create missing tables; see :meth:`Store.create_tables`."""
        self._retry(partial(self.inner.create_tables, tables))

    def verify(self, tables: Sequence[Table]) -> None:
        """Check the tables; see :meth:`Store.verify`."""
        self._retry(partial(self.inner.verify, tables))

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables; see :meth:`Store.drop_tables`."""
        self._retry(partial(self.inner.drop_tables, tables))

    # --- reads -------------------------------------------------------------------------------------------

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get. One round trip for each ``batch_rows`` rows, more for very long keys; none for no rows.

        The size of rows is known only after reading them. So after a call that timed out, the next ones read half as many.
        A get with too many columns for one call takes several.
        """
        if fit(gets, self.batch_bytes):
            return self._read(table, gets, fit_together=True)
        parts = [parts_of(get, self.batch_bytes) for get in gets]
        found = iter(self._read(table, [*itertools.chain.from_iterable(parts)], fit_together=False))
        return [_joined(list(itertools.islice(found, len(part)))) for part in parts]

    def _read(self, table: str, gets: Sequence[Get], *, fit_together: bool) -> list[Row]:
        """Read gets each of which fits one call; ``fit_together`` is whether all of them do, apart from their number."""
        rows: list[Row] = []
        read = partial(self.inner.read, table)
        while len(rows) < len(gets):
            rows += self._read_some(table, gets, len(rows), read, fit_together=fit_together)
        return rows

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Return the rows of the first gets, as many as one call returns; see :meth:`Store.read_first`. One round trip.

        No get may name more columns than fit one call.
        """
        read = partial(self.inner.read_first, table, most_bytes=most_bytes)
        return self._read_some(table, gets, 0, read, fit_together=fit(gets, self.batch_bytes))

    def _read_some(
        self,
        table: str,
        gets: Sequence[Get],
        first: int,
        read: Callable[[Sequence[Get]], list[Row]],
        *,
        fit_together: bool,
    ) -> list[Row]:
        """Read gets from ``first`` on, as many as one call may have."""

        def read_once() -> list[Row]:
            part = gets[first : first + self._sizes.limit("read", table, self.batch_rows)]
            if not fit_together:
                part = fitting(part, self.batch_bytes)
            try:
                found = read(part)
            except (StoreNotAppliedError, StoreUnknownError) as error:
                self._sizes.failed("read", table, len(part), error)
                raise
            self._sizes.succeeded("read", table, len(part))
            return found

        return self._retry(read_once)

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Return the first ``scan.limit`` rows of the range. One round trip; more after a timeout, as :meth:`read`."""
        rows: list[Row] = []

        def read() -> tuple[list[Row], bool]:
            limit = self._sizes.limit("scan", table, scan.limit - len(rows))
            request = _rest(scan, rows, limit)
            try:
                found = self.inner.scan(table, request)
            except (StoreNotAppliedError, StoreUnknownError) as error:
                self._sizes.failed("scan", table, limit, error)
                raise
            self._sizes.succeeded("scan", table, limit)
            ended = len(found) < request.limit
            if scan.reverse and rows:
                # No greatest key below a given key exists, so the scan starts at the last row again.
                found = found[1:] if found and found[0].key == rows[-1].key else found[:limit]
            return found, ended

        while True:
            found, ended = self._retry(read)
            rows += found
            if ended or len(rows) >= scan.limit or is_full(scan, rows, size_of_rows(rows)):
                return rows

    # --- writes ------------------------------------------------------------------------------------------

    def write(
        self,
        table: str,
        puts: Iterable[Put],
        *,
        durable: bool = True,
        in_doubt: Callable[[], None] | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:
        """Write cells in order, in as many calls as their size needs.

        ``in_doubt`` is called for each lost reply, ``between`` before each call except the first, for example to renew a
        lease.
        """
        self.write_and_read(table, puts, (), durable=durable, in_doubt=in_doubt, between=between)

    def _write(self, table: str, puts: Sequence[Put], durable: bool, in_doubt: Callable[[], None] | None) -> None:
        self._retry(partial(self.inner.write, table, puts, durable=durable), in_doubt)

    def check_and_write(
        self,
        table: str,
        column: Column,
        expected: bytes | None,
        put: Put,
        *,
        durable: bool = True,
        in_doubt: Callable[[], None] | None = None,
    ) -> bool:
        """Compare and set; see :meth:`Store.check_and_write`. ``in_doubt`` is called for each lost reply.

        If a reply was lost, False may mean that the first attempt was applied.
        """
        return self._retry(partial(self.inner.check_and_write, table, column, expected, put, durable=durable), in_doubt)

    def write_and_read(
        self,
        table: str,
        puts: Iterable[Put],
        gets: Sequence[Get],
        *,
        durable: bool = True,
        in_doubt: Callable[[], None] | None = None,
        between: Callable[[], None] | None = None,
    ) -> list[Row]:
        """Write cells as :meth:`write`, then return one row per get. The last call that writes also reads.

        If ``gets`` do not fit one call, further calls read. See :meth:`Store.write_and_read`.
        """
        parts = put_batches(puts, self.batch_rows, self.batch_bytes)
        last = next(parts, None)
        for part in parts:
            assert last is not None
            self._write(table, last, durable, in_doubt)
            if between is not None:
                between()
            last = part
        if last is None:
            return self.read(table, gets)
        if not gets or not fit(gets, self.batch_bytes):
            self._write(table, last, durable, in_doubt)
            return self.read(table, gets)
        rows = self._write_and_read(table, last, gets, durable, in_doubt)
        return self.read(table, gets) if rows is None else rows

    def _write_and_read(
        self, table: str, puts: Sequence[Put], gets: Sequence[Get], durable: bool, in_doubt: Callable[[], None] | None
    ) -> list[Row] | None:
        """Write cells and read rows; after a failure, only write them, and return None."""
        return self._retry_first(
            partial(self.inner.write_and_read, table, puts, gets, durable=durable),
            partial(self.inner.write, table, puts, durable=durable),
            in_doubt,
        )

    def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        """Compare and set, then read a row; see :meth:`Store.check_and_write_then_read`. After a failure, one by one.

        If a reply was lost, or only the read failed, False may mean that the first attempt was applied.
        """
        is_applied, row = self._retry_first(
            partial(self.inner.check_and_write_then_read, check, table, get),
            lambda: (self.inner.check_and_write(*check), None),
        )
        if row is None:
            (row,) = self.read(table, [get])
        return is_applied, row

    def check_and_write_each(
        self, first: CheckAndWrite, second: CheckAndWrite, in_doubt: Callable[[], None]
    ) -> tuple[bool, bool]:
        """Make two compare-and-sets that are not the decision of a commit; return the answers.

        At the same time if the store can; else the second one only if the first applied. Both are retried, as by
        :meth:`check_and_write`. If one raises, raise after both have ended.
        """
        if not self.supports_joint_calls:
            applied = self.check_and_write(*first, durable=False, in_doubt=in_doubt)
            return applied, applied and self.check_and_write(*second, durable=False, in_doubt=in_doubt)
        one, two = self.once.check_and_write_both(first, second)
        # Before the first one is repeated: if that raises, the second one stays in doubt.
        for answer in (one, two):
            if isinstance(answer, StoreUnknownError):
                in_doubt()
        return self._answer(first, one, in_doubt), self._answer(second, two, in_doubt)

    def _answer(
        self, request: CheckAndWrite, answer: bool | Exception, in_doubt: Callable[[], None] | None = None
    ) -> bool:
        """Return the answer to one of two joint calls. After a failure of the store, make it again."""
        if isinstance(answer, (StoreNotAppliedError, StoreUnknownError)):
            return self.check_and_write(*request, durable=False, in_doubt=in_doubt)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Iterable[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
        in_doubt: Callable[[], None] | None = None,
        *,
        unchanged_since: tuple[str, int] | None = None,
        durable: bool = True,
    ) -> int | None:
        """Read, decide and write in one transaction; see :meth:`Store.write_if`. ``in_doubt`` is called for each lost reply.

        Not divided: a caller uses it only for what fits one call.
        """
        return self._retry(
            partial(
                self.inner.write_if,
                table,
                puts,
                gets,
                judge,
                decision,
                also,
                unchanged_since=unchanged_since,
                durable=durable,
            ),
            in_doubt,
        )

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Return the rows written after an arrival number; see :meth:`Store.arrivals`."""
        return self._retry(partial(self.inner.arrivals, table, after, limit, columns))

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Forget which rows were written up to an arrival number; see :meth:`Store.forget_arrivals`."""
        self._retry(partial(self.inner.forget_arrivals, table, upto))

    def delete(self, table: str, deletes: Iterable[Delete], *, between: Callable[[], None] | None = None) -> None:
        """Delete cell versions, in as many calls as their size needs; ``between`` as in :meth:`write`."""
        for number, part in enumerate(delete_batches(deletes, self.batch_rows, self.batch_bytes)):
            if number and between is not None:
                between()
            self._delete(table, part)

    def _delete(self, table: str, deletes: Sequence[Delete]) -> None:
        self._retry(partial(self.inner.delete, table, deletes))

    def give_back_space(self) -> bool:
        """Give some space back; see :meth:`Store.give_back_space`."""
        return self._retry(self.inner.give_back_space)

    def delete_below(self, table: str, deletes: Iterable[DeleteBelow]) -> None:
        """Delete ranges of versions, in as many calls as their size needs; see :meth:`Store.delete_below`."""
        for part in delete_batches(deletes, self.batch_rows, self.batch_bytes):
            self._retry(partial(self.inner.delete_below, table, part))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows; see :meth:`Store.delete_rows`."""
        self._retry(partial(self.inner.delete_rows, table, rows))


def _joined(parts: Sequence[Row]) -> Row:
    """Return a row from the rows that the parts of its get have read."""
    return parts[0] if len(parts) == 1 else Row(parts[0].key, [cell for part in parts for cell in part.cells])


def _rest(scan: Scan, rows: Sequence[Row], limit: int) -> Scan:
    """Return the scan of the next ``limit`` rows after those read so far."""
    if not rows:
        return scan._replace(limit=limit)
    last = rows[-1].key
    return (
        scan._replace(start=last, limit=limit + 1) if scan.reverse else scan._replace(start=last + b"\0", limit=limit)
    )
