"""The decoder of journal rows: every attribute of a whole row, of an incomplete one, and of one with damaged bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from hbasemk import FormatError
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.branch_head import BranchHead
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import BranchView, JournalRow, Outcome
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import Cell, Column, NewCell, Put, Row
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World, open_instance

REVISION = revisions.pack(1000, 7, 3)
CHANGES: Column = (schema.DATA, schema.CHANGES)


def row_of(*cells: NewCell, revision: int = REVISION) -> JournalRow:
    read = sorted(Cell(cell.family, cell.qualifier, 5, cell.value) for cell in cells)
    return JournalRow(Row(schema.revision_key(revision), read))


def test_a_whole_row_of_trunk() -> None:
    touched = [RowChange("/a", changes.ADDED, ["p"])]
    row = row_of(*journal_row.begin(b"n" * 16, 9, "why"), *changes.encode(touched))
    assert (row.revision, row.outcome, row.swept, row.is_branch) == (REVISION, Outcome.PENDING, None, False)
    assert (row.nonce, row.created_ms, row.base, row.message) == (b"n" * 16, 5, 9, "why")
    assert (row.has_changes, row.changes) == (True, touched)
    assert (row.branch, row.branch_root, row.branch_view, row.branch_head) == (None, None, None, None)


def test_the_first_row_of_a_branch() -> None:
    root = REVISION | revisions.BRANCH_BIT
    view, head = BranchView(Extent(3, (5, 9)), 9), BranchHead(b"m", root, 12)
    row = row_of(
        *journal_row.begin(b"n" * 16, 9, ""),
        NewCell(*schema.BRANCH, revisions.to_bytes([root, root])),
        NewCell(*schema.BRANCH_VIEW, view.encode()),
        NewCell(*schema.BRANCH_HEAD, head.encode()),
        revision=root,
    )
    assert (row.branch, row.branch_root, row.is_branch) == ((root, root), root, True)
    assert (row.branch_view, row.branch_head) == (view, head)


def test_the_bytes_of_the_view_of_a_branch() -> None:
    plain = bytes.fromhex("0000000000000011 0000000000000033 0000000000000022 0000000000000033")
    stored = b"x\x01c`\x00\x03A\x08\xc5`\x0c\xa5\x95`|\x00\x06\x91\x00\x9a"
    view = BranchView(Extent.of(0x11, (0x33, 0x22)), 0x33)
    # Other builds of zlib may deflate to other bytes, which mean the same.
    assert zlib.decompress(view.encode()) == plain
    assert BranchView.decode(stored) == view


def test_a_row_without_cells_is_absent_and_has_nothing() -> None:
    row = row_of()
    assert (row.outcome, row.committed, row.aborted, row.swept) == (Outcome.ABSENT, False, False, None)
    assert (row.nonce, row.created_ms, row.base, row.message) == (None, None, None, "")
    assert (row.has_changes, row.changes, row.branch, row.branch_view) == (False, [], None, None)


@pytest.mark.parametrize(
    ("committed", "abort", "outcome"),
    [
        (schema.NO, schema.NO, Outcome.PENDING),
        (schema.YES, schema.NO, Outcome.COMMITTED),
        (schema.NO, schema.YES, Outcome.ABORTED),
        (b"\x05", b"yes", Outcome.PENDING),
    ],
)
def test_the_flags_give_the_outcome(committed: bytes, abort: bytes, outcome: Outcome) -> None:
    row = row_of(NewCell(*schema.COMMITTED, committed), NewCell(*schema.ABORT, abort))
    assert row.outcome is outcome
    assert row.committed == (outcome is Outcome.COMMITTED)
    assert row.aborted == (outcome is Outcome.ABORTED)


def test_changes_without_their_first_chunk_are_not_there_yet() -> None:
    further = NewCell(schema.DATA, changes.chunk_qualifier(1), b"rest")
    assert row_of(further).changes == []
    with pytest.raises(FormatError, match="changes"):
        _ = row_of(further).required_changes


@pytest.mark.parametrize(
    ("column", "value", "read"),
    [
        (schema.BASE, b"\x01\x02\x03", lambda row: row.base),
        (schema.BASE, b"\xff" * 8, lambda row: row.base),
        (schema.BASE, bytes(16), lambda row: row.base),
        (schema.MESSAGE, b"\xff\xfe", lambda row: row.message),
        (CHANGES, b"\x01[[", lambda row: row.changes),
        (schema.BRANCH, bytes(8), lambda row: row.branch),
        (schema.BRANCH, b"\x01" * 20, lambda row: row.branch),
        (schema.BRANCH, b"\x01" * 8 + b"\xff" * 8, lambda row: row.branch),
        (schema.BRANCH_VIEW, b"what", lambda row: row.branch_view),
        (schema.BRANCH_VIEW, zlib.compress(bytes(8)), lambda row: row.branch_view),
        (schema.BRANCH_VIEW, zlib.compress(b"\xff" * 16), lambda row: row.branch_view),
        (schema.BRANCH_HEAD, b"x", lambda row: row.branch_head),
        (schema.BRANCH_HEAD, b"m" + bytes(9), lambda row: row.branch_head),
        (schema.BRANCH_CLAIM, bytes(8), lambda row: row.branch_claim),
        (schema.BRANCH_CLAIM, b"\xff" * 16, lambda row: row.branch_claim),
        (schema.BRANCH_CLAIM, b"claim", lambda row: row.branch_claim),
        (schema.REBASE_OF, bytes(18), lambda row: row.rebase_of),
    ],
)
def test_damaged_bytes_are_named_with_their_row_and_column(
    column: Column, value: bytes, read: Callable[[JournalRow], object]
) -> None:
    with pytest.raises(FormatError) as caught:
        read(row_of(NewCell(*column, value)))
    error = caught.value
    assert (error.table, error.row, error.column) == (schema.JOURNAL, schema.revision_key(REVISION), column)
    assert repr(value) in str(error)


@pytest.mark.damages("a row whose key is not a revision id")
@pytest.mark.parametrize("flag", [schema.NO, schema.YES], ids=["pending", "committed"])
@pytest.mark.parametrize("length", [7, 9])
def test_rows_that_are_not_revisions_stop_no_poll_and_no_watermark(world: World, length: int, flag: bytes) -> None:
    store = MemoryStore(world.clock)
    writer, reader = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    first = writer.commit(lambda _: OperationList([AddNode("/a", {})]), "", retry_timeout=1, max_poll_age=0)
    key = (schema.revision_key(first + 1) + b"\x01")[:length]
    key = key if length == 9 else key[:-1] + bytes([key[-1] + 1])
    store.write(schema.JOURNAL, [Put(key, [NewCell(*schema.COMMITTED, flag), NewCell(*schema.ABORT, schema.NO)])])
    world.advance(0.001)
    last = writer.commit(lambda _: OperationList([AddNode("/b", {})]), "", retry_timeout=1, max_poll_age=0)
    assert reader.poll() == [first, last]
    assert reader.journal.pending == frozenset()
    world.advance(120)
    writer.commit(lambda _: OperationList([AddNode("/c", {})]), "", retry_timeout=1, max_poll_age=0)
    reader.poll()
    watermark = reader.recovery.advance()
    assert watermark is not None
    assert watermark.revision >= last
    assert reader.recovery.recover_late() == []
    assert reader.journal.committed(first - 1, last) == ([first, last], last)
