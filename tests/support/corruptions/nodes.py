"""Damage of the ``nodes`` table."""

from __future__ import annotations

import io

from hbasemk.check import problem as kinds
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.values import BlobRef
from hbasemk.kernel.blobs import DATA
from hbasemk.kernel.commit.operations import AddNode, Adjust, RemoveNode, SetProperty
from tests.support.corruptions.case import Where, case, text
from tests.support.tables import Tables


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
def a_total_that_cannot_be_decoded(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {"p": 1}))
    revision = tables.commit(Adjust(path, "p", 1))
    tables.node(path, revision, (schema.slot_column("p", revisions.machine_of(revision) << 16), b"\x01text"))
    return path, text(revision)


@case(kinds.VALUE)
def a_base_that_has_seen_no_number(tables: Tables, path: str) -> Where:
    tables.commit(AddNode(path, {}))
    revision = tables.commit(Adjust(path, "p", 1))
    tables.node(path, revision, (schema.property_column("p"), b"\x0b\x00\x00\x00\x02\x01x\x02\x01"))
    return path, text(revision)


@case(kinds.COLUMN)
def a_slot_with_an_impossible_name(tables: Tables, path: str) -> Where:
    revision = tables.commit(AddNode(path, {}))
    tables.node(path, revision, ((schema.DATA, b"\x02\x00\x01\x00\x00a/b"), b"\x02\x01"))
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
    return path, text(tables.commit(AddNode(path, {"p": [BlobRef(there), BlobRef("cd" * 32)]})))


@case(kinds.BLOB_REFERENCE)
def a_reference_to_a_blob_whose_collector_died(tables: Tables, path: str) -> Where:
    blobs = tables.instance.blobs
    key = bytes.fromhex(blobs.write(io.BytesIO(b"collected in part: " + path.encode())))
    assert blobs.doom(key, blobs.head(key), 0, 0)
    tables.remove(schema.BLOBS, key + b"\0\0\0\0", DATA)
    return path, text(tables.commit(AddNode(path, {"p": BlobRef(key.hex())})))
