"""Steps 6 and 10 of a commit: write the cells and decide."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.format import schema
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.context import Committing
from hbasemk.kernel.commit.deadline import RepeatCheck
from hbasemk.kernel.commit.draft import UNKNOWN_ARRIVAL, Draft
from hbasemk.kernel.journal.fence import unrecorded
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row


class Writing(Committing):
    """The steps of a commit that write its cells and decide it."""

    def write(self, draft: Draft, plan: ChangeSet, gets: Sequence[Get]) -> list[Row]:
        """Run step 6, and the first read of step 7 with its last call; return the rows of ``gets``."""
        return self._store.write_and_read(
            schema.NODES,
            plan.each_put(draft.revision),
            gets,
            durable=False,
            in_doubt=draft.lose_reply,
            between=self._clock.keep_lease,
        )

    def decide(self, draft: Draft) -> int:
        """Run step 10 and return the arrival number, or 0 if another instance has aborted the revision.

        Without order the number is 1; it is :data:`UNKNOWN_ARRIVAL` if an earlier request has committed the revision. There
        RevisionCollectedError is raised if collectors may have deleted the row before: then the outcome is not known.
        """
        revision = draft.revision
        if not self._store.supports_transactions:
            is_committed = self._outcomes.decide(revision, schema.ABORT, schema.COMMITTED, draft.lose_decision)
            if is_committed and self._journal.is_trimmed(revision):
                # The row may be one that a repeated request has created after the deletion of the real one.
                draft.lose_decision()
                raise unrecorded(self._store, revision)
            return is_committed
        repeat = RepeatCheck(draft)
        put = Put(schema.revision_key(revision), [NewCell(*schema.COMMITTED, schema.YES)])
        decision = Decision(schema.JOURNAL, schema.ABORT, schema.NO, put)
        decided = self._store.write_if(schema.JOURNAL, (), (), repeat, decision, repeat.also, repeat.lost)
        return UNKNOWN_ARRIVAL if repeat.is_committed else decided or 0
