"""The contract between the kernel and the backends that store cells.

A store has tables. A table has rows in key order. A row has cells, each at a column (family, qualifier) and a
timestamp. Every abstract call is one round trip, and two joint calls can be one. A write to one row is atomic; a batch is
not: a reader may see some rows of a batch and not yet the others. ``hbasemk.testing.store`` holds the conformance suite,
which tests this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import LimitError
from hbasemk.store.alike import AlikeCells, NewCellFields

Column = tuple[bytes, bytes]
"""Column family and qualifier."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""The exclusive upper bound of an unbounded time range; no cell may carry this timestamp."""

ALL_VERSIONS: Final = 2**31 - 1

LAST_ROW: Final = b""
"""As the row of a get in ``also`` of :meth:`Store.write_if`: the row with the highest key of the table."""

FileIdentity = tuple[int, int]
"""Device and inode of a file; all names of a file, hard links included, share one identity."""


class Cell(NamedTuple):
    """One version of one column."""

    family: bytes
    qualifier: bytes
    timestamp: int
    value: bytes


class Row(NamedTuple):
    """A row as read: cells ordered by family and qualifier, and within a column newest first.

    A row has no cells if it does not exist, or if none of the requested cells exist.
    """

    key: bytes
    cells: Sequence[Cell]


class Page(NamedTuple):
    """A part of one wide family: at most ``limit`` cells whose qualifiers are greater than ``after``.

    ``after=None`` starts at the first column. ``limit`` counts cells, so request one version.
    """

    family: bytes
    after: bytes | None
    limit: int


class Get(NamedTuple):
    """A request to read one row.

    ``columns`` names exact columns, ``families`` whole families, ``page`` a part of one family. Give at most one of
    the three; without any of them the get reads the whole row. ``since`` (inclusive) and ``before`` (exclusive) bound
    the timestamps. ``versions`` limits the result to the newest versions of each column inside that range.
    """

    row: bytes
    columns: Sequence[Column] | None = None
    families: Sequence[bytes] | None = None
    page: Page | None = None
    since: int = 0
    before: int = MAX_TIMESTAMP
    versions: int = 1


class Scan(NamedTuple):
    """A request to read a range of rows in key order.

    A forward scan reads from ``start`` (inclusive) to ``stop`` (exclusive). A reverse scan reads downwards from
    ``start``, now the *higher* key (inclusive), to ``stop`` (exclusive). None leaves an end open. ``limit`` bounds the
    number of rows in one batch. The other fields are those of :class:`Get`. The scan omits rows without a matching cell.
    ``most_bytes`` allows the store to end a batch of a forward scan early, once its values have so many bytes.
    """

    start: bytes | None
    stop: bytes | None
    limit: int
    reverse: bool = False
    columns: Sequence[Column] | None = None
    families: Sequence[bytes] | None = None
    since: int = 0
    before: int = MAX_TIMESTAMP
    versions: int = 1
    most_bytes: int | None = None


class NewCell(NamedTuple):
    """A cell to write; with ``timestamp=None`` it has the put's timestamp."""

    family: bytes
    qualifier: bytes
    value: bytes
    timestamp: int | None = None


class Put(NamedTuple):
    """Cells to write into one row atomically.

    A store unpacks ``cells``, which may be plain tuples, or ``AlikeCells``. If two of them are the same version of a column,
    the last one counts. ``timestamp`` is that of all cells without
    their own one; None: the server stamps them with its time (ms since 1970). In a store with transactions they are at least
    as new as the cells that they replace, so a clock that goes back does not hide them; in others it may.
    """

    row: bytes
    cells: Sequence[NewCellFields]
    timestamp: int | None = None


class CellVersion(NamedTuple):
    """One exact version of one column to delete."""

    family: bytes
    qualifier: bytes
    timestamp: int


class Delete(NamedTuple):
    """Exact cell versions of one row to delete; older and newer versions stay."""

    row: bytes
    cells: Sequence[CellVersion]


class DeleteBelow(NamedTuple):
    """Ranges of versions of one row to delete: of each column in ``cells``, all versions with lower timestamps.

    ``families`` does the same with all columns of a family: its name, and the timestamp.
    """

    row: bytes
    cells: Sequence[CellVersion] = ()
    families: Sequence[tuple[bytes, int]] = ()


class Decision(NamedTuple):
    """A compare-and-set: write ``put`` if the value of ``column`` in the put's row is ``expected`` (None: absent).

    ``unchanged``: a table that keeps arrivals, and an arrival number; the decision applies only if nothing has been written
    to that table after that number. ``with_puts``: other rows of the table that the decision writes too. Their writes are
    numbered after its own.
    """

    table: str
    column: Column
    expected: bytes | None
    put: Put
    unchanged: tuple[str, int] | None = None
    with_puts: Sequence[Put] = ()


class CheckAndWrite(NamedTuple):
    """The parameters of :meth:`Store.check_and_write`."""

    table: str
    column: Column
    expected: bytes | None
    put: Put


class Table(NamedTuple):
    """The definition of a table. Each column family keeps ``versions`` versions of a cell.

    ``arrivals``: a store that supports transactions also keeps the order in which the table's rows are written
    (:meth:`Store.arrivals`).
    """

    name: str
    families: Sequence[bytes]
    versions: int
    arrivals: bool = False


class Arrivals(NamedTuple):
    """A part of a table's order of writes: the rows written after one arrival number, up to the number ``last``.

    Each row occurs once, at the place of its last write in this part. ``complete`` says that no write after ``last`` had
    been committed when the store was read.
    """

    last: int
    rows: Sequence[Row]
    complete: bool


class Limits(NamedTuple):
    """The largest sizes that a store accepts, in bytes: of a row key or a qualifier, of a value, and of all three together."""

    row_key: int = 32_767
    cell: int = 10 * 1024 * 1024 - 1024
    together: int = 10 * 1024 * 1024 - 1024 + 2 * 32_767

    @property
    def surely(self) -> int:
        """The most bytes of a value that the store accepts with any row key and qualifier that it accepts."""
        return min(self.cell, self.together - 2 * self.row_key)


class Store(ABC):
    """The calls that a backend provides; the module's docstring states their guarantees.

    Every call may raise :class:`~hbasemk.errors.StoreError` in one of its kinds (not applied, unknown, unusable). It
    raises :class:`~hbasemk.errors.LimitError` before anything was written, and
    :class:`~hbasemk.errors.ClosedError` after :meth:`close`. A missing table, or a column family that the table does not have,
    raises StoreUnusableError, which names the table if it is missing. Many threads may share a store.
    ``limits``, and the properties whose names begin with ``supports`` or ``batch``, never change.
    """

    limits: Limits = Limits()

    @property
    @abstractmethod
    def location(self) -> str:
        """The place where the cells are stored, for messages; contains no secrets."""

    @property
    def supports_parallel_calls(self) -> bool:
        """Whether two concurrent calls take less time than two calls in sequence."""
        return False

    @property
    def supports_joint_calls(self) -> bool:
        """Whether the store implements :meth:`check_and_write_both`."""
        return False

    def clock_ms(self) -> int | None:
        """Return the store's clock in ms since 1970, or None if reading it would take a round trip.

        The store stamps cells with this clock.
        """
        return None

    def change_counter(self) -> int | None:
        """Return a value that every change of the data makes different; None if reading it would take a round trip.

        If two calls on one store object return equal values, nobody changed the data between these calls: no thread, no
        process, not this object itself. Different values prove nothing. Values of different objects are not comparable. Takes
        microseconds, so that a process may compare it all the time.
        """
        return None

    def give_way(self, at_most: float) -> bool:  # noqa: ARG002
        """Wait before a commit, at most ``at_most`` seconds, if others should go first; return whether the call waited.

        If it did, read what others have committed, and call again until it returns False. A process waits only if it commits
        again and again, and if turns of many commits cost less than single ones. Correctness never depends on a wait.
        """
        return False

    @property
    def batch_rows(self) -> int:
        """The largest number of rows that the kernel should put into one batch."""
        return 1000

    @property
    def batch_bytes(self) -> int:
        """The largest number of bytes of keys, names and values that the kernel should put into one call.

        The size excludes the overhead of messages. A single cell may be larger; the kernel then sends it alone.
        """
        return 16 * 1024 * 1024

    @property
    def supports_transactions(self) -> bool:
        """Whether the store implements :meth:`write_if` and :meth:`arrivals`."""
        return False

    @property
    def read_only(self) -> bool:
        """Whether this process may only read, so that every write would fail; disables background writes."""
        return False

    def files(self) -> Mapping[FileIdentity, str]:
        """Return the local files that now hold this store's data: device and inode, mapped to the path.

        The result is empty for a store without local files. If a process uses the store and also opens or closes one of
        these files, it can destroy data (docs/operations.md). Code that reads users' files therefore skips these files.
        Call this again for each file, because the files change while others open and close the store. Opens no file.
        """
        return {}

    def give_back_space(self) -> bool:
        """Give some space of deleted cells back to the operating system; return whether there is more to give back.

        One round trip, or none. A store that does so by itself, or never, returns False.
        """
        return False

    @abstractmethod
    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create missing tables, then :meth:`verify`. Idempotent, and safe when several processes do it at once."""

    @abstractmethod
    def verify(self, tables: Sequence[Table]) -> None:
        """Check that all tables exist with the expected settings.

        Raises StoreUnusableError, which names the missing table, or the table and the setting that differs.
        """

    @abstractmethod
    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove these tables and their contents; missing tables are not an error."""

    @abstractmethod
    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get, in the order of ``gets``; reads each row atomically. One round trip."""

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:  # noqa: ARG002 - see below
        """Return one row per get as :meth:`read`, or only the rows of the first gets, at least one. One round trip.

        ``most_bytes`` allows the store to end the answer early, if the values of all rows have more bytes. So callers hold
        about so many bytes at a time. A store that does not override this method returns all rows.
        """
        return self.read(table, gets)

    @abstractmethod
    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Return the first ``scan.limit`` rows of the range in the scan's direction. One round trip.

        Fewer rows are all that there are, unless ``scan.most_bytes`` ended the batch.
        """

    @abstractmethod
    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write cells; atomic per row. One round trip.

        ``durable=False`` allows the store to delay durability until the next durable call. The store keeps the order: a
        crash may lose these cells, but it never keeps a later durable call without them.
        """

    @abstractmethod
    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Write ``put`` if the newest value of ``column`` in the put's row is ``expected``; atomic for the row.

        ``expected=None`` means that the column must be absent. Returns whether the store applied the put. Compared values
        must not be empty, because HBase treats an empty value as absent. If the put replaces the value of ``column`` and the
        server stamps it, its timestamp is not lower than that of the compared cell.
        """

    def write_and_read(
        self, table: str, puts: Sequence[Put], gets: Sequence[Get], *, durable: bool = True
    ) -> list[Row]:
        """Write cells, then return one row per get; what is read contains what was written.

        One round trip where the store can send both requests at once, else two. After a StoreNotAppliedError the cells may
        have been written, if only the read failed.
        """
        self.write(table, puts, durable=durable)
        return self.read(table, gets)

    def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        """Make a compare-and-set, then read a row, also if the put was not applied; return the answers.

        What is read contains what was written. One round trip where the store can send both requests at once, else two. After
        a StoreNotAppliedError the put may have been applied, if only the read failed.
        """
        is_applied = self.check_and_write(*check)
        (row,) = self.read(table, [get])
        return is_applied, row

    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        """Make two compare-and-sets at the same time, from one thread; they may be applied in any order. One round trip.

        Returns the answer to each, or the exception that it raised. Available only if :attr:`supports_joint_calls` is True.
        """
        raise NotImplementedError(f"the store at {self.location} does not make two calls at the same time")

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
        """Read, decide and write in one transaction. One round trip.

        The store reads ``gets`` and passes the rows to ``judge``. If ``judge`` returns True and the compare-and-set
        ``decision`` applies, the store writes ``puts`` and ``decision.put``. Each time the store reads, it iterates once over
        ``gets``, and at no other time; the iteration may create the gets. ``also`` names rows of other tables;
        ``judge`` receives them after the rows of ``gets``. There, :data:`LAST_ROW` names the row with the highest key; if the
        table is empty, that row has the key :data:`LAST_ROW` and no cells. ``unchanged_since`` names a table that keeps arrivals,
        and an arrival number: if nothing has been written to this table after that number, the store neither reads nor calls
        ``judge``, as if it had returned True.

        Returns the arrival number of ``decision.put`` if everything was written (1 if its table keeps no arrivals), None if
        ``judge`` returned False, and 0 if the decision does not apply; in the last two cases nothing was written. The store
        may call ``judge`` several times. ``judge`` and the iteration over ``gets`` must not call the store. Available only if
        :attr:`supports_transactions` is True.
        """
        raise NotImplementedError(f"the store at {self.location} does not support transactions")

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Return the rows written to a table after an arrival number, at most ``limit`` writes. One round trip.

        A table defined with ``arrivals`` numbers its writes from 1, one for each put, in the order in which the store
        commits them. So a reader that has seen all writes up to a number misses none, whatever any clock shows, as long as nobody
        has called :meth:`forget_arrivals` with a higher number. ``columns``
        selects the cells of each row; all rows come from one state of the store, as they are now. Deletes have no number.
        Raises NotImplementedError or StoreUnusableError if the table keeps no arrivals. Available only if
        :attr:`supports_transactions` is True.
        """
        raise NotImplementedError(f"the store at {self.location} does not keep the order of writes")

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Forget which rows were written up to an arrival number; numbers that do not exist are not an error. One round trip.

        The last write of all stays, so that no number is used twice. :meth:`arrivals` then begins with the first write that
        is left. Durability is as for :meth:`delete`. Available only if :attr:`supports_transactions` is True.
        """
        raise NotImplementedError(f"the store at {self.location} does not keep the order of writes")

    @abstractmethod
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions; missing versions are not an error. One round trip.

        As with ``durable=False``, the store may delay the durability of each delete until the next durable call: nothing that
        a process has reported depends on deletes.
        """

    @abstractmethod
    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete ranges of versions; missing versions are not an error. One round trip.

        One range costs a store as much as one exact version, however many versions it contains. A store may hide a version
        that is written into the range later, for as long as it likes: callers must be sure that nobody needs such a version.
        """

    @abstractmethod
    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows; only for garbage collection. One round trip."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; idempotent. Any later call raises ClosedError."""

    def check_puts(self, puts: Sequence[Put]) -> None:
        """Reject puts that exceed the limits; implementations call this before they send anything.

        Raises LimitError, which names the row and column. If a cell is too large only together with its key, these are also the
        attributes ``row`` and ``column``; ``size`` is the number of bytes of the row key, the qualifier and the value.
        """
        longest_key, longest_value = self.limits.row_key, self.limits.surely
        for row, cells, stamp in puts:
            if stamp is not None and not 0 <= stamp < MAX_TIMESTAMP:
                raise _invalid_timestamp(row, stamp)
            if not row or len(row) > longest_key:
                raise LimitError(f"a row key must have 1 to {longest_key} bytes, got {len(row)} (row {row[:60]!r}…)")
            if type(cells) is AlikeCells and cells.fit(longest_key, longest_value):
                continue
            if not cells:
                raise LimitError(
                    f"the put for row {row[:60]!r} has no cells; expected at least one; nothing was written"
                )
            for cell in cells:
                _, qualifier, value, timestamp = cell
                if (
                    len(value) > longest_value
                    or len(qualifier) > longest_key
                    or (timestamp is not None and not 0 <= timestamp < MAX_TIMESTAMP)
                ):
                    self._require_within_limits(row, cell)

    def _require_within_limits(self, row: bytes, cell: NewCellFields) -> None:
        family, qualifier, value, timestamp = cell
        size = len(row) + len(qualifier) + len(value)
        if len(qualifier) > self.limits.row_key:
            raise LimitError(
                f"a qualifier of {len(qualifier)} bytes at row {row[:60]!r} exceeds the limit of "
                f"{self.limits.row_key} bytes; nothing was written"
            )
        at = f"at row {row[:60]!r}, column {family!r}:{qualifier[:60]!r} exceeds the limit of"
        advice = "nothing was written. Store large content in a blob."
        if len(value) > self.limits.cell:
            raise LimitError(f"a value of {len(value)} bytes {at} {self.limits.cell} bytes; {advice}")
        if size > self.limits.together:
            raise LimitError(
                f"a cell of {size} bytes, its key included, {at} {self.limits.together} bytes; {advice}",
                row=row,
                column=(family, qualifier),
                size=size,
            )
        if timestamp is not None and not 0 <= timestamp < MAX_TIMESTAMP:
            raise _invalid_timestamp(row, timestamp)


def _invalid_timestamp(row: bytes, timestamp: int | None) -> LimitError:
    return LimitError(f"a timestamp must be between 0 and 2**63-2, got {timestamp} (row {row[:60]!r})")


def in_order_of_last(keys: Sequence[bytes]) -> list[bytes]:
    """Return each key once, in the order of the last occurrences."""
    return list(dict.fromkeys(reversed(keys)))[::-1]


def scan_all(store: Store, table: str, scan: Scan, first: int | None = None) -> Iterator[Row]:
    """Yield all rows of a range, fetched in batches of ``scan.limit`` rows (one round trip each).

    ``first`` is the size of the first batch, for a caller that may stop early; each later batch is twice as large, at most
    ``scan.limit``.
    """
    size = scan.limit if first is None else min(first, scan.limit)
    rows = store.scan(table, scan._replace(limit=size))
    while True:
        yield from rows
        if len(rows) < size:
            return
        size = min(2 * size, scan.limit)
        last = rows[-1].key
        if scan.reverse:
            # No greatest key below a given key exists, so the batch starts at the last row again and drops it.
            batch = store.scan(table, scan._replace(start=last, limit=size + 1))
            rows = batch[1:] if batch and batch[0].key == last else batch[:size]
        else:
            rows = store.scan(table, scan._replace(start=last + b"\0", limit=size))
