"""Every kind of damage that the integrity check knows, revision on purpose by one function each, on its own node.

A function damages the tables and returns the path and the revision that the problem must carry.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.format.values import BlobRef
from hbasemk.kernel.blobs import CHUNK, DATA, LENGTH
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.reading.child_count import Memo
from tests.support.tables import Tables

Where = tuple[str, str]
Damage = Callable[[Tables, str], Where]
text = revisions.to_text


@dataclass(frozen=True)
class Case:
    """One way to damage a repository: the kind that the check reports, and whether a repair removes all of it.

    ``alone``: it hides other damage. ``moves_watermark``: it moves the watermark, below which the check reports other kinds.
    """

    kind: str
    damage: Damage
    repaired: bool
    alone: bool
    moves_watermark: bool


CASES: Final[dict[str, Case]] = {}


def case(
    kind: str, *, repaired: bool = False, alone: bool = False, moves_watermark: bool = False
) -> Callable[[Damage], Damage]:
    def add(damage: Damage) -> Damage:
        CASES[damage.__name__] = Case(kind, damage, repaired, alone, moves_watermark)
        return damage

    return add


# --- nodes -----------------------------------------------------------------------------------------------


@case(kinds.ROW_KEY)
def a_row_key_with_another_depth(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    key = b"\x00\x07" + paths.encode(path)
    tables.put(schema.NODES, key, (schema.LAST_REVISION, schema.TOUCHED, revision))
    return path, ""


@case(kinds.ROW_KEY)
def a_row_key_that_is_not_text(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    key = paths.key(path) + b"\xff"
    tables.put(schema.NODES, key, (schema.LAST_REVISION, schema.TOUCHED, revision))
    return ascii(key)[2:-1], ""


@case(kinds.ROW_KEY)
def a_row_key_that_is_not_a_path(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    key = (3).to_bytes(2, "big") + paths.encode(path) + b"//x"
    tables.put(schema.NODES, key, (schema.LAST_REVISION, schema.TOUCHED, revision))
    return ascii(key)[2:-1], ""


@case(kinds.COLUMN)
def a_column_that_nodes_do_not_have(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.node(path, revision, ((schema.DATA, b"\x00other"), b"\x01"))
    return path, text(revision)


@case(kinds.COLUMN)
def a_child_with_an_impossible_name(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.node(path, revision, ((schema.CHILDREN, b"a/b"), schema.PRESENT))
    return path, text(revision)


@case(kinds.COLUMN)
def a_property_with_an_impossible_name(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.node(path, revision, ((schema.DATA, b"\x01a\xff"), b"\x04"))
    return path, text(revision)


@case(kinds.VALUE)
def a_property_that_cannot_be_decoded(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1}))
    tables.node(path, revision, (schema.property_column("p"), b"\x63what"))
    return path, text(revision)


@case(kinds.VALUE)
def an_old_version_that_cannot_be_decoded(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1}))
    for number in range(40):
        tables.commit(SetProperty(path, "p", number + 2))
    tables.node(path, revision, (schema.property_column("p"), b"\x03short"))
    return path, text(revision)


@case(kinds.VALUE)
def a_child_cell_with_an_unknown_value(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit(AddNode(f"{path}/x", {}))
    tables.node(path, revision, (schema.child_column("x"), b"\x07"))
    return path, text(revision)


@case(kinds.LIFE)
def a_life_without_its_beginning(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1}))
    tables.remove(schema.NODES, paths.key(path), schema.DELETED, revision)
    return path, text(revision)


@case(kinds.LIFE)
def a_change_of_a_removed_node(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    tables.commit(RemoveNode(path))
    revision = tables.forge(RowChange(path, "changed", ["p"]))
    return path, text(revision)


@case(kinds.NO_LAST_REVISION)
def a_revision_without_last_revision(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1}))
    tables.remove(schema.NODES, paths.key(path), schema.LAST_REVISION, revision)
    return path, text(revision)


@case(kinds.MISSING)
def a_lost_property_cell(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1, "q": 2}))
    tables.remove(schema.NODES, paths.key(path), schema.property_column("p"), revision)
    return path, text(revision)


@case(kinds.MISSING)
def a_lost_row(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit(AddNode(f"{path}/x", {"p": 1}))
    for column in (schema.DELETED, schema.LAST_REVISION, schema.property_column("p")):
        tables.remove(schema.NODES, paths.key(f"{path}/x"), column, revision)
    return f"{path}/x", text(revision)


@case(kinds.MISSING)
def a_lost_cell_of_a_branch(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit_on_branch(tables.branch(), AddNode(f"{path}/x", {"p": 1}))
    tables.remove(schema.NODES, paths.key(f"{path}/x"), schema.property_column("p"), revision)
    return f"{path}/x", text(revision)


@case(kinds.UNDECLARED)
def a_property_that_its_revision_does_not_declare(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {"p": 1}))
    tables.node(path, revision, (schema.property_column("q"), b"\x04"))
    return path, text(revision)


@case(kinds.UNDECLARED)
def a_row_that_its_revision_does_not_declare(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit(AddNode(f"{path}/x", {}))
    tables.node(f"{path}/y", revision, (schema.DELETED, schema.ALIVE))
    return f"{path}/y", text(revision)


@case(kinds.UNDECLARED)
def a_child_that_its_revision_declares_differently(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit(AddNode(f"{path}/x", {}))
    tables.node(path, revision, (schema.child_column("x"), schema.GONE))
    return path, text(revision)


@case(kinds.NO_ROW, repaired=True)
def cells_without_a_journal_row(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.stranger()
    tables.node(path, revision, (schema.property_column("p"), b"\x04"), (schema.child_column("x"), schema.PRESENT))
    return path, text(revision)


@case(kinds.NO_ROW, repaired=True)
def a_row_of_child_cells_only(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.stranger()
    tables.put(schema.NODES, paths.key(f"{path}/x/y"), (schema.child_column("z"), schema.PRESENT, revision))
    return f"{path}/x/y", text(revision)


@case(kinds.ABORTED, repaired=True)
def a_row_of_child_cells_only_of_an_aborted_revision(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.dead_writer(aborted=True)
    tables.put(schema.NODES, paths.key(f"{path}/x"), (schema.child_column("y"), schema.GONE, revision))
    return f"{path}/x", text(revision)


@case(kinds.ROW_KEY)
def a_row_of_child_cells_only_whose_key_is_not_a_path(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    key = (9).to_bytes(2, "big") + paths.encode(path) + b"/x"
    tables.put(schema.NODES, key, (schema.child_column("y"), schema.PRESENT, revision))
    return f"{path}/x", ""


@case(kinds.NO_ROW, moves_watermark=True)
def cells_without_a_journal_row_below_the_watermark(tables: Tables, path: str) -> Where:
    revision = tables.stranger()
    tables.wait(0.01)
    tables.commit(AddNode(path, {"p": 1}))
    tables.node(path, revision, (schema.property_column("p"), b"\x04"))
    tables.watermark()
    return path, text(revision)


@case(kinds.ABORTED, repaired=True)
def cells_of_an_aborted_revision(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"], ["x"]), aborted=True)
    return path, text(revision)


@case(kinds.SWEPT, repaired=True)
def cells_of_a_revision_that_says_they_are_deleted(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"]), aborted=True, swept=schema.SWEPT_CLEAN)
    return path, text(revision)


@case(kinds.LATE, repaired=True)
def cells_that_a_paused_writer_brought_late(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"]), aborted=True, swept=schema.SWEPT_IN_DOUBT)
    return path, text(revision)


@case(kinds.ABORTED, repaired=True, moves_watermark=True)
def visible_cells_of_an_aborted_revision(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.dead_writer(RowChange(path, "changed", ["p"]), aborted=True, swept=schema.SWEPT_IN_DOUBT)
    tables.wait(0.01)
    tables.commit(SetProperty(path, "q", 1))
    tables.watermark()
    return path, text(revision)


@case(kinds.DANGLING, repaired=True)
def a_child_entry_of_a_missing_node(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.forge(RowChange(path, "changed", (), ["x"]))
    return f"{path}/x", text(revision)


@case(kinds.ORPHAN, repaired=True)
def a_node_whose_parent_is_missing(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.forge(RowChange(f"{path}/none/below/x", "added", ["p"]))
    return f"{path}/none/below/x", text(revision)


@case(kinds.ORPHAN, repaired=True)
def a_node_whose_parent_was_removed(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}), AddNode(f"{path}/gone", {}), AddNode(f"{path}/gone/x", {}))
    revision = tables.commit(AddNode(f"{path}/gone/y", {"p": 1}))
    tables.forge(
        RowChange(path, "changed", (), (), ["gone"]),
        RowChange(f"{path}/gone", "removed"),
        RowChange(f"{path}/gone/x", "removed"),
    )
    return f"{path}/gone/y", text(revision)


@case(kinds.UNLISTED, repaired=True)
def a_node_that_its_parent_does_not_list(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.forge(RowChange(f"{path}/x", "added", ["p"]))
    return f"{path}/x", text(revision)


@case(kinds.NAME_TWICE)
def a_property_with_the_name_of_a_child(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    tables.commit(AddNode(f"{path}/x", {}))
    revision = tables.forge(RowChange(path, "changed", ["x"]))
    return path, text(revision)


@case(kinds.NAME_TWICE)
def a_child_with_the_name_of_a_property(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"x": 1}))
    revision = tables.forge(RowChange(path, "changed", (), ["x"]), RowChange(f"{path}/x", "added"))
    return path, text(revision)


@case(kinds.NAME_TWICE)
def a_child_with_the_name_of_a_property_that_lies_deep(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"x": 1, "n": 0}), AddNode(f"{path}/y", {}))
    for number in range(40):
        tables.commit(SetProperty(path, "n", number + 1))
    revision = tables.forge(RowChange(path, "changed", (), ["x"]), RowChange(f"{path}/x", "added"))
    return path, text(revision)


@case(kinds.UNLISTED)
def an_unlisted_node_with_the_name_of_a_property(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"x": 1}))
    revision = tables.forge(RowChange(f"{path}/x", "added", ["p"]))
    return f"{path}/x", text(revision)


@case(kinds.LOST_UPDATE)
def two_revisions_of_one_base_that_set_one_property(tables: Tables, path: str) -> Where:
    base = tables.commit(AddNode(path, {"p": 1}))
    tables.commit(SetProperty(path, "p", 2))
    revision = tables.forge(RowChange(path, "changed", ["p"]), base=base)
    return path, text(revision)


@case(kinds.LOST_UPDATE)
def a_property_that_is_set_upon_a_base_of_long_ago(tables: Tables, path: str) -> Where:
    base = tables.commit(AddNode(path, {"p": 1}))
    for number in range(30):
        tables.commit(SetProperty(path, "p" if number == 20 else "q", number))
    revision = tables.forge(RowChange(path, "changed", ["p"]), base=base)
    for number in range(40):
        tables.commit(SetProperty(path, "p", number))
    return path, text(revision)


@case(kinds.LOST_UPDATE)
def two_revisions_of_one_base_that_add_one_child(tables: Tables, path: str) -> Where:
    base = tables.commit(AddNode(path, {}))
    tables.commit(AddNode(f"{path}/x", {"p": 1}))
    revision = tables.forge(RowChange(path, "changed", (), ["x"]), RowChange(f"{path}/x", "added", ["q"]), base=base)
    return path, text(revision)


@case(kinds.LOST_UPDATE)
def two_revisions_of_one_base_that_begin_one_life(tables: Tables, path: str) -> Where:
    return f"{path}/x", two_revisions_of_one_base_that_add_one_child(tables, path)[1]


@case(kinds.BLOB_REFERENCE)
def a_reference_to_a_missing_blob(tables: Tables, path: str) -> Where:
    return path, text(tables.commit(AddNode(path, {"p": BlobRef("ab" * 32)})))


@case(kinds.BLOB_REFERENCE)
def an_array_that_refers_to_a_missing_blob(tables: Tables, path: str) -> Where:
    there = tables.instance.blobs.write(io.BytesIO(b"there"))
    return path, text(tables.commit(AddNode(path, {"p": [BlobRef(there), BlobRef("no id")]})))


# --- journal ---------------------------------------------------------------------------------------------


@case(kinds.JOURNAL_KEY)
def a_journal_row_whose_key_is_not_a_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.JOURNAL, b"\x00" + path.encode()[-2:], (schema.COMMITTED, schema.NO, None))
    return "", (b"\x00" + path.encode()[-2:]).hex()


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
def an_id_an_hour_behind_the_server(tables: Tables, path: str) -> Where:
    revision = tables.other().clock.next(0)
    late = revisions.pack(revisions.ms_of(revision) - 3_600_000, revisions.machine_of(revision), 0)
    declared = (RowChange(path, "changed", ["p"]),)
    tables.row(late, declared, committed=True, base=late - 1)
    return "", text(late)


@case(kinds.OFF_CLOCK)
def an_id_behind_the_server_by_more_than_the_lag(tables: Tables, path: str) -> Where:
    revision = tables.other().clock.next(0)
    late = revisions.pack(revisions.ms_of(revision) - 1_400, revisions.machine_of(revision), 0)
    tables.row(late, (RowChange(path, "changed", ["p"]),), committed=True, base=late - 1)
    return "", text(late)


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


@case(kinds.BRANCH)
def a_branch_whose_view_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    tables.journal(root, schema.BRANCH_VIEW, b"what")
    return "", text(root)


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
def a_branch_head_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    tables.journal(root, schema.BRANCH_HEAD, b"x")
    return "", text(root)


@case(kinds.ABORTED, repaired=True)
def cells_of_a_swept_branch(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    root = tables.branch()
    revision = tables.commit_on_branch(root, AddNode(f"{path}/x", {"p": 1}))
    tables.journal(root, schema.BRANCH_HEAD, b"a")
    for one in (root, revision):
        tables.journal(one, schema.ABORT, schema.YES)
    return f"{path}/x", text(revision)


# --- cluster ---------------------------------------------------------------------------------------------


@case(kinds.SETTINGS, alone=True)
def settings_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.SETTINGS, b"{", None))
    return "settings", ""


@case(kinds.WATERMARK, alone=True)
def a_watermark_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, b"123", None))
    return "settings", ""


@case(kinds.WATERMARK, alone=True)
def a_watermark_at_a_revision_that_does_not_exist(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.stranger()
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.WATERMARK, schema.revision_key(revision), None))
    return "", text(revision)


@case(kinds.CHECKPOINT)
def a_checkpoint_of_no_revision(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, ((schema.DATA, b"checkpoint:xy"), bytes(8), None))
    return "settings", ""


@case(kinds.CHECKPOINT)
def a_checkpoint_without_its_time(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    column = (schema.DATA, b"checkpoint:" + schema.revision_key(revision))
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (column, b"soon", None))
    return "settings", text(revision)


@case(kinds.LEASE)
def a_lease_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.put(schema.CLUSTER, schema.machine_key(0xF001), (schema.LEASE, b"short", None))
    return "machine f001", ""


@case(kinds.LEASE)
def a_lease_that_ends_before_it_begins(tables: Tables, path: str) -> Where:
    lease = LeaseRecord(2000, 1000, bytes(16), "somebody")
    tables.put(schema.CLUSTER, schema.machine_key(0xF002), (schema.LEASE, lease.encode(), None))
    return "machine f002", ""


@case(kinds.LEASE)
def a_lease_until_the_far_future(tables: Tables, path: str) -> Where:
    now = tables.now_ms() - tables.instance.settings.epoch_ms
    lease = LeaseRecord(now, now + 3_600_000, bytes(16), "somebody")
    tables.put(schema.CLUSTER, schema.machine_key(0xF003), (schema.LEASE, lease.encode(), None))
    return "machine f003", ""


@case(kinds.COUNT, repaired=True)
def a_memo_of_another_number_of_children(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}), AddNode(f"{path}/x", {}), AddNode(f"{path}/y", {}))
    memo = Memo(revision, 3, Extent(revision))
    tables.put(schema.CLUSTER, schema.child_count_key(paths.key(path)), (schema.CHILD_COUNT, memo.encode(), None))
    return path, text(revision)


@case(kinds.COUNT, repaired=True)
def a_memo_that_cannot_be_read(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    tables.put(schema.CLUSTER, schema.child_count_key(paths.key(path)), (schema.CHILD_COUNT, b"many", None))
    return path, ""


# --- blobs -----------------------------------------------------------------------------------------------


def _blob(tables: Tables, path: str, size: int) -> bytes:
    content = (path.encode() * (size // len(path) + 1))[:size]
    return bytes.fromhex(tables.instance.blobs.write(io.BytesIO(content)))


@case(kinds.BLOB_ROW)
def a_blob_row_whose_key_is_not_a_blob_id(tables: Tables, path: str) -> Where:
    tables.put(schema.BLOBS, path.encode(), (DATA, b"what", None))
    return path.encode().hex(), ""


@case(kinds.BLOB_CHUNK)
def a_blob_without_its_last_chunk(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, CHUNK + 5)
    tables.remove(schema.BLOBS, key + b"\0\0\0\x01", DATA)
    return key.hex(), ""


@case(kinds.BLOB_CHUNK)
def a_blob_without_its_first_chunk(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, CHUNK + 6)
    tables.remove(schema.BLOBS, key + b"\0\0\0\0", DATA)
    return key.hex(), ""


@case(kinds.BLOB_LENGTH)
def a_blob_of_another_length(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1000)
    tables.put(schema.BLOBS, key, (LENGTH, (999).to_bytes(8, "big"), None))
    return key.hex(), ""


@case(kinds.BLOB_LENGTH)
def a_blob_whose_length_cannot_be_read(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1001)
    tables.put(schema.BLOBS, key, (LENGTH, b"many", None))
    return key.hex(), ""


@case(kinds.BLOB_CONTENT)
def a_blob_with_another_content(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1002)
    tables.put(schema.BLOBS, key + b"\0\0\0\0", (DATA, b"x" * 1002, None))
    return key.hex(), ""


@case(kinds.UPLOAD, repaired=True)
def an_upload_that_ended_days_ago(tables: Tables, path: str) -> Where:
    key = hashlib.sha256(path.encode()).digest()
    days_ago = tables.now_ms() - 3 * 24 * 3600 * 1000
    for number in range(3):
        tables.put(schema.BLOBS, key + number.to_bytes(4, "big"), (DATA, b"part", days_ago))
    return key.hex(), ""
