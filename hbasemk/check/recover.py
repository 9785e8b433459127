"""Recovery of the unfinished work of dead writers at once: ``hbasemk recover``.

Every instance does the same in the background for the revisions that it encounters. Each step is a compare-and-set or
idempotent, so several processes may recover at the same time, and recovery may be interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.format.lease_record import record_of
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get

ENDED: Final = "aborted"
COMMITTED: Final = "committed"
SWEPT: Final = "swept"
WAITING: Final = "waiting"
BRANCH: Final = "branch"
DAMAGED: Final = "damaged"
ALL: Final = (ENDED, SWEPT, COMMITTED, BRANCH, WAITING, DAMAGED)


class Ended(NamedTuple):
    """The result of recovering one revision.

    ``what``: ENDED (it was pending; it is aborted now and its cells are deleted), COMMITTED (it was pending and turned out
    committed), SWEPT (it was aborted; its cells are deleted now), BRANCH (the first revision of an abandoned or ended
    branch; its cells are deleted now), WAITING (its writer's lease continues, so recovery must wait) or DAMAGED (its changes
    or its writer's lease are unreadable: the integrity check reports which). ``holder`` names the machine id's
    present lease holder.
    """

    revision: str
    what: str
    holder: str


def recover(instance: Instance, branches_ms: int | None = None) -> Iterator[Ended]:
    """Roll back the unfinished work of dead writers, yield each revision, and move the watermark.

    Finally, delete the cells of branches that ended an hour ago, or whose sweep was interrupted. If ``branches_ms`` is
    given, also abandon branches without commits for so many ms. Raises StoreError, and FormatError if the changes of a
    branch are damaged; completed work stays done.
    """
    instance.poll()
    damaged = False
    for revision, what in _recover_all(instance):
        damaged = damaged or what == DAMAGED
        yield Ended(revisions.to_text(revision), what, _holder(instance, revision))
    try:
        for revision in instance.recovery.recover_late():
            yield Ended(revisions.to_text(revision), ENDED, _holder(instance, revision))
        instance.poll()
        instance.recovery.advance()
    except FormatError:
        # The watermark cannot pass a revision that cannot be rolled back.
        if not damaged:
            raise
    for root in instance.sweep_branches(branches_ms):
        yield Ended(revisions.to_text(root), BRANCH, _holder(instance, root))


def _recover_all(instance: Instance) -> Iterator[tuple[int, str]]:
    outcomes, journal = instance.outcomes, instance.journal
    for revision in sorted(journal.pending - set(outcomes.deferred)):
        ended = _recover(instance, revision)
        found = outcomes.of(revision)
        if ended is not False or found is not Outcome.ABORTED:
            # Report it only if no other instance aborted it first; that instance reports it.
            what = {Outcome.COMMITTED: COMMITTED, Outcome.ABORTED: ENDED}.get(found, WAITING)
            yield revision, DAMAGED if ended is None else what
    for revision in journal.unswept(0.0):
        # A live writer rolls back its own revisions.
        if outcomes.is_swept(revision):
            continue
        ended = _recover(instance, revision)
        if ended:
            journal.mark_swept(revision)
        yield revision, DAMAGED if ended is None else SWEPT if ended else WAITING


def _recover(instance: Instance, revision: int) -> bool | None:
    """Recover a revision if its writer's lease has expired; return whether it is, or None if required data is damaged."""
    try:
        return instance.outcomes.recover_if_over(revision)
    except FormatError:
        return None


def _holder(instance: Instance, revision: int) -> str:
    get = Get(schema.machine_key(revisions.machine_of(revision)), columns=(schema.LEASE,))
    row = instance.store.read(schema.CLUSTER, [get])[0]
    try:
        record = record_of(row)
    except FormatError:
        return ""
    return "" if record is None else record.holder
