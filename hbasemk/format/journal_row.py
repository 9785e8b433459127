"""The rows of the journal table: one decoder for all readers, and the cells of new rows.

A row records one revision: how it ended, what it is based on and what it changes (``docs/table-format.md``).
A cell cannot be empty, so a message that is empty or consists only of NULs is stored with one more NUL.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from hbasemk.errors import FormatError
from hbasemk.format import changes, limits, paths, revisions, schema
from hbasemk.format.branch_head import BranchClaim, BranchHead, RebaseOf
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.store.abc import Cell, Column, NewCell, Row

T = TypeVar("T")

_NUL: Final = b"\x00"
_IS_COMMITTED, _NOT_COMMITTED = (NewCell(*schema.COMMITTED, value) for value in (schema.YES, schema.NO))
_IS_ABORTED, _NOT_ABORTED = (NewCell(*schema.ABORT, value) for value in (schema.YES, schema.NO))
_COMMITTED: Final = schema.COMMITTED[1]
_ABORT: Final = schema.ABORT[1]
_FIRST_CHUNK: Final[Column] = (schema.DATA, schema.CHANGES)


class Outcome(enum.Enum):
    """The state of a revision according to its journal row.

    ``PENDING``: it is not decided. ``COMMITTED``: it is part of trunk, or of its branch. ``ABORTED``: nothing of it is visible.
    ``ABSENT``: there is no row; the revision never existed, or its writer has not created the row yet.
    """

    PENDING = "pending"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ABSENT = "absent"


class BranchView(NamedTuple):
    """The view of trunk in the first row of a branch; ``upper`` is the highest id that it can contain."""

    extent: Extent
    upper: int

    def encode(self) -> bytes:
        """Return the value of the cell."""
        floor, *above = self.extent.ids
        return revisions.deflate((floor, self.upper, *above))

    @classmethod
    def decode(cls, data: bytes) -> BranchView:
        """Decode the value of the cell; raise ValueError if it is damaged."""
        floor, upper, *above = revisions.inflate(data)
        return cls(Extent.of(floor, above), upper)


class JournalRow:
    """One row of the journal, as read. It never changes, and decodes a column when an attribute needs it.

    An attribute is None, False or empty if its column does not exist, or was not read. Attributes raise FormatError if
    the bytes in the column are damaged. A flag that is neither yes nor no counts as no; the integrity check reports it.
    """

    __slots__ = ("cells", "committed", "is_branch", "key", "revision")

    # Polls create one for each row and read two or three of its cells, so a dict of the cells would not pay.
    def __init__(self, row: Row) -> None:
        self.key, self.cells = row
        self.revision = revision = int.from_bytes(self.key, "big")
        self.is_branch = revision & revisions.BRANCH_BIT != 0
        """Whether this is the row of a branch's private revision."""
        self.committed = False
        """Whether the revision is committed on trunk. The rows of branches never are."""
        for _, qualifier, _, value in self.cells:
            if qualifier == _COMMITTED:
                self.committed = value == schema.YES
                break

    def cell(self, column: Column) -> Cell | None:
        """Return the cell of a column."""
        for cell in self.cells:
            if cell[1] == column[1]:
                return cell
        return None

    def value(self, column: Column) -> bytes | None:
        """Return the bytes in a column."""
        for _, qualifier, _, value in self.cells:
            if qualifier == column[1]:
                return value
        return None

    def damaged(self, problem: str, column: Column) -> FormatError:
        """Return the error for damaged bytes; it names the row, the column and the bytes."""
        shown = limits.shown(self.value(column))
        return schema.damaged(f"{problem}, got {shown}", schema.JOURNAL, self.key, column)

    # --- the outcome -------------------------------------------------------------------------------------

    @property
    def aborted(self) -> bool:
        """Whether the revision is aborted."""
        for _, qualifier, _, value in self.cells:
            if qualifier == _ABORT:
                return value == schema.YES
        return False

    @property
    def outcome(self) -> Outcome:
        """The outcome of the revision. Read at least the columns ``committed`` and ``abort`` for it."""
        if self.committed:
            return Outcome.COMMITTED
        if self.aborted:
            return Outcome.ABORTED
        return Outcome.PENDING if self.cells else Outcome.ABSENT

    def check_flags(self) -> None:
        """Raise FormatError if a flag of a pending revision is neither yes nor no: then nobody can decide the revision."""
        if self.outcome is Outcome.PENDING:
            for column in (schema.COMMITTED, schema.ABORT):
                if self.value(column) != schema.NO:
                    raise self.damaged(f"the flag {column[1].decode()!r} of a revision must be yes or no", column)

    @property
    def swept(self) -> bytes | None:
        """The mark that the cells of the revision are deleted: ``SWEPT_CLEAN`` or ``SWEPT_IN_DOUBT``."""
        return self.value(schema.SWEPT)

    # --- the commit --------------------------------------------------------------------------------------

    @property
    def nonce(self) -> bytes | None:
        """The random bytes by which a writer recognizes its own row."""
        return self.value(schema.NONCE)

    @property
    def created_ms(self) -> int | None:
        """The store's timestamp of the creation of the row, in ms since 1970.

        None also for a row that another instance created as aborted.
        """
        cell = self.cell(schema.NONCE)
        return None if cell is None else cell.timestamp

    @property
    def base(self) -> int | None:
        """The trunk revision on which the revision is based."""
        data = self.value(schema.BASE)
        if data is None:
            return None
        base = int.from_bytes(data, "big")
        if len(data) != 8 or base > revisions.MAX_REVISION:
            raise self.damaged("the base of a revision must be one revision id of 8 bytes", schema.BASE)
        return base

    @property
    def message(self) -> str:
        """The message of the commit."""
        data = self.value(schema.MESSAGE)
        try:
            return "" if data is None else paths.decode(data if data.strip(_NUL) else data[1:])
        except FormatError as error:
            raise self.damaged("the message of a revision must be UTF-8", schema.MESSAGE) from error

    @property
    def has_changes(self) -> bool:
        """Whether the row has the first chunk of the changes, which the writer writes last, before any cell of a node."""
        return self.cell(_FIRST_CHUNK) is not None

    @property
    def changes(self) -> Sequence[RowChange]:
        """The changes of the revision; empty without the first chunk. Each access decodes them."""
        return changes.decode(self.cells, self.key) if self.has_changes else []

    @property
    def required_changes(self) -> Sequence[RowChange]:
        """The changes of a revision that has committed, as ``changes.parse_shared``; missing chunks are damage too."""
        return changes.decode(self.cells, self.key, changes.parse_shared)

    # --- branches ----------------------------------------------------------------------------------------

    @property
    def branch(self) -> Sequence[int] | None:
        """The first revision of the branch, followed by the branch's revisions up to this one."""
        data = self.value(schema.BRANCH)
        if data is None:
            return None
        try:
            root, *own = revisions.from_bytes(data)
            if not own:
                raise ValueError("no revisions")
        except ValueError:
            expected = "a branch revision must list its branch's revisions, 8 bytes each"
            raise self.damaged(expected, schema.BRANCH) from None
        return (root, *own)

    @property
    def branch_root(self) -> int | None:
        """The first revision of the branch. Unlike :attr:`branch`, it does not decode the list of a long branch."""
        data = self.value(schema.BRANCH)
        return None if data is None else int.from_bytes(data[:8], "big")

    @property
    def branch_view(self) -> BranchView | None:
        """The view of trunk; only the first row of a branch has it."""
        data = self.value(schema.BRANCH_VIEW)
        try:
            return None if data is None else BranchView.decode(data)
        except ValueError:
            raise self.damaged(
                "the view of a branch must be a deflated list of at least two revision ids", schema.BRANCH_VIEW
            ) from None

    @property
    def branch_head(self) -> BranchHead | None:
        """The head of the branch; only the first row of a branch has it."""
        expected = "the head of a branch must be revision ids after at most one letter"
        return self._decoded(schema.BRANCH_HEAD, BranchHead.decode, expected)

    @property
    def branch_claim(self) -> BranchClaim | None:
        """The claim on the adjusts of the branch; only the first row of a branch has it."""
        return self._decoded(schema.BRANCH_CLAIM, BranchClaim.decode, "the claim on a branch must be two revision ids")

    @property
    def rebase_of(self) -> RebaseOf | None:
        """The branch that this one continues after a rebase in steps; only the first row of a branch has it."""
        expected = "the branch that a branch continues must be two revision ids"
        return self._decoded(schema.REBASE_OF, RebaseOf.decode, expected)

    def _decoded(self, column: Column, decode: Callable[[bytes], T | None], expected: str) -> T | None:
        """Decode a column, if it was read; raise FormatError, which says what was ``expected``, if ``decode`` returns None."""
        data = self.value(column)
        found = None if data is None else decode(data)
        if data is not None and found is None:
            raise self.damaged(expected, column)
        return found


def decode(rows: Iterable[Row]) -> Iterator[JournalRow]:
    """Decode the rows of a scan. Leave out rows whose key is not a revision id: the integrity check reports them."""
    for row in rows:
        key = row[0]
        if len(key) == 8 and key[0] < 0x80:
            yield JournalRow(row)


def is_key(key: bytes) -> bool:
    """Return whether the key of a row is a revision id."""
    return len(key) == 8 and key[0] < 0x80


def begin(nonce: bytes, base: int, message: str, outcome: Outcome = Outcome.PENDING) -> list[NewCell]:
    """Return the cells of the row of every new revision, on trunk and on branches."""
    return [
        _IS_COMMITTED if outcome is Outcome.COMMITTED else _NOT_COMMITTED,
        _IS_ABORTED if outcome is Outcome.ABORTED else _NOT_ABORTED,
        NewCell(*schema.NONCE, nonce),
        NewCell(*schema.BASE, schema.revision_key(base)),
        NewCell(*schema.MESSAGE, encode_message(message)),
    ]


def encode_message(message: str) -> bytes:
    """Return the stored bytes of a message."""
    data = paths.encode(limits.check_message(message))
    return data if data.strip(_NUL) else data + _NUL
