"""One versioned tree of nodes and properties that many processes share, kept in HBase or in one SQLite file.

:func:`connect` opens a repository. Four types do the rest:

- :class:`Repository`: this process's connection to the tree. It is safe for threads; close it, or use it in ``with``.
- :class:`Snapshot`: the tree at one revision. It maps paths to :class:`Node` objects and never changes.
- :class:`Transaction`: changes that become one revision, all or nothing. :meth:`Repository.run` retries conflicts.
- :class:`Branch`: a private line of revisions that is merged into the tree as one revision.

::

    process 1                 process 2                  process 3
    Repository                Repository                 Repository
     | head -> Snapshot        | transaction()            | branch()
     |                         |   -> Transaction         |   -> Branch
     +------------+------------+------------+-------------+
                  |    commits, polls       |
              journal (one row per revision), nodes (one row per node)
                       HBase tables, or one SQLite file

No server coordinates the processes: each reads the shared journal and decides its own commits.

What to keep in mind:

- A snapshot is as new as the last poll. :meth:`Repository.refresh` polls now; background polling is on by default.
- The isolation level is snapshot isolation on SQLite: all processes see all commits in one order. On HBase it is parallel
  snapshot isolation: two processes may see unrelated commits in different orders. Transactions may request serializable.
- A commit that conflicts raises :class:`ConflictError`; one whose outcome is unknown raises :class:`CommitUnknownError`, and
  :meth:`Repository.outcome` returns the outcome later.
- On HBase, clocks of machines may differ by the repository's ``max_clock_skew_ms``; a process whose clock is further off
  cannot write. On SQLite clocks only decide how long leases and retention last.
- Snapshots stay readable for 7 days, or for another retention; writers delete older revisions. A
  :meth:`Repository.checkpoint` keeps one snapshot longer.

``docs/guide.md`` describes the API by task, and ``docs/protocol.md`` how the processes agree.
"""

from __future__ import annotations

# Type checkers take it for true. The module typing would take time to import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from hbasemk.blobs import RepositoryBlobs
    from hbasemk.branch import Branch
    from hbasemk.changes import Change, diff
    from hbasemk.checkpoint import Checkpoint
    from hbasemk.errors import (
        BlobNotFoundError,
        BranchError,
        CheckpointError,
        ClockSkewError,
        ClosedError,
        CommitUnknownError,
        ConflictError,
        FormatError,
        HbasemkError,
        InvalidChangeError,
        InvalidPathError,
        InvalidRevisionError,
        InvalidValueError,
        JsopError,
        LeaseLostError,
        LimitError,
        NodeDeletedError,
        NodeExistsError,
        NodeNotFoundError,
        PropertyNotFoundError,
        RevisionCollectedError,
        RevisionError,
        RevisionOverflowError,
        SchemaVersionError,
        StoreError,
        StoreNotAppliedError,
        StoreUnknownError,
        StoreUnusableError,
        UnknownRevisionError,
        VersionMismatchError,
    )
    from hbasemk.format.changes import RowChange
    from hbasemk.format.journal_row import Outcome
    from hbasemk.format.values import BlobRef, Json, PropertyValue, Value
    from hbasemk.kernel.commit.statistics import CommitStatistics
    from hbasemk.kernel.log import LogEntry
    from hbasemk.kernel.reading.cache import CacheStatistics
    from hbasemk.kernel.settings import Settings
    from hbasemk.microkernel import MicroKernel
    from hbasemk.open_branch import OpenBranch
    from hbasemk.opening import connect
    from hbasemk.repository import Repository
    from hbasemk.snapshot import Node, NodeStatus, Snapshot
    from hbasemk.transaction import Isolation, Transaction
    from hbasemk.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "BlobNotFoundError",
    "BlobRef",
    "Branch",
    "BranchError",
    "CacheStatistics",
    "Change",
    "Checkpoint",
    "CheckpointError",
    "ClockSkewError",
    "ClosedError",
    "CommitStatistics",
    "CommitUnknownError",
    "ConflictError",
    "FormatError",
    "HbasemkError",
    "InvalidChangeError",
    "InvalidPathError",
    "InvalidRevisionError",
    "InvalidValueError",
    "Isolation",
    "Json",
    "JsopError",
    "LeaseLostError",
    "LimitError",
    "LogEntry",
    "MicroKernel",
    "Node",
    "NodeDeletedError",
    "NodeExistsError",
    "NodeNotFoundError",
    "NodeStatus",
    "OpenBranch",
    "Outcome",
    "PropertyNotFoundError",
    "PropertyValue",
    "Repository",
    "RepositoryBlobs",
    "RevisionCollectedError",
    "RevisionError",
    "RevisionOverflowError",
    "RowChange",
    "SchemaVersionError",
    "Settings",
    "Snapshot",
    "StoreError",
    "StoreNotAppliedError",
    "StoreUnknownError",
    "StoreUnusableError",
    "Transaction",
    "UnknownRevisionError",
    "Value",
    "VersionMismatchError",
    "Watch",
    "connect",
    "diff",
]

_HOMES = {
    "RepositoryBlobs": "blobs",
    "Branch": "branch",
    "Change": "changes",
    "diff": "changes",
    "Checkpoint": "checkpoint",
    "BlobNotFoundError": "errors",
    "BranchError": "errors",
    "CheckpointError": "errors",
    "ClockSkewError": "errors",
    "ClosedError": "errors",
    "CommitUnknownError": "errors",
    "ConflictError": "errors",
    "FormatError": "errors",
    "HbasemkError": "errors",
    "InvalidChangeError": "errors",
    "InvalidPathError": "errors",
    "InvalidRevisionError": "errors",
    "InvalidValueError": "errors",
    "JsopError": "errors",
    "LeaseLostError": "errors",
    "LimitError": "errors",
    "NodeDeletedError": "errors",
    "NodeExistsError": "errors",
    "NodeNotFoundError": "errors",
    "PropertyNotFoundError": "errors",
    "RevisionCollectedError": "errors",
    "RevisionError": "errors",
    "RevisionOverflowError": "errors",
    "SchemaVersionError": "errors",
    "StoreError": "errors",
    "StoreNotAppliedError": "errors",
    "StoreUnknownError": "errors",
    "StoreUnusableError": "errors",
    "UnknownRevisionError": "errors",
    "VersionMismatchError": "errors",
    "RowChange": "format.changes",
    "Outcome": "format.journal_row",
    "BlobRef": "format.values",
    "Json": "format.values",
    "PropertyValue": "format.values",
    "Value": "format.values",
    "CommitStatistics": "kernel.commit.statistics",
    "LogEntry": "kernel.log",
    "CacheStatistics": "kernel.reading.cache",
    "Settings": "kernel.settings",
    "MicroKernel": "microkernel",
    "OpenBranch": "open_branch",
    "connect": "opening",
    "Repository": "repository",
    "Node": "snapshot",
    "NodeStatus": "snapshot",
    "Snapshot": "snapshot",
    "Isolation": "transaction",
    "Transaction": "transaction",
    "Watch": "watch",
}
"""The module of the package that defines each public name. All are imported when the first name is used: together they take
most of the start-up of a command, and an interrupt (Ctrl-C) during that must not print a traceback."""
_MODULES = frozenset({"errors", "jsop"})
"""The public modules. They are attributes of the package, too."""

if not TYPE_CHECKING:
    # Type checkers use the imports above, and report a name that does not exist.

    def __getattr__(name: str) -> object:
        """Import all public names when the first one is used.

        All, because the name of an error may be used first when nothing can be imported any more: while Python ends, or
        without free file descriptors.
        """
        if name in _HOMES or name in _MODULES:
            import importlib

            if name in _MODULES:
                return importlib.import_module(f"{__name__}.{name}")
            found = {one: getattr(importlib.import_module(f"{__name__}.{_HOMES[one]}"), one) for one in __all__}
            globals().update(found)
            return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the names of the package, also of those that nobody has used yet."""
        return sorted({*globals(), *__all__, *_MODULES} - {"TYPE_CHECKING"})
