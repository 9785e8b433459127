"""A repository in which every feature was used."""

from __future__ import annotations

import io

import pytest

from hbasemk import ConflictError
from hbasemk.format import paths, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.format.values import BlobRef, Json, PropertyValue
from hbasemk.kernel import checkpoints
from hbasemk.kernel.blobs import CHUNK
from hbasemk.kernel.branches import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, RemoveNode, SetProperty
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.store.abc import Get
from tests.support.tables import Tables

WIDE = 1500


def use_everything(tables: Tables) -> None:
    """Make commits of all kinds, conflicts, branches, blobs, dead writers and checkpoints, and move the watermark."""
    _tree(tables)
    _branches(tables)
    _conflicts(tables)
    _dead_writers(tables)
    _memo(tables)
    checkpoints.keep(tables.instance, tables.instance.head(), tables.now_ms() + 60_000)
    _live_writers(tables)


def _tree(tables: Tables) -> None:
    blobs = [tables.instance.blobs.write(io.BytesIO(b"x" * size)) for size in (0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1)]
    values: dict[str, PropertyValue] = {
        "b": BlobRef(blobs[1]),
        "many": [BlobRef(one) for one in blobs],
        "json": Json("1.10"),
        "\ud800": b"\x00",
    }
    tables.commit(AddNode("/a", {"n": 0}), AddNode("/a/b", values), AddNode("/a/b/\udfff", {"x": ["a", 1, 1.5, True]}))
    for number in range(30):
        tables.commit(Increment("/a", "n", 1), SetProperty("/a", "p", None if number % 3 else number))
    tables.commit(CopyNode("/a", "/copy"))
    tables.commit(CopyNode("/copy", "/a/inside"))
    tables.commit(MoveNode("/copy/b", "/moved"))
    tables.commit(RemoveNode("/copy"))
    tables.commit(AddNode("/copy", {"again": 1}))
    tables.commit(RemoveNode("/copy"), AddNode("/copy", {"and": "again"}), AddNode("/copy/x", {}))
    tables.commit(SetProperty("/a", "n", 30), SetProperty("/a", "none", None))
    tables.commit(AddNode("/wide", {}), *(AddNode(f"/wide/{number:05}", {}) for number in range(WIDE)))
    tables.commit(*(RemoveNode(f"/wide/{number:05}") for number in range(0, WIDE, 10)))


def _branches(tables: Tables) -> None:
    instance = tables.instance
    merged = tables.commit_on_branch(tables.branch(), AddNode("/merged", {"n": 1}), RemoveNode("/moved"))
    merged = tables.commit_on_branch(merged, SetProperty("/merged", "n", 2), CopyNode("/merged", "/merged2"))
    instance.branches.merge(merged, "merged")
    rebased = tables.commit_on_branch(tables.branch(), SetProperty("/a", "n", "mine"), AddNode("/a/mine", {}))
    tables.commit(SetProperty("/a", "n", "theirs"))
    with pytest.raises(ConflictError):
        instance.branches.merge(rebased, "")
    rebase.rebase(instance.branches, rebased, instance.head(), "")
    first = tables.commit_on_branch(tables.branch(), AddNode("/reset", {}))
    instance.branches.reset(tables.commit_on_branch(first, AddNode("/reset/x", {})), first)
    tables.branch()
    swept = tables.commit_on_branch(tables.branch(), AddNode("/swept", {}), RemoveNode("/copy"))
    assert swept
    tables.wait(0.05)
    instance.branches.sweep(0)
    left = tables.commit_on_branch(tables.branch(), AddNode("/left", {}), RemoveNode("/copy"))
    tables.commit_on_branch(left, AddNode("/left/x", {}))


def _conflicts(tables: Tables) -> None:
    base = tables.instance.head()
    tables.commit(SetProperty("/a", "p", "winner"))
    for operations in ([SetProperty("/a", "p", "loser")], [RemoveNode("/a")]):
        with pytest.raises(ConflictError):
            tables.instance.commit_on(base, OperationList(operations), "")


def _dead_writers(tables: Tables) -> None:
    pending = tables.dead_writer(RowChange("/a", "changed", ["p"], ["child"]))
    aborted = tables.dead_writer(RowChange("/a", "changed", ["q"]), aborted=True)
    tables.wait(20)
    fresh_instance = tables.open_instance(50)
    # Its log does not hold the watermark back.
    fresh_instance.clock.next(0)
    fresh_instance.announcements.renew(0)
    fresh_instance.maintain()
    fresh_instance.poll()
    fresh_instance.recovery.advance()
    assert fresh_instance.outcome(pending) is fresh_instance.outcome(aborted) is Outcome.ABORTED
    tables.commit(SetProperty("/a", "after", True))


def _live_writers(tables: Tables) -> None:
    """Leave two writers in the middle of a commit, with and without cells.

    This is the last step: nobody renews their leases, and a check after these have expired finds dead writers.
    """
    tables.dead_writer(RowChange("/a", "changed", ["r"]))
    tables.dead_writer()


def _memo(tables: Tables) -> None:
    instance = tables.open_instance(51)
    state = instance.reader.require(instance.head(), "/wide")
    assert instance.counts.of(instance.head(), state) == WIDE - WIDE // 10
    key = schema.child_count_key(paths.key("/wide"))
    row = tables.store.read(schema.CLUSTER, [Get(key, columns=(schema.CHILD_COUNT,))])[0]
    assert Memo.decode(row.cells[0].value, "/wide").children == WIDE - WIDE // 10
    tables.commit(RemoveNode("/wide/00001"))
