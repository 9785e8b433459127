"""Child counts, without listing the children of a wide node each time.

The reader counts up to 1,000 child columns directly. For a wider node, the first count reads all columns once. This
process keeps the count and notes later arrivals. A memo in the cluster table keeps it for other processes, with the
extent of the view it is valid for. For the count in another view, the reader reads only the columns that were written by
revisions in one of the two views but not the other (``docs/decisions/0008-child-count.md``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from hbasemk.errors import FormatError, RevisionCollectedError, StoreError, UnknownRevisionError
from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.format.plural import counted
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.journal.rows import WHOLE, whole_rows
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import WIDE, Reader, count_of
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Get, NewCell, Put, Row, Scan

REMEMBERED: Final = 1000
"""The number of wide nodes, and of single counts, that an instance keeps."""
FEW: Final = 500
SHARE: Final = 64
"""Up to FEW changed columns, or children / SHARE if that is more, are read singly; beyond that, all are read."""
FROM_JOURNAL: Final = 200
PER_REVISION: Final = 100
"""For at most FROM_JOURNAL revisions, or children / PER_REVISION if that is less, the changed columns come from the
journal; beyond that, from the node's row."""
ABOVE: Final = 20_000
"""If more revisions than this lie above the floor, no memo is written; a later count writes one."""


class Memo(NamedTuple):
    """A stored count: in a view of trunk, a node whose life began at ``created`` has ``children`` children.

    All revisions up to the floor of the view's ``extent`` are decided.
    """

    created: int
    children: int
    extent: Extent

    @property
    def view(self) -> View:
        """The view of trunk."""
        upper = max(self.extent.above, default=self.extent.floor)
        return View.of(upper, self.extent, upper)

    def encode(self) -> bytes:
        """Return the bytes of the cell: all numbers in 8 bytes each, deflated."""
        return revisions.deflate((self.created, self.children, *self.extent.ids))

    @classmethod
    def decode(cls, data: bytes, path: str) -> Memo:
        """Parse the cell of the node at ``path``; raise FormatError if it is damaged."""
        try:
            created, children, floor, *above = revisions.inflate(data)
        except ValueError as error:
            problem = f"the stored child count of {path} is damaged ({counted(len(data), 'byte')})"
            raise schema.damaged(
                problem, schema.CLUSTER, schema.child_count_key(paths.key(path)), schema.CHILD_COUNT
            ) from error
        return cls(created, children, Extent.of(floor, above))


class Counted(NamedTuple):
    """A known count: in a view, for the life of the node that began at ``created``."""

    view: View
    created: int
    children: int


class _Key(NamedTuple):
    """A node in a view, without a reference to the view."""

    path: str
    revision: int
    position: int
    extent: Extent | None

    @classmethod
    def of(cls, path: str, view: View) -> _Key:
        """Return the key of a node in a view. A revision of a branch has only one view."""
        return cls(path, view.revision, view.position, None if view.own else view.extent)


class _Watched:
    """A wide node of trunk: the newest count known here, and the child columns that later arrivals wrote.

    ``log`` contains every arrival at a position above ``complete``.
    """

    __slots__ = ("columns", "complete", "known", "log")

    def __init__(self, complete: int) -> None:
        self.complete = complete
        self.known: Counted | None = None
        self.log: list[tuple[int, list[str]]] = []
        self.columns = 0


class ChildCounts:
    """Counts children for one instance. Thread-safe."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, reader: Reader) -> None:
        self._store = store
        self._journal = journal
        self._reader = reader
        self._lock = runtime.lock()
        self._watched: OrderedDict[str, _Watched] = OrderedDict()
        self._apart: OrderedDict[tuple[str, bool], Counted] = OrderedDict()
        """By path, the last count in a view with an extent: in one of a branch (True), and in one by time or of a checkpoint."""
        self._exact: OrderedDict[_Key, int] = OrderedDict()

    def of(self, view: View, state: NodeState, *, wide: bool = False) -> int:
        """Return the number of children of a node that exists in the view; ``wide``: the node is known to be wide.

        No round trip if the cache knows the children of a node that is not wide, else one. For a wide node that was counted here,
        none if it has not changed since, one if it has. Otherwise the number of round trips does not depend on the number of
        children. If no count exists yet or too much has changed, there is one for each 10,000 children.
        """
        names = self._reader.known_children(view, state.path)
        if names is not None and len(names) <= WIDE:
            return len(names)
        with self._lock:
            key = _Key.of(state.path, view)
            exact = self._exact.get(key)
            if exact is not None:
                self._exact.move_to_end(key)
                return exact
        known, columns = self._remembered(view, state)
        if known is not None:
            children = self._count_in(known, view, state, columns)
            if children is not None:
                return self._keep(Counted(view, state.created, children), state, self._watch(view, state))
        elif not wide:
            names = self._reader.few_children(view, state, WIDE)
            if names is not None:
                return len(names)
        watched = self._watch(view, state)
        memo, is_damaged = self._read_memo(state)
        children = None if memo is None else self._from_memo(memo, view, state)
        if children is None:
            children = self._count_all(view, state)
            # The integrity check reports a damaged memo, and repairs it.
            if children > WIDE and not is_damaged:
                self._write_memo(view, state, children, memo)
        return self._keep(Counted(view, state.created, children), state, watched)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Record what arriving revisions do to the watched nodes."""
        if not self._watched:
            return
        with self._lock:
            for position, change in ((arrival.position, change) for arrival in arrivals for change in arrival.changes):
                watched = self._watched.get(change.path)
                if watched is None:
                    continue
                watched.columns += len(change.children_added) + len(change.children_removed)
                children = 0 if watched.known is None else watched.known.children
                if watched.columns > _bound(children):
                    # Reading all columns again is cheaper now.
                    del self._watched[change.path]
                elif change.children_added or change.children_removed:
                    watched.log.append((position, [*change.children_added, *change.children_removed]))

    def forget(self, position: int) -> None:  # noqa: ARG002 - counts of earlier views stay valid there
        """Forget which arrivals followed the known counts: some were missed."""
        with self._lock:
            self._watched.clear()

    # --- in this process ---------------------------------------------------------------------------------

    def _remembered(self, view: View, state: NodeState) -> tuple[Counted | None, set[bytes] | None]:
        """Return the count known here for this life of the node, and the columns written since, if they are known."""
        with self._lock:
            watched = self._watched.get(state.path)
            known = None if watched is None else watched.known
            if view.extent is not None:
                known = self._closest(known, view, state)
            if known is None or known.created != state.created:
                return None, None
            if watched is not None:
                self._watched.move_to_end(state.path)
            position = known.view.position
            if watched is None or view.extent is not None or view.position < position:
                return known, None
            names = {name for at, some in watched.log if position < at <= view.position for name in some}
        return known, {paths.encode(name) for name in names}

    def _closest(self, known: Counted | None, view: View, state: NodeState) -> Counted | None:
        """Return the count that differs less from that in ``view``, which has an extent: ``known``, or one in such a view."""
        apart = self._apart.get((state.path, bool(view.own)))
        if apart is None or apart.created != state.created:
            return known
        if view.own:
            # A count of another branch would cost more than one of trunk.
            return apart if apart.view.extent == view.extent else known
        upper = view.upper
        return apart if known is None or abs(apart.view.upper - upper) < abs(known.view.upper - upper) else known

    def _watch(self, view: View, state: NodeState) -> _Watched | None:
        """Record later arrivals for the node, if they can extend a count in the view."""
        if view.extent is not None:
            return None
        with self._lock:
            watched = self._watched.get(state.path)
            if watched is None:
                watched = self._watched[state.path] = _Watched(0)
                # Read this after the node is watched: arrivals announced from now on are recorded.
                watched.complete = self._journal.announced
                if len(self._watched) > REMEMBERED:
                    self._watched.popitem(last=False)
            return watched

    def _keep(self, counted: Counted, state: NodeState, watched: _Watched | None) -> int:
        view, _, children = counted
        with self._lock:
            self._exact[_Key.of(state.path, view)] = children
            if len(self._exact) > REMEMBERED:
                self._exact.popitem(last=False)
            if view.extent is not None:
                self._apart[state.path, bool(view.own)] = counted
                self._apart.move_to_end((state.path, bool(view.own)))
                if len(self._apart) > REMEMBERED:
                    self._apart.popitem(last=False)
            if watched is not None and self._watched.get(state.path) is watched:
                known = watched.known
                if view.position >= watched.complete and (known is None or known.view.position <= view.position):
                    watched.known = counted
                    watched.log = [entry for entry in watched.log if entry[0] > view.position]
                    watched.columns = sum(len(names) for _, names in watched.log)
                elif known is None:
                    del self._watched[state.path]
        return children

    # --- from one view to another ------------------------------------------------------------------------

    def _count_in(self, known: Counted, view: View, state: NodeState, columns: set[bytes] | None) -> int | None:
        """Return the count in another view, given the columns that may differ (None: find them).

        Returns None if there are too many, or if the known count is too old.
        """
        try:
            if columns is None:
                columns = self._differing(known, view, state)
            before = after = 0
            if columns:
                before, after = self._reader.count_present((known.view, view), state.path, state.created, columns)
            # Removed children that the horizon has passed have no column any more, and revisions no journal row.
            self._journal.require_readable(known.view)
            self._journal.require_readable(view)
        except UnknownRevisionError:
            return None
        return None if columns is None else known.children + after - before

    def _differing(self, known: Counted, view: View, state: NodeState) -> set[bytes] | None:
        """Return the child columns of a node that revisions in only one of the two views may have written.

        None if there are too many. The columns come from the journal if that is cheaper than a scan of the node's row.
        """
        one = known.view
        ids = self._journal.between(one, view)
        ids += one.own ^ view.own
        is_same_trunk = view.extent is not None and view.extent == one.extent
        low, high = (0, 0) if is_same_trunk else self._journal.unkept_range(one, view)
        if not ids and low >= high:
            return set()
        most = _bound(known.children)
        columns = self._from_journal(state.path, ids, low, high, min(FROM_JOURNAL, known.children // PER_REVISION))
        if columns is None:
            before = max(one.upper, view.upper) + 1
            if low < high:
                ids.append(low)
            found = self._reader.touched_children(state.path, min(ids), before, most)
            return None if found is None else set(found)
        return columns if len(columns) <= most else None

    def _from_journal(self, path: str, ids: list[int], low: int, high: int, most: int) -> set[bytes] | None:
        """Return the child columns of a node that these revisions and those from ``low`` to ``high`` wrote.

        None if there are more than ``most`` revisions, or if a journal row is missing. At most two round trips.
        """
        if len(ids) > most:
            return None
        rows: list[Row] = []
        if low < high:
            scan = Scan(schema.revision_key(low), schema.revision_key(high), most + 1, columns=WHOLE)
            rows += self._store.scan(schema.JOURNAL, scan)
            if len(rows) > most:
                return None
        if ids:
            found = self._store.read(schema.JOURNAL, [Get(schema.revision_key(revision), WHOLE) for revision in ids])
            if not all(row.cells for row in found):
                return None
            rows += found
        names: set[str] = set()
        try:
            for row in whole_rows(self._store, journal_row.decode(rows)):
                for change in row.changes:
                    if change.path == path:
                        names.update(change.children_added, change.children_removed)
        except RevisionCollectedError:
            return None
        return {paths.encode(name) for name in names}

    # --- shared between processes ------------------------------------------------------------------------

    def _from_memo(self, memo: Memo, view: View, state: NodeState) -> int | None:
        """Return the count based on the memo; None if it is for another life of the node or too much has changed."""
        if memo.created != state.created:
            return None
        journal = self._journal
        floor, above = memo.extent
        if floor >= journal.low_bound or not all(one <= journal.floor or journal.knows(one) for one in above):
            # All these revisions were decided before the memo was written, so a poll now finds them.
            journal.poll()
        known = Counted(memo.view, memo.created, memo.children)
        columns = self._differing(known, view, state)
        children = None if columns is None else self._count_in(known, view, state, columns)
        if children is not None and columns is not None and len(columns) > FEW:
            # So many columns changed that a new memo saves the next reader work.
            self._write_memo(view, state, children, memo)
        return children

    def _count_all(self, view: View, state: NodeState) -> int:
        """Count by reading all child columns."""
        children = 0
        after: bytes | None = None
        while True:
            cells, after = self._reader.child_page(view, state, after)
            children += count_of(cells, state.created)
            if after is None:
                return children

    def _write_memo(self, view: View, state: NodeState, children: int, memo: Memo | None) -> None:
        """Write a memo for other processes; ``memo`` is the current one. A memo stays valid, so it need not be the newest."""
        if view.extent is not None or not self._can_have_memo(state):
            return
        extent = self._journal.contents(view)
        if memo is not None and memo.extent.floor > extent.floor:
            return
        if len(extent.above) > ABOVE:
            return
        cell = NewCell(*schema.CHILD_COUNT, Memo(state.created, children, extent).encode())
        put = Put(schema.child_count_key(paths.key(state.path)), [cell])
        try:
            self._store.once.write(schema.CLUSTER, [put], durable=False)
        except StoreError:
            # The memo is only an optimization: a reader without write access, or with a full disk, still gets its count.
            return

    def _can_have_memo(self, state: NodeState) -> bool:
        return len(schema.child_count_key(paths.key(state.path))) <= self._store.limits.row_key

    def _read_memo(self, state: NodeState) -> tuple[Memo | None, bool]:
        """Return the memo of a node, None if there is none, and whether it is damaged."""
        if not self._can_have_memo(state):
            return None, False
        get = Get(schema.child_count_key(paths.key(state.path)), columns=(schema.CHILD_COUNT,))
        row = self._store.read(schema.CLUSTER, [get])[0]
        try:
            return (Memo.decode(row.cells[0].value, state.path) if row.cells else None), False
        except FormatError:
            return None, True


def _bound(children: int) -> int:
    return max(FEW, children // SHARE)
