"""What one commit writes, what it relies on, and how it is told: the table in section 4 of ``docs/protocol.md``.

A commit writes only the columns that it changes. It relies on what would make it wrong if someone else changed it at
the same time: so siblings added at once, or different properties of one node, never meet, while the removal of a
subtree meets every change in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbasemk.format import paths, schema, values
from hbasemk.format.changes import ADDED, CHANGED, REMOVED, RowChange
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit.operations import AddNode, Increment, Operation, SetProperty
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staging import StagedNode, Staging, name_conflict
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.store.abc import Column, NewCell, Put

_tuple: Final = tuple.__new__
"""Makes a named tuple of its fields at a third of the cost of calling its class."""
COLUMNS: Final = 10_000
"""So many columns of one row are read back by one get at most."""
MANY: Final = 32
"""The names of so many new children are looked for among the properties together, not one by one."""
_BORN: Final = (*schema.DELETED, schema.ALIVE)
_TOUCHED: Final = (*schema.LAST_REVISION, schema.TOUCHED)


@dataclass(slots=True)
class RowPlan:
    """One row's part of a commit: cells without their timestamps, and the columns to read back.

    A name is a property or a child, never both. So who sets a property relies on the child column of that name too, which
    must be ``must_be_absent`` in the node's life since ``since``; who adds a child on the property column (many of these are in
    ``name_probe``, the others in ``depends_on``). ``bytes`` is how many bytes of values reading back brings at least.
    """

    path: str
    key: bytes
    cells: list[tuple[bytes, bytes, bytes]]
    depends_on: dict[Column, None]
    must_be_absent: frozenset[Column] = frozenset()
    since: int = 0
    name_probe: frozenset[Column] = frozenset()
    bytes: int = 0


@dataclass(slots=True)
class ChangeSet:
    """A whole commit: ``rows`` in the order in which they are written, ``changes`` for the journal row.

    ``after`` holds the staged nodes, to tell the cache what they became; ``reads`` what a serializable transaction read.
    A row without cells is only relied on: ``unchanged`` holds the nodes of those rows.
    """

    rows: list[RowPlan]
    changes: list[RowChange]
    after: list[StagedNode]
    reads: ReadSet | None = None
    unchanged: list[StagedNode] = field(default_factory=list)

    def fits(self, longest_key: int, longest_value: int) -> bool:
        """Whether every qualifier and every value is at most so long."""
        return all(
            len(qualifier) <= longest_key and len(value) <= longest_value
            for row in self.rows
            for _, qualifier, value in row.cells
        )

    def puts(self, revision: int) -> list[Put]:
        """The cells at their revision, one put per row (step 6)."""
        return list(self.each_put(revision))

    def each_put(self, revision: int) -> Iterator[Put]:
        """The same one after the other, so that a large commit takes no second copy of its cells."""
        last = (revision,)
        for row in self.rows:
            if row.cells:
                yield _tuple(Put, (row.key, [_tuple(NewCell, cell + last) for cell in row.cells]))

    @property
    def size(self) -> int:
        """About how many bytes its cells are."""
        return sum(len(cell[1]) + len(cell[2]) for row in self.rows for cell in row.cells)

    def states(self, revision: int) -> dict[str, NodeState | None]:
        """What the touched nodes became."""
        found: dict[str, NodeState | None] = {}
        for node in self.after:
            if not node.exists:
                found[node.path] = None
            else:
                created = revision if node.fresh or node.base is None else node.base.created
                found[node.path] = NodeState(node.path, created, revision, node.all_encoded())
        return found


def build(staging: Staging) -> ChangeSet:
    """The change set of a staging."""
    return of_nodes(staging.staged(), staging.reads)


def of_nodes(nodes: Iterable[StagedNode], reads: ReadSet | None = None) -> ChangeSet:
    """The change set of nodes that differ from their base, or are relied on to be as in their base."""
    plans: list[RowPlan] = []
    told: list[RowChange] = []
    after: list[StagedNode] = []
    unchanged: list[StagedNode] = []
    for node in nodes:
        if node.base is None and not node.exists:
            continue
        if not node.dirty:
            if node.relies:
                depends_on = {schema.DELETED: None, **_unchanged(node)}
                plans.append(RowPlan(node.path, paths.key(node.path), [], depends_on, bytes=_bytes(node)))
                unchanged.append(node)
            continue
        plan, change = _plan(node)
        plans.append(plan)
        if len(plan.depends_on) > COLUMNS:
            plans += _divide(plan)
        told.append(change)
        after.append(node)
    return ChangeSet(plans, told, after, reads, unchanged)


def repeating(plan: ChangeSet) -> ChangeSet:
    """The same change set, but properties that were set to what is there are written as well.

    A branch reads nothing back. So its revisions record what they relied on by writing it, and the merge finds it there.
    """
    if not any(node.repeated for node in (*plan.after, *plan.unchanged)):
        return plan
    plans: list[RowPlan] = []
    told: list[RowChange] = []
    after: list[StagedNode] = []
    for node in (*plan.after, *plan.unchanged):
        if node.dirty or node.repeated:
            row, change = _plan(node)
            names = [name for name in node.repeated or () if name not in node.written] if node.relies else []
            for name in names:
                row.cells.append((*schema.property_column(name), node.encoded(name) or values.TOMBSTONE))
            plans.append(row)
            told.append(change._replace(properties=[*change.properties, *names]))
            after.append(node)
    return ChangeSet(plans, told, after, plan.reads)


def _divide(plan: RowPlan) -> Iterator[RowPlan]:
    """Leave to a row's plan the first of the columns that it relies on, and yield further plans with the others."""
    columns = list(plan.depends_on)
    plan.depends_on = dict.fromkeys(columns[:COLUMNS])
    must_be_absent, plan.must_be_absent = plan.must_be_absent, plan.must_be_absent & plan.depends_on.keys()
    for at in range(COLUMNS, len(columns), COLUMNS):
        depends_on = dict.fromkeys(columns[at : at + COLUMNS])
        yield RowPlan(plan.path, plan.key, [], depends_on, must_be_absent & depends_on.keys(), plan.since)


def _bytes(node: StagedNode) -> int:
    """How many bytes the values have that the commit and its snapshot hold in the properties that it relies on."""
    before = node.base.encoded if node.base is not None else {}
    size = sum(len(data or b"") + len(before.get(name, b"")) for name, data in node.written.items())
    return size + sum(len(before.get(name, b"")) for name in node.repeated or ())


def _unchanged(node: StagedNode) -> dict[Column, None]:
    """The columns that changes without effect rely on: the properties, and the children that must still be absent."""
    depends_on: dict[Column, None] = {}
    for name in node.repeated or ():
        if name not in node.written:
            depends_on[schema.property_column(name)] = None
    for name in node.withdrawn or ():
        if name not in node.children:
            # A property of that name would have refused the child.
            depends_on[schema.child_column(name)] = None
            depends_on[schema.property_column(name)] = None
    return depends_on


def _plan(node: StagedNode) -> tuple[RowPlan, RowChange]:
    cells: list[tuple[bytes, bytes, bytes]] = []
    plan = RowPlan(node.path, paths.key(node.path), cells, {})
    depends_on = plan.depends_on
    if not node.exists:
        kind = REMOVED
        cells.append((*schema.DELETED, schema.DEAD))
        depends_on[schema.LAST_REVISION] = None
    elif node.fresh:
        kind = ADDED
        cells.append(_BORN)
        if node.base is not None:
            # Its earlier life ends here as well. One that was not there needs no look: whoever made it, or touches what
            # was made, wrote (or has in its snapshot what wrote) the parent's child column.
            depends_on[schema.LAST_REVISION] = None
    else:
        kind = CHANGED
        depends_on[schema.DELETED] = None
    cells.append(_TOUCHED)
    if kind == ADDED:
        for name, data in node.written.items():
            cells.append((*schema.property_column(name), values.TOMBSTONE if data is None else data))
        for name, there in node.children.items():
            cells.append((schema.CHILDREN, paths.encode(name), schema.PRESENT if there else schema.GONE))
    else:
        for name, data in node.written.items():
            column = schema.property_column(name)
            cells.append((*column, values.TOMBSTONE if data is None else data))
            depends_on[column] = None
        for name, there in node.children.items():
            column = schema.child_column(name)
            cells.append((*column, schema.PRESENT if there else schema.GONE))
            depends_on[column] = None
        if kind == CHANGED:
            _keep_names_apart(node, plan)
            depends_on.update(_unchanged(node))
            plan.bytes = _bytes(node)
    present = [name for name, there in node.children.items() if there] if node.children else []
    gone = [name for name, there in node.children.items() if not there] if node.children else []
    change = RowChange(node.path, kind, list(node.written), present, gone)
    return plan, change


def _keep_names_apart(node: StagedNode, plan: RowPlan) -> None:
    assert node.base is not None
    plan.since = node.base.created
    plan.must_be_absent = frozenset(schema.child_column(name) for name in set_by(node) if name not in node.children)
    plan.depends_on.update(dict.fromkeys(plan.must_be_absent))
    added = [name for name, there in node.children.items() if there and name not in node.written]
    columns = [(schema.DATA, b"\x01" + paths.encode(name)) for name in added]
    if len(columns) < MANY:
        plan.depends_on.update(dict.fromkeys(columns))
    else:
        plan.name_probe = frozenset(columns)


def set_by(node: StagedNode) -> list[str]:
    """The names of the properties that are set, not removed."""
    return [name for name, data in node.written.items() if data is not None]


def require_vacant(reader: Reader, snapshot: View, plan: ChangeSet) -> None:
    """Raise InvalidChangeError when a property that is set has the name of a child: for commits that read nothing back.

    One round trip for each batch, none when no property of an older node is set.
    """
    wanted = {
        paths.join(node.path, name): (node.path, name)
        for node in plan.after
        if node.exists and not node.fresh and node.base is not None
        for name in set_by(node)
        if name not in node.children
    }
    for path, state in reader.nodes(snapshot, list(wanted)).items() if wanted else ():
        if state is not None:
            raise name_conflict(*wanted[path])


def predict_changes(operations: Sequence[Operation]) -> list[RowChange] | None:
    """What operations will touch at most, told without reading anything; None where that depends on the snapshot.

    It lets the journal row be created while the nodes are still being read (step 4).
    """
    rows: dict[str, tuple[str, dict[str, None], dict[str, None]]] = {}

    def row(path: str) -> tuple[str, dict[str, None], dict[str, None]]:
        return rows.setdefault(path, (CHANGED, {}, {}))

    for operation in operations:
        if isinstance(operation, AddNode):
            if operation.path in rows or operation.path == paths.ROOT:
                return None
            rows[operation.path] = (ADDED, dict.fromkeys(operation.properties), {})
            row(paths.parent(operation.path))[2][paths.name(operation.path)] = None
        elif isinstance(operation, (SetProperty, Increment)):
            row(operation.path)[1][operation.name] = None
        else:
            return None
    return [RowChange(path, kind, list(names), list(kids)) for path, (kind, names, kids) in rows.items()]
