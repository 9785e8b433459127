"""The microkernel on HBase as published around 2013, step by step, so that hbasemk's changes show as a factor.

The cost of each step, where it is higher than necessary:

- *Children* are one list in one cell of the parent. Adding a child to n children writes n names again: n additions one by one
  write O(n²) bytes, and all of them stay as versions. A page needs the whole list. Two concurrent siblings conflict.
- *Reading* a node fetches every version of every column, so the cost grows with the node's history. For each column the reader
  then walks the journal from its newest revision down to one that has a version of the column: up to the whole journal.
- *Committing* takes five calls: write the journal row; read the nodes (as above, unless cached); write the cells; read all their
  versions to find other writers of the *row*, so changes of different properties of one node conflict too; the deciding
  compare-and-set. A conflict costs the first four again, a roll-back and a poll. There is no poll before the first attempt, so
  any change of the node by another process since the last poll costs one attempt.
- *Polling* scans the journal upwards from ``GRACE_MS`` before the previous poll and reads known rows again. Running processes
  never see a commit that takes longer, and their changes of its nodes fail forever. The first poll reads the whole journal into
  memory, so starting costs O(revisions).
- The *cache* of 1,000 nodes belongs to one head: any new revision clears it, whatever nodes that revision changed.
- There is no diff, and there are no branches; the published code has neither.

Some details differ from the published code, which would otherwise give wrong answers or no figures. None of them costs a call.
Machine ids are random instead of a hash of the MAC address, which all processes of a machine share. A revision id is made after
the poll and above all known ids, and the journal is sorted by id; otherwise increments get lost. Random short pauses separate
attempts; without them eight processes on one node commit less than half as often. The published code rolls back a commit that
took nearly the grace period, so it can never commit 10,000 nodes; here commits of more than ``GUARDED`` rows are exempt.
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
"""Milliseconds by which a poll overlaps the previous one, as in the published code."""
CACHED: Final = 1000
"""Nodes in the cache, as in the published code."""
TRIES: Final = 200
"""Attempts of one commit: twice as many as published, so that many processes can change one parent."""
MARGIN_MS: Final = 200
"""Milliseconds of the grace period that a commit reserves for its last call."""
GUARDED: Final = 100
"""The largest number of rows with which a commit must finish within the grace period."""
PAUSE_MS: Final = 50
"""The longest pause before another attempt, in ms. The first pauses are shorter."""
EPOCH_MS: Final = 1_356_998_400_000
"""2013-01-01T00:00Z."""

DELETED, LAST, CHILDREN, PROPERTY = b"\0deleted", b"\0lastRevision", b"\0childNodes", b"\x01"
ALIVE: Final = b"\0"
LATEST: Final = 2**63 - 1


class Node(NamedTuple):
    """A node at a revision. ``children`` are sorted."""

    properties: Properties
    children: list[str]


Columns = Mapping[bytes, bytes]
Change = Callable[[Mapping[str, Node]], Mapping[str, Columns]]


class Published2013Kernel(System):
    """The algorithm. Subclasses choose the gateway."""

    cells_type: ClassVar[type[Cells]]

    def __init__(self, place: str, owner: bool) -> None:
        self._cells = self.cells_type(place)
        self._owner = owner
        self._place = place
        self._machine = int.from_bytes(os.urandom(2), "big")
        self._last_id = 0
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
    def create(cls, place: str) -> Published2013Kernel:
        return cls(place, owner=True)

    @classmethod
    def remove(cls, place: str) -> None:
        cells = cls.cells_type(place)
        try:
            cells.drop()
        finally:
            cells.close()

    def address(self) -> str:
        return self._place

    @classmethod
    def join(cls, address: str) -> Published2013Kernel:
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
        """Return an id above all known ids: 40 bits of ms, 16 bits of machine, 8 bits of counter."""
        newest = max(self._last_id, self._journal[-1])
        new = _now() << 24 | self._machine << 8
        if new <= newest:
            if newest >> 8 == new >> 8 and newest & 0xFF < 0xFF:
                new = newest + 1
            else:
                new = (newest >> 24) + 1 << 24 | self._machine << 8
        self._last_id = new
        return new

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
                    raise ValueError(f"node {path} exists already")
                rows[path] = {DELETED: ALIVE}
                rows[path].update({PROPERTY + key.encode(): _encode(value) for key, value in properties.items()})
            for parent, new in names.items():
                if parent not in before and parent not in added:
                    raise KeyError(f"node {parent} does not exist")
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
        """Commit one revision. ``change`` receives the existing nodes of ``paths`` and returns the cells to write."""
        for attempt in range(TRIES):
            if attempt:
                self.retries += 1
                time.sleep(random.uniform(0, min(PAUSE_MS, 2**attempt)) / 1000)
                self.refresh()
            started = _now()
            revision = self._next_id()
            self._cells.begin(revision, "")
            before = self._nodes(paths, self._journal)
            changed = change(before)
            last = str(revision).encode()
            rows = {_key(path): {LAST: last, **columns} for path, columns in changed.items()}
            self._cells.write(rows, revision)
            no_conflict = self._no_conflict(list(rows), revision)
            in_time = len(rows) > GUARDED or _now() - started < GRACE_MS - MARGIN_MS
            if no_conflict and in_time and self._cells.decide(revision, ABORT, COMMITTED):
                self._append(revision)
                for path, columns in changed.items():
                    self._cache_node(path, _apply(before.get(path), columns))
                return
            self._cells.roll_back(rows, revision)
        raise RuntimeError(
            f"{TRIES} attempts to change {paths[0]} failed; the last writer of the node may have exceeded the grace period"
        )

    def _no_conflict(self, rows: Sequence[bytes], own: int) -> bool:
        """Return whether no unknown revision wrote to the rows. Aborts newer pending revisions that did."""
        for found in self._cells.versions(rows, LATEST).values():
            others = [revision for revision in found[LAST] if revision not in self._known and revision != own]
            if any(other < own for other in others):
                return False
            if not all(self._cells.decide(other, COMMITTED, ABORT) for other in others):
                return False
        return True

    # Reading

    def _nodes(self, paths: Sequence[str], journal: Sequence[int]) -> dict[str, Node]:
        """Return the nodes that exist at the end of a journal. The cache serves reads at head."""
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
                        self._cache_node(path, node)
        return found

    def _cache_node(self, path: str, node: Node) -> None:
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
        stop = start[:-1] + b"0"  # the character after the slash
        rows = self._cells.below(start, stop, self._journal[-1] + 1)
        return sum(_parse(row, self._journal) is not None for key, row in rows.items() if key != start)

    def clear_caches(self) -> None:
        self._cache.clear()

    # History

    def mark(self) -> int:
        return self._journal[-1]

    def read_at(self, mark: object, path: str) -> Properties | None:
        if not isinstance(mark, int) or mark not in self._known:
            raise KeyError(f"mark must be a known revision, got {mark!r}")
        journal = [revision for revision in self._journal if revision <= mark]
        node = self._nodes([path], journal).get(path)
        return None if node is None else node.properties

    # Closing

    def size(self) -> int:
        return self._cells.size()

    def close(self) -> None:
        try:
            if self._owner:
                _ = self._cells.client  # reconnect after idle time
                self._cells.drop()
        finally:
            self._cells.close()


class Published2013Thrift1System(Published2013Kernel):
    """The algorithm through Thrift1, by happybase."""

    name: ClassVar[str] = "published 2013, happybase"
    cells_type: ClassVar[type[Cells]] = Thrift1Cells


class Published2013Thrift2System(Published2013Kernel):
    """The algorithm through Thrift2, so that only the algorithm differs from hbasemk."""

    name: ClassVar[str] = "published 2013, Thrift2"
    cells_type: ClassVar[type[Cells]] = Thrift2Cells


def _now() -> int:
    return time.time_ns() // 1_000_000 - EPOCH_MS


def _key(path: str) -> bytes:
    """Return the row key of a node. The slash at its end makes a subtree one range."""
    return (path.rstrip("/") + "/").encode()


def _encode(value: int | str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _existing(nodes: Mapping[str, Node], path: str) -> Node:
    if path not in nodes:
        raise KeyError(f"node {path} does not exist")
    return nodes[path]


def _newest(versions: Mapping[int, bytes], journal: Sequence[int]) -> bytes | None:
    """Return the newest value of a column by a walk down the journal."""
    for revision in reversed(journal):
        if revision in versions:
            return versions[revision]
    return None


def _parse(row: Versions, journal: Sequence[int]) -> Node | None:
    """Build a node from all versions of its row; None if it does not exist."""
    values = {column: _newest(versions, journal) for column, versions in row.items()}
    if values.get(DELETED) != ALIVE:
        return None
    return _apply(None, {column: value for column, value in values.items() if value is not None})


def _apply(node: Node | None, columns: Columns) -> Node:
    """Return a node after changes of columns."""
    properties: dict[str, Any] = {} if node is None else dict(node.properties)
    children = [] if node is None else node.children
    for column, value in columns.items():
        if column == CHILDREN:
            children = value.decode().split("/")
        elif column.startswith(PROPERTY):
            properties[column[len(PROPERTY) :].decode()] = json.loads(value)
    return Node(properties, children)
