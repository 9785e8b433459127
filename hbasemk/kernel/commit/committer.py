"""The commit: the eleven steps of section 4 of ``docs/protocol.md``.

A commit writes its cells under its own revision id and reads back what it depends on. Two mutually exclusive
compare-and-sets on its journal row decide it. Of two revisions that conflict at most one commits (I4), and the lower id
wins (I10). An acknowledged commit stays (I7); an aborted one is rolled back exactly (I8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hbasemk.errors import (
    ConflictError,
    InvalidChangeError,
    LeaseLostError,
    NodeExistsError,
    NodeNotFoundError,
    StoreNotAppliedError,
    StoreUnknownError,
    VersionMismatchError,
)
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.format.limits import shortened
from hbasemk.kernel.commit.attempt import Attempts, LostAttempt
from hbasemk.kernel.commit.branch_end import BranchEnd
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.hot_columns import HotColumns
from hbasemk.kernel.commit.read_back import Conflict
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.journal.view import View, require_trunk
from hbasemk.kernel.retry import NOTHING_COMMITTED, RetryBudget, TimeLimit, wait_before_retry, within_retry_timeout
from hbasemk.store.abc import Column

FIRST_BACK_OFF: Final = 0.002
LONGEST_BACK_OFF: Final = 0.25
LONGEST_WITHOUT_ROW: Final = 0.1
"""Seconds to wait for the journal row of a winner that has written its cells."""
_NODE_COLUMNS: Final = {schema.DELETED: "existence", schema.LAST_REVISION: "content"}
"""What errors call the columns that are neither properties nor children."""
REPEAT: Final = "Read again and repeat the change, or use Repository.run, which does so."


class Committer(Committing):
    """The commits of one instance. Thread-safe."""

    def __init__(self, context: CommitContext, turns: Turns) -> None:
        super().__init__(context)
        self._turns = turns
        self._hot = HotColumns(context.store, context.runtime)
        self.attempts = Attempts(context, turns)

    def on_head(
        self,
        make: Callable[[View], ChangeSource],
        message: str,
        retry_timeout: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the head, and retry after each conflict for at most ``retry_timeout`` seconds.

        Each attempt calls ``make`` with the head that the commit is based on; ``make`` returns the changes. An attempt polls
        first unless a poll began within the last ``max_poll_age`` seconds. It calls ``begun`` with the revision id before the
        store receives it. Returns the new revision, or the head's when nothing changes. Raises ConflictError after
        ``retry_timeout`` seconds, the errors of ``make`` and of its changes, and the errors of :meth:`on_base`.
        """
        with TimeLimit(self._runtime, retry_timeout), NOTHING_COMMITTED:
            return self._on_head(make, message, self._runtime.monotonic() + retry_timeout, max_poll_age, begun)

    def _on_head(
        self,
        make: Callable[[View], ChangeSource],
        message: str,
        deadline: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None,
    ) -> int:
        since = 0
        made_room = self._turns.make_room(deadline)
        self._journal.prepare_commit(max_poll_age, deadline, made_room)
        head_is_current = False
        outage: RetryBudget | None = None
        started = self._runtime.monotonic()
        while True:
            view = self._journal.head
            began = self._runtime.monotonic()
            try:
                source = make(view)
                is_hot = self._hot.has(source)
                if not head_is_current and is_hot:
                    head_is_current = True
                    self._journal.poll()
                    if self._journal.head != view:
                        continue
                draft = Draft(view, source, message, begun, is_hot=is_hot)
                result = self.attempts.run(draft)
                self._turns.record_attempt(self._runtime.monotonic() - began)
            except (NodeNotFoundError, NodeExistsError, InvalidChangeError, VersionMismatchError):
                # The head may be out of date: poll, and raise only if the newest head gives the same error.
                if head_is_current:
                    raise
                head_is_current = True
                self._journal.poll()
                if self._journal.head == view:
                    raise
                continue
            except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                # This revision can no longer commit; the next attempt uses a new one.
                outage = outage or RetryBudget(self._runtime, started)
                if not outage.wait():
                    raise
                self._journal.poll()
                head_is_current = True
                continue
            if isinstance(result, int):
                if draft.plan is not None:
                    self._hot.committed(draft.plan.changes)
                return result
            if self._runtime.monotonic() >= deadline:
                raise self._error_of(draft, result, REPEAT, deadline)
            since = since or result.revision
            self._hot.record(result.conflict)
            self.attempts.show_waiting(draft)
            self._turns.wait_for_turn(since, deadline)
            self._wait_for(result.conflict, deadline)
            self._journal.poll()
            head_is_current = True

    @within_retry_timeout
    def on_base(
        self,
        view: View,
        source: ChangeSource,
        message: str,
        advice: str = REPEAT,
        begun: Callable[[int], None] | None = None,
        ends: BranchEnd | None = None,
        wait_for_winner: bool = False,
    ) -> int:
        """Commit the changes of a source on ``view``; do not retry after a conflict.

        ``advice`` ends the message of a ConflictError. Calls ``begun`` with each revision id before the store receives it.
        ``ends`` is the end of the branch that the commit merges. With ``wait_for_winner``, a commit that conflicts with an
        undecided revision waits for the decision and tries again, for at most the runtime's ``retry_timeout``.

        Returns the new revision, or the view's if nothing changes. Raises:

        - ConflictError if a revision that became visible after the view, or is being committed now, touched what the
          change set writes or depends on; VersionMismatchError if a node does not have the expected version;
        - CommitUnknownError if the store failed during the decision;
        - ClockSkewError, LeaseLostError, RevisionOverflowError, LimitError and StoreError, after which nothing of the
          commit is visible;
        - BranchError for a branch's view, which cannot be the base of a trunk commit.
        """
        require_trunk(view)
        began = self._runtime.monotonic()
        outage: RetryBudget | None = None
        with NOTHING_COMMITTED:
            while True:
                try:
                    draft = Draft(view, source, message, begun, ends=ends)
                    result = self.attempts.run(draft)
                except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                    outage = outage or RetryBudget(self._runtime, began)
                    if not outage.wait():
                        raise
                    continue
                if isinstance(result, int):
                    return result
                now, timeout = self._runtime.monotonic(), self._runtime.retry_timeout
                if wait_for_winner and result.may_be_undecided and now < began + timeout:
                    self._wait_for(result.conflict, began + timeout)
                    continue
                raise self._error_of(draft, result, advice, now + timeout)

    def _error_of(self, draft: Draft, lost: LostAttempt, advice: str, deadline: float) -> ConflictError:
        """Return the error for a commit that has lost; only if it expected versions, read them at the newest head."""
        # What the caller does next must see the winner.
        self._journal.distrust_polls()
        expected = draft.plan.expected if draft.plan is not None else {}
        if expected:
            # A winner that is not decided yet may still be aborted; then the version stands.
            self._wait_for(lost.conflict, deadline)
            self._journal.poll()
            head = self._journal.head
            for path, state in self._reader.nodes(head, list(expected)).items():
                if expected[path] != (None if state is None else state.version):
                    return self._reader.version_mismatch(head, path, expected[path], state)
        return self._conflict_error(*lost, advice)

    def _conflict_error(self, revision: int, conflict: Conflict, advice: str) -> ConflictError:
        column = _column_text(conflict.column)
        mine, other = revisions.to_text(revision), revisions.to_text(conflict.other)
        winner = other if conflict.other != revision else "an earlier commit that aborted it"
        loser = f"revision {mine}" if revision else "a commit that changes nothing"
        return ConflictError(
            f"{loser} conflicts with {winner} over {shortened(column)} of {shortened(conflict.path)}; the commit was "
            f"rolled back. {advice}",
            path=conflict.path,
            column=column,
            revision=mine if revision else None,
            other=other,
        )

    def _wait_for(self, conflict: Conflict, deadline: float) -> None:
        """Wait until the winning revision is decided, so that the next attempt does not conflict with it again."""
        wait = FIRST_BACK_OFF
        until = self._runtime.monotonic() + LONGEST_WITHOUT_ROW
        while conflict.pending and self._runtime.monotonic() < deadline:
            outcome = self._outcomes.of(conflict.other, check=True)
            if outcome is Outcome.ABSENT and conflict.may_lack_row and self._runtime.monotonic() >= until:
                # The next attempt writes cells, and aborts it.
                return
            if outcome not in (Outcome.PENDING, Outcome.ABSENT):
                return
            if self._outcomes.recover_if_over(conflict.other):
                return
            wait_before_retry(self._runtime, wait * (0.5 + self._runtime.random.random()))
            wait = min(wait * 2, LONGEST_BACK_OFF)


def _column_text(column: Column) -> str:
    """Return what a ConflictError calls a column; users know no slots."""
    if schema.is_slot(column):
        column = schema.property_column(schema.name_of(column))
    return _NODE_COLUMNS.get(column) or schema.describe(column)
