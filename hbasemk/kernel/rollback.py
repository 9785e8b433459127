"""Rollback on demand: of all unfinished work of dead writers (``hbasemk recover``), and of single revisions for repair.

Every instance does the same in the background for the revisions that it encounters. Each step is a compare-and-set or
idempotent, so several processes may do it at the same time, and it may be interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel import settings
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids import damaged_lease
from hbasemk.kernel.ids.leases import lease_of
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Decision, Delete, Get, NewCell, Put

ABORTED: Final = "aborted"
COMMITTED: Final = "committed"
SWEPT: Final = "swept"
WAITING: Final = "waiting"
BRANCH: Final = "branch"
DAMAGED: Final = "damaged"
ALL: Final = (ABORTED, SWEPT, COMMITTED, BRANCH, WAITING, DAMAGED)
STOPS: Final = 100
"""The largest number of steps in which a repair moves the watermark."""
ARRIVALS: Final = 1000
"""The writes of journal rows that one call of a repair reads."""


class RecoveryResult(NamedTuple):
    """The result of recovering one revision.

    ``result``: ABORTED (it was pending; it is aborted now and its cells are deleted), COMMITTED (it was pending and turned out
    committed), SWEPT (it was aborted; its cells are deleted now), BRANCH (the first revision of a branch that is
    abandoned now, or had ended and whose cells are deleted now), WAITING (its writer's lease continues, so recovery must wait)
    or DAMAGED (its changes or its writer's lease are unreadable: the integrity check reports which). ``holder`` names the
    machine id's present lease holder.
    """

    revision: str
    result: str
    holder: str


# --- all dead writers ------------------------------------------------------------------------------------------


def recover(instance: Instance, branches_ms: int | None = None) -> Iterator[RecoveryResult]:
    """Roll back the unfinished work of dead writers, yield each revision, and move the watermark.

    Finally, delete the cells of branches that ended an hour ago, or whose sweep was interrupted. If ``branches_ms`` is
    given, also abandon branches without commits for so many ms; if it is shorter than an hour, it is also the time from
    the end of a branch to the deletion. Raises StoreError. Raises FormatError at the end if damage
    prevents a part of the work, and no result shows it.
    """
    instance.poll()
    is_shown = False
    damage = Damage()
    for revision, result in _recover_all(instance):
        is_shown = is_shown or result == DAMAGED
        yield RecoveryResult(revisions.to_text(revision), result, _holder(instance, revision))
    with damage.kept():
        for revision in instance.recovery.recover_late():
            yield RecoveryResult(revisions.to_text(revision), ABORTED, _holder(instance, revision))
    with damage.kept():
        instance.poll()
        instance.recovery.advance()
    for root in instance.sweep_branches(branches_ms):
        yield RecoveryResult(revisions.to_text(root), BRANCH, _holder(instance, root))
    if not is_shown:
        # Otherwise the watermark cannot pass a revision that is shown as damaged.
        damage.report()


def _recover_all(instance: Instance) -> Iterator[tuple[int, str]]:
    outcomes, journal = instance.outcomes, instance.journal
    for revision in sorted(journal.pending - set(outcomes.deferred)):
        ended = _recover(instance, revision)
        found = outcomes.of(revision)
        if ended is not False or found is not Outcome.ABORTED:
            # Report it only if no other instance aborted it first; that instance reports it.
            result = {Outcome.COMMITTED: COMMITTED, Outcome.ABORTED: ABORTED}.get(found, WAITING)
            yield revision, DAMAGED if ended is None else result
    for revision in journal.unswept.waiting_for(0.0):
        # A live writer rolls back its own revisions.
        if outcomes.is_swept(revision):
            continue
        ended = _recover(instance, revision)
        if ended:
            journal.unswept.remove(revision)
        yield revision, DAMAGED if ended is None else SWEPT if ended else WAITING


def _recover(instance: Instance, revision: int) -> bool | None:
    """Recover a revision if its writer's lease has expired; return whether it is, or None if required data is damaged."""
    try:
        return instance.outcomes.recover_if_over(revision)
    except FormatError:
        return None


def _holder(instance: Instance, revision: int) -> str:
    try:
        record = lease_of(instance.store, revisions.machine_of(revision))
    except FormatError:
        return ""
    return "" if record is None else record.holder


# --- single revisions ------------------------------------------------------------------------------------------


def delete_cells(instance: Instance, table: str, deletes: Sequence[Delete]) -> None:
    """Delete exactly these versions of cells, which no reader needs."""
    instance.store.delete(table, deletes)


def delete_upload(instance: Instance, blob: str, deletes: Sequence[Delete]) -> bool:
    """Delete chunks of an upload that has not ended, and let it fail if it continues; return False if it has ended."""
    key = bytes.fromhex(blob)
    head = instance.blobs.head(key)
    newest = max(cell.timestamp for one in deletes for cell in one.cells)
    # The upload ends by compare-and-set of the cell that this changes, and is then repeated.
    if head.length is not None or not instance.blobs.doom(key, head, instance.lease.store_ms(), newest):
        return False
    instance.store.delete(schema.BLOBS, deletes)
    return True


def delete_aborted(instance: Instance, revision: int, deletes: Sequence[Delete]) -> bool:
    """Delete cells of a revision in ``nodes`` if it is aborted, which is final; return whether it is."""
    if instance.outcomes.of(revision) is not Outcome.ABORTED:
        return False
    instance.store.delete(schema.NODES, deletes)
    return True


def abort_missing(instance: Instance, revision: int, deletes: Sequence[Delete]) -> bool | None:
    """Make sure that a revision without a journal row can never commit, and delete its cells.

    Returns None if the revision is not aborted; otherwise, whether its writer's lease has expired, so that it is also swept in
    doubt: cells of it that arrive late then stay invisible.
    """
    outcomes = instance.outcomes
    if outcomes.of(revision) is Outcome.ABSENT:
        outcomes.abort_missing(revision)
    if not delete_aborted(instance, revision, deletes):
        return None
    return outcomes.recover_if_over(revision)


def recover_one(instance: Instance, revision: int) -> bool:
    """Abort a dead writer's revision and delete its cells; return False if it is not aborted or the writer may live."""
    return instance.outcomes.recover_if_over(revision) and instance.outcomes.of(revision) is Outcome.ABORTED


def replace_damaged_lease(instance: Instance, machine: int) -> bool:
    """Replace a lease that cannot be read by one that expires; return False if it can be read."""
    return damaged_lease.replace(instance.store, instance.settings, instance.lease, machine) is not None


def hide_aborted(instance: Instance, revision: int) -> bool | None:
    """Hide an aborted revision below the watermark, and delete its cells; return whether it was not hidden before.

    A pending revision above the horizon is aborted first if its writer's lease has expired. Returns None if the revision is not
    aborted.
    """
    if instance.outcomes.of(revision) is not Outcome.ABORTED and not recover_one(instance, revision):
        return None
    newly_hidden = instance.recovery.hide(revision)
    instance.outcomes.sweep_again(revision)
    return newly_hidden


def may_lack_revisions(instance: Instance) -> bool:
    """Return whether the watermark is wrong now, so that an instance which starts there may not see all revisions."""
    try:
        revision = settings.read_watermark(instance.store).revision
    except FormatError:
        return True
    return instance.outcomes.of(revision) is Outcome.ABSENT


def show_committed(instance: Instance, revision: int) -> bool:
    """Show a committed revision that the watermark hides; return whether it was one.

    It was none if a process that slept has committed a row that a repeated request had created again.
    """
    is_committed = instance.outcomes.of(revision) is Outcome.COMMITTED and not instance.journal.is_trimmed(revision)
    return is_committed and instance.recovery.show(revision)


def pass_committed(instance: Instance, revision: int) -> bool:
    """Move the watermark past a committed revision that no log shows; return whether it has passed it.

    The watermark stops below everything that a live writer may still commit. It also stops at each unfinished revision of a
    dead writer, which is then resolved. So it moves in up to :data:`STOPS` steps.
    """

    def is_passed() -> bool:
        return settings.read_watermark(instance.store).revision >= revision

    if is_passed():
        return True
    # The log of this instance is then the newest one. The others belong to dead writers, or their holders announce more.
    instance.clock.next(revision)
    instance.announcements.renew(revision)
    for _ in range(STOPS):
        instance.recovery.advance()
        if is_passed():
            return True
    return False


def number_committed(instance: Instance, revision: int) -> bool | None:
    """Give the row of a committed revision of trunk an arrival number.

    Returns False if polls find the revision already, and None if it is not committed. The write repeats a flag of the row, with
    its timestamp. It applies only if no journal row was written since this call read the last number. So of several repairs at
    once, only one writes the row.
    """
    store, key = instance.store, schema.revision_key(revision)
    watermark = settings.read_watermark(store)
    if revision <= watermark.revision:
        return False
    last = watermark.first_cursor
    while True:
        last, rows, is_complete = store.arrivals(schema.JOURNAL, last, ARRIVALS, (schema.COMMITTED,))
        if any(row.key == key for row in rows):
            return False
        if not is_complete:
            continue
        row = JournalRow(store.read(schema.JOURNAL, [Get(key, columns=(schema.COMMITTED,))])[0])
        if not row.committed:
            return None
        cells = [NewCell(cell.family, cell.qualifier, cell.value, cell.timestamp) for cell in row.cells]
        decision = Decision(schema.JOURNAL, schema.COMMITTED, schema.YES, Put(key, cells), (schema.JOURNAL, last))
        if store.write_if(schema.JOURNAL, (), (), lambda _: True, decision):
            return True
