"""Tables, families and columns of a repository (``docs/table-format.md``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hbasemk.errors import CHECK_ADVICE, FormatError
from hbasemk.format import paths
from hbasemk.format.limits import shown
from hbasemk.store.abc import ALL_VERSIONS, Column, Table

NODES: Final = "nodes"
JOURNAL: Final = "journal"
CLUSTER: Final = "cluster"
BLOBS: Final = "blobs"

DATA: Final = b"d"
CHILDREN: Final = b"c"

TABLES: Final = (
    Table(NODES, (DATA, CHILDREN), ALL_VERSIONS),
    Table(JOURNAL, (DATA,), 1, arrivals=True),
    Table(CLUSTER, (DATA,), 1),
    Table(BLOBS, (DATA,), 1),
)

# nodes
DELETED: Final[Column] = (DATA, b"\x00deleted")
LAST_REVISION: Final[Column] = (DATA, b"\x00lastRevision")
ALIVE: Final = b"\x00"
DEAD: Final = b"\x01"
TOUCHED: Final = b"\x01"
_MARK: Final = b"\x02"
_SHARED_MARK: Final = b"\x03"
PROPERTY: Final = 0x01
"""The first byte of a property's qualifier."""
SLOT: Final = 0x02
"""The first byte of a slot's qualifier: 4 bytes that name the slot follow, then the name of the property."""
SLOT_HEAD: Final = 5
"""The bytes of a slot's qualifier before the name."""
PRESENT: Final = b"\x01"
GONE: Final = b"\x00"

# journal
NO: Final = b"\x00"
YES: Final = b"\x01"
COMMITTED: Final[Column] = (DATA, b"committed")
ABORT: Final[Column] = (DATA, b"abort")
MESSAGE: Final[Column] = (DATA, b"message")
NONCE: Final[Column] = (DATA, b"nonce")
BASE: Final[Column] = (DATA, b"base")
CHANGES: Final = b"changes"
"""The qualifier of the first chunk; further chunks append their number as two bytes."""
SWEPT: Final[Column] = (DATA, b"swept")
SWEPT_CLEAN: Final = b"\x01"
"""Swept by its own writer, which received every reply: no cell of the revision can arrive later."""
SWEPT_IN_DOUBT: Final = b"\x02"
"""Swept by another instance, or after a lost reply: a paused writer or gateway may still write cells of the revision."""
BRANCH: Final[Column] = (DATA, b"branch")
BRANCH_VIEW: Final[Column] = (DATA, b"branchView")
BRANCH_HEAD: Final[Column] = (DATA, b"branchHead")
BRANCH_CLAIM: Final[Column] = (DATA, b"branchClaim")
REBASE_OF: Final[Column] = (DATA, b"rebaseOf")
NOTICE: Final = 0xFF
"""The key of the row with which polls learn a new horizon. It is no revision; the branch bit hides it from readers."""
NOTICE_HORIZON: Final = COMMITTED
"""The column of that row with the horizon, 8 bytes; one that polls read anyway."""
NOTICE_TRIMMED: Final = ABORT
"""The column of that row with the trim level (``trim_level.py``)."""
NOTICE_FIRST: Final = b"\x00"
"""The key of a row with a random value, which each change of a checkpoint replaces, in the column ``swept``.

Polls meet it by its arrival number. In stores that do not order all writes the value is in :data:`LOGS_TAIL`.
"""

# cluster
SETTINGS_ROW: Final = b"settings"
SETTINGS: Final[Column] = (DATA, b"settings")
WATERMARK: Final[Column] = (DATA, b"watermark")
ARRIVAL: Final[Column] = (DATA, b"arrival")
"""Stored with the watermark: an arrival number before the first write of every higher revision."""
CHECKPOINTS: Final[Column] = (DATA, b"checkpoints")
"""Exists if a checkpoint has ever been made."""
SCHEMA_VERSION: Final[Column] = (DATA, b"schemaVersion")
HORIZON: Final[Column] = (DATA, b"horizon")
"""Up to where old revisions are collected (``horizon.py``). In a store that does not order all writes, the cell is in
:data:`LOGS_TAIL`, and the settings row has a copy for claims."""
CLAIMS: Final[Column] = (DATA, b"claims")
"""In a store that does not order all writes: a counter that each claim and each move of the watermark increments, and the
watermark (``writer_log.py``)."""
RETENTION: Final[Column] = (DATA, b"retention")
"""How long old revisions stay readable."""
COLLECTING: Final[Column] = (DATA, b"collecting")
"""When a background collection began last, in ms since the epoch."""
COLLECTED: Final[Column] = (DATA, b"collected")
"""How far the collector has come (``kernel/collection``)."""
COLLECTED_ROWS: Final[Column] = (DATA, b"collectedRows")
"""How far it has deleted rows of ended branches and late cells."""
TRIMMED: Final[Column] = (DATA, b"trimmed")
"""Up to where rows of the journal may be deleted (``trim_level.py``). In a store that does not order all writes, the cell is in
:data:`LOGS_TAIL`."""
DELETED_ROWS: Final[Column] = (DATA, b"deletedRows")
"""In a store that does not order all writes: how far the collector has deleted journal rows of trunk."""
LEASE: Final[Column] = (DATA, b"lease")
CLOCK: Final[Column] = (DATA, b"clock")
CLOCK_ONCE: Final = b"clock:"
"""The beginning of the qualifier of a clock cell that is used once; 8 random bytes follow."""
CHILD_COUNT: Final[Column] = (DATA, b"childCount")
LOGS_HEAD: Final = b"log"
"""The key of the row before the writers' logs, with a copy of the watermark's revision, 8 bytes. Polls read it first."""
LOGS_TAIL: Final = b"log;"
"""The key of the row after the writers' logs, with the horizon, the trim level and the notice of checkpoints. Polls read it
last."""
LOGS_END: Final = b"log<"
LOG: Final[Column] = (DATA, b"log")
"""The ids that a writer has announced (``writer_log.py``)."""
INTENTS: Final = tuple((DATA, b"intent" + bytes((number,))) for number in range(8))
"""The changes of announced revisions that have no journal row before they are decided; the timestamp is the revision."""
RECENT_COMMITS: Final[Column] = (DATA, b"commits")
"""The last commits of a writer, with their changes (``recent_commits.py``)."""
LOG_HOLDER: Final[Column] = (DATA, b"holder")
"""The nonce of the lease whose holder may write the log, or :data:`CLOSED`."""
CLOSED: Final = b"closed"
CHECKPOINTS_NOTICE: Final[Column] = (DATA, b"notice")
"""A random value that each change of a checkpoint replaces."""


@lru_cache(maxsize=1024)
def property_column(name: str) -> Column:
    """Return the column of a property."""
    return DATA, b"\x01" + paths.encode(name)


@lru_cache(maxsize=1024)
def slot_column(name: str, slot: int) -> Column:
    """Return the column of a slot, in which one writer keeps the total of its adjusts of a property.

    ``slot`` is the writer's machine id << 16 | the number of the slot.
    """
    return DATA, b"\x02" + slot.to_bytes(4, "big") + paths.encode(name)


def mark(revision: int) -> bytes:
    """Return the value of ``lastRevision`` by which a revision marks a row: only its writer may compare this value."""
    return _MARK + revision.to_bytes(8, "big")


def shared_mark(revision: int) -> bytes:
    """Return the value of ``lastRevision`` by which a revision marks a row for all: each writer may compare this value."""
    return _SHARED_MARK + revision.to_bytes(8, "big")


def is_mark(value: bytes) -> bool:
    """Return whether a value of ``lastRevision`` marks the row, perhaps for all."""
    return value[:1] in (_MARK, _SHARED_MARK)


def is_slot(column: Column) -> bool:
    """Return whether a column is a slot."""
    return column[0] == DATA and column[1][:1] == b"\x02"


def child_column(name: str) -> Column:
    """Return the column of a child in its parent's row."""
    return CHILDREN, paths.encode(name)


def name_of(column: Column) -> str:
    """Return the name in a property, slot or child column."""
    family, qualifier = column
    if family == CHILDREN:
        return paths.decode(qualifier)
    return paths.decode(qualifier[SLOT_HEAD:] if qualifier[:1] == b"\x02" else qualifier[1:])


@lru_cache(maxsize=1024)
def property_name(qualifier: bytes) -> str:
    """Return the name in a property's qualifier. Nodes with the same properties share it."""
    return paths.decode(qualifier[1:])


def describe(column: Column) -> str:
    """Describe a column in words, for error messages."""
    family, qualifier = column
    if family == CHILDREN:
        return f"child {paths.decode(qualifier)!r}"
    if qualifier[:1] == b"\x01":
        return f"property {paths.decode(qualifier[1:])!r}"
    if qualifier[:1] == b"\x02":
        name = paths.decode(qualifier[SLOT_HEAD:])
        return f"slot {qualifier[1:SLOT_HEAD].hex()} of property {name!r}"
    return qualifier[1:].decode("ascii", "replace")


def damaged(problem: str, table: str, row: bytes, column: Column | None = None) -> FormatError:
    """Return the error for unreadable stored bytes; it names their location in the tables."""
    where = f"table {table!r}, row {shown(row)}"
    if column is not None:
        where += f", column {column[0].decode('ascii', 'backslashreplace')}:{shown(column[1])}"
    return FormatError(f"{problem} ({where}){CHECK_ADVICE}", table=table, row=row, column=column)


def revision_key(revision: int) -> bytes:
    """Return the row key of a revision in the journal table."""
    return revision.to_bytes(8, "big")


def machine_key(machine: int) -> bytes:
    """Return the row key of a machine id in the cluster table."""
    return machine.to_bytes(2, "big")


def log_key(machine: int) -> bytes:
    """Return the row key of the log of a machine id in the cluster table."""
    return b"log:" + machine.to_bytes(2, "big")


def log_machine(key: bytes) -> int | None:
    """Return the machine id of a log's row key; None if the key is another one."""
    return int.from_bytes(key[4:], "big") if len(key) == 6 and key.startswith(b"log:") else None


def child_count_key(node: bytes) -> bytes:
    """Return the row key of a node's child count in the cluster table; ``node`` is the node's row key."""
    return b"childCount:" + node
