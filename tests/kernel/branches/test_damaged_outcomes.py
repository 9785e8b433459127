"""The outcome of a branch revision of which a cell is damaged: an error, never a wrong answer."""

from __future__ import annotations

import pytest

from hbasemk import FormatError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance

MISSING = revisions.to_bytes((revisions.pack(1, 0x4444, revisions.BRANCH_BIT),))
"""An id that no row has."""


@pytest.mark.parametrize(
    ("column", "damaged"),
    [
        (schema.BRANCH, b""),
        (schema.BRANCH, b"abc"),
        (schema.BRANCH, MISSING),
        (schema.BRANCH, MISSING * 2 + b"x"),
        (schema.BRANCH, MISSING * 2),
        (schema.BRANCH, b"\xff" * 16),
        (schema.BRANCH_HEAD, MISSING),
    ],
)
@pytest.mark.parametrize("transactions", [False, True])
def test_a_dropped_revision_with_a_damaged_cell_is_not_committed(
    world: World, transactions: bool, column: tuple[bytes, bytes], damaged: bytes
) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    instance = open_instance(store, world)
    root = instance.branches.begin(instance.head())
    kept = commit_on_branch(instance, root, [AddNode("/a", {})])
    dropped = commit_on_branch(instance, kept, [AddNode("/b", {})])
    instance.branches.reset(dropped, kept)
    assert instance.outcome(dropped) is Outcome.ABORTED
    (row,) = store.read(schema.JOURNAL, [Get(schema.revision_key(dropped), columns=(schema.BRANCH,))])
    first = int.from_bytes(row.cells[0].value[:8], "big")
    key = schema.revision_key(dropped if column == schema.BRANCH else first)
    (row,) = store.read(schema.JOURNAL, [Get(key, columns=(column,))])
    store.write(schema.JOURNAL, [Put(key, [NewCell(*column, damaged)])])
    with pytest.raises(FormatError, match=rf"table 'journal', row .*, column d:{column[1]!r}"):
        instance.outcome(dropped)
    store.write(schema.JOURNAL, [Put(key, [NewCell(*column, row.cells[0].value)])])
