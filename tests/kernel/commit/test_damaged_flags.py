"""Conflicts with a revision whose journal row has a flag that is neither yes nor no."""

from __future__ import annotations

import pytest

from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.store.abc import Column, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World, open_instance

CHANGE = OperationList([SetProperty("/", "p", 1)])


@pytest.mark.parametrize("transactions", [False, True])
@pytest.mark.parametrize("flag", [schema.COMMITTED, schema.ABORT])
@pytest.mark.parametrize("newer", [False, True])
def test_a_conflict_is_an_error_at_once(flag: Column, newer: bool, transactions: bool) -> None:
    world = World()
    store = MemoryStore(world.clock, transactions=transactions)
    # The ids of the first one are lower, or higher.
    one, other = (open_instance(store, world, mac=mac, skew_ms=skew) for mac, skew in ((1, 1000 * newer), (2, 0)))
    view = other.head()
    other.commit(lambda _: OperationList([SetProperty("/", "q", 1)]), "", retry_timeout=5, max_poll_age=0)
    row = schema.revision_key(one.commit(lambda _: CHANGE, "", retry_timeout=5, max_poll_age=0))
    # As if the cell had been damaged before the decision, and before another process polled.
    store.write(schema.JOURNAL, [Put(row, [NewCell(*schema.COMMITTED, schema.NO)])])
    store.write(schema.JOURNAL, [Put(row, [NewCell(*flag, b"m")])])
    before = world.clock()
    with pytest.raises(FormatError, match=rf"{flag[1].decode()}.*must be yes or no, got b'm'") as raised:
        other.commit_on(view, CHANGE, "")
    assert (raised.value.table, raised.value.row, raised.value.column) == (schema.JOURNAL, row, flag)
    assert world.clock() - before < 1000
    # Nothing of the failed commit is left.
    (found,) = store.read(schema.NODES, [Get(b"\0/", [schema.property_column("p")], versions=100)])
    assert len(found.cells) <= 1
    with pytest.raises(FormatError, match="must be yes or no"):
        other.commit(lambda _: CHANGE, "", retry_timeout=5, max_poll_age=0)
    assert world.clock() - before < 1000
