"""Steps 6 and 10 of a commit: write the cells and decide."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import ClosedError, StoreError
from hbasemk.format import schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit import new_row
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.context import Committing
from hbasemk.kernel.commit.deadline import MayExist, RepeatCheck
from hbasemk.kernel.commit.draft import UNKNOWN_ARRIVAL, Draft
from hbasemk.kernel.commit.sole_rows import mark_of, marked_puts, parts, with_mark
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.journal.fence import unrecorded
from hbasemk.kernel.journal.news import FLAGS
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import ALL_VERSIONS, CheckAndWrite, Decision, Get, NewCell, Put, Row


class Writing(Committing):
    """The steps of a commit that write its cells and decide it."""

    def write(self, draft: Draft, plan: ChangeSet, gets: Sequence[Get]) -> list[Row]:
        """Run step 6, and the first read of step 7 with its last call; return the rows of ``gets``."""
        is_marked = draft.stage is Stage.MARK
        return self._store.write_and_read(
            schema.NODES,
            marked_puts(plan, draft.revision) if is_marked else plan.each_put(draft.revision),
            gets,
            durable=False,
            in_doubt=draft.lose_reply,
            between=self._clock.keep_lease,
        )

    def write_alone(self, draft: Draft, plan: ChangeSet) -> bool:
        """Write the cells and a shared mark if the row still has the mark of the view's revision; return whether it had.

        False may also mean that the cells are written, and the reply was lost. A node that the commit adds is written if its
        row is new; else MayExist is raised. One round trip, or two if the store does not make two calls at the same time.
        """
        revision = draft.revision
        changed, base, added = parts(plan)
        expected, put = mark_of(base), with_mark(changed, revision, schema.shared_mark(revision))
        marked = CheckAndWrite(schema.NODES, schema.LAST_REVISION, expected, put)
        if added is None:
            return self._store.check_and_write(*marked, durable=False, in_doubt=draft.lose_reply)
        new = CheckAndWrite(schema.NODES, schema.DELETED, None, Put(added.key, added.cells, revision))
        is_new, is_alone = self._store.check_and_write_each(new, marked, draft.lose_reply)
        if not is_new:
            raise MayExist
        return is_alone

    def share_mark(self, draft: Draft, plan: ChangeSet) -> None:
        """Make the mark of a commit that has found no other writer a shared one. One round trip."""
        cell = NewCell(*schema.LAST_REVISION, schema.shared_mark(draft.revision))
        put = Put(parts(plan).changed.key, [cell], draft.revision)
        self._store.write(schema.NODES, [put], durable=False, in_doubt=draft.lose_reply)

    def above_mark(self, plan: ChangeSet) -> Row:
        """Read what others have written of a simple plan's row since the view: columns that it depends on, and marks.

        One round trip.
        """
        changed, base, _ = parts(plan)
        columns = (schema.LAST_REVISION, *changed.depends_on)
        (row,) = self._store.read(
            schema.NODES, [Get(changed.key, columns, since=base.revision + 1, versions=ALL_VERSIONS)]
        )
        return row

    def give_up(self, draft: Draft, plan: ChangeSet) -> bool:
        """End a revision whose compare-and-set has failed: it has no cells. Two round trips.

        HBase's client may have sent the compare-and-set twice. So the cells are deleted, as in any roll-back: the markers hide
        what comes late. Return False if the usual roll-back must follow: the store fails, or the revision has a journal row, or
        had one.
        """
        if self._journal.is_trimmed(draft.revision):
            return False
        put = new_row.put(draft, Outcome.ABORTED)
        try:
            self._outcomes.delete_cells(draft.revision, plan.changes)
            if not self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put, durable=False):
                return False
        except (StoreError, ClosedError):
            return False
        self._announcements.decided(draft.revision)
        return True

    def decide_alone(self, draft: Draft) -> int:
        """Create the journal row as committed; return 1, or 0 if another instance has aborted the revision.

        One round trip, and two if the row exists. Raises as :meth:`decide`.
        """
        put, found = new_row.put(draft, Outcome.COMMITTED), None
        if not self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put, in_doubt=draft.lose_decision):
            # HBase's client may have sent the creation twice, without a sign that it did.
            was_lost = draft.reply_lost
            draft.lose_decision()
            (found,) = journal_rows(self._store, [draft.revision], columns=(schema.NONCE, *FLAGS))
            if found.aborted:
                draft.reply_lost, draft.decision_in_doubt = was_lost, False
                return 0
        self._require_kept(draft)
        if found is not None and found.nonce != draft.nonce:
            raise new_row.issued_twice(draft.revision)
        return 1

    def decide(self, draft: Draft) -> int:
        """Run step 10 and return the arrival number, or 0 if another instance has aborted the revision.

        Without order the number is 1; it is :data:`UNKNOWN_ARRIVAL` if an earlier request has committed the revision. There
        RevisionCollectedError is raised if collectors may have deleted the row before: then the outcome is not known.
        """
        revision = draft.revision
        if not self._store.supports_transactions:
            is_committed = self._outcomes.decide(revision, schema.ABORT, schema.COMMITTED, draft.lose_decision)
            if is_committed:
                self._require_kept(draft)
            return is_committed
        repeat = RepeatCheck(draft)
        put = Put(schema.revision_key(revision), [NewCell(*schema.COMMITTED, schema.YES)])
        decision = Decision(schema.JOURNAL, schema.ABORT, schema.NO, put)
        decided = self._store.write_if(schema.JOURNAL, (), (), repeat, decision, repeat.also, repeat.lost)
        return UNKNOWN_ARRIVAL if repeat.is_committed else decided or 0

    def _require_kept(self, draft: Draft) -> None:
        """Raise RevisionCollectedError if collectors may have deleted the journal row before its decision."""
        if self._journal.is_trimmed(draft.revision):
            # The row may be one that a request has created after the deletion of the real one.
            draft.lose_decision()
            raise unrecorded(self._store, draft.revision)
