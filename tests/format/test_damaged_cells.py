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
from hbasemk.store.abc import Cell, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.contents import Contents, all_cells, fill

GARBAGE = (
    b"",
    b"\xff",
    b"\xff\x00",
    b"{",
    b"\x01[[",
    b"\x01[[1,2]]",
    b'\x01[["/a","c",[1]]]',
    b'\x01[["/a","x"]]',
    b"\x01{}",
    b'\x01["/c"]',
    b'\x01{"/c":1}',
    b'\x01[["/a/","c"]]',
    b'\x01[["/a","c",[],[],[],[["n",1,0.5]]]]',
    b'\x01[["/a","c",[],[],[],[["n",1.0,0]]]]',
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
    """A repository to damage copies of."""

    store: MemoryStore
    contents: Contents
    cells: list[tuple[str, bytes, Cell]]


@pytest.fixture(scope="module")
def base() -> Base:
    store = MemoryStore()
    with Repository(copy.copy(store), poll_interval=0) as repo:
        contents = fill(repo)
        checkpoints.keep(instance_of(repo), instance_of(repo).head(), 2**42)
    return Base(store, contents, all_cells(store))


READERS: dict[str, Callable[[Repository, Contents], Any]] = {
    "node": lambda repo, contents: dict(repo.head["/a"]),
    "nodes": lambda repo, contents: [
        node and dict(node) for node in repo.head.nodes(["/", "/a", "/a/b", "/c"]).values()
    ],
    "missing": lambda repo, contents: repo.head["/c"],
    "children": lambda repo, contents: [repo.head.children("/"), repo.head.children("/a")],
    "child count": lambda repo, contents: repo.head.child_count("/"),
    "walk": lambda repo, contents: [dict(node) for node in repo.head.walk()],
    "older": lambda repo, contents: [dict(node) for node in repo.at(contents.first).walk()],
    "log": lambda repo, contents: list(repo.log("/a")),
    "diff": lambda repo, contents: list(repo.diff(repo.at(contents.first))),
    "watch": lambda repo, contents: list(repo.watch("/a", 0, since=contents.first)),
    "branch": lambda repo, contents: [dict(node) for node in repo.resume_branch(contents.branch).head.walk()],
    "outcome": lambda repo, contents: [repo.outcome(contents.branch), repo.outcome(contents.first)],
    "blob": lambda repo, contents: [repo.blobs.read(contents.blob), repo.blobs.length(contents.blob)],
    "transaction": lambda repo, contents: [
        (tx.properties("/a"), tx.subtree("/"), tx.load(["/a"]), tx.get("/a", "n")) for tx in [repo.transaction()]
    ],
    "get_nodes": lambda repo, contents: MicroKernel(repo).get_nodes(
        "/", None, 3, filter='{"properties":["*",":hash"]}'
    ),
    "get_journal": lambda repo, contents: MicroKernel(repo).get_journal(contents.first, None),
    "history": lambda repo, contents: MicroKernel(repo).get_revision_history(0, -1),
    "branch journal": lambda repo, contents: MicroKernel(repo).get_journal(contents.first, contents.branch),
    "mk diff": lambda repo, contents: MicroKernel(repo).diff(contents.first, None),
    "checkpoint": lambda repo, contents: MicroKernel(repo).checkpoint(1000),
    "set": lambda repo, contents: repo.run(lambda tx: tx.increment("/a", "n")),
    "move": lambda repo, contents: repo.run(lambda tx: tx.move("/a", "/q")),
    "rebase": lambda repo, contents: repo.resume_branch(contents.branch).rebase(),
    "sweep": lambda repo, contents: repo.sweep_branches(0),
    "maintain": lambda repo, contents: instance_of(repo).maintain(),
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
                reader(repo, base.contents)
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
