"""Many rows in as few calls as the store likes: journal rows read, cells of nodes written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hbasemk.kernel import schema
from hbasemk.kernel.calls import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Get, Put, Row, Store

JOURNAL_BATCH: Final = 200
"""Journal rows carry what a revision touches, so they are read in smaller batches than nodes."""


def journal_rows(
    store: Store, runtime: Runtime, made: Sequence[int], columns: Sequence[Column] | None = None
) -> Iterator[Row]:
    """The journal rows of some revisions, in their order; one round trip for each 200, for as many as the store likes where
    only a few small ``columns`` of them are asked for.
    """
    size = JOURNAL_BATCH if columns is None else store.batch_rows
    families = (schema.DATA,) if columns is None else None
    for at in range(0, len(made), size):
        gets = [Get(schema.revision_key(one), columns, families) for one in made[at : at + size]]
        yield from again(runtime, lambda gets=gets: store.read(schema.JOURNAL, gets))  # type: ignore[misc]


def write_nodes(
    store: Store, runtime: Runtime, puts: Sequence[Put], in_doubt: Callable[[], None] | None = None
) -> None:
    """Write cells of nodes, in order and not durably by themselves; ``in_doubt`` is told of each reply that was lost."""
    size = store.batch_rows
    for at in range(0, len(puts), size):
        part = puts[at : at + size]
        again(runtime, lambda part=part: store.write(schema.NODES, part, durable=False), in_doubt=in_doubt)  # type: ignore[misc]
