"""How many children a node has, without listing a wide node's children each time.

Up to 1,000 child columns are read and counted. Of a wider node the first count reads all of them once and is kept: here,
with what arrives afterwards, and for other processes as a memo in the cluster table that tells a view of trunk in full
and the number in it. From a kept count to any other snapshot lead the columns written by the revisions that only one of
the two has (``docs/decisions/0008-child-count.md``).
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Final, NamedTuple

from hbasemk.errors import FormatError, StoreError
from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.node import NodeState
from hbasemk.kernel.batches import WHOLE, whole_rows
from hbasemk.kernel.journal.journal import BY_EXTENT, Arrival, Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import WIDE, Reader, count_of
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Get, NewCell, Put, Row, Scan, Store

REMEMBERED: Final = 1000
"""How many wide nodes, and how many single answers, an instance keeps."""
FEW: Final = 500
SHARE: Final = 64
"""Up to so many changed columns, or the node's children divided by this, are looked at one by one rather than all."""
TOLD: Final = 200
PER_REVISION: Final = 100
"""Up to so many revisions, or the node's children divided by this, the journal is asked what they changed; else its row."""
ABOVE: Final = 20_000
"""With more revisions than this above the settled ones no memo is left; a later count will do it."""


class Memo(NamedTuple):
    """A node whose life began at ``created`` has ``children`` children in a view of trunk, which is told in full:
    all that is committed up to ``floor``, where everything is decided, and the revisions ``above``.
    """

    created: int
    children: int
    floor: int
    above: tuple[int, ...]

    @property
    def view(self) -> View:
        """The view of trunk."""
        upper = max((self.floor, *self.above))
        return View(upper, BY_EXTENT, self.floor, upper, frozenset(self.above), upper)

    def encode(self) -> bytes:
        """The bytes of the cell: all numbers in 8 bytes each, deflated."""
        numbers = (self.created, self.children, self.floor, *self.above)
        return zlib.compress(b"".join(number.to_bytes(8, "big") for number in numbers), 1)

    @classmethod
    def decode(cls, data: bytes, path: str) -> Memo:
        """Read the cell of the node at ``path``; raises FormatError if it is damaged."""
        try:
            plain = zlib.decompress(data)
            created, children, floor, *above = (
                int.from_bytes(plain[at : at + 8], "big") for at in range(0, len(plain), 8)
            )
        except (ValueError, zlib.error) as error:
            raise FormatError(
                f"the memo that tells how many children {path} has is damaged ({len(data)} bytes); delete row "
                f"{schema.child_count_key(paths.key(path))!r} of table {schema.CLUSTER!r}, and they are counted again"
            ) from error
        return cls(created, children, floor, tuple(above))


class Counted(NamedTuple):
    """A count that is known: at a snapshot, for the life of the node that began at ``created``."""

    snapshot: View
    created: int
    children: int


class _Key(NamedTuple):
    """A node in a snapshot, without holding the snapshot."""

    path: str
    revision: int
    position: int
    floor: int
    own: frozenset[int]


class _Watched:
    """A wide node of trunk: the newest count known here, and the child columns that later arrivals wrote.

    ``log`` misses nothing that arrived at a position above ``complete``.
    """

    __slots__ = ("columns", "complete", "known", "log")

    def __init__(self, complete: int) -> None:
        self.complete = complete
        self.known: Counted | None = None
        self.log: list[tuple[int, list[str]]] = []
        self.columns = 0


class ChildCounts:
    """Counts children for one instance. Safe to be used by many threads."""

    def __init__(self, store: Store, runtime: Runtime, journal: Journal, reader: Reader) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._reader = reader
        self._lock = runtime.lock()
        self._watched: OrderedDict[str, _Watched] = OrderedDict()
        self._exact: OrderedDict[_Key, int] = OrderedDict()

    def of(self, snapshot: View, state: NodeState, *, wide: bool = False) -> int:
        """The number of children of a node that exists in the snapshot; ``wide``: it is known to be a wide one.

        No round trip for a wide node that was counted here already and has not changed since; one where it changed; one for
        a node that is not wide. Else a number that does not depend on how many children there are, or, if nobody has
        counted them yet or too much has changed, one for each 10,000 children.
        """
        with self._lock:
            key = _Key(state.path, snapshot.revision, snapshot.position, snapshot.floor, snapshot.own)
            exact = self._exact.get(key)
            if exact is not None:
                self._exact.move_to_end(key)
                return exact
        known, columns = self._remembered(snapshot, state)
        if known is not None:
            children = self._onwards(known, snapshot, state, columns)
            if children is not None:
                return self._keep(Counted(snapshot, state.created, children), state, self._watch(snapshot, state))
        elif not wide:
            cells, after = self._reader.child_page(snapshot, state, None, WIDE + 1)
            if after is None:
                return count_of(cells, state.created)
        watched = self._watch(snapshot, state)
        memo = self._read_memo(state)
        children = None if memo is None else self._from_memo(memo, snapshot, state)
        if children is None:
            children = self._count_all(snapshot, state, memo)
        return self._keep(Counted(snapshot, state.created, children), state, watched)

    def arrived(self, arrival: Arrival) -> None:
        """A revision becomes visible: note what it does to the nodes that are watched."""
        if not self._watched:
            return
        with self._lock:
            for change in arrival.changes:
                watched = self._watched.get(change.path)
                if watched is None:
                    continue
                watched.columns += len(change.present) + len(change.gone)
                children = 0 if watched.known is None else watched.known.children
                if watched.columns > _bound(children):
                    # Reading all of them anew is less work by now.
                    del self._watched[change.path]
                elif change.present or change.gone:
                    watched.log.append((arrival.position, [*change.present, *change.gone]))

    # --- in this process ---------------------------------------------------------------------------------

    def _remembered(self, snapshot: View, state: NodeState) -> tuple[Counted | None, set[bytes] | None]:
        """The count that is known here of this life of the node, and the columns written since it, if these are known."""
        with self._lock:
            watched = self._watched.get(state.path)
            if watched is None or watched.known is None or watched.known.created != state.created:
                return None, None
            self._watched.move_to_end(state.path)
            known, position = watched.known, watched.known.snapshot.position
            if snapshot.position < position:
                return known, None
            names = {name for at, some in watched.log if position < at <= snapshot.position for name in some}
        return known, {paths.encode(name) for name in names}

    def _watch(self, snapshot: View, state: NodeState) -> _Watched | None:
        """Have what arrives from now on noted, if a count at the snapshot can be carried on with that."""
        if snapshot.position < -1:
            return None
        with self._lock:
            watched = self._watched.get(state.path)
            if watched is None:
                watched = self._watched[state.path] = _Watched(0)
                # Only now: what is told after this finds the node watched.
                watched.complete = self._journal.announced
                if len(self._watched) > REMEMBERED:
                    self._watched.popitem(last=False)
            return watched

    def _keep(self, counted: Counted, state: NodeState, watched: _Watched | None) -> int:
        snapshot, _, children = counted
        with self._lock:
            self._exact[_Key(state.path, snapshot.revision, snapshot.position, snapshot.floor, snapshot.own)] = children
            if len(self._exact) > REMEMBERED:
                self._exact.popitem(last=False)
            if watched is not None and self._watched.get(state.path) is watched:
                known = watched.known
                if snapshot.position >= watched.complete and (
                    known is None or known.snapshot.position <= snapshot.position
                ):
                    watched.known = counted
                    watched.log = [entry for entry in watched.log if entry[0] > snapshot.position]
                    watched.columns = sum(len(names) for _, names in watched.log)
                elif known is None:
                    del self._watched[state.path]
        return children

    # --- from one snapshot to another --------------------------------------------------------------------

    def _onwards(self, known: Counted, snapshot: View, state: NodeState, columns: set[bytes] | None) -> int | None:
        """The count at another snapshot, given the columns that may differ (None: they are looked for).

        None when these are too many.
        """
        if columns is None:
            columns = self._differing(known, snapshot, state)
        if not columns:
            return None if columns is None else known.children
        before, after = self._reader.count_present((known.snapshot, snapshot), state.path, state.created, columns)
        return known.children + after - before

    def _differing(self, known: Counted, snapshot: View, state: NodeState) -> set[bytes] | None:
        """The child columns of a node that a revision which only one of two snapshots has may have written.

        None when these are too many. Read from the journal where that is less work than to pass over the node's row.
        """
        one = known.snapshot
        made = self._journal.between(one, snapshot)
        made += [which for which in one.own ^ snapshot.own if revisions.is_branch(which)]
        low, high = self._journal.unkept_range(one, snapshot)
        if not made and low >= high:
            return set()
        most = _bound(known.children)
        told = self._told(state.path, made, low, high, min(TOLD, known.children // PER_REVISION))
        if told is None:
            before = max(one.upper, snapshot.upper) + 1
            if low < high:
                made.append(low)
            found = self._reader.touched_children(state.path, min(made), before, most)
            return None if found is None else set(found)
        return told if len(told) <= most else None

    def _told(self, path: str, made: list[int], low: int, high: int, most: int) -> set[bytes] | None:
        """What the journal tells of a node's children in these revisions and in those from ``low`` to ``high``.

        None when they are more than ``most``, or not all there any more. At most two round trips.
        """
        if len(made) > most:
            return None
        rows: list[Row] = []
        if low < high:
            scan = Scan(schema.revision_key(low), schema.revision_key(high), most + 1, columns=WHOLE)
            rows += again(self._runtime, lambda: self._store.scan(schema.JOURNAL, scan))
            if len(rows) > most:
                return None
        if made:
            gets = [Get(schema.revision_key(which), WHOLE) for which in made]
            found = again(self._runtime, lambda: self._store.read(schema.JOURNAL, gets))
            if not all(row.cells for row in found):
                return None
            rows += found
        names: set[str] = set()
        for row in whole_rows(self._store, self._runtime, rows):
            for change in changes.of_row(row):
                if change.path == path:
                    names.update(change.present, change.gone)
        return {paths.encode(name) for name in names}

    # --- for every process -------------------------------------------------------------------------------

    def _from_memo(self, memo: Memo, snapshot: View, state: NodeState) -> int | None:
        """The count by the memo; None when it is of another life of the node, or too much has changed."""
        if memo.created != state.created:
            return None
        journal = self._journal
        if memo.floor >= journal.low_bound or not all(one <= journal.floor or journal.knows(one) for one in memo.above):
            # All of it was decided before the memo was written, so a poll since then has seen it.
            again(self._runtime, journal.poll)
        known = Counted(memo.view, memo.created, memo.children)
        columns = self._differing(known, snapshot, state)
        children = None if columns is None else self._onwards(known, snapshot, state, columns)
        if children is not None and columns is not None and len(columns) > FEW:
            # So much that the next one should not have to look at it again.
            self._leave_memo(snapshot, state, children, memo)
        return children

    def _count_all(self, snapshot: View, state: NodeState, memo: Memo | None) -> int:
        """Count by reading all child columns, and leave a memo."""
        children = 0
        after: bytes | None = None
        while True:
            cells, after = self._reader.child_page(snapshot, state, after)
            children += count_of(cells, state.created)
            if after is None:
                break
        if children > WIDE:
            self._leave_memo(snapshot, state, children, memo)
        return children

    def _leave_memo(self, snapshot: View, state: NodeState, children: int, memo: Memo | None) -> None:
        """Tell other processes; ``memo`` is what was told so far. Each memo is true for ever, so none needs to be newest."""
        if snapshot.position < -1 or not self._can_have_memo(state):
            return
        floor, above = self._journal.contents(snapshot)
        if memo is not None and memo.floor > floor:
            return
        if len(above) > ABOVE:
            return
        cell = NewCell(*schema.CHILD_COUNT, Memo(state.created, children, floor, tuple(above)).encode())
        put = Put(schema.child_count_key(paths.key(state.path)), [cell])
        try:
            self._store.write(schema.CLUSTER, [put], durable=False)
        except StoreError:
            # It only saves others time: a reader who may not write, or whom a full disk hinders, gets its answer.
            return

    def _can_have_memo(self, state: NodeState) -> bool:
        return len(schema.child_count_key(paths.key(state.path))) <= self._store.limits.row_key

    def _read_memo(self, state: NodeState) -> Memo | None:
        if not self._can_have_memo(state):
            return None
        get = Get(schema.child_count_key(paths.key(state.path)), columns=(schema.CHILD_COUNT,))
        row = again(self._runtime, lambda: self._store.read(schema.CLUSTER, [get]))[0]
        return Memo.decode(row.cells[0].value, state.path) if row.cells else None


def _bound(children: int) -> int:
    return max(FEW, children // SHARE)
