"""The contract between the kernel and the place where cells live.

A store has tables; a table has rows in the order of their keys; a row has cells, each at a column
(family, qualifier) and a timestamp. Every abstract call is one round trip. Rows are atomic, batches are not:
a reader may see some rows of a batch written and others not yet. ``hbasemk.testing.store`` holds the
conformance suite that says the same in tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import LimitError

Column = tuple[bytes, bytes]
"""Column family and qualifier."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""Exclusive upper end of an open time range; no cell may carry it."""

ALL_VERSIONS: Final = 2**31 - 1

FileIdentity = tuple[int, int]
"""Device and inode of a file: equal for all its names, hard links included."""


class Cell(NamedTuple):
    """One version of one column."""

    family: bytes
    qualifier: bytes
    timestamp: int
    value: bytes


class Row(NamedTuple):
    """A row as read: cells ordered by family, qualifier, and within a column newest first.

    A row that does not exist, or of which nothing was asked that exists, has no cells.
    """

    key: bytes
    cells: Sequence[Cell]


class Page(NamedTuple):
    """A part of one wide family: at most ``limit`` cells of qualifiers greater than ``after``.

    ``after`` None starts at the first column; ``limit`` counts cells, so ask for one version.
    """

    family: bytes
    after: bytes | None
    limit: int


class Get(NamedTuple):
    """What to read of one row.

    ``columns`` names exact columns, ``families`` whole families, ``page`` a part of one family; give at most one
    of the three (none of them: everything). ``since`` (inclusive) and ``before`` (exclusive) bound the
    timestamps; ``versions`` counts the newest versions per column inside that range.
    """

    row: bytes
    columns: Sequence[Column] | None = None
    families: Sequence[bytes] | None = None
    page: Page | None = None
    since: int = 0
    before: int = MAX_TIMESTAMP
    versions: int = 1


class Scan(NamedTuple):
    """A range of rows in key order.

    Forward: from ``start`` (inclusive) up to ``stop`` (exclusive). Reverse: from ``start``, now the *higher* key,
    inclusive, down to ``stop``, exclusive. None leaves an end open. ``limit`` bounds the rows of one batch;
    the other fields are those of :class:`Get`. Rows without a matching cell do not come back.
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


class NewCell(NamedTuple):
    """A cell to write; ``timestamp`` None takes the server's time in ms since 1970."""

    family: bytes
    qualifier: bytes
    value: bytes
    timestamp: int | None = None


class Put(NamedTuple):
    """Cells to write into one row, at once."""

    row: bytes
    cells: Sequence[NewCell]


class CellVersion(NamedTuple):
    """One exact version of one column, to be deleted."""

    family: bytes
    qualifier: bytes
    timestamp: int


class Delete(NamedTuple):
    """Exact cell versions of one row to delete; older and newer versions stay."""

    row: bytes
    cells: Sequence[CellVersion]


class Decision(NamedTuple):
    """A compare-and-set: if ``column`` of the put's row is ``expected``, write ``put``."""

    table: str
    column: Column
    expected: bytes
    put: Put


class Table(NamedTuple):
    """A table as the kernel wants it. ``versions`` says how many versions of a cell each family keeps."""

    name: str
    families: Sequence[bytes]
    versions: int


class Limits(NamedTuple):
    """What a store can keep, in bytes."""

    row_key: int = 32_767
    cell: int = 10 * 1024 * 1024 - 1024


class Store(ABC):
    """The calls that a backend gives; see the module's docstring for what they promise.

    Every call may raise :class:`~hbasemk.errors.StoreError` in one of its kinds (not applied, unknown, unusable),
    :class:`~hbasemk.errors.LimitError` before anything was written, and
    :class:`~hbasemk.errors.ClosedError` after :meth:`close`. A store may be used by many threads.
    """

    limits: Limits = Limits()

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the cells live, for messages; contains no secrets."""

    @property
    def supports_parallel_calls(self) -> bool:
        """Whether two calls made at the same time take less long than one after the other."""
        return False

    def clock_ms(self) -> int | None:
        """The store's clock in ms since 1970, where reading it takes no round trip; None elsewhere.

        Timestamps that the store gives to cells come from this clock.
        """
        return None

    @property
    def batch_rows(self) -> int:
        """How many rows the kernel should put into one batch at most."""
        return 1000

    @property
    def batch_bytes(self) -> int:
        """How many bytes of keys, names and values the kernel should put into one call at most.

        The size is counted without the overhead of messages. One cell may be larger, and then travels alone.
        """
        return 16 * 1024 * 1024

    @property
    def supports_transactions(self) -> bool:
        """Whether there is :meth:`write_if`."""
        return False

    @property
    def read_only(self) -> bool:
        """Whether every write would fail because this process may only read: then nothing is written in the background."""
        return False

    def files(self) -> Mapping[FileIdentity, str]:
        """Return the local files that hold this store's data now, by device and inode, with their paths.

        Empty for a store without local files. A program that opens or closes one of these files in a process that
        uses the store can destroy data (docs/operations.md), so code that reads files of users skips them. Ask
        again for each file: they come and go while others open and close the store. Opens no file.
        """
        return {}

    @abstractmethod
    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create what is missing; idempotent, safe when several do it at once; then :meth:`verify`."""

    @abstractmethod
    def verify(self, tables: Sequence[Table]) -> None:
        """Check that all tables are there with their settings.

        Raises StoreUnusableError naming the table and the setting that differs, or saying that it is missing.
        """

    @abstractmethod
    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove these tables with all they hold; those that are missing are no error."""

    @abstractmethod
    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """One row per get, in the order of ``gets``; each row is read atomically. One round trip."""

    @abstractmethod
    def scan(self, table: str, scan: Scan) -> list[Row]:
        """The first ``scan.limit`` rows of the range in its direction. One round trip."""

    @abstractmethod
    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write cells; atomic per row. One round trip.

        ``durable=False`` allows the store to make the cells durable only together with the next durable call, in
        order: a crash may then lose them, but never keep a later durable call without them.
        """

    @abstractmethod
    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Write ``put`` if the newest value of ``column`` in the put's row is ``expected``; atomic on the row.

        ``expected`` None means that the column must be absent. Returns whether it was applied. Values that are
        compared must not be empty (HBase takes an empty value for an absent one).
        """

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Sequence[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
    ) -> bool | None:
        """At one moment: read ``gets``, and if ``judge`` finds the rows good and ``decision`` applies, write ``puts`` and it.

        ``also`` names rows of other tables; they follow the rows of ``gets`` in what ``judge`` receives.

        Durable; one round trip. Returns True when all was written; None when ``judge`` said no and False when the
        compare-and-set found something else, and then nothing was. ``judge`` may be asked several times and must not call
        the store. Only where :attr:`supports_transactions` says so.
        """
        raise NotImplementedError(f"the store at {self.location} cannot do several calls at one moment")

    @abstractmethod
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions; versions that are not there are no error. One round trip."""

    @abstractmethod
    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows, for garbage collection only. One round trip."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; idempotent. Any later call raises ClosedError."""

    def check_puts(self, puts: Sequence[Put]) -> None:
        """Refuse what no store can keep, before anything is sent; implementations call it first.

        Raises LimitError naming the row and column.
        """
        longest_key, longest_value = self.limits
        for row, cells in puts:
            if not row or len(row) > longest_key:
                raise LimitError(f"a row key has {len(row)} bytes; 1 to {longest_key} are possible (row {row[:60]!r}…)")
            if not cells:
                raise LimitError(f"a put without cells for row {row[:60]!r}; nothing was written")
            for cell in cells:
                _, qualifier, value, timestamp = cell
                if (
                    len(value) > longest_value
                    or len(qualifier) > longest_key
                    or (timestamp is not None and not 0 <= timestamp < MAX_TIMESTAMP)
                ):
                    raise self._refused(row, cell)

    def _refused(self, row: bytes, cell: NewCell) -> LimitError:
        family, qualifier, value, timestamp = cell
        if len(value) > self.limits.cell:
            return LimitError(
                f"a value of {len(value)} bytes at row {row[:60]!r}, column {family!r}:{qualifier[:60]!r} "
                f"is over the limit of {self.limits.cell} bytes; nothing was written. "
                "Keep large content in a blob."
            )
        if len(qualifier) > self.limits.row_key:
            return LimitError(
                f"a qualifier of {len(qualifier)} bytes at row {row[:60]!r} is over the limit of "
                f"{self.limits.row_key} bytes; nothing was written"
            )
        return LimitError(f"timestamp {timestamp} is outside 0 to 2**63-2 (row {row[:60]!r})")


def scan_all(store: Store, table: str, scan: Scan) -> Iterator[Row]:
    """All rows of a range, fetched in batches of ``scan.limit`` rows (one round trip each)."""
    rows = store.scan(table, scan)
    while True:
        yield from rows
        if len(rows) < scan.limit:
            return
        last = rows[-1].key
        if scan.reverse:
            # The row that was last comes once more and is dropped: there is no greatest key below a given one.
            batch = store.scan(table, scan._replace(start=last, limit=scan.limit + 1))
            rows = batch[1:] if batch and batch[0].key == last else batch[: scan.limit]
        else:
            rows = store.scan(table, scan._replace(start=last + b"\0"))
