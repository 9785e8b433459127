"""How often a JSON import reads its source, encodes values, and calls the store."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from hbasemk import Repository, connect
from hbasemk.format import values
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer import retry
from tests.support.json_exports import bring_in, stored

FOLDERS, LEAVES, BATCH = 10, 60, 100
NODES = 1 + FOLDERS * (1 + LEAVES)
PROPERTIES = 2 * FOLDERS * LEAVES


class Pipe(io.BytesIO):
    """A source that is read only once, and counts the bytes read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found

    def seekable(self) -> bool:
        return False


def a_tree() -> bytes:
    leaves = {f"n{number}": {"properties": {"a": number, "b": f"text {number}"}} for number in range(LEAVES)}
    return json.dumps({"children": {f"d{number}": {"children": leaves} for number in range(FOLDERS)}}).encode()


@contextmanager
def calls_of(function: Callable[..., object]) -> Iterator[Counter[str]]:
    """Count the calls of a function in this thread."""
    found: Counter[str] = Counter()
    wanted = function.__code__

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is wanted:
            found[function.__name__] += 1

    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls on the table ``nodes`` of the repositories that imports open."""
    found: list[Call] = []

    def connected(url: str, **options: Any) -> Repository:
        store = FaultyStore(SqliteStore(url.removeprefix("sqlite:///")))
        store.before = lambda call: found.append(call) if call.table == "nodes" else None
        return Repository(store, **options)

    monkeypatch.setattr(retry, "connect", connected)
    return found


def test_a_verified_import_reads_its_source_once_and_encodes_each_value_once(new: str) -> None:
    text = a_tree()
    source = Pipe(text)
    with calls_of(values.encode) as encoded:
        result = bring_in(new, source, "/at", batch=BATCH)

    assert (result.nodes, result.added, result.differences.count) == (NODES, NODES, 0)
    assert source.taken == len(text)
    assert encoded["encode"] == PROPERTIES


def test_a_first_import_reads_only_the_topmost_nodes_of_each_batch(new: str, calls: list[Call]) -> None:
    connect(new, poll_interval=0).close()
    bring_in(new, io.BytesIO(a_tree()), "/at", batch=BATCH)
    assert len(stored(new, "/at")) == NODES

    written = next(number for number in reversed(range(len(calls))) if calls[number].method == "write_if")
    imported, verified = calls[: written + 1], calls[written + 1 :]
    batches = -(-NODES // BATCH)
    assert sum(call.method == "write_if" for call in imported) == batches
    reads = [call for call in imported if call.method == "read"]
    assert len(reads) <= 2 * batches
    assert sum(call.rows for call in reads) < NODES / 2
    # The nodes of each batch, and the names of the children of nodes to which several batches added some.
    assert {call.method for call in verified} == {"read"}
    assert batches < len(verified) <= 2 * batches
    assert NODES < sum(call.rows for call in verified) <= NODES + FOLDERS + 1


def test_a_repeated_import_reads_each_batch_in_few_calls(new: str, calls: list[Call]) -> None:
    bring_in(new, io.BytesIO(a_tree()), "/at", batch=BATCH)
    calls.clear()
    result = bring_in(new, io.BytesIO(a_tree()), "/at", batch=BATCH)

    assert (result.done, result.added, result.commits) == (NODES, 0, 0)
    # The topmost nodes, the others, the dependencies of the commit, and the two reads of the verification.
    assert sum(call.method == "read" for call in calls) <= 5 * -(-NODES // BATCH)
