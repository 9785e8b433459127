"""Damage of the ``journal`` table."""

from __future__ import annotations

from hbasemk.check import problem as kinds
from hbasemk.format import revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.store.abc import Column
from tests.support.corruptions.case import Where, case, text
from tests.support.tables import Tables


@case(kinds.JOURNAL_KEY)
def a_journal_row_whose_key_is_not_a_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.JOURNAL, b"\x00" + path.encode()[-2:], (schema.COMMITTED, schema.NO, None))
    return "", (b"\x00" + path.encode()[-2:]).hex()


@case(kinds.UNANNOUNCED, repaired=True)
def a_committed_revision_that_is_not_announced(tables: Tables, path: str) -> Where:
    revision = tables.other().clock.next(tables.instance.head().upper)
    tables.row(revision, committed=True)
    return "", text(revision)


@case(kinds.BELOW_WATERMARK)
def a_first_revision_that_seems_to_be_pending(tables: Tables, path: str) -> Where:
    first = tables.instance.settings.root_revision
    tables.journal(first, schema.COMMITTED, schema.NO)
    return "/", text(first)


@case(kinds.INCOMPLETE)
def a_journal_row_without_its_nonce(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.remove(schema.JOURNAL, schema.revision_key(revision), schema.NONCE)
    return "", text(revision)


@case(kinds.INCOMPLETE, moves_watermark=True)
def a_journal_row_without_its_changes(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.remove(schema.JOURNAL, schema.revision_key(revision), (schema.DATA, schema.CHANGES))
    tables.watermark()
    return "", text(revision)


@case(kinds.INCOMPLETE)
def a_journal_row_without_its_abort_flag(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.remove(schema.JOURNAL, schema.revision_key(revision), schema.ABORT)
    return "", text(revision)


@case(kinds.JOURNAL_VALUE)
def a_flag_that_is_not_a_boolean(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, schema.ABORT, b"\x05")
    return "", text(revision)


@case(kinds.JOURNAL_VALUE)
def a_base_of_three_bytes(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, schema.BASE, b"\x01\x02\x03")
    return "", text(revision)


@case(kinds.BOTH)
def committed_and_aborted(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, schema.ABORT, schema.YES)
    return "", text(revision)


@case(kinds.CHANGES, moves_watermark=True)
def changes_that_cannot_be_read(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, (schema.DATA, schema.CHANGES), b"\x01[[")
    tables.watermark()
    return "", text(revision)


@case(kinds.CHANGES, moves_watermark=True)
def changes_of_another_form(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, (schema.DATA, schema.CHANGES), b'\x01[["/a","x",[1]]]')
    tables.watermark()
    return "", text(revision)


@case(kinds.CHANGES)
def changes_of_which_a_part_is_missing(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, (schema.DATA, schema.CHANGES + b"\x00\x02"), b" ")
    return "", text(revision)


@case(kinds.BASE)
def a_base_that_does_not_exist(tables: Tables, path: str) -> Where:
    before = tables.stranger()
    tables.wait(0.01)
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, schema.BASE, schema.revision_key(before))
    return "", text(revision)


@case(kinds.BASE)
def a_base_that_is_not_lower(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    later = tables.commit(SetProperty(path, "p", 1))
    tables.journal(revision, schema.BASE, schema.revision_key(later))
    return "", text(revision)


@case(kinds.BASE)
def a_base_that_was_aborted(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    base = tables.dead_writer(aborted=True, swept=schema.SWEPT_CLEAN)
    tables.wait(0.01)
    revision = tables.commit(SetProperty(path, "p", 1))
    tables.journal(revision, schema.BASE, schema.revision_key(base))
    return "", text(revision)


@case(kinds.OUTSIDE_LEASE)
def an_id_of_a_machine_that_never_held_a_lease(tables: Tables, path: str) -> Where:
    revision = tables.stranger()
    tables.row(revision, aborted=True, swept=schema.SWEPT_CLEAN)
    return "", text(revision)


@case(kinds.OUTSIDE_LEASE)
def an_id_after_the_end_of_its_lease(tables: Tables, path: str) -> Where:
    other = tables.other()
    revision = revisions.pack(other.lease.end, other.lease.machine, 0)
    tables.row(revision, aborted=True, swept=schema.SWEPT_CLEAN)
    return "", text(revision)


@case(kinds.OFF_CLOCK)
def an_id_ahead_of_the_server(tables: Tables, path: str) -> Where:
    other = tables.other()
    revision = revisions.pack(other.lease.end - 1, other.lease.machine, 0)
    tables.row(revision, aborted=True, swept=schema.SWEPT_CLEAN)
    return "", text(revision)


@case(kinds.DEAD, repaired=True)
def a_revision_that_its_writer_left_pending(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    return "", text(tables.dead_writer(RowChange(path, "changed", ["p"])))


@case(kinds.UNSWEPT, repaired=True)
def a_revision_that_its_writer_left_unswept(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    return "", text(tables.dead_writer(aborted=True))


@case(kinds.SWEPT_WRONGLY)
def a_committed_revision_that_says_that_it_is_swept(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.journal(revision, schema.SWEPT, schema.SWEPT_CLEAN)
    return "", text(revision)


@case(kinds.BELOW_WATERMARK, repaired=True, moves_watermark=True)
def a_pending_revision_below_the_watermark(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"]))
    tables.wait(0.01)
    tables.commit(SetProperty(path, "q", 1))
    tables.watermark()
    return "", text(revision)


@case(kinds.BELOW_WATERMARK, repaired=True, moves_watermark=True)
def a_cell_of_a_pending_revision_below_the_watermark(tables: Tables, path: str) -> Where:
    return path, a_pending_revision_below_the_watermark(tables, path)[1]


@case(kinds.BELOW_WATERMARK, repaired=True, moves_watermark=True)
def an_unswept_revision_below_the_watermark(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"]), aborted=True)
    tables.wait(0.01)
    tables.commit(SetProperty(path, "q", 1))
    tables.watermark()
    return "", text(revision)


@case(kinds.NOT_HIDDEN, repaired=True, moves_watermark=True)
def a_revision_in_doubt_that_is_not_hidden(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(aborted=True, swept=schema.SWEPT_IN_DOUBT)
    tables.wait(0.01)
    tables.commit(SetProperty(path, "q", 1))
    tables.watermark()
    return "", text(revision)


@case(kinds.HIDDEN, repaired=True, moves_watermark=True)
def a_committed_revision_that_is_hidden(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.commit(SetProperty(path, "p", 2))
    tables.watermark(hide=[revision])
    return "", text(revision)


def branch_with(tables: Tables, path: str, column: Column, data: bytes) -> Where:
    """Make a branch, and replace a column of its first row."""
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    tables.journal(root, column, data)
    return "", text(root)


@case(kinds.BRANCH)
def a_branch_whose_view_cannot_be_read(tables: Tables, path: str) -> Where:
    return branch_with(tables, path, schema.BRANCH_VIEW, b"what")


@case(kinds.BRANCH)
def a_branch_revision_without_its_branch(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.branch()
    other = schema.revision_key(revisions.pack(revisions.ms_of(revision) - 1, 0xEFFF, revisions.BRANCH_BIT))
    tables.journal(revision, schema.BRANCH, other + schema.revision_key(revision))
    return "", text(revision)


@case(kinds.BRANCH_HEAD)
def a_branch_whose_head_is_unknown(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    tables.journal(root, schema.BRANCH_HEAD, schema.revision_key(root + 1))
    return "", text(root)


@case(kinds.BRANCH_HEAD)
def a_branch_claim_that_cannot_be_read(tables: Tables, path: str) -> Where:
    return branch_with(tables, path, schema.BRANCH_CLAIM, b"claim")


@case(kinds.BRANCH_HEAD)
def a_branch_that_continues_something_unreadable(tables: Tables, path: str) -> Where:
    return branch_with(tables, path, schema.REBASE_OF, b"old")


@case(kinds.BRANCH_HEAD)
def a_branch_head_that_cannot_be_read(tables: Tables, path: str) -> Where:
    return branch_with(tables, path, schema.BRANCH_HEAD, b"x")


@case(kinds.ABORTED, repaired=True)
def cells_of_a_swept_branch(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    revision = tables.commit_on_branch(root, AddNode(f"{path}/x", {"p": 1}))
    tables.journal(root, schema.BRANCH_HEAD, b"a")
    for one in (root, revision):
        tables.journal(one, schema.ABORT, schema.YES)
    return f"{path}/x", text(revision)
