"""The problems that the integrity check finds: their kinds, their severity, and whether they can be repaired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hbasemk.store.abc import Delete

DAMAGE: Final = "damage"
"""Data that a reader sees, or will see, is wrong or missing."""
LEFTOVER: Final = "leftover"
"""Unfinished work that is invisible to readers; instances clean it up in time."""
NOTE: Final = "note"
"""For information: the repository is intact."""

# nodes
ROW_KEY: Final = "row key"
COLUMN: Final = "unknown column"
VALUE: Final = "undecodable value"
LIFE: Final = "broken life"
NO_LAST_REVISION: Final = "missing lastRevision"
MISSING: Final = "missing cell"
UNDECLARED: Final = "undeclared cell"
NO_ROW: Final = "cell without journal row"
ABORTED: Final = "cell of an aborted revision"
SWEPT: Final = "cell of a swept revision"
LATE: Final = "late cell"
DANGLING: Final = "dangling child"
ORPHAN: Final = "orphan node"
UNLISTED: Final = "unlisted node"
NAME_TWICE: Final = "name used twice"
LOST_UPDATE: Final = "lost update"
BLOB_REFERENCE: Final = "reference to a missing blob"
COLLECTABLE: Final = "uncollected versions"

# journal
JOURNAL_KEY: Final = "journal row key"
INCOMPLETE: Final = "incomplete journal row"
JOURNAL_VALUE: Final = "undecodable journal row"
BOTH: Final = "committed and aborted"
CHANGES: Final = "undecodable changes"
BASE: Final = "wrong base"
OUTSIDE_LEASE: Final = "id outside its lease"
OFF_CLOCK: Final = "id far from the server's time"
DEAD: Final = "pending revision of a dead writer"
UNSWEPT: Final = "aborted revision that is not swept"
SWEPT_WRONGLY: Final = "swept without being aborted"
BELOW_WATERMARK: Final = "unresolved revision below the watermark"
NOT_HIDDEN: Final = "revision in doubt that is not hidden"
ROW_AGAIN: Final = "journal row that was deleted before"
HIDDEN: Final = "committed revision that is hidden"
UNANNOUNCED: Final = "committed revision that is not announced"
NOT_NUMBERED: Final = "committed revision without an arrival number"
NUMBER: Final = "wrong arrival number"
BRANCH: Final = "damaged branch"
BRANCH_HEAD: Final = "unknown branch head"

# cluster
SETTINGS: Final = "undecodable settings"
WATERMARK: Final = "wrong watermark"
CHECKPOINT: Final = "undecodable checkpoint"
LEASE: Final = "wrong lease"
LOG: Final = "wrong log"
COUNT: Final = "wrong number of children"

# blobs
BLOB_ROW: Final = "blob row"
BLOB_CHUNK: Final = "missing chunk of a blob"
BLOB_LENGTH: Final = "wrong length of a blob"
BLOB_CONTENT: Final = "wrong content of a blob"
UPLOAD: Final = "unfinished upload"


@dataclass(frozen=True, slots=True)
class Problem:
    """A violated rule, or a note.

    ``kind`` names the rule. ``path`` (a node's path, a blob's id, or a row of the cluster table) and ``revision`` locate the
    problem, and ``detail`` describes it. ``repairable`` says whether ``Repair`` can repair it; ``cells`` are the exact cell
    versions that a repair deletes, if any.
    """

    kind: str
    path: str
    revision: str
    detail: str
    severity: str = DAMAGE
    repairable: bool = False
    cells: Sequence[Delete] = field(default=(), repr=False)

    def __str__(self) -> str:
        where = f"{self.path} " if self.path else ""
        at = f"in revision {self.revision}" if self.revision else ""
        return f"{self.kind}: {where}{at}: {self.detail}"
