"""The revisions of trunk, newest first, as the journal's rows tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import changes, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import decode_message
from hbasemk.kernel.batches import WHOLE, journal_rows, whole_rows
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.outcomes import Outcome, outcome_of
from hbasemk.store.abc import Row, Scan, scan_all

BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One committed revision: id and base in text form, time in ms since 1970, message, and what it touched."""

    revision: str
    base: str | None
    time_ms: int
    message: str
    changes: Sequence[RowChange]

    def touches(self, path: str) -> bool:
        """Whether anything in the subtree of ``path`` was changed."""
        return any(paths.is_at_or_below(change.path, path) for change in self.changes)


def entry_of(row: Row, epoch_ms: int) -> LogEntry:
    """The entry of one journal row, read with all its columns."""
    made = int.from_bytes(row.key, "big")
    found = {cell.qualifier: cell.value for cell in row.cells}
    base = found.get(schema.BASE[1])
    if base is not None and (len(base) != 8 or int.from_bytes(base, "big") > revisions.MAX_REVISION):
        raise schema.damaged("the base of a revision is not a revision id", schema.JOURNAL, row.key, schema.BASE)
    try:
        message = decode_message(found.get(schema.MESSAGE[1], b""))
    except FormatError as error:
        raise schema.damaged("the message is not UTF-8", schema.JOURNAL, row.key, schema.MESSAGE) from error
    return LogEntry(
        revisions.to_text(made),
        None if base is None else revisions.to_text(int.from_bytes(base, "big")),
        revisions.ms_of(made) + epoch_ms,
        message,
        changes.of_row(row),
    )


def entries(instance: Instance, made: Sequence[int]) -> Iterator[LogEntry]:
    """The entries of given revisions, in their order; one round trip for each 200."""
    for row in journal_rows(instance.store, instance.runtime, made):
        yield entry_of(row, instance.settings.epoch_ms)


def log(instance: Instance, path: str = paths.ROOT, upto: int | None = None) -> Iterator[LogEntry]:
    """Committed trunk revisions that touched the subtree of ``path``, newest first, from ``upto`` (None: the newest).

    Bounded memory; one round trip for each 200 journal rows. Only revisions that this instance can see are told.
    """
    instance.poll()
    head = instance.head() if upto is None else instance.at(upto)
    scan = Scan(schema.revision_key(head.upper), None, BATCH, reverse=True, columns=WHOLE)
    for row in scan_all(instance.store, schema.JOURNAL, scan):
        made = int.from_bytes(row.key, "big")
        if (
            revisions.is_branch(made)
            or outcome_of(row) is not Outcome.COMMITTED
            or not instance.journal.sees(head, made)
        ):
            continue
        (whole,) = whole_rows(instance.store, instance.runtime, [row])
        entry = entry_of(whole, instance.settings.epoch_ms)
        if path == paths.ROOT or entry.touches(path):
            yield entry
