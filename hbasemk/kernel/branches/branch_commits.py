"""Commits to branches: each replaces the newest revision of its branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from hbasemk.errors import (
    BranchError,
    ClosedError,
    CommitUnknownError,
    HbasemkError,
    LeaseLostError,
    RevisionCollectedError,
    SchemaVersionError,
    StoreError,
)
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches.branch_revisions import BranchRevisions
from hbasemk.kernel.branches.branch_rows import BranchRows
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.branches.one_transaction import BranchTransactions
from hbasemk.kernel.commit import change_set, slots
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.garbage import collected_rarely
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.rows import write_changes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import BRIEFLY, NOTHING_COMMITTED, RetryBudget, TimeLimit, within_retry_timeout
from hbasemk.store.abc import Column, NewCell

Move: TypeAlias = Callable[[Callable[[], None]], bool]
"""Makes a revision the head of its branch, calls its parameter for each lost reply, and returns whether it is the head."""


class BranchCommits(Committing):
    """Commits to branches, and what they need to know of them."""

    def __init__(self, context: CommitContext, lease: Lease) -> None:
        super().__init__(context)
        self._heads = BranchHeads(context.store, context.runtime, context.outcomes, lease)
        self._revisions = BranchRevisions(context.store, context.runtime, context.journal, self._heads)
        self._rows = BranchRows(context.runtime)
        self._transactions = BranchTransactions(context.store, context.clock, self._heads)

    def _new_id(self, above: int) -> int:
        """Issue the id of a branch revision; if another process has taken over the lease, claim a new one."""
        outage = RetryBudget(self._runtime)
        while True:
            try:
                return self._clock.next(above, branch=True)
            except LeaseLostError:
                if not outage.wait():
                    raise

    def require_head(self, revision: int) -> BranchState:
        """Return a branch revision; raise BranchError unless it is the newest of its branch."""
        return self.require_head_row(revision)[0]

    def require_head_row(self, revision: int, *also: Column) -> tuple[BranchState, JournalRow]:
        """As :meth:`require_head`; returns also the row of the branch: head, claim and the columns ``also``."""
        self.resolve_pending()
        return self._revisions.newest(revision, *also)

    def expected_head_row(self, revision: int) -> tuple[BranchState, JournalRow] | None:
        """Return what :meth:`require_head_row` would, for a caller that claims the branch, and so checks it; None: read it.

        No round trip. It is known on HBase if this instance has made the branch and has lately found it open.
        """
        self.resolve_pending()
        # With transactions, a claim does not read the head.
        return None if self._store.supports_transactions else self._revisions.expected(revision)

    def begun_head_row(self, revision: int) -> tuple[BranchState, JournalRow]:
        """As :meth:`require_head_row`, with the message of the branch, and the branch that it continues after a rebase."""
        return self.require_head_row(revision, schema.MESSAGE, schema.REBASE_OF)

    def _moved_on(self, revision: int) -> BranchError:
        """Return the error for a head that another instance has moved."""
        self._revisions.forget_made(self._revisions.find_cached(revision).root)
        self.require_head(revision)
        text = revisions.to_text(revision)
        return BranchError(
            f"branch revision {text} was temporarily not the newest of its branch; try again", revision=text
        )

    def resolve_pending(self) -> None:
        """Retry closing merged branches whose head could not be updated."""
        self._heads.resolve_pending()

    @within_retry_timeout
    def commit(
        self,
        revision: int,
        source: ChangeSource,
        message: str,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the newest revision of a branch; return the branch's new head, or ``revision`` if nothing changes.

        Properties that are set to the value they have are written too, because the merge depends on their trunk values.
        Calls ``begun`` with the id of the new revision before the store receives it.

        Raises BranchError if ``revision`` is not the newest, and the errors of staging. After a store error the branch is
        unchanged; CommitUnknownError means that the outcome is unknown.
        """
        with NOTHING_COMMITTED:
            return self._commit(revision, source, message, begun)

    @collected_rarely
    def _commit(
        self,
        revision: int,
        source: ChangeSource,
        message: str,
        begun: Callable[[int], None] | None,
    ) -> int:
        self._outcomes.resolve_pending(reports_damage=False)
        self.resolve_pending()
        # If this instance made the head, it is not read first: the compare-and-set at the end of the commit checks it. It is read
        # if staging fails or nothing changes, because the end of the branch is then the better reason.
        made = self._revisions.newest_made(revision)
        state = self.require_head(revision) if made is None else made
        # A branch without commits shows what its view of trunk shows, and that is often cached. Errors name the branch.
        view = state.trunk._replace(revision=revision) if len(state.own) == 1 else state.view
        try:
            prepared = self._prepare(state, view, source)
        except (StoreError, ClosedError):
            raise
        except HbasemkError:
            if made is not None:
                self.require_head(revision)
            raise
        if prepared is None:
            if made is not None:
                self.require_head(revision)
            return revision
        plan, new, encoded = prepared
        if begun is not None:
            begun(new)
        began = self._runtime.monotonic()
        if self._transactions.fits(plan, encoded):
            row = self._rows.further(new, state, state.own, message, encoded)
            move = partial(self._transactions.commit, state.root, revision, new, [row], plan.puts(new))
            self._become_head(move, revision, new, plan.changes, is_written=False)
        else:
            clean = self._write(state, new, message, plan, encoded)
            self._become_head(self._move(state, revision, new), revision, new, plan.changes, clean=clean)
        self._revisions.add(state.followed_by(new, plan), began)
        return new

    def _prepare(
        self, state: BranchState, view: View, source: ChangeSource
    ) -> tuple[ChangeSet, int, Sequence[NewCell]] | None:
        """Return the change set of a commit to a branch, its new id, and the encoded changes; None if nothing changes.

        ``view`` is the branch's, or that of trunk for a branch without commits.
        """
        plan = change_set.with_unchanged_writes(source.stage(self._reader, view))
        change_set.require_free_names(self._reader, view, plan)
        plan.require_within_limits(self._store)
        if not plan.changes:
            return None
        encoded = changes.encode(plan.changes)
        new = self._new_id(max(state.view.upper, self._journal.highest_seen))
        if plan.adjusting:
            # The commits of a branch form one line, so one slot of each process serves.
            slot = revisions.machine_of(new) << 16
            slots.use(plan, dict.fromkeys(slots.places(plan), slot))
            encoded = changes.encode(plan.changes)
        return plan, new, encoded

    def _write(self, state: BranchState, new: int, message: str, plan: ChangeSet, encoded: Sequence[NewCell]) -> bool:
        """Write the journal row and the cells of a new revision of a branch, in as many calls as they need.

        Returns whether every reply was received, so that no more cells can arrive.
        """
        inline = changes.size_of(encoded) <= changes.INLINE
        lost_replies: list[bool] = []
        try:
            self._write_row(new, state, state.own, message, encoded if inline else ())
            if not inline:
                write_changes(self._store, new, encoded)
            self._store.write(
                schema.NODES,
                plan.each_put(new),
                durable=False,
                in_doubt=lambda: lost_replies.append(True),
                between=self._clock.keep_lease,
            )
        except BaseException:
            self._roll_back(new, plan.changes)
            raise
        return not lost_replies

    def _write_row(
        self, revision: int, state: BranchState, own: Sequence[int], message: str, encoded: Iterable[NewCell]
    ) -> None:
        """Write the journal row of a new revision of a branch that follows its revisions ``own``."""
        put = self._rows.further(revision, state, own, message, encoded)
        self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put, durable=False)

    def _move(self, state: BranchState, revision: int, new: int) -> Move:
        if self._store.supports_transactions:
            return partial(self._transactions.commit, state.root, revision, new, (), ())
        return partial(self._heads.move, state.root, schema.revision_key(revision), schema.revision_key(new))

    def _become_head(
        self,
        move: Move,
        revision: int,
        new: int,
        touched: Sequence[RowChange],
        *,
        is_written: bool = True,
        clean: bool = True,
    ) -> None:
        """Move the head of a branch from ``revision`` to a new one; if it has moved already, roll back and raise BranchError.

        Raises SchemaVersionError, after a roll-back, if this process does not accept the present schema number.

        ``is_written``: the new revision is in the store already; else the move writes it too. ``clean``: no more of its cells
        can arrive.
        """
        lost_replies: list[bool] = []
        refused: SchemaVersionError | None = None
        try:
            try:
                moved = move(lambda: lost_replies.append(True))
            except SchemaVersionError as error:
                moved, refused = False, error
            if not moved and (is_written or lost_replies):
                # After a lost reply, another instance may already have committed on top: then the move succeeded.
                moved = self.outcome(new) is Outcome.COMMITTED
        except RevisionCollectedError as error:
            # The branch has ended, and its rows are deleted. So nobody can read this revision.
            self._roll_back(new, touched)
            raise CommitUnknownError(error.message, revision=error.revision) from error
        except (StoreError, ClosedError) as error:
            if not lost_replies:
                if is_written:
                    self._roll_back(new, touched)
                raise
            text = revisions.to_text(new)
            raise CommitUnknownError(
                f"the store at {self._store.location} failed while {text} became the head of its branch ({error}); call "
                "Repository.outcome with this id when the store is available again",
                revision=text,
            ) from error
        if not moved:
            if is_written or lost_replies:
                try:
                    self._outcomes.abort_own(new, touched, clean=clean)
                except StoreError:
                    self._outcomes.defer(new, touched)
            raise refused or self._moved_on(revision)

    def _roll_back(self, revision: int, touched: Sequence[RowChange]) -> None:
        """Roll back a revision that failed; after an error, the next call on a branch does it."""
        self._outcomes.defer(revision, touched)
        with suppress(ClosedError), TimeLimit(self._runtime, BRIEFLY):
            self._outcomes.resolve_pending_quietly()

    def outcome(self, revision: int) -> Outcome:
        """Return whether a branch revision ever became its branch's head; after a merge or rebase this never changes.

        Raises RevisionCollectedError if the branch has ended so long ago that its rows may be deleted.
        """
        return self._revisions.outcome(revision)
