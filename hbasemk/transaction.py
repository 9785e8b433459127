"""Transactions: changes collected in order, validated and committed together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, TracebackType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from hbasemk import arguments, options
from hbasemk.errors import ClosedError, InvalidChangeError, PropertyNotFoundError
from hbasemk.format import limits, paths, revisions
from hbasemk.format.limits import shortened
from hbasemk.format.node import decode_properties, decode_property, encode_properties
from hbasemk.format.values import PropertyValue, Value
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.commit.operations import (
    AddEncoded,
    Adjust,
    CopyNode,
    Expect,
    Increment,
    MoveNode,
    Operation,
    RemoveNode,
    Require,
    SetEncoded,
    SetProperty,
)
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import TimeLimit

T = TypeVar("T")

Isolation: TypeAlias = Literal["snapshot", "serializable"]
"""``snapshot``: the columns written must not have changed. ``serializable``: nor the data read."""
_BUFFERS: Final = (bytearray, memoryview)
_new: Final = tuple.__new__
"""Creates a named tuple from its fields at a third of the cost of calling its class."""


def check_isolation(isolation: object) -> None:
    """Raise TypeError or InvalidValueError for anything but the two kinds."""
    arguments.choice(isolation, ("snapshot", "serializable"), "isolation")


def check_run(
    change: Callable[[Transaction], object], message: str, isolation: object, retry_timeout: float | None
) -> None:
    """Check the arguments of :meth:`Repository.run` and :meth:`Branch.run`; raise the error of the first wrong one."""
    arguments.function(change, "change")
    limits.check_message(message)
    check_isolation(isolation)
    if retry_timeout is not None:
        options.seconds("retry_timeout", retry_timeout, endless=True)


class Transaction:
    """Changes on one snapshot. Reading from it shows the snapshot with the changes so far.

    A transaction collects changes without a round trip. An invalid path, name, number or version, and an invalid value of
    :meth:`add`, raise an error at the call, which then changes nothing. The transaction validates the rest when it commits, or
    at the first read after a change. Such an error names the path. After it nothing is committed, even if the caller catches
    it: every later read, and the commit, raises the same error. A transaction belongs to one thread.
    :meth:`Repository.transaction` and :meth:`Repository.run` create transactions.

    With ``isolation="serializable"`` the commit also depends on everything that the transaction read: a node with all its
    properties, or its absence; a list of children as a whole. Such transactions are serializable among each other,
    those that only read included.

    ``if_version`` of some methods, and :meth:`expect`, compare the version of a node (:attr:`Node.version`) with the snapshot,
    however the transaction has changed the node before. The commit then also depends on all its properties. If they differ,
    or another commit changes them at the same time, the commit raises VersionMismatchError.
    """

    def __init__(self, instance: Instance, view: View, message: str, isolation: Isolation = "snapshot") -> None:
        """Begin a transaction; ``message`` and ``isolation`` are valid."""
        self._instance = instance
        self._view = view
        self._message = message
        self._operations = instance.collect_operations(view, serializable=isolation == "serializable")
        self._expected: dict[str, str | None] = {}
        self._done = False
        self._belongs_to_run = False
        self._pid = os.getpid()
        self._revision: int | None = None
        self._attempted: int | None = None

    # --- changes -----------------------------------------------------------------------------------------

    def add(self, path: str, properties: Mapping[str, PropertyValue] | None = None) -> None:
        """Add a node at ``path`` with ``properties``, values by name (None: no properties).

        Its parent must exist or be added before; the node itself must not exist. Raises InvalidPathError for an invalid
        path or name, InvalidValueError or LimitError for an invalid value. The errors of the change come with the next read or
        the commit: NodeNotFoundError, NodeExistsError, and InvalidChangeError if a property of the parent has the node's name.
        """
        path = arguments.new_path(path)
        given = {} if properties is None else arguments.properties(properties, path)
        self._take(_new(AddEncoded, (path, encode_properties(path, given))))

    def expect(self, path: str, version: str | None) -> None:
        """Require that the node at ``path`` has the given ``version`` (:attr:`Node.version`; None: no node); change nothing.

        Raises InvalidPathError, InvalidValueError for a text that is no version, and InvalidChangeError for a second, different
        version of one path. VersionMismatchError comes with the next read or the commit.
        """
        path = arguments.path(path)
        arguments.version(version, "version")
        if self._expected.setdefault(path, version) != version:
            raise InvalidChangeError(
                f"the transaction expects version {self._expected[path] or 'None'} of {shortened(path)} already, so it "
                f"cannot expect {version or 'None'} too; give one of them",
                path=path,
            )
        self._take(Expect(path, version))

    def _expect(self, path: str, version: str | EllipsisType | None) -> None:
        if not isinstance(version, EllipsisType):
            arguments.version(version, "if_version")
            self.expect(path, version)

    def set(
        self, path: str, name: str, value: PropertyValue | None, *, if_version: str | EllipsisType | None = ...
    ) -> None:
        """Set the property ``name`` of the existing node at ``path`` to ``value``; the value None removes it.

        ``if_version`` is the expected version of the node (``...``: any), as for :meth:`expect`.
        Raises InvalidPathError for an invalid path or name, and InvalidValueError for a text that is no version. The errors of
        the change come with the next read or the commit: NodeNotFoundError, InvalidChangeError if a child has this name,
        InvalidValueError or LimitError for the value, VersionMismatchError.
        """
        operation = SetProperty(arguments.path(path), arguments.property_name(name, path), _as_it_is(value))
        if if_version is not ...:
            self._expect(path, if_version)
        self._take(operation)

    def unset(self, path: str, name: str, *, if_version: str | EllipsisType | None = ...) -> None:
        """Remove the property ``name`` of the node at ``path``; an absent property is not an error.

        ``if_version`` is the expected version of the node (``...``: any), as for :meth:`expect`.
        Raises InvalidPathError for an invalid path or name, and InvalidValueError for a text that is no version. With the next
        read or the commit come NodeNotFoundError and VersionMismatchError.
        """
        self.set(path, name, None, if_version=if_version)

    def update(
        self,
        path: str,
        properties: Mapping[str, PropertyValue | None],
        *,
        if_version: str | EllipsisType | None = ...,
    ) -> None:
        """Set ``properties``, values by name, of the existing node at ``path``; a value of None removes a property.

        ``if_version`` is the expected version of the node (``...``: any), as for :meth:`expect`.
        The errors are those of :meth:`set`.
        """
        path = arguments.path(path)
        given = arguments.properties(properties, path)
        # All before the first is taken, because a value may raise, such as a released memoryview.
        operations: list[Operation] = [SetProperty(path, name, _as_it_is(value)) for name, value in given.items()]
        if not operations and if_version is ...:
            operations.append(Require(path))
        self._expect(path, if_version)
        for operation in operations:
            self._take(operation)

    def increment(self, path: str, name: str, amount: int | float = 1) -> None:
        """Add ``amount``, an int or a float, to the property ``name`` of the node at ``path``; an absent one counts as 0.

        Raises InvalidPathError for an invalid path or name. The errors of the change come with the next read or the commit:
        NodeNotFoundError, InvalidChangeError if the property is not a number, an int is too large to be added to a float, or a
        child has this name, and LimitError for an int of too many digits.
        """
        checked = arguments.property_name(name, arguments.path(path))
        self._take(Increment(path, checked, arguments.number(amount, "amount")))

    def adjust(self, path: str, name: str, by: int | float, *, if_version: str | EllipsisType | None = ...) -> None:
        """Add ``by``, an int or a finite float, to the number in the property ``name`` of the node at ``path``.

        An absent property counts as 0. Unlike :meth:`increment`, this does not depend on the property's value: it commits
        whatever others adjust, set or unset at the same time. A set that has not seen the adjust does not undo it. It
        conflicts only with the removal of the node and, if the property is absent, with a set of it and with a child of its
        name. The errors of the change come with the next read or the commit: NodeNotFoundError, and InvalidChangeError
        if the property is not a finite number. ``if_version`` is the expected version of the node (``...``: any), as for
        :meth:`expect`; the adjust then conflicts with every change of the node's properties.
        """
        operation = Adjust(arguments.path(path), arguments.property_name(name, path), arguments.finite(by, "by"))
        if if_version is not ...:
            self._expect(path, if_version)
        self._take(operation)

    def remove(self, path: str, *, if_version: str | EllipsisType | None = ...) -> None:
        """Remove the node at ``path`` with its subtree.

        ``if_version`` is the expected version of the node (``...``: any), as for :meth:`expect`.
        Raises InvalidPathError for an invalid path, and InvalidValueError for a text that is no version. With the next read or
        the commit come NodeNotFoundError, InvalidChangeError for the root, and VersionMismatchError.
        """
        self._expect(path, if_version)
        self._take(RemoveNode(arguments.path(path)))

    def move(self, source: str, target: str, *, if_version: str | EllipsisType | None = ...) -> None:
        """Move the node at the path ``source`` with its subtree to ``target``, which must not exist; its parent must.

        ``if_version`` is the expected version of the node at ``source`` (``...``: any), as for :meth:`expect`.
        Raises InvalidPathError for an invalid path, and InvalidValueError for a text that is no version. The errors of the
        change come with the next read or the commit: NodeNotFoundError for ``source`` or the parent of ``target``,
        NodeExistsError, VersionMismatchError, InvalidPathError if a node would have too many levels, and InvalidChangeError if
        ``source`` is the root, ``target`` is at or below it, or a property of the parent has the name of ``target``.
        """
        operation = MoveNode(arguments.path(source, "source"), arguments.new_path(target, "target"))
        self._expect(source, if_version)
        self._take(operation)

    def copy(self, source: str, target: str) -> None:
        """Copy the node at the path ``source`` with its subtree to ``target``, which must not exist; its parent must.

        Raises InvalidPathError for an invalid path. The errors of the change come with the next read or the commit:
        NodeNotFoundError for ``source`` or the parent of ``target``, NodeExistsError, InvalidPathError if a node would have too
        many levels, and InvalidChangeError if a property of the parent has the name of ``target``.
        """
        self._take(CopyNode(arguments.path(source, "source"), arguments.new_path(target, "target")))

    def _take(self, operation: Operation) -> None:
        if self._done:
            raise ClosedError("this transaction has ended; begin another one")
        self._operations.add(operation)

    # --- reading -----------------------------------------------------------------------------------------

    def load(self, paths: Sequence[str]) -> dict[str, dict[str, Value] | None]:
        """Return the properties of the nodes at ``paths``, by path, with the changes so far.

        The value for a node that does not exist is None. One round trip for each 1000 nodes.
        """
        checked = arguments.path_list(paths, "paths")
        staging = self._operations.staging()
        staging.load(checked)
        found: dict[str, dict[str, Value] | None] = {}
        for path in checked:
            node = staging.find(path)
            found[path] = None if node is None else decode_properties(path, node.all_encoded())
        return found

    def subtree(self, path: str) -> list[tuple[str, dict[str, Value]]]:
        """Return path and properties of each node at or below ``path``, parents first, with the changes so far.

        The list is empty when the node does not exist.
        """
        if self._find(path) is None:
            return []
        nodes = self._operations.staging().subtree(path)
        return [(node.path, decode_properties(node.path, node.all_encoded())) for node in nodes]

    def exists(self, path: str) -> bool:
        """Return whether a node exists at ``path``, with the changes so far."""
        return self._find(path) is not None

    def get(self, path: str, name: str, default: Value | None = None) -> Value | None:
        """Return the property ``name`` of the node at ``path``, with the changes so far.

        Returns ``default`` if the node or the property does not exist.
        """
        arguments.text(name, "name")
        node = self._find(path)
        data = None if node is None else node.encoded(name)
        return default if data is None else decode_property(path, name, data)

    def properties(self, path: str) -> dict[str, Value]:
        """Return all properties of the node at ``path``, with the changes so far. Raises NodeNotFoundError."""
        node = self._find(path)
        if node is None:
            raise self._operations.staging().missing(path)
        return decode_properties(path, node.all_encoded())

    def children(self, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of children of the node at ``path``, with the changes so far, in the order of their UTF-8 bytes.

        ``after``: only names after this one (None: all). ``limit``: at most this many (None: all); the call then reads only
        these, and one more for each child that the transaction has removed. A serializable transaction depends on the whole list
        even if it reads a part. Raises NodeNotFoundError.
        """
        path = arguments.path(path)
        if after is not None:
            arguments.text(after, "after")
        if limit is not None:
            arguments.count(limit, "limit")
        names = self._operations.staging().children(path, after, limit)
        if names is None:
            raise self._operations.staging().missing(path)
        return names

    def __getitem__(self, key: tuple[str, str]) -> Value:
        """Return a property, ``tx[path, name]``, with the changes so far; ``key`` consists of the node's path and the name.

        Raises NodeNotFoundError, PropertyNotFoundError, and InvalidPathError for an invalid path.
        """
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(
                f"a transaction expects [path, name], got [{limits.shown(key)}]; properties(path) returns all of a node"
            )
        path, name = key
        arguments.text(name, "name")
        found = self.properties(path)
        if name not in found:
            raise PropertyNotFoundError(
                f"the node {shortened(path)} has no property {limits.shown(name)}", path=path, name=name
            )
        return found[name]

    def __contains__(self, path: object) -> bool:
        return paths.is_path(path) and self.exists(path)

    def _find(self, path: str) -> StagedNode | None:
        return self._operations.staging().find(arguments.path(path))

    # --- the end -----------------------------------------------------------------------------------------

    @property
    def revision(self) -> str | None:
        """The revision of the commit; None before it, and the base's revision if nothing changed."""
        return None if self._revision is None else revisions.to_text(self._revision)

    @property
    def attempted(self) -> str | None:
        """The newest revision id that a commit of this transaction began to write with; None while there is none.

        After an error or a KeyboardInterrupt in the commit, ``repo.outcome(tx.attempted)`` returns whether the transaction is
        committed. While ``attempted`` is None, nothing has been committed.
        """
        return None if self._attempted is None else revisions.to_text(self._attempted)

    def _record_attempt(self, revision: int) -> None:
        self._attempted = revision

    def commit(self) -> str:
        """Commit now, as the end of the ``with`` block does; return the revision in text form.

        Raises ConflictError, CommitUnknownError, LimitError if the commit is too large, ClosedError if the transaction has
        ended or belongs to a call of ``run``, the errors of the changes, and the store's errors.
        """
        if self._done:
            raise ClosedError("this transaction has ended; begin another one")
        if self._belongs_to_run:
            raise ClosedError(
                "run() commits this transaction when its function returns; call neither commit() nor a with block there"
            )
        self._revision = self._instance.commit_on(self._view, source_of(self), self._message, self._record_attempt)
        return revisions.to_text(self._revision)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._done:
            self.commit()
        self._done = True

    def __repr__(self) -> str:
        return f"<Transaction {limits.shown(self._message)} on {revisions.to_text(self._view.revision)}>"


def _as_it_is(value: Any) -> Any:
    """Return a value that stays as it is now if the caller changes a list or a buffer later."""
    if isinstance(value, (list, tuple)):
        return [bytes(one) if isinstance(one, _BUFFERS) else one for one in value]
    return bytes(value) if isinstance(value, _BUFFERS) else value


def source_of(transaction: Transaction) -> ChangeSource:
    """End a transaction, and return its operations. In a forked child, raise ClosedError for one of the parent.

    A child would commit with the parent's instance, and so with the revision ids of the parent.
    """
    if transaction._pid != os.getpid():
        raise ClosedError("this transaction began before a fork, in the parent process; begin another one here")
    transaction._done = True
    return transaction._operations


def load_encoded(transaction: Transaction, valid: Sequence[str]) -> dict[str, dict[str, bytes] | None]:
    """Return the encoded properties of the nodes at valid paths, with the changes so far; see :meth:`Transaction.load`."""
    staging = transaction._operations.staging()
    staging.load(valid)
    found = ((path, staging.find(path)) for path in valid)
    return {path: None if node is None else node.all_encoded() for path, node in found}


def add_encoded(transaction: Transaction, path: str, properties: Mapping[str, bytes]) -> None:
    """Add a node at a valid path, with properties that are encoded already; see :meth:`Transaction.add`."""
    transaction._take(AddEncoded(path, properties))


def set_encoded(transaction: Transaction, path: str, name: str, data: bytes) -> None:
    """Set a property of a valid name to a value that is encoded already, and may be beyond the limits."""
    transaction._take(SetEncoded(path, name, data))


def run_on_head(
    instance: Instance,
    change: Callable[[Transaction], T],
    message: str,
    isolation: Isolation,
    retry_timeout: float | None,
) -> T:
    """Call ``change`` with a transaction on the head and commit it, again after a conflict; see :meth:`Repository.run`."""
    attempts: list[tuple[Transaction, T]] = []

    def make(view: View) -> ChangeSource:
        transaction = Transaction(instance, view, message, isolation)
        transaction._belongs_to_run = True
        attempts[:] = [(transaction, arguments.finished(change(transaction), "change"))]
        return source_of(transaction)

    def begun(revision: int) -> None:
        attempts[0][0]._record_attempt(revision)

    revision = instance.commit(make, message, retry_timeout=retry_timeout, begun=begun)
    last, result = attempts[0]
    last._revision = revision
    return result


def run_on_branch(
    instance: Instance,
    head: int,
    change: Callable[[Transaction], T],
    message: str,
    isolation: Isolation,
    retry_timeout: float | None,
) -> tuple[int, T]:
    """Call ``change`` with a transaction on a branch revision and commit it; return the new head and the result.

    See :meth:`Branch.run`.
    """
    with TimeLimit(instance.runtime, retry_timeout):
        transaction = Transaction(instance, instance.at(head), message, isolation)
        transaction._belongs_to_run = True
        result = arguments.finished(change(transaction), "change")
        revision = instance.commit_on_branch(head, source_of(transaction), message, transaction._record_attempt)
    transaction._revision = revision
    return revision, result
