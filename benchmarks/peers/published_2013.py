"""The microkernel on HBase as it was published around 2013, step by step, so that what hbasemk does differently is a factor.

What each step costs, where it costs more than it has to:

- *Children* are one list in one cell of the parent. Adding one to n writes n names again: O(n²) bytes for n additions one by
  one, all of which stay as versions. Paging reads the whole list. Two siblings added at once conflict.
- *Reading* a node fetches every version of every column, so it grows with the node's history; then for each column the journal
  is walked from its newest revision down until one that has a version of it: up to the length of the journal for each column.
- *Committing* is five calls: the journal row; reading the nodes (as above, unless they are cached); writing the cells;
  reading all their versions to find whoever else touched the *row* (so different properties of one node conflict as
  well); the deciding compare-and-set. A conflict costs these again but the last, a roll-back and a poll. Nobody polls
  before the first attempt, so whatever others did to a node since the last poll costs one attempt.
- *Polling* scans the journal upwards from ``GRACE_MS`` before the previous poll: rows that are known already come again. A
  commit that takes longer is never seen by those who run meanwhile, and their changes of its nodes fail for ever. The
  first poll reads the whole journal, which stays in memory: starting costs O(revisions).
- The *cache* of 1,000 nodes belongs to one head: any new revision, whatever it touched, empties it.
- There is no diff, and there are no branches (the published code has neither).

A few things are not as published, because the figures would be those of wrong answers or of none; none of them costs a call.
Machine ids are random instead of a hash of the MAC address, which the processes of one machine share. An id is made after
the poll and above all that is known, and the journal is kept in the order of ids; otherwise increments get lost. Attempts
are spaced by short random pauses; without them eight processes on one node commit less than half. The published code
rolls a commit back that took nearly as long as the grace period, so it can never commit 10,000 nodes; here commits of more than
``GUARDED`` rows are let through.
"""

from __future__ import annotations

import json
import os
import random
import time
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from benchmarks.peers.published_2013_cells import ABORT, COMMITTED, Cells, Thrift1Cells, Thrift2Cells, Versions
from benchmarks.system import Properties, System

GRACE_MS: Final = 800
"""How far before the previous poll the next one begins, in ms: the published code's value."""
CACHED: Final = 1000
"""Nodes in the cache: the published code's value."""
TRIES: Final = 200
"""Attempts of one commit, twice as many as published, so that many processes on one parent get through."""
MARGIN_MS: Final = 200
"""What a commit leaves of the grace period for its last call."""
GUARDED: Final = 100
"""Rows of a commit that must be done within the grace period."""
PAUSE_MS: Final = 50
"""The longest pause before another attempt, in ms; the first ones are shorter."""
EPOCH_MS: Final = 1_356_998_400_000
"""2013-01-01T00:00Z."""

DELETED, LAST, CHILDREN, PROPERTY = b"\0deleted", b"\0lastRevision", b"\0childNodes", b"\x01"
ALIVE: Final = b"\0"
LATEST: Final = 2**63 - 1


class Node(NamedTuple):
    """A node as some revision has it; ``children`` in order."""

    properties: Properties
    children: list[str]


Columns = Mapping[bytes, bytes]
Change = Callable[[Mapping[str, Node]], Mapping[str, Columns]]


class LiteralKernel(System):
    """The algorithm; subclasses say by which gateway."""

    cells_by: ClassVar[type[Cells]]

    def __init__(self, place: str, owner: bool) -> None:
        self._cells = self.cells_by(place)
        self._owner = owner
        self._place = place
        self._machine = int.from_bytes(os.urandom(2), "big")
        self._made = 0
        self._polled: int | None = None
        self._journal: list[int] = [0]
        self._known = {0}
        self._cache: OrderedDict[str, Node] = OrderedDict()
        try:
            if owner:
                self._cells.create()
                self._commit(["/"], lambda _: {"/": {DELETED: ALIVE}})
            else:
                self.refresh()
        except BaseException:
            self._cells.close()
            raise

    @classmethod
    def create(cls, place: str) -> LiteralKernel:
        return cls(place, owner=True)

    def connect(self) -> str:
        return self._place

    @classmethod
    def join(cls, address: str) -> LiteralKernel:
        return cls(address, owner=False)

    # The journal

    def refresh(self) -> None:
        since = 0 if self._polled is None else self._polled - GRACE_MS << 24
        self._polled = _now()
        for revision in self._cells.committed(max(0, since)):
            if revision not in self._known:
                self._append(revision)

    def _append(self, revision: int) -> None:
        self._known.add(revision)
        insort(self._journal, revision)
        self._cache.clear()

    def _next_id(self) -> int:
        """40 bits of ms, 16 of machine, 8 of counter, above everything that is known."""
        floor = max(self._made, self._journal[-1])
        made = _now() << 24 | self._machine << 8
        if made <= floor:
            if floor >> 8 == made >> 8 and floor & 0xFF < 0xFF:
                made = floor + 1
            else:
                made = (floor >> 24) + 1 << 24 | self._machine << 8
        self._made = made
        return made

    # Committing

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        added = dict(nodes)
        names: dict[str, list[str]] = {}
        for path in added:
            above, _, name = path.rpartition("/")
            names.setdefault(above or "/", []).append(name)

        def change(before: Mapping[str, Node]) -> Mapping[str, Columns]:
            rows: dict[str, dict[bytes, bytes]] = {}
            for path, properties in added.items():
                if path in before:
                    raise ValueError(f"{path} exists already")
                rows[path] = {DELETED: ALIVE}
                rows[path].update({PROPERTY + key.encode(): _encode(value) for key, value in properties.items()})
            for parent, new in names.items():
                if parent not in before and parent not in added:
                    raise KeyError(f"there is no node {parent}")
                old = before[parent].children if parent in before else []
                rows.setdefault(parent, {})[CHILDREN] = "/".join(sorted([*old, *new])).encode()
            return rows

        self._commit([*added, *(parent for parent in names if parent not in added)], change)

    def set(self, path: str, name: str, value: int | str) -> None:
        def change(before: Mapping[str, Node]) -> Mapping[str, Columns]:
            _existing(before, path)
            return {path: {PROPERTY + name.encode(): _encode(value)}}

        self._commit([path], change)

    def increment(self, path: str, name: str) -> None:
        def change(before: Mapping[str, Node]) -> Mapping[str, Columns]:
            value = int(_existing(before, path).properties.get(name, 0)) + 1
            return {path: {PROPERTY + name.encode(): _encode(value)}}

        self._commit([path], change)

    def _commit(self, paths: Sequence[str], change: Change) -> None:
        """Change nodes in one revision; ``change`` gets those of the paths that exist, and gives the cells to write."""
        for attempt in range(TRIES):
            if attempt:
                self.retries += 1
                time.sleep(random.uniform(0, min(PAUSE_MS, 2**attempt)) / 1000)
                self.refresh()
            started = _now()
            made = self._next_id()
            self._cells.begin(made, "")
            before = self._nodes(paths, self._journal)
            changed = change(before)
            last = str(made).encode()
            rows = {_key(path): {LAST: last, **columns} for path, columns in changed.items()}
            self._cells.write(rows, made)
            alone = self._alone(list(rows), made)
            in_time = len(rows) > GUARDED or _now() - started < GRACE_MS - MARGIN_MS
            if alone and in_time and self._cells.decide(made, ABORT, COMMITTED):
                self._append(made)
                for path, columns in changed.items():
                    self._keep(path, _apply(before.get(path), columns))
                return
            self._cells.withdraw(rows, made)
        raise RuntimeError(
            f"gave up after {TRIES} attempts to commit a change of {paths[0]}; its last writer may have been too slow"
        )

    def _alone(self, rows: Sequence[bytes], made: int) -> bool:
        """Whether nobody unknown has touched the rows, or all who have could be told to abort."""
        for found in self._cells.versions(rows, LATEST).values():
            others = [revision for revision in found[LAST] if revision not in self._known and revision != made]
            if any(other < made for other in others):
                return False
            if not all(self._cells.decide(other, COMMITTED, ABORT) for other in others):
                return False
        return True

    # Reading

    def _nodes(self, paths: Sequence[str], journal: Sequence[int]) -> dict[str, Node]:
        """Those of the nodes that exist at the end of a journal; at the head, as far as possible from the cache."""
        head = journal is self._journal
        found = {}
        missing = []
        for path in paths:
            node = self._cache.get(path) if head else None
            if node is None:
                missing.append(path)
            else:
                self._cache.move_to_end(path)
                found[path] = node
        if missing:
            rows = self._cells.versions([_key(path) for path in missing], journal[-1] + 1)
            for path in missing:
                node = _parse(rows.get(_key(path), {}), journal)
                if node is not None:
                    found[path] = node
                    if head:
                        self._keep(path, node)
        return found

    def _keep(self, path: str, node: Node) -> None:
        self._cache[path] = node
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)

    def read(self, path: str) -> Properties | None:
        node = self._nodes([path], self._journal).get(path)
        return None if node is None else node.properties

    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        names = _existing(self._nodes([path], self._journal), path).children
        start = 0 if after is None else bisect_right(names, after)
        return names[start : start + limit]

    def subtree(self, path: str) -> int:
        start = _key(path)
        stop = start[:-1] + b"0"  # what comes after the slash
        rows = self._cells.below(start, stop, self._journal[-1] + 1)
        return sum(_parse(row, self._journal) is not None for key, row in rows.items() if key != start)

    def forget(self) -> None:
        self._cache.clear()

    # The past

    def mark(self) -> int:
        return self._journal[-1]

    def read_at(self, mark: object, path: str) -> Properties | None:
        if not isinstance(mark, int) or mark not in self._known:
            raise KeyError(f"unknown revision {mark!r}")
        journal = [revision for revision in self._journal if revision <= mark]
        node = self._nodes([path], journal).get(path)
        return None if node is None else node.properties

    # The end

    def size(self) -> int:
        return self._cells.size()

    def close(self) -> None:
        try:
            if self._owner:
                _ = self._cells.client  # a new connection where one is due
                self._cells.drop()
        finally:
            self._cells.close()


class LiteralSystem(LiteralKernel):
    """Through Thrift1, by happybase."""

    name: ClassVar[str] = "literal, happybase"
    cells_by: ClassVar[type[Cells]] = Thrift1Cells


class LiteralThrift2System(LiteralKernel):
    """Through Thrift2, so that nothing but the algorithm differs from hbasemk."""

    name: ClassVar[str] = "literal, Thrift2"
    cells_by: ClassVar[type[Cells]] = Thrift2Cells


def _now() -> int:
    return time.time_ns() // 1_000_000 - EPOCH_MS


def _key(path: str) -> bytes:
    """A node's row: a slash at the end makes a subtree one range."""
    return (path.rstrip("/") + "/").encode()


def _encode(value: int | str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _existing(nodes: Mapping[str, Node], path: str) -> Node:
    if path not in nodes:
        raise KeyError(f"there is no node {path}")
    return nodes[path]


def _newest(versions: Mapping[int, bytes], journal: Sequence[int]) -> bytes | None:
    """The value of a column: the walk down the journal."""
    for revision in reversed(journal):
        if revision in versions:
            return versions[revision]
    return None


def _parse(row: Versions, journal: Sequence[int]) -> Node | None:
    """A node from all versions of its row; None if it does not exist."""
    values = {column: _newest(versions, journal) for column, versions in row.items()}
    if values.get(DELETED) != ALIVE:
        return None
    return _apply(None, {column: value for column, value in values.items() if value is not None})


def _apply(node: Node | None, columns: Columns) -> Node:
    """A node after some of its columns have changed."""
    properties: dict[str, Any] = {} if node is None else dict(node.properties)
    children = [] if node is None else node.children
    for column, value in columns.items():
        if column == CHILDREN:
            children = value.decode().split("/")
        elif column.startswith(PROPERTY):
            properties[column[len(PROPERTY) :].decode()] = json.loads(value)
    return Node(properties, children)
