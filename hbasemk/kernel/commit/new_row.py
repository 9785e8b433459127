"""The journal row of a new trunk revision, as its writer creates it."""

from __future__ import annotations

from hbasemk.errors import InvalidRevisionError
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.draft import Draft
from hbasemk.store.abc import NewCell, Put


def is_complete(draft: Draft) -> bool:
    """Return whether the row holds the changes from the beginning: they are not too large for one put."""
    return changes.size_of(draft.encoded) <= changes.INLINE


def put(draft: Draft, outcome: Outcome) -> Put:
    """Return the row with an outcome; an aborted one has no cells to delete."""
    cells = journal_row.begin(draft.nonce, draft.view.revision, draft.message, outcome)
    if is_complete(draft):
        cells += draft.encoded
    if outcome is Outcome.ABORTED:
        cells.append(NewCell(*schema.SWEPT, schema.SWEPT_CLEAN))
    return Put(schema.revision_key(draft.revision), cells)


def issued_twice(revision: int) -> InvalidRevisionError:
    """Return the error for an id whose journal row another writer has created."""
    return InvalidRevisionError(
        f"revision {revisions.to_text(revision)} already exists: two processes issued the same id, although leases "
        "prevent that; check that the cluster table was not changed by hand"
    )
