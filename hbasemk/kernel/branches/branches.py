"""Branches: private revisions on a fixed view of trunk (``docs/protocol.md``, section 7).

The first row of a branch stores its view of trunk in full, so that every instance uses the same view. Branch commits
carry the branch bit and are visible only in the branch's own views. One compare-and-set on the first row makes a commit
the branch's new head. A merge is one ordinary trunk commit of the branch's net effect on that view
(``docs/decisions/0007-merge-rewrites.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final

from hbasemk.errors import (
    BranchError,
    ClosedError,
    CommitUnknownError,
    ConflictError,
    LeaseLostError,
    RevisionCollectedError,
    StoreError,
)
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.branch_head import ABANDONED, BranchHead
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import BranchView, JournalRow, Outcome
from hbasemk.kernel.branches import net_effects
from hbasemk.kernel.branches.branch_revisions import BranchRevisions
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.branches.merge_end import MergeEnd
from hbasemk.kernel.commit import change_set, noop, slots
from hbasemk.kernel.commit.change_source import ChangeSource, ReadyChangeSet
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.garbage import collected_rarely
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.rows import write_changes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import BRIEFLY, RetryBudget, nothing_committed, time_limit, within_retry_timeout
from hbasemk.store.abc import NewCell, Put

REBASE: Final = "Rebase the branch, which marks the places that both sides changed, and merge it again."


class Branches(Committing):
    """The branches of a repository, as one instance uses them. Any instance may continue any branch."""

    def __init__(self, context: CommitContext, committer: Committer, lease: Lease) -> None:
        super().__init__(context)
        self._committer = committer
        self._heads = BranchHeads(context.store, context.runtime, context.outcomes, lease)
        self._revisions = BranchRevisions(context.store, context.runtime, context.journal, self._heads)
        self._claims = BranchClaims(context.store, context.outcomes, self._heads)

    def retry_timeout(self) -> AbstractContextManager[None]:
        """Limit the total time of several calls, see :func:`hbasemk.kernel.retry.time_limit`."""
        return time_limit(self._runtime)

    # --- making and finding ------------------------------------------------------------------------------

    @within_retry_timeout
    def begin(self, base: View, message: str = "") -> int:
        """Create a branch on a view of trunk; return its first revision. One round trip; two where revisions are collected.

        Raises BranchError for a view of a branch, and RevisionCollectedError for one that is too old.
        """
        if revisions.is_branch(base.revision):
            raise BranchError(
                f"the base of a branch must be a trunk revision, got branch revision {revisions.to_text(base.revision)}; "
                "begin the branch on a snapshot of trunk",
                revision=revisions.to_text(base.revision),
            )
        self._journal.require_readable(base)
        extent = self._journal.contents(base)
        root = self._new_id(max(base.upper, self._journal.highest_seen))
        put = Put(
            schema.revision_key(root),
            [
                *self._common_cells(message, base.revision),
                NewCell(*schema.BRANCH, revisions.to_bytes((root, root))),
                NewCell(*schema.BRANCH_VIEW, BranchView(extent, base.upper).encode()),
                NewCell(*schema.BRANCH_HEAD, BranchHead(b"", root).encode()),
            ],
        )
        try:
            if not self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put) and self._heads.head(
                root
            ) != schema.revision_key(root):
                raise BranchError(f"branch {revisions.to_text(root)} already exists", revision=revisions.to_text(root))
            is_protected = fence.protect(self._store, self._runtime, extent.floor)
        except StoreError:
            # No caller receives the branch. Until a sweep it would keep old revisions from being collected.
            self.give_up(root)
            raise
        if not is_protected:
            self.give_up(root)
            self._journal.fence.refresh()
            raise self._journal.collected(base)
        self._revisions.add(BranchState.begin(root, base, extent))
        return root

    def find(self, revision: int) -> BranchState:
        """Return a branch revision. Two round trips if it is not cached; one if the cache entry is too old.

        Raises UnknownRevisionError if the branch revision does not exist or has been swept.
        """
        state = self._revisions.find(revision)
        self._clock.observe(max(state.own))
        return state

    def _new_id(self, above: int) -> int:
        """Issue the id of a branch revision; if another process has taken over the lease, claim a new one."""
        outage = RetryBudget(self._runtime)
        while True:
            try:
                return self._clock.next(above, branch=True)
            except LeaseLostError:
                if not outage.wait():
                    raise

    def _common_cells(self, message: str, base: int) -> list[NewCell]:
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        return journal_row.begin(nonce, base, message)

    def require_head(self, revision: int) -> BranchState:
        """Return a branch revision; raise BranchError unless it is the newest of its branch."""
        return self.require_head_row(revision)[0]

    def require_head_row(self, revision: int) -> tuple[BranchState, JournalRow]:
        """As :meth:`require_head`; returns also the head and the claim of the branch, as they were at one moment."""
        self.resolve_pending()
        return self._revisions.newest(revision)

    def lacks(self, state: BranchState, other: View) -> bool:
        """Return whether a view of trunk has revisions that the branch's view lacks; both may have the same base."""
        return any(self._journal.sees(other, revision) for revision in self._journal.since(state.trunk))

    def _moved_on(self, revision: int) -> BranchError:
        """Return the error for a head that another instance has moved."""
        self.require_head(revision)
        text = revisions.to_text(revision)
        return BranchError(
            f"branch revision {text} was temporarily not the newest of its branch; try again", revision=text
        )

    # --- commits on a branch -----------------------------------------------------------------------------

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
        with nothing_committed():
            return self._commit(revision, source, message, begun)

    @collected_rarely
    def _commit(
        self,
        revision: int,
        source: ChangeSource,
        message: str,
        begun: Callable[[int], None] | None,
    ) -> int:
        self._outcomes.resolve_pending()
        state = self.require_head(revision)
        plan = change_set.with_unchanged_writes(source.stage(self._reader, state.view))
        change_set.require_free_names(self._reader, state.view, plan)
        self._store.check_puts(plan.puts(0))
        if not plan.changes:
            return revision
        encoded = changes.encode(plan.changes)
        above = max(state.view.upper, self._journal.highest_seen)
        new_revision = self._new_id(above)
        if plan.adjusting:
            # The commits of a branch form one line, so one slot of each process serves.
            slot = revisions.machine_of(new_revision) << 16
            plan = slots.with_slots(plan, dict.fromkeys(slots.places(plan), slot))
            encoded = changes.encode(plan.changes)
        inline = changes.size_of(encoded) <= changes.INLINE
        if begun is not None:
            begun(new_revision)
        try:
            self._write_row(new_revision, state, state.own, message, encoded if inline else ())
            if not inline:
                write_changes(self._store, new_revision, encoded)
            self._store.write(schema.NODES, plan.each_put(new_revision), durable=False, between=self._clock.keep_lease)
        except BaseException:
            self._roll_back(new_revision, plan.changes)
            raise
        self._become_head(state, revision, new_revision, plan.changes)
        self._revisions.add(state.with_own((*state.own, new_revision), plan.changes))
        return new_revision

    def _write_row(
        self, revision: int, state: BranchState, own: Sequence[int], message: str, encoded: Iterable[NewCell]
    ) -> None:
        """Write the journal row of a new revision of a branch that follows its revisions ``own``."""
        ids = NewCell(*schema.BRANCH, revisions.to_bytes((state.root, *own, revision)))
        put = Put(schema.revision_key(revision), [*self._common_cells(message, state.base), ids, *encoded])
        self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put, durable=False)

    def _become_head(self, state: BranchState, revision: int, new: int, touched: Sequence[RowChange]) -> None:
        """Move the head of a branch from ``revision`` to a new revision; if it has moved, roll back and raise BranchError."""
        lost_replies: list[bool] = []
        try:
            moved = self._heads.move(
                state.root,
                schema.revision_key(revision),
                schema.revision_key(new),
                lambda: lost_replies.append(True),
            )
            # After a lost reply, another instance may already have committed on top: then the move succeeded.
            moved = moved or self.outcome(new) is Outcome.COMMITTED
        except RevisionCollectedError as error:
            # The branch has ended, and its rows are deleted. So nobody can read this revision.
            self._roll_back(new, touched)
            raise CommitUnknownError(error.message, revision=error.revision) from error
        except (StoreError, ClosedError) as error:
            if not lost_replies:
                self._roll_back(new, touched)
                raise
            text = revisions.to_text(new)
            raise CommitUnknownError(
                f"the store at {self._store.location} failed while {text} became the head of its branch ({error}); call "
                "Repository.outcome with this id when the store is available again",
                revision=text,
            ) from error
        if not moved:
            try:
                self._outcomes.abort_own(new, touched)
            except StoreError:
                self._outcomes.defer(new, touched)
            raise self._moved_on(revision)

    def _roll_back(self, revision: int, touched: Sequence[RowChange]) -> None:
        """Roll back a revision that failed; after an error, the next call on a branch does it."""
        self._outcomes.defer(revision, touched)
        with suppress(ClosedError), time_limit(self._runtime, BRIEFLY):
            self._outcomes.resolve_pending_quietly()

    def outcome(self, revision: int) -> Outcome:
        """Return whether a branch revision ever became its branch's head; after a merge or rebase this never changes.

        Raises RevisionCollectedError if the branch has ended so long ago that its rows may be deleted.
        """
        return self._revisions.outcome(revision)

    @within_retry_timeout
    def reset(self, revision: int, ancestor: int) -> int:
        """Reset a branch to one of its earlier revisions; return the branch's head.

        The head is ``ancestor``, or a new revision with the same content if a merge or rebase has claimed the branch.
        Raises BranchError if ``revision`` is not the newest, or ``ancestor`` is not a revision of the branch. Raises
        CommitUnknownError if it is unknown whether the new revision has become the head.
        """
        state, row = self.require_head_row(revision)
        if ancestor not in state.own:
            raise BranchError(
                f"{revisions.to_text(ancestor)} is not an ancestor of {revisions.to_text(revision)} on the same branch; reset "
                "to an earlier revision of this branch",
                revision=revisions.to_text(ancestor),
            )
        if ancestor == revision:
            return ancestor
        if row.value(schema.BRANCH_CLAIM) is not None:
            with nothing_committed():
                return self._reset_claimed(state, revision, ancestor)
        if not self._heads.move(state.root, schema.revision_key(revision), schema.revision_key(ancestor)):
            raise self._moved_on(revision)
        return ancestor

    def _reset_claimed(self, state: BranchState, revision: int, ancestor: int) -> int:
        """Reset a branch to a new revision without changes.

        A rebase with a final claim ends the branch at the head that it claimed. Another claim may have replaced its own
        because the head had moved, so the head must not return there.
        """
        new = self._new_id(max(state.view.upper, self._journal.highest_seen))
        own = state.own[: state.own.index(ancestor) + 1]
        try:
            self._write_row(new, state, own, "", changes.encode(()))
        except BaseException:
            self._roll_back(new, ())
            raise
        self._become_head(state, revision, new, ())
        return new

    @within_retry_timeout
    def abandon(self, revision: int) -> None:
        """End a branch without merging it; a later sweep deletes its cells.

        Raises BranchError if ``revision`` is not its newest revision, or the branch has ended.
        """
        state = self.require_head(revision)
        if not self._heads.abandon(state.root, revision):
            raise self._moved_on(revision)

    # --- merge -------------------------------------------------------------------------------------------

    @within_retry_timeout
    def merge(self, revision: int, message: str) -> int:
        """Commit the branch's net effect to trunk as one revision; return it, or the current head if there is no effect.

        Raises ConflictError if trunk has changed since the base what the branch wrote or depends on; both sides are then
        unchanged. Raises BranchError if ``revision`` is not the newest or the branch carries conflict markers. Raises it
        also, with the merged revision, if a concurrent commit to the branch is not part of the merge.
        """
        with nothing_committed():
            state = self.require_head(revision)
            nodes = self.net_effect(state)
            # A sweep moves the head before it deletes anything: where the head still stands, the effect was read whole. A
            # merge that commits reads the head again, in its transaction or with its claim.
            is_noop = noop.is_noop(nodes)
            if is_noop or net_effects.has_marker(nodes):
                self.require_head(revision)
        net_effects.require_no_marker(nodes, revision)
        plan = change_set.of_nodes(nodes)
        if is_noop:
            self._committer.on_base(state.trunk, ReadyChangeSet(noop.without_noop(plan)), message, REBASE)
            return self._journal.head.revision
        tried: list[int] = []
        end = MergeEnd(self._claims, state.root, revision)
        try:
            source = ReadyChangeSet(plan)
            merged = self._committer.on_base(state.trunk, source, message, REBASE, begun=tried.append, ends=end)
            # The merge is committed: a store error from here on must not make it look rejected.
            has_ended = end.is_written or self._heads.close_merged(state.root, revision, merged)
        except ConflictError:
            if end.reason is not None:
                raise end.reason from None
            # If the branch is merged or rebased already, its end, which the claim has completed, is the reason.
            with suppress(StoreError, ClosedError):
                self.require_head(revision)
            raise
        except BaseException:
            # The merge may have committed, also if an interrupt such as Ctrl-C ends the call. Then the branch must end.
            if tried:
                self._heads.record_doubt(state.root, revision, tried[-1])
            raise
        if not has_ended:
            try:
                head = self._heads.read(state.root)
            except (StoreError, ClosedError):
                # The merge is committed; of the branch it is only known that it has moved on.
                head = BranchHead(b"", None)
            if head is not None and head.how != ABANDONED:
                text = revisions.to_text(revision)
                raise BranchError(
                    f"branch revision {text} is merged into trunk as {revisions.to_text(merged)}, but meanwhile {head}, and "
                    "its later commits are not merged; rebase the branch before you merge them",
                    revision=text,
                )
        return merged

    def claim_for_rebase(
        self, state: BranchState, revision: int, target: View, known: JournalRow
    ) -> list[StagedNode] | None:
        """Claim a branch for a rebase to the branch ``target``, and return None; ``known`` is the branch's first row.

        If a part of the branch is merged, there is no claim; returns the net effect of that part. Raises BranchError if the
        whole branch is merged, or if the target does not contain that merge.
        """
        found = self._claims.take(state.root, target.revision, revision, known)
        if found is None:
            return None
        if found.revision != revision and self._journal.sees(target, found.claimant):
            return self.net_effect(self.find(self._revisions.common(state, found.revision)))
        self._claims.end_merged(state.root, found)
        self.require_head(revision)
        raise BranchError(
            f"a part of the branch is merged into trunk as {revisions.to_text(found.claimant)}; rebase it to a revision "
            "that contains this one",
            revision=revisions.to_text(revision),
        )

    def resolve_pending(self) -> None:
        """Retry closing merged branches whose head could not be updated."""
        self._heads.resolve_pending()

    def close_rebased(self, state: BranchState, revision: int, root: int, into: int, has_claim: bool) -> None:
        """End a branch that was rebased to another one; otherwise abandon the new one and raise BranchError.

        ``root`` is the first revision of the new branch. ``has_claim``: it has claimed the old one.
        """
        is_final = not has_claim or self._claims.finalize(state.root, root, revision)
        if not is_final or not self._heads.close_rebased(state.root, revision, into):
            self.give_up(root)
            raise self._moved_on(revision)

    def give_up(self, root: int) -> None:
        """Abandon a branch that no caller has received; after an error, a later sweep does it."""
        with suppress(StoreError, ClosedError), time_limit(self._runtime, BRIEFLY):
            self._heads.abandon_always(root)

    def sweep(self, retention_ms: int | None, above: int = 0) -> list[int]:
        """Abandon branches without commits for the retention time (None: none), and delete the cells of ended ones.

        ``above``: look only at branches above this id. Returns the first revisions of the swept branches.
        """
        swept = self._heads.sweep(retention_ms, above)
        for own_revisions in swept.values():
            for revision in own_revisions:
                self._revisions.drop(revision)
        return list(swept)

    def markers(self, state: BranchState) -> list[str]:
        """Return the paths of the branch's conflict markers, which prevent a merge."""
        return net_effects.markers(self.net_effect(state))

    def net_effect(self, state: BranchState) -> list[StagedNode]:
        """Return the nodes that differ between the branch and its view of trunk; see :func:`net_effects.net_effect`."""
        changes = self._heads.changes_of(state.own) if state.changes is None else state.changes
        return net_effects.net_effect(self._reader, state, changes)
