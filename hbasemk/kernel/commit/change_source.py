"""What a commit is made of: operations, a transaction, JSOP, or a change set that is already there.

The committer asks a source for two things. Its prediction allows the committer to create the journal row while the source
reads (step 4 of section 4 of ``docs/protocol.md``). Staging yields the change set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from hbasemk.errors import ClosedError
from hbasemk.format import paths
from hbasemk.format.changes import ADDED, CHANGED, RowChange
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.operations import (
    AddEncoded,
    AddNode,
    Adjust,
    Expect,
    Increment,
    Operation,
    Require,
    SetProperty,
    needed_by,
)
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staging import Staging
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader


class Prediction(NamedTuple):
    """The most that a commit can touch, and the paths of the nodes that staging reads.

    ``adjusts`` holds the paths and names of properties that it may adjust, whose slots are not chosen yet.
    """

    changes: list[RowChange]
    reads: Sequence[str]
    adjusts: Sequence[tuple[str, str]] = ()

    def with_slots(self, slots: Mapping[tuple[str, str], int]) -> list[RowChange]:
        """Return the changes with the slots of the properties."""
        of_path: dict[str, list[tuple[str, int, int]]] = {}
        for path, name in self.adjusts:
            slot = slots[path, name]
            of_path.setdefault(path, []).append((name, slot >> 16, slot & 0xFFFF))
        return [one._replace(adjusted=of_path.get(one.path, ())) for one in self.changes]


class ChangeSource(Protocol):
    """What a commit is made of. After a store error, the committer may stage it again."""

    def predict(self, limit: int, /) -> Prediction | None:
        """Return what the commit touches, without a read.

        None if that depends on the view, if a change is invalid, or if there are more than ``limit`` operations.
        """

    def stage(self, reader: Reader, view: View, absent: Collection[str] = (), /) -> ChangeSet:
        """Return the change set on a view. Raises the error of the first invalid change, and the store's errors.

        ``absent`` holds paths of a prediction. Nodes there may be taken for absent, without a read. If one exists, the result
        may be wrong.
        """


class OperationList:
    """Operations that are applied in order."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def predict(self, limit: int, /) -> Prediction | None:
        """Return what the operations touch, unless one of them removes, moves or copies a subtree."""
        return predict_operations(self._operations, limit)

    def stage(self, reader: Reader, view: View, absent: Collection[str] = (), /) -> ChangeSet:
        """Apply the operations to the view."""
        return _apply(Staging(reader, view, absent=absent), self._operations)


class CollectedOperations:
    """Operations of a transaction, which may read its view with the operations so far.

    ``reads`` receives what a serializable transaction reads. Operations are validated at the commit, or at the first read
    after them. After an error of a read, every later call raises the same error, so that no part is ever committed.
    """

    def __init__(self, reader: Reader, view: View, reads: ReadSet | None = None) -> None:
        self._reader = reader
        self._view = view
        self._reads = reads
        self._operations: list[Operation] = []
        self._staging: Staging | None = None
        self._staged = 0
        self._failed: Exception | None = None

    def add(self, operation: Operation) -> None:
        """Collect an operation. No round trip."""
        self._operations.append(operation)

    def staging(self) -> Staging:
        """Return the staging to which all operations so far are applied."""
        if self._staging is None:
            self._staging = Staging(self._reader, self._view, self._reads)
        if self._failed is not None:
            raise self._failed
        new = self._operations[self._staged :]
        if new:
            # A failed apply may have staged a part, which must never be committed.
            self._failed = ClosedError("this transaction was interrupted in the middle of a change; begin another one")
            try:
                self._staging.apply(new)
            except Exception as error:
                self._failed = error
                raise
            self._staged += len(new)
            self._failed = None
        return self._staging

    def predict(self, limit: int, /) -> Prediction | None:
        """Return what all operations touch, unless the transaction has failed or has read everything already."""
        if self._staging is None:
            return predict_operations(self._operations, limit)
        if self._failed is not None or self._staged == len(self._operations):
            return None
        prediction = predict_operations(self._operations, limit)
        return prediction and prediction._replace(reads=self._staging.not_loaded(prediction.reads))

    def stage(self, reader: Reader, view: View, absent: Collection[str] = (), /) -> ChangeSet:
        """Apply the operations that no read has applied yet. A transaction without reads can be staged repeatedly."""
        if self._staging is None:
            return _apply(Staging(reader, view, self._reads, absent), self._operations)
        return change_set.build(self.staging())


class ReadyChangeSet:
    """A change set that is already there, such as the net effect of a branch."""

    def __init__(self, plan: ChangeSet) -> None:
        self._plan = plan

    def predict(self, _: int, /) -> Prediction | None:
        """Return None: staging reads nothing, so the committer gains nothing by a prediction."""
        return None

    def stage(self, _reader: Reader, _view: View, _absent: Collection[str] = (), /) -> ChangeSet:
        """Return the change set."""
        return self._plan


def predict_operations(operations: Sequence[Operation], limit: int) -> Prediction | None:
    """Return the most that operations can touch.

    None if that depends on the view, if it is nothing, or if there are more than ``limit`` operations.
    """
    if len(operations) > limit:
        return None
    rows: dict[str, tuple[str, dict[str, None], dict[str, None]]] = {}
    adjusts: dict[tuple[str, str], None] = {}

    def row(path: str) -> tuple[str, dict[str, None], dict[str, None]]:
        return rows.setdefault(path, (CHANGED, {}, {}))

    for operation in operations:
        if isinstance(operation, (AddNode, AddEncoded)):
            if operation.path in rows or operation.path == paths.ROOT:
                return None
            rows[operation.path] = (ADDED, dict.fromkeys(operation.properties), {})
            row(paths.parent(operation.path))[2][paths.name(operation.path)] = None
        elif isinstance(operation, (SetProperty, Increment, Adjust)):
            kind, names, _ = row(operation.path)
            if kind == ADDED:
                _set_in_new_node(names, operation)
                continue
            # An adjust writes the property itself if there is none yet.
            names[operation.name] = None
            if isinstance(operation, Adjust):
                adjusts[operation.path, operation.name] = None
        elif not isinstance(operation, (Expect, Require)):
            return None
    if not rows:
        return None
    changes = [RowChange(path, kind, list(names), list(children)) for path, (kind, names, children) in rows.items()]
    return Prediction(changes, list(needed_by(operations).paths), list(adjusts))


def _set_in_new_node(names: dict[str, None], operation: SetProperty | Increment | Adjust) -> None:
    """Predict exactly: a new node has no property that was removed again, and no slots. The integrity check relies on it."""
    if isinstance(operation, SetProperty) and operation.value is None:
        names.pop(operation.name, None)
    elif not isinstance(operation, Adjust) or operation.by:
        names[operation.name] = None


def _apply(staging: Staging, operations: Sequence[Operation]) -> ChangeSet:
    staging.apply(operations)
    return change_set.build(staging)
