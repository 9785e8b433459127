"""hbasemk: a distributed microkernel on a wide-column store.

Many processes share one versioned tree of nodes and properties, kept in HBase or in one SQLite file. Start with
:func:`connect`.
"""

from __future__ import annotations

from hbasemk.blobs import RepositoryBlobs
from hbasemk.branch import Branch
from hbasemk.changes import Change, diff
from hbasemk.connect import connect
from hbasemk.errors import (
    BlobNotFoundError,
    BranchError,
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
    RevisionError,
    RevisionOverflowError,
    StoreError,
    StoreNotAppliedError,
    StoreUnknownError,
    StoreUnusableError,
    UnknownRevisionError,
)
from hbasemk.format.changes import RowChange
from hbasemk.format.values import BlobRef, Json, PropertyValue, Value
from hbasemk.kernel.commit.committer import CommitStatistics
from hbasemk.kernel.journal.outcomes import Outcome
from hbasemk.kernel.log import LogEntry
from hbasemk.kernel.settings import Settings
from hbasemk.microkernel import MicroKernel
from hbasemk.repository import Repository
from hbasemk.snapshot import Node, Snapshot
from hbasemk.transaction import Isolation, Transaction
from hbasemk.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "BlobNotFoundError",
    "BlobRef",
    "Branch",
    "BranchError",
    "Change",
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
    "Outcome",
    "PropertyNotFoundError",
    "PropertyValue",
    "Repository",
    "RepositoryBlobs",
    "RevisionError",
    "RevisionOverflowError",
    "RowChange",
    "Settings",
    "Snapshot",
    "StoreError",
    "StoreNotAppliedError",
    "StoreUnknownError",
    "StoreUnusableError",
    "Transaction",
    "UnknownRevisionError",
    "Value",
    "Watch",
    "connect",
    "diff",
]
