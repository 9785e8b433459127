"""The change set of a commit: its cells, its dependencies and its journal entry (``docs/protocol.md``, section 4).

A commit writes only the columns that it changes. It depends on the columns whose concurrent change would make it wrong.
So concurrent additions of siblings, or changes of different properties of one node, do not conflict; the removal of a
subtree conflicts with every change in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from hbasemk.errors import LimitError
from hbasemk.format import paths, schema, values
from hbasemk.format.changes import ADDED, CHANGED, REMOVED, RowChange
from hbasemk.format.limits import shortened, shown
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging, name_conflict
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Column, Put
from hbasemk.store.alike import AlikeCells, Columns, NewCellFields, size_of_new

_tuple: Final = tuple.__new__
"""Creates a named tuple from its fields at a third of the cost of calling its class."""
COLUMNS: Final = 10_000
"""The maximum number of columns of one row that one get reads back."""
ALIKE: Final = 30
"""Up to so many properties, the cells of a new node are :class:`AlikeCells`."""
MANY: Final = 32
"""From this number of new children on, one get of all properties checks their names, not one column each."""
_PROPERTIES: Final = bytes([schema.PROPERTY])
"""The qualifiers of properties begin with this byte, or a higher one."""
_NOTHING: Final[dict[Column, None]] = {}
"""The columns that most new nodes depend on; stays empty."""
_NO_CHILDREN: Final[tuple[tuple[str, ...], tuple[str, ...]]] = ((), ())
_child_column: Final = lru_cache(maxsize=1024)(schema.child_column)
"""Returns the column of a child with the name of a property. Many commits write the same properties."""
_NEVER_WRITTEN: Final[Mapping[bytes, int]] = {}
"""The columns that were written in a new node's life after its first revision; stays empty."""
_BEGIN_LIFE: Final = (*schema.DELETED, schema.ALIVE, None)
_END_LIFE: Final = (*schema.DELETED, schema.DEAD, None)
_FIRST: Final = (schema.ALIVE, schema.TOUCHED)
"""The values of the first two columns of a new node."""
_TOUCHED: Final = (*schema.LAST_REVISION, schema.TOUCHED, None)


@dataclass(slots=True)
class RowPlan:
    """One row's part of a commit: cells without their timestamps, and the columns to read back.

    A name is a property or a child, never both. Setting a property therefore also depends on the child column of that
    name, which is in ``must_be_absent``: it must list no child in the node's life, which began in ``since``. Adding a child
    depends on the property column of that name: in ``name_probe`` if there are many, else in ``depends_on``. ``value_bytes``
    is the least number of bytes of values that the read-back returns. ``created`` holds the bases of first adjusts (None: no
    first adjust): another
    version with the same bytes is no conflict. ``slot_probe`` holds the properties whose value must stay exact: the row
    depends on all their slots. ``names_in_doubt`` says that only the read-back shows whether a new property has the name of
    a child in the view. ``slots`` holds the slots that it writes; their cells are the last ones.
    """

    path: str
    key: bytes
    cells: Sequence[NewCellFields]
    depends_on: dict[Column, None]
    must_be_absent: frozenset[Column] = frozenset()
    since: int = 0
    name_probe: frozenset[Column] = frozenset()
    value_bytes: int = 0
    created: dict[Column, bytes] | None = None
    slot_probe: frozenset[str] = frozenset()
    names_in_doubt: bool = False
    slots: tuple[Column, ...] = ()

    def use_slots(self, totals: Mapping[Column, bytes]) -> None:
        """Write these totals of slots, in place of those of an earlier try, and depend on them."""
        cells, depends_on = list(self.cells), self.depends_on
        if self.slots:
            del cells[-len(self.slots) :]
            for column in self.slots:
                del depends_on[column]
        for column, total in totals.items():
            cells.append((*column, total, None))
            depends_on[column] = None
        self.cells, self.slots = tuple(cells), tuple(totals)


class Adjusting(NamedTuple):
    """A node with adjusts, its row, and the place of its entry in the changes."""

    node: StagedNode
    row: RowPlan
    at: int


@dataclass(slots=True)
class ChangeSet:
    """All changes of one commit: ``rows`` in the order of writing, ``changes`` for the journal row.

    ``after`` holds the staged nodes; the cache receives their new states. ``reads`` is what a serializable transaction
    read. The commit depends on a row without cells but does not write it; ``unchanged`` holds the nodes of those rows.
    ``expected`` holds the versions on which the commit depends, by path (None: no node).
    ``adjusting`` holds the nodes with adjusts, whose slots are not chosen yet (:mod:`hbasemk.kernel.commit.slots`), with their
    rows and their places in ``changes``; so the order of ``changes`` stays.
    ``private`` is the number of revisions of the branch that a merge commits: each may have left a version of each column.
    """

    rows: list[RowPlan]
    changes: list[RowChange]
    after: list[StagedNode]
    reads: ReadSet | None = None
    unchanged: list[StagedNode] = field(default_factory=list)
    expected: Mapping[str, str | None] = field(default_factory=dict)
    adjusting: list[Adjusting] = field(default_factory=list)
    private: int = 0

    def depends_on(self) -> ReadSet:
        """Return what the commit depends on besides ``rows``: what a serializable transaction read, and expected nodes."""
        reads = self.reads or ReadSet()
        return ReadSet({**reads.nodes, **dict.fromkeys(self.expected)}, reads.lists) if self.expected else reads

    def require_within_limits(self, store: RetryingStore) -> None:
        """Raise LimitError, which names the node and the property, if a cell exceeds the limits of the store."""
        if self._fits(store.limits.row_key, store.limits.surely):
            return
        try:
            store.check_puts(self.puts(0))
        except LimitError as error:
            raise _named(error, store.limits.together) from None

    def _fits(self, longest_key: int, longest_value: int) -> bool:
        """Return whether no qualifier and no value exceeds these lengths in bytes."""
        # Faster than all() over a generator, and each row of a load comes through here.
        for row in self.rows:
            cells = row.cells
            if type(cells) is AlikeCells and cells.fit(longest_key, longest_value):
                continue
            for _, qualifier, value, _ in cells:
                if len(value) > longest_value or len(qualifier) > longest_key:
                    return False
        return True

    def puts(self, revision: int) -> list[Put]:
        """Return the cells at their revision, one put per row (step 6)."""
        return [
            _tuple(Put, (row.key, row.cells, revision))
            for row in self.rows
            if type(row.cells) is AlikeCells or row.cells
        ]

    def each_put(self, revision: int) -> Iterator[Put]:
        """Yield the puts one by one."""
        for row in self.rows:
            if row.cells:
                yield _tuple(Put, (row.key, row.cells, revision))

    @property
    def size(self) -> int:
        """The approximate size of the cells in bytes."""
        return sum([size_of_new(row.cells) for row in self.rows])

    def states(self, revision: int, *, has_shared_mark: bool = False) -> dict[str, NodeState | None]:
        """Return the states of the touched nodes after the commit. ``has_shared_mark``: with a shared mark."""
        found: dict[str, NodeState | None] = {}
        cells = {row.path: row.cells for row in self.rows if type(row.cells) is not AlikeCells and row.cells}
        for node in self.after:
            path = node.path
            if not node.exists:
                found[path] = None
            elif node.is_new or node.base is None:
                adjusted = node.all_adjusted() if node.adjusted else None
                found[path] = NodeState(path, revision, revision, node.all_encoded(adjusted), _NEVER_WRITTEN, adjusted)
            else:
                later = {**node.base.later}
                for family, qualifier, _, _ in cells[path]:
                    if family == schema.DATA and qualifier >= _PROPERTIES:
                        later[qualifier] = revision
                adjusted = node.all_adjusted()
                encoded = node.all_encoded(adjusted)
                found[path] = NodeState(
                    path, node.base.created, revision, encoded, later, adjusted, has_shared_mark=has_shared_mark
                )
        return found


def build(staging: Staging) -> ChangeSet:
    """Return the change set of a staging."""
    plan = of_nodes(staging.nodes(), staging.reads)
    plan.expected = staging.expected
    return plan


def _named(error: LimitError, most: int) -> LimitError:
    """Return the error for a cell of ``nodes`` with the path of the node and the name of the property."""
    family, qualifier = getattr(error, "column", (b"", b""))
    if family != schema.DATA or qualifier[:1] != _PROPERTIES:
        return error
    path, name = paths.path_of(error.row), schema.property_name(qualifier)
    return LimitError(
        f"property {shown(name)} of {shortened(path)} has {error.size} bytes together with its name and its path; at most {most} "
        "are possible; nothing was committed. Store large content in a blob, or use a shorter name or path.",
        path=path,
        name=name,
    )


def of_nodes(nodes: Iterable[StagedNode], reads: ReadSet | None = None) -> ChangeSet:
    """Return the change set of those nodes that differ from their base or depend on it."""
    plans: list[RowPlan] = []
    row_changes: list[RowChange] = []
    after: list[StagedNode] = []
    unchanged: list[StagedNode] = []
    adjusting: list[Adjusting] = []
    for node in nodes:
        if node.is_new and node.exists:
            # Nearly all nodes of a load are such nodes.
            plan, change = _plan_of_new(node)
            plans.append(plan)
            row_changes.append(change)
            after.append(node)
            continue
        if node.base is None and not node.exists:
            continue
        if not node.dirty:
            if node.depends_on_base:
                depends_on = {schema.DELETED: None, **_columns_without_effect(node)}
                plan = RowPlan(node.path, paths.key(node.path), (), depends_on, value_bytes=_read_back_size(node))
                plan.slot_probe = _exact(node, reads)
                plans.append(plan)
                unchanged.append(node)
            continue
        plan, change = _plan(node)
        if node.exists and (reads is not None or node.exact):
            plan.slot_probe = _exact(node, reads)
        if node.exists and reads is not None:
            # The order of an adjust and a set matters to the other reads of a serializable transaction.
            plan.depends_on.update(dict.fromkeys(map(schema.property_column, node.slot_adjusts)))
        if node.adjusted:
            adjusting.append(_tuple(Adjusting, (node, plan, len(row_changes))))
        plans.append(plan)
        if len(plan.depends_on) > COLUMNS:
            plans += _divide(plan)
        row_changes.append(change)
        after.append(node)
    return ChangeSet(plans, row_changes, after, reads, unchanged, adjusting=adjusting)


def with_unchanged_writes(plan: ChangeSet) -> ChangeSet:
    """Return the change set with properties written that were set to the value they have.

    A branch commit reads nothing back. It records its dependencies by writing them; the merge finds them there.
    """
    if not any(node.repeated for node in (*plan.after, *plan.unchanged)):
        return plan
    plans: list[RowPlan] = []
    row_changes: list[RowChange] = []
    after: list[StagedNode] = []
    adjusting: list[Adjusting] = []
    for node in (*plan.after, *plan.unchanged):
        if node.dirty or node.repeated:
            row, change = _plan(node)
            written = {*node.written, *node.created} if node.depends_on_base else ()
            names = [name for name in node.repeated or () if name not in written] if node.depends_on_base else []
            unchanged = ((*schema.property_column(name), _unchanged_base(node, name), None) for name in names)
            row.cells = (*row.cells, *unchanged)
            if node.adjusted and not node.is_new:
                adjusting.append(Adjusting(node, row, len(row_changes)))
            plans.append(row)
            row_changes.append(change._replace(properties=[*change.properties, *names]))
            after.append(node)
    return ChangeSet(plans, row_changes, after, plan.reads, adjusting=adjusting)


def _unchanged_base(node: StagedNode, name: str) -> bytes:
    """Return the bytes that record a set of a property to the value it has.

    If an adjust has created the property, perhaps on the same branch, they are those of a set: the net effect of a branch
    ignores that its first adjust wrote them.
    """
    found = node.property_of(name)
    value = found.value()
    if found.created and found.is_set_to(value):
        found = found.set(value)
    return found.encode_base()


def _divide(plan: RowPlan) -> Iterator[RowPlan]:
    """Keep the first columns that a plan depends on, and yield further plans for the others."""
    columns = list(plan.depends_on)
    plan.depends_on = dict.fromkeys(columns[:COLUMNS])
    must_be_absent, plan.must_be_absent = plan.must_be_absent, plan.must_be_absent & plan.depends_on.keys()
    for at in range(COLUMNS, len(columns), COLUMNS):
        depends_on = dict.fromkeys(columns[at : at + COLUMNS])
        further = RowPlan(plan.path, plan.key, (), depends_on, must_be_absent & depends_on.keys(), plan.since)
        further.created = plan.created
        yield further


def _read_back_size(node: StagedNode) -> int:
    """Count the bytes that the commit and its view hold in the properties that it depends on."""
    before = node.base.encoded if node.base is not None else {}
    size = 0
    for name, data in node.written.items():
        size += len(data or b"") + len(before.get(name, b""))
    for name in node.repeated or ():
        size += len(before.get(name, b""))
    return size


def _exact(node: StagedNode, reads: ReadSet | None) -> frozenset[str]:
    """Return the properties on whose slots the commit depends: incremented ones; if serializable, all that are set."""
    names = node.exact or ()
    return frozenset(names) if reads is None else frozenset((*names, *node.written, *(node.repeated or ())))


def _columns_without_effect(node: StagedNode) -> dict[Column, None]:
    """Return the columns that changes without effect depend on: properties, and children that must still be absent."""
    depends_on: dict[Column, None] = {}
    for name in node.repeated or ():
        if name not in node.written:
            depends_on[schema.property_column(name)] = None
    for name in node.withdrawn or ():
        if name not in node.child_writes:
            # The child could be added only because no property had its name.
            depends_on[schema.child_column(name)] = None
            depends_on[schema.property_column(name)] = None
    return depends_on


def _plan(node: StagedNode) -> tuple[RowPlan, RowChange]:
    if node.exists and node.is_new:
        return _plan_of_new(node)
    cells: list[NewCellFields] = []
    plan = RowPlan(node.path, paths.key(node.path), (), {})
    depends_on = plan.depends_on
    if node.exists:
        kind = CHANGED
        depends_on[schema.DELETED] = None
    else:
        kind = REMOVED
        cells.append(_END_LIFE)
        depends_on[schema.LAST_REVISION] = None
    cells.append(_TOUCHED)
    for name, data in node.written.items():
        column = schema.property_column(name)
        cells.append((*column, node.base_of(name, data), None))
        depends_on[column] = None
    created: Sequence[str] = ()
    if node.adjusted:
        created = node.created
    if created:
        plan.created = {schema.property_column(name): node.property_of(name).create().encode_base() for name in created}
        cells += ((*column, data, None) for column, data in plan.created.items())
        depends_on.update(dict.fromkeys(plan.created))
    for name, is_present in node.child_writes.items():
        column = schema.child_column(name)
        cells.append((*column, schema.PRESENT if is_present else schema.GONE, None))
        depends_on[column] = None
    if kind == CHANGED:
        _keep_names_apart(node, plan, created)
        if node.repeated or node.withdrawn:
            depends_on.update(_columns_without_effect(node))
        plan.value_bytes = _read_back_size(node)
    # Python's garbage collector visits lists again and again, but not tuples of text and bytes.
    plan.cells = tuple(cells)
    children = _children(node) if node.child_writes else _NO_CHILDREN
    return plan, _tuple(RowChange, (node.path, kind, (*node.written, *created), *children, ()))


def _plan_of_new(node: StagedNode) -> tuple[RowPlan, RowChange]:
    """As :func:`_plan`, for a node whose life begins."""
    # If the node has an earlier life, that ends here as well. A node that was absent needs no such check: a commit that creates
    # it writes the parent's child column, and a commit that touches it has that version in its view.
    depends_on = _NOTHING if node.base is None else {schema.LAST_REVISION: None}
    written, path = node.written, node.path
    if not node.child_writes and not node.adjusted and len(written) <= ALIKE and None not in written.values():
        names, columns = _columns_of_new(tuple(written))
        found: tuple[bytes, ...] = (*_FIRST, *written.values())  # type: ignore[arg-type]
        plan = RowPlan(path, paths.key(path), AlikeCells(columns, found), depends_on)
        return plan, _tuple(RowChange, (path, ADDED, names, (), (), ()))
    cells: list[NewCellFields] = [_BEGIN_LIFE, _TOUCHED]
    if node.adjusted:
        written = {name: node.base_of(name, data) for name, data in written.items()}
    for name, data in written.items():
        cells.append((*schema.property_column(name), values.TOMBSTONE if data is None else data, None))
    for name, is_present in node.child_writes.items():
        cells.append((*schema.child_column(name), schema.PRESENT if is_present else schema.GONE, None))
    plan = RowPlan(path, paths.key(path), tuple(cells), depends_on)
    children = _children(node) if node.child_writes else _NO_CHILDREN
    return plan, _tuple(RowChange, (path, ADDED, tuple(written), *children, ()))


@lru_cache(maxsize=256)
def _columns_of_new(names: tuple[str, ...]) -> tuple[tuple[str, ...], Columns]:
    """Return the names, and the columns that the first revision of a node with these properties writes into its row.

    All such nodes share them.
    """
    qualifiers = [schema.DELETED[1], schema.LAST_REVISION[1], *(schema.property_column(name)[1] for name in names)]
    return names, Columns(schema.DATA, qualifiers)


def _children(node: StagedNode) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the children that the node gets, and of those that it loses."""
    writes = node.child_writes
    if all(writes.values()):
        return tuple(writes), ()
    added = tuple(name for name, is_present in writes.items() if is_present)
    return added, tuple(name for name, is_present in writes.items() if not is_present)


def _keep_names_apart(node: StagedNode, plan: RowPlan, created: Sequence[str]) -> None:
    assert node.base is not None
    plan.since = node.base.created
    must_be_absent: dict[Column, None] = {}
    for name in _names_written(node, created):
        if name not in node.child_writes:
            must_be_absent[_child_column(name)] = None
            if name not in node.base.encoded:
                plan.names_in_doubt = True
    plan.must_be_absent = frozenset(must_be_absent)
    plan.depends_on.update(must_be_absent)
    if not node.child_writes:
        return
    added = [name for name, is_present in node.child_writes.items() if is_present and name not in node.written]
    columns = [(schema.DATA, b"\x01" + paths.encode(name)) for name in added]
    if len(columns) < MANY:
        plan.depends_on.update(dict.fromkeys(columns))
    else:
        plan.name_probe = frozenset(columns)


def _names_written(node: StagedNode, created: Sequence[str]) -> list[str]:
    """Return the names of the properties that are set or created, not removed."""
    names = []
    for name, data in node.written.items():
        if data is not None:
            names.append(name)
    names += created
    return names


def require_free_names(reader: Reader, view: View, plan: ChangeSet) -> None:
    """Raise InvalidChangeError if a property that is set has the name of a child.

    For commits that read nothing back. One round trip per batch; none if no property of an existing node is set.
    """
    by_child_path = {
        paths.join(node.path, name): (node.path, name)
        for node in plan.after
        if node.exists and not node.is_new and node.base is not None
        for name in _names_written(node, node.created)
        if name not in node.child_writes
    }
    possible = [path for path in by_child_path if paths.is_path(path)]
    for path, state in reader.nodes(view, possible).items() if possible else ():
        if state is not None:
            raise name_conflict(*by_child_path[path])
