"""The last commits of one writer, in a store that does not order all writes: revisions with their changes.

The cell is next to the writer's log, and the same write replaces both. So polls learn from the log that a revision has
committed, and need not read its journal row. Each commit has 8 bytes of its id, 2 bytes of the length of its changes, and the
changes as in the journal row; the last commit is first. See
``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.limits import shown
from hbasemk.store.abc import Row

_LENGTH: Final = 2
HEAD: Final = revisions.BYTES + _LENGTH
"""The bytes of a commit before its changes."""
_TOGETHER: Final = (schema.LOG, schema.RECENT_COMMITS)


def encode(revision: int, encoded: bytes) -> bytes:
    """Return the bytes of one commit with its encoded changes."""
    return revisions.to_bytes((revision,)) + len(encoded).to_bytes(_LENGTH, "big") + encoded


def of_row(row: Row, above: float = 0) -> Mapping[int, bytes]:
    """Return the encoded changes by revision that the row of a log shows, up to the first that is not greater than ``above``.

    A cell that was not written together with the log shows none: it is that of an earlier holder of the log. Raises
    FormatError if the cell is damaged.
    """
    found_at = {cell[:2]: cell for cell in row.cells if cell[:2] in _TOGETHER}
    log, commits = found_at.get(schema.LOG), found_at.get(schema.RECENT_COMMITS)
    data = b"" if log is None or commits is None or commits.timestamp != log.timestamp else commits.value
    found: dict[int, bytes] = {}
    start = 0
    while start < len(data):
        begin = start + HEAD
        revision = int.from_bytes(data[start : start + revisions.BYTES], "big")
        if revision <= above and begin < len(data):
            break
        end = begin + int.from_bytes(data[begin - _LENGTH : begin], "big")
        if not begin < end <= len(data) or revision > revisions.MAX_REVISION:
            raise schema.damaged(
                f"the last commits of a writer must be revisions, each with its changes, got {shown(data)}",
                schema.CLUSTER,
                row.key,
                schema.RECENT_COMMITS,
            )
        found[revision] = data[begin:end]
        start = end
    return found


def changes_of(revision: int, encoded: bytes) -> Sequence[RowChange]:
    """Parse the changes of one commit, as ``changes.parse_shared``; raise FormatError if they are damaged."""
    try:
        return changes.parse_shared(encoded)
    except ValueError as error:
        key = schema.log_key(revisions.machine_of(revision))
        raise schema.damaged(str(error), schema.CLUSTER, key, schema.RECENT_COMMITS) from error
