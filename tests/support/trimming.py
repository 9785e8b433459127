"""Trimming of the journal, for tests: how rows go, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hbasemk.format import journal_row, paths, schema
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import ALL_VERSIONS, Get, Row, Scan, Store
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.runtime import World


def recorded(store: Store) -> list[int]:
    """Return the trunk revisions that have a journal row."""
    rows = journal_row.decode(store.scan(schema.JOURNAL, Scan(None, None, 1000)))
    return [row.revision for row in rows if not row.is_branch]


def trim(one: Instance, world: World) -> int:
    """Let time pass until all rows that exist now are gone, except the newest; return the revision that they are below."""
    one.poll()
    last = one.head().revision
    trim_up_to(one, world)
    assert fence.read_trim_level(one.store).revision >= last
    return last


def written_after(store: Store) -> int:
    """Return the number of the first write that the store still knows."""
    return store.arrivals(schema.JOURNAL, 0, 1, ()).last


def commit_with_id(one: Instance, revision: int, operation: Any) -> int:
    """Commit with an id that was made before."""
    make = one.clock.next
    one.clock.next = lambda *_, **__: revision  # type: ignore[method-assign]
    try:
        return commit(one, operation)
    finally:
        one.clock.next = make  # type: ignore[method-assign]


def commit_once(one: Instance, operation: Any, begun: list[int]) -> None:
    """Commit on the head after a poll, and append each id to ``begun`` before anything is written with it."""
    one.commit(lambda _: OperationList([operation]), "", retry_timeout=9, max_poll_age=0, begun=begun.append)


def trim_before_first_read(one: Instance, other: Instance, world: World, patch: pytest.MonkeyPatch) -> list[bool]:
    """Let another instance trim the journal before this one reads rows of it by key; the list shows whether it has."""
    slept: list[bool] = []
    read = one.store.read

    def sleep_first(table: str, gets: Sequence[Get]) -> list[Row]:
        if table == schema.JOURNAL and not slept:
            slept.append(True)
            trim(other, world)
        return read(table, gets)

    patch.setattr(one.store, "read", sleep_first)
    return slept


def trim_up_to(one: Instance, world: World) -> None:
    """Trim as far as branches and checkpoints allow."""
    for _ in range(4):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/", "tick", int(world.ms)))
        Collector(one).run(RETENTION_MS)


def row_of(store: Store, revision: int) -> Row:
    """Return the journal row of a revision; it has no cells if it is gone."""
    return store.read(schema.JOURNAL, [Get(schema.revision_key(revision))])[0]


def versions(store: Store, path: str, qualifier: bytes) -> list[int]:
    """Return the versions of one column of a node."""
    (row,) = store.read(schema.NODES, [Get(paths.key(path), versions=ALL_VERSIONS)])
    return [cell.timestamp for cell in row.cells if cell.qualifier == qualifier]
