"""Each kind of cell is damaged in turn: every reader gives its answer or an error of hbasemk's, and says where."""

from __future__ import annotations

import copy
import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from hbasemk import FormatError, HbasemkError, MicroKernel, Repository
from hbasemk.check import IntegrityCheck
from hbasemk.format import paths, schema
from hbasemk.kernel import checkpoints
from hbasemk.repository import instance_of
from hbasemk.store.abc import Cell, NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore

GARBAGE = (
    b"\xff",
    b"\xff\x00",
    b"{",
    b"\x01[[",
    b"\x01[[1,2]]",
    b'\x01[["/a","c",[1]]]',
    b'\x01[["/a","x"]]',
    b"\x01{}",
    b"\x02zzz",
    b"\x09\x00\x00\x00\x09a",
    b"\xff" * 8,
    b"\xff" * 9,
    b"\xff" * 16,
    b"\xff" * 33,
    b"\x00" * 8,
    b"m",
    b"m" + b"\xff" * 16,
    b"[" * 100_000,
    json.dumps({"format": 1, "epochMs": 10**30, "maxClockSkewMs": 1, "leaseMs": 1, "rootRevision": "0" * 16}).encode(),
    json.dumps({"format": 1, "epochMs": 0, "maxClockSkewMs": -5, "leaseMs": 10**30, "rootRevision": "0" * 16}).encode(),
    b"[1]",
    b"1",
    zlib.compress(b"\xff" * 24),
    zlib.compress(b"\xff" * 7),
)
KEYS = (
    b"\xff\xff",
    b"\0\1/\xff\xfe",
    b"\0",
    b"\0\1nope",
    b"\0\0/\xff",
    b"\0\2/a/\xc3",
    b"\0\1/a\0",
    b"\xff" * 8,
    b"\xff" * 40,
)
QUALIFIERS = (b"\x01\xff\xfe", b"\xff\xfe", b"\x00\xff", b"\x01", b"\x02x")


class Base(NamedTuple):
    store: MemoryStore
    first: str
    branch: str
    blob: str
    cells: list[tuple[str, bytes, Cell]]


@pytest.fixture(scope="module")
def base() -> Base:
    store = MemoryStore()
    with Repository(copy.copy(store), poll_interval=0) as repo:
        first = repo.head.revision
        blob = repo.blobs.write(b"content")
        repo.run(
            lambda tx: [tx.add("/a", {"n": 1, "list": [1, "x"], "blob": blob}), tx.add("/a/b"), tx.add("/c")], "made"
        )
        branch = repo.branch()
        branch.run(lambda tx: tx.set("/a", "n", 2))
        repo.run(lambda tx: tx.remove("/c"))
        checkpoints.keep(instance_of(repo), instance_of(repo).head().revision, 2**42)
        newest = branch.revision
    cells = [
        (table.name, row.key, cell)
        for table in schema.TABLES
        for row in scan_all(store, table.name, Scan(None, None, 1000))
        for cell in row.cells
    ]
    return Base(store, first, newest, blob.id, cells)


READERS: dict[str, Callable[[Repository, Base], Any]] = {
    "node": lambda repo, base: dict(repo.head["/a"]),
    "nodes": lambda repo, base: [node and dict(node) for node in repo.head.nodes(["/", "/a", "/a/b", "/c"]).values()],
    "missing": lambda repo, base: repo.head["/c"],
    "children": lambda repo, base: [repo.head.children("/"), repo.head.children("/a")],
    "child count": lambda repo, base: repo.head.child_count("/"),
    "walk": lambda repo, base: [dict(node) for node in repo.head.walk()],
    "older": lambda repo, base: [dict(node) for node in repo.at(base.first).walk()],
    "log": lambda repo, base: list(repo.log("/a")),
    "diff": lambda repo, base: list(repo.diff(repo.at(base.first))),
    "watch": lambda repo, base: list(repo.watch("/a", 0, since=base.first)),
    "branch": lambda repo, base: [dict(node) for node in repo.resume_branch(base.branch).head.walk()],
    "outcome": lambda repo, base: [repo.outcome(base.branch), repo.outcome(base.first)],
    "blob": lambda repo, base: [repo.blobs.read(base.blob), repo.blobs.length(base.blob)],
    "transaction": lambda repo, base: [
        (tx.properties("/a"), tx.subtree("/"), tx.load(["/a"]), tx.get("/a", "n")) for tx in [repo.transaction()]
    ],
    "get_nodes": lambda repo, base: MicroKernel(repo).get_nodes("/", None, 3, filter='{"properties":["*",":hash"]}'),
    "get_journal": lambda repo, base: MicroKernel(repo).get_journal(base.first, None),
    "history": lambda repo, base: MicroKernel(repo).get_revision_history(0, -1),
    "branch journal": lambda repo, base: MicroKernel(repo).get_journal(base.first, base.branch),
    "mk diff": lambda repo, base: MicroKernel(repo).diff(base.first, None),
    "checkpoint": lambda repo, base: MicroKernel(repo).checkpoint(1000),
    "set": lambda repo, base: repo.run(lambda tx: tx.increment("/a", "n")),
    "move": lambda repo, base: repo.run(lambda tx: tx.move("/a", "/q")),
    "rebase": lambda repo, base: repo.resume_branch(base.branch).rebase(),
    "sweep": lambda repo, base: repo.sweep_branches(0),
    "maintain": lambda repo, base: instance_of(repo).maintain(),
}


def damages(base: Base) -> Iterator[tuple[str, str, bytes, NewCell]]:
    """What is done to a copy: in words, and as a cell to write."""
    for table, key, cell in base.cells:
        for garbage in GARBAGE:
            what = f"{table} {key!r} {cell.qualifier!r} = {garbage[:20]!r}"
            yield what, table, key, NewCell(cell.family, cell.qualifier, garbage, cell.timestamp)
    newest = max(cell.timestamp for table, _, cell in base.cells if table == schema.NODES)
    for table, cell in {(table, cell.qualifier): (table, cell) for table, _, cell in base.cells}.values():
        for key in KEYS:
            stamp = newest if table == schema.NODES else None
            yield f"{table} row {key!r}", table, key, NewCell(cell.family, cell.qualifier, cell.value, stamp)
    for family in (schema.DATA, schema.CHILDREN):
        for qualifier in QUALIFIERS:
            yield f"column {qualifier!r}", schema.NODES, paths.key("/a"), NewCell(family, qualifier, b"\x01", newest)


def errors(base: Base, table: str, key: bytes, cell: NewCell) -> Iterator[tuple[str, Exception]]:
    """The errors of all readers on a damaged copy."""
    store = base.store.clone()
    store.write(table, [Put(key, [cell])])
    try:
        repo = Repository(store, poll_interval=0, create=False)
    except Exception as error:
        yield "open", error
        return
    with repo:
        for name, reader in READERS.items():
            try:
                reader(repo, base)
            except Exception as error:
                yield name, error
        try:
            for _ in IntegrityCheck(instance_of(repo)).run():
                pass
        except Exception as error:
            yield "check", error


def is_placed(message: str, table: str) -> bool:
    """Whether a message names table, row and column; of a damaged row key there is no column."""
    return f"table '{table}', row" in message and (", column " in message or ", row key " in message)


def test_damage_never_raises_a_builtin_error(base: Base) -> None:
    seed = int(os.environ.get("HBASEMK_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}; HBASEMK_TEST_SEED repeats it, HBASEMK_TEST_STEPS=0 tries everything")
    steps = int(os.environ.get("HBASEMK_TEST_STEPS", "300"))
    everything = list(damages(base))
    chosen = random.Random(seed).sample(everything, steps) if steps else everything
    raw: list[str] = []
    unplaced: list[str] = []
    found = 0
    for what, table, key, cell in chosen:
        for name, error in errors(base, table, key, cell):
            if not isinstance(error, HbasemkError):
                raw.append(f"{name}: {error!r:.200} after {what}")
            elif isinstance(error, FormatError):
                found += 1
                if not is_placed(str(error), table):
                    unplaced.append(f"{name}: {str(error)[:300]} after {what}")
    assert found > steps // 4
    assert not raw, f"{len(raw)}\n" + "\n".join(raw[:40])
    assert not unplaced, f"{len(unplaced)}\n" + "\n".join(unplaced[:40])
