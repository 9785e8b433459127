"""The branches that have not ended, for operators: which there are, and which process continued each of them last."""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.branch_head import RebaseOf
from hbasemk.kernel.branches import unfinished_rebases
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.leases import leases_of
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sparse_scan import sparse_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Scan

BATCH: Final = 1000


class OpenBranch(NamedTuple):
    """A branch that has not ended: its first and newest revisions, the trunk revision it is based on, and its message.

    ``begun_ms`` and ``time_ms`` are the times in the first and the newest revision, in ms since 1970.
    ``writer`` is the holder of the lease under which the newest revision was made; None if its machine id has another holder
    since, or the lease is deleted or damaged.
    """

    first: int
    newest: int
    base: int | None
    message: str
    begun_ms: int
    time_ms: int
    writer: str | None


def open_branches(store: RetryingStore, runtime: Runtime, settings: Settings, above: int) -> list[OpenBranch]:
    """Return the branches above an id that have not ended, by their first revision.

    The new branch of a rebase is not among them before the rebase has ended the old one.

    One round trip for each 1000 branches that began above the id, ended ones included, until a collector deletes their rows; more
    for a long journal (:func:`sparse_rows`). If a branch is open, two more for each batch, and up to two for unfinished
    rebases. Raises FormatError for a damaged head, base, message or link to an old branch.
    """
    scan = Scan(schema.revision_key(above + 1), None, BATCH, columns=(schema.BRANCH_HEAD, schema.REBASE_OF))
    newest: dict[int, int] = {}
    links: dict[int, RebaseOf] = {}
    for row in journal_row.decode(sparse_rows(store, runtime, settings, scan)):
        head = row.branch_head
        if row.is_branch and head is not None and head.newest is not None and not head.how:
            newest[row.revision] = head.newest
            link = row.rebase_of
            if link is not None and not link.is_over:
                links[row.revision] = link
    for root, has_begun in unfinished_rebases.leads_to(store, links).items():
        if not has_begun:
            del newest[root]
    machines = dict.fromkeys(map(revisions.machine_of, newest.values()))
    # The integrity check reports a damaged lease.
    leases = leases_of(store, list(machines), Damage())
    found: list[OpenBranch] = []
    epoch = settings.epoch_ms
    for row in journal_rows(store, list(newest), (schema.BASE, schema.MESSAGE)):
        at = newest[row.revision]
        lease = leases.get(revisions.machine_of(at))
        begun, time = revisions.ms_of(row.revision), revisions.ms_of(at)
        writer = lease.holder if lease is not None and lease.start <= time else None
        found.append(OpenBranch(row.revision, at, row.base, row.message, begun + epoch, time + epoch, writer))
    return found
