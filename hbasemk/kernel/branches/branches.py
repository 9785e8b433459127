"""Branches: private revisions on a fixed view of trunk (``docs/protocol.md``, section 7).

The first row of a branch stores its view of trunk in full, so that every instance uses the same view. Branch commits
carry the branch bit and are visible only in the branch's own views. One compare-and-set on the first row makes a commit
the branch's new head. A merge is one ordinary trunk commit of the branch's net effect on that view
(``docs/decisions/0007-merge-rewrites.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final

from hbasemk.errors import (
    BranchError,
    ClosedError,
    ConflictError,
    HbasemkError,
    StoreError,
)
from hbasemk.format import changes, revisions, schema
from hbasemk.format.branch_head import ABANDONED, REBASED, BranchClaim, BranchHead, RebaseOf
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches import net_effects
from hbasemk.kernel.branches.branch_commits import BranchCommits
from hbasemk.kernel.branches.cache import Begun, BranchState
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.branches.merge_end import MergeEnd
from hbasemk.kernel.branches.unfinished_rebases import UnfinishedRebases
from hbasemk.kernel.commit import change_set, noop
from hbasemk.kernel.commit.change_source import ChangeSource, ReadyChangeSet
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.context import CommitContext
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.garbage import collected_rarely
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import BRIEFLY, NOTHING_COMMITTED, TimeLimit, within_retry_timeout
from hbasemk.store.abc import CheckAndWrite, Put

REBASE: Final = "Rebase the branch, which marks the places that both sides changed, and merge it again."


class Branches(BranchCommits):
    """The branches of a repository, as one instance uses them. Any instance may continue any branch."""

    def __init__(self, context: CommitContext, committer: Committer, lease: Lease) -> None:
        super().__init__(context, lease)
        self._committer = committer
        self._claims = BranchClaims(context.store, context.outcomes, self._heads)
        self._rebases = UnfinishedRebases(context.store, self._heads)

    def retry_timeout(self) -> AbstractContextManager[None]:
        """Limit the total time of several calls, see :class:`hbasemk.kernel.retry.TimeLimit`."""
        return TimeLimit(self._runtime)

    # --- making and finding ------------------------------------------------------------------------------

    @within_retry_timeout
    def begin(self, base: View, message: str = "") -> int:
        """Create a branch on a view of trunk; return its first revision. One round trip.

        Raises BranchError for a view of a branch, and RevisionCollectedError for one that is too old.
        """
        state, extent = self._first(base, Begun(message, None))
        try:
            self._create(state, extent)
            return state.root
        except BaseException:
            # No caller receives the branch. Until a sweep it would keep old revisions from being collected.
            self.give_up(state.root)
            raise

    def _create(self, state: BranchState, extent: Extent) -> None:
        """Write the first row of a branch, see :meth:`_first`, where no collector passes it; after an error it may be written.

        One round trip. Raises RevisionCollectedError if the view is too old.
        """
        root, base = state.root, state.trunk
        assert state.begun is not None
        began = self._runtime.monotonic()
        put = self._rows.first(root, root, base, extent, state.begun)
        is_protected = self._store.supports_transactions and self._transactions.begin(put, extent.floor)
        if not is_protected:
            # A collector that has not found the new row has announced its horizon before this read.
            is_new, found = self._store.check_and_write_then_read(
                CheckAndWrite(schema.JOURNAL, schema.COMMITTED, None, put), *fence.get_horizon(self._store)
            )
            # After a lost reply, the repeated request finds the row that the first one wrote.
            if not is_new and self._heads.head(root) != schema.revision_key(root):
                text = revisions.to_text(root)
                raise BranchError(f"branch {text} already exists", revision=text)
            if not fence.protect(self._store, self._runtime, extent.floor, found):
                self._journal.fence.refresh()
                raise self._journal.collected(base)
        self._revisions.add(state, began)

    def _first(self, base: View, begun: Begun) -> tuple[BranchState, Extent]:
        """Return the first revision of a new branch on a view of trunk, with a new id, and the extent of the view."""
        if revisions.is_branch(base.revision):
            raise BranchError(
                f"the base of a branch must be a trunk revision, got branch revision {revisions.to_text(base.revision)}; "
                "begin the branch on a snapshot of trunk",
                revision=revisions.to_text(base.revision),
            )
        self._journal.require_readable(base)
        extent = self._journal.contents(base)
        root = self._new_id(max(base.upper, self._journal.highest_seen))
        return BranchState.begin(root, base, extent, begun), extent

    def find(self, revision: int) -> BranchState:
        """Return a branch revision. Two round trips if it is not cached; one if the cache entry is too old.

        Raises UnknownRevisionError if the branch revision does not exist or has been swept.
        """
        state = self._revisions.find(revision)
        self._clock.observe(max(state.own))
        return state

    def lacks(self, state: BranchState, other: View) -> bool:
        """Return whether a view of trunk has revisions that the branch's view lacks; both may have the same base."""
        return any(self._journal.sees(other, revision) for revision in self._journal.since(state.trunk))

    @property
    def heads_return(self) -> bool:
        """Whether a reset may move the head of a branch back to an earlier revision.

        On HBase it must not: the request of a commit that followed the earlier revision may arrive a second time, and would
        move the head from there again.
        """
        return self._store.supports_transactions

    @within_retry_timeout
    def reset(self, revision: int, ancestor: int) -> int:
        """Reset a branch to one of its earlier revisions; return the branch's head.

        The head is ``ancestor``, or a new revision with the same content if a merge or rebase has claimed the branch, or the
        store does not order all writes.
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
        if row.value(schema.BRANCH_CLAIM) is not None or not self.heads_return:
            with NOTHING_COMMITTED:
                return self._reset_to_new(state, revision, ancestor)
        if not self._heads.move(state.root, schema.revision_key(revision), schema.revision_key(ancestor)):
            raise self._moved_on(revision)
        return ancestor

    def _reset_to_new(self, state: BranchState, revision: int, ancestor: int) -> int:
        """Reset a branch to a new revision without changes, because the head must not return to an earlier one.

        A rebase with a final claim ends the branch at the head that it claimed. Another claim may have replaced its own
        because the head had moved. For HBase see :attr:`heads_return`.
        """
        new = self._new_id(max(state.view.upper, self._journal.highest_seen))
        own = state.own[: state.own.index(ancestor) + 1]
        try:
            self._write_row(new, state, own, "", changes.encode(()))
        except BaseException:
            self._roll_back(new, ())
            raise
        self._become_head(self._move(state, revision, new), revision, new, ())
        return new

    @within_retry_timeout
    def abandon(self, revision: int) -> None:
        """End a branch without merging it; a later sweep deletes its cells.

        Raises BranchError if ``revision`` is not its newest revision, or the branch has ended.
        """
        state = self.require_head(revision)
        self._revisions.forget_made(state.root)
        if not self._heads.abandon(state.root, revision):
            raise self._moved_on(revision)

    # --- merge -------------------------------------------------------------------------------------------

    @within_retry_timeout
    def merge(self, revision: int, message: str | None, *, abandons: bool = False) -> int:
        """Commit the branch's net effect to trunk as one revision; return it, or the current head if there is no effect.

        ``message`` describes the revision (None: the branch's message). A merge without effect leaves the branch open, or
        ``abandons`` it.
        Raises ConflictError if trunk has changed since the base what the branch wrote or depends on; both sides are then
        unchanged. Raises BranchError if ``revision`` is not the newest or the branch carries conflict markers, or if another
        merge or rebase of the branch came first. Raises it also, with the merged revision, if a concurrent commit to the branch
        is not part of the merge.
        """
        with NOTHING_COMMITTED:
            try:
                nodes = self.net_effect(self._revisions.find_cached(revision))
            except (StoreError, ClosedError):
                raise
            except HbasemkError:
                # Another process may have ended the branch; then its state is the reason.
                self.require_head(revision)
                raise
            # A sweep moves the head before it deletes anything: if the head is unchanged now or after the claim, the effect was
            # read completely.
            is_noop = noop.is_noop(nodes)
            expected = None if is_noop else self.expected_head_row(revision)
            state, row = expected or self.begun_head_row(revision)
            self.require_begun(row)
            message = row.message if message is None else message
            if is_noop and row.branch_claim is not None:
                self._require_unmerged(state, revision, row.branch_claim)
        net_effects.require_no_marker(nodes, revision)
        plan = change_set.of_nodes(nodes)
        plan.private = len(state.own)
        if is_noop:
            self._committer.on_base(state.trunk, ReadyChangeSet(noop.without_noop(plan)), message, REBASE)
            if abandons:
                # The merge has succeeded: after an error, a later sweep abandons the branch. If another process has committed
                # to the branch meanwhile, it stays open.
                with suppress(StoreError, ClosedError), TimeLimit(self._runtime, BRIEFLY):
                    self._heads.abandon(state.root, revision)
            return self._journal.head.revision
        tried: list[int] = []
        again = True
        # If a merge in one transaction was refused, the branch has probably changed, so the row is read again.
        known = None if self.heads_return else row
        while True:
            end = MergeEnd(self._claims, state.root, revision, known, yields=not again)
            try:
                source = ReadyChangeSet(plan)
                merged = self._committer.on_base(state.trunk, source, message, REBASE, begun=tried.append, ends=end)
                # The merge is committed: a store error from here on must not make it look rejected.
                self._revisions.forget_made(state.root)
                has_ended = end.is_written or self._heads.close_merged(state.root, revision, merged)
                break
            except ConflictError as error:
                if end.reason is not None:
                    raise end.reason from None
                with NOTHING_COMMITTED:
                    may_be_rival = self._may_be_rival(state.root, revision, end, error)
                if not may_be_rival or not again:
                    raise
                tried.clear()
                again, known = False, None
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

    def _require_unmerged(self, state: BranchState, revision: int, claim: BranchClaim) -> None:
        """Raise BranchError if the merge that has claimed a branch is committed; end the branch first if it is the whole branch.

        A branch that has reverted the merged part has no effect, but trunk still has that part.
        """
        if revisions.is_branch(claim.claimant):
            return
        if self._outcomes.of(claim.claimant, check=True) is Outcome.COMMITTED:
            raise self._partly_merged(state.root, revision, claim)

    def _partly_merged(self, root: int, revision: int, claim: BranchClaim) -> BranchError:
        """Return the error for a claim that has taken effect; if the whole branch is merged, end it, and raise its error."""
        self._claims.end_merged(root, claim)
        self.require_head(revision)
        return BranchError(
            f"a part of the branch is merged into trunk as {revisions.to_text(claim.claimant)}; rebase it to a revision that "
            "contains this one",
            revision=revisions.to_text(revision),
        )

    def _may_be_rival(self, root: int, revision: int, end: MergeEnd, error: ConflictError) -> bool:
        """Return whether a merge may have lost to another merge or a rebase of the branch that has not claimed it yet.

        Raises BranchError if the claim on the branch shows that it has; and if the branch is merged or rebased already.
        """
        try:
            # If the branch is merged or rebased already, its end, which the claim has completed, is the reason.
            _, row = self.require_head_row(revision)
        except (StoreError, ClosedError):
            return False
        claim = row.branch_claim
        if claim is None or not end.is_lost_to(claim, error):
            # An unknown revision has aborted the merge: a commit to trunk, or a rival before it makes its own claim.
            return error.other == error.revision
        if (
            not revisions.is_branch(claim.claimant)
            and self._outcomes.of(claim.claimant, check=True) is Outcome.COMMITTED
        ):
            # If the branch has received commits during that merge, it contains only a part.
            raise self._partly_merged(root, revision, claim) from None
        text, rival = revisions.to_text(revision), revisions.to_text(claim.claimant)
        raise BranchError(
            f"branch revision {text} is not merged: another merge or rebase of the branch, {rival}, was made at the same time. "
            "If that one fails, merge the branch again",
            revision=text,
        ) from None

    def may_rebase_at_once(self, row: JournalRow, nodes: int) -> bool:
        """Return whether one transaction may rebase a branch with this first row, whose effect changes so many nodes."""
        return self._store.supports_transactions and nodes <= self._store.batch_rows and row.branch_claim is None

    @collected_rarely
    def rebase_at_once(
        self, state: BranchState, revision: int, base: View, source: ChangeSource, message: str
    ) -> int | None:
        """Rebase a branch, whose net effect is ``source``, in one transaction; return its newest revision on the new view.

        Returns None, with nothing written, if the rebase must go step by step: the effect is too large, another merge or rebase
        has claimed the branch, the branch has moved on, or a collector is passing the new view. Raises the errors of staging.
        """
        with NOTHING_COMMITTED:
            first, extent = self._first(base, Begun(message, None))
            prepared = self._prepare(first, first.trunk, source)
        root = newest = first.root
        states = [first]
        rows: list[Put] = []
        cells: list[Put] = []
        if prepared is not None:
            plan, newest, encoded = prepared
            if not self._transactions.fits(plan, encoded):
                return None
            states.append(first.followed_by(newest, plan))
            rows.append(self._rows.further(newest, first, first.own, message, encoded))
            cells = plan.puts(newest)
        rows.append(self._rows.first(root, newest, base, extent, Begun(message, None)))
        end, claim = BranchHead(REBASED, revision, newest), BranchClaim(root, revision, is_final=True)
        began = self._runtime.monotonic()
        if not self._transactions.rebase(state.root, end, claim, extent.floor, rows, cells):
            return None
        self._revisions.forget_made(state.root)
        for one in states:
            self._revisions.add(one, began)
        return newest

    def begin_rebase(
        self, state: BranchState, revision: int, row: JournalRow, base: View, message: str, *, claims: bool
    ) -> tuple[int, list[StagedNode] | None]:
        """Create the new branch of a rebase in steps on the view ``base``, and claim the old one if ``claims``.

        ``row`` is the first row of the old branch, and ``revision`` its newest revision. Returns the first revision of the new
        branch. If a part of the old branch is merged, it also returns the net effect of that part, and there is no claim. One
        round trip if the store can make calls in parallel, else two. Raises BranchError if the whole branch is merged, or if
        ``base`` does not contain the merge of a part; the new branch is then abandoned.
        """
        first, extent = self._first(base, Begun(message, RebaseOf(state.root, revision)))
        root = first.root
        create = partial(self._create, first, extent)
        claim = partial(self._claim_for_rebase, state, revision, root, base, row)
        with NOTHING_COMMITTED:
            try:
                # Until it is final, the claim says nothing about the new branch, so either may come first.
                if claims and self._store.supports_parallel_calls:
                    return root, self._runtime.run_parallel(create, claim)[1]
                create()
                return root, claim() if claims else None
            except BaseException:
                self.give_up(root)
                raise

    def _claim_for_rebase(
        self, state: BranchState, revision: int, root: int, target: View, known: JournalRow
    ) -> list[StagedNode] | None:
        """Claim a branch for a rebase to the new branch ``root``, and return None; ``known`` is the branch's first row.

        If a part of the branch is merged, there is no claim; returns the net effect of that part. Raises BranchError if the
        whole branch is merged, or if ``target``, the view of the new branch, does not contain that merge.
        """
        found = self._claims.take(state.root, root, revision, known)
        if found is None:
            return None
        if found.revision != revision and self._journal.sees(target, found.claimant):
            return self.net_effect(self.find(self._revisions.common(state, found.revision)))
        raise self._partly_merged(state.root, revision, found)

    def close_rebased(self, state: BranchState, revision: int, root: int, into: int, *, has_claim: bool) -> None:
        """End a branch that was rebased to another one; otherwise abandon the new one and raise BranchError.

        ``root`` is the first revision of the new branch. ``has_claim``: it has claimed the old one.
        """
        link = RebaseOf(state.root, revision)
        self._revisions.forget_made(state.root)

        def close() -> bool:
            is_final = not has_claim or self._claims.finalize(state.root, root, revision)
            return is_final and (
                self._heads.close_rebased(state.root, revision, into) or self._rebases.has_ended_old(root, link)
            )

        try:
            has_ended = close()
        except BaseException:
            # The claim may be final, and another process may be ending the old branch for it. So only one of the two branches
            # may end here, and the error of the old one names the new one.
            with suppress(StoreError, ClosedError), TimeLimit(self._runtime, BRIEFLY):
                if not close():
                    self._heads.abandon_always(root)
            raise
        if not has_ended:
            self.give_up(root)
            raise self._moved_on(revision)
        self._rebases.know_over(root)

    def require_begun(self, row: JournalRow) -> None:
        """Raise BranchError if a branch is the new one of a rebase that has not ended the old one, by its first row.

        Both would take effect. No round trip for a branch that no rebase in steps has made, or whose rebase this instance has
        made or finds recorded as over; else two to six.
        """
        link, head = row.rebase_of, row.branch_head
        if link is None or link.is_over or head is None or head.newest is None:
            return
        if not self._rebases.is_over(row.revision, head.newest, link):
            raise BranchError(
                f"branch revision {revisions.to_text(head.newest)} belongs to a rebase that has not ended; rebase "
                f"{revisions.to_text(link.revision)} again, and go on with the result",
                revision=revisions.to_text(head.newest),
                continues_at=revisions.to_text(link.revision),
            )

    def give_up(self, root: int) -> None:
        """Abandon a branch that no caller has received; after an error, a later sweep does it."""
        with suppress(StoreError, ClosedError), TimeLimit(self._runtime, BRIEFLY):
            self._heads.abandon_always(root)

    def sweep(
        self,
        retention_ms: int | None,
        above: int = 0,
        *,
        deletes: bool = True,
        between: Callable[[], object] | None = None,
    ) -> list[int]:
        """Abandon branches without commits for the retention time (None: none), and delete the cells of ended ones.

        ``above``: look only at branches above this id. If ``deletes`` is False, only abandon branches. ``between`` is called
        between two calls of the scan for branches. Returns the first revisions of the branches that it abandoned, or whose cells
        it deleted.
        """
        swept = self._heads.sweep(retention_ms, above, deletes=deletes, between=between)
        for own_revisions in swept.values():
            for revision in own_revisions:
                self._revisions.drop(revision)
        return list(swept)

    def markers(self, state: BranchState) -> list[str]:
        """Return the paths of the branch's conflict markers, which prevent a merge."""
        made = self._changes(state)
        if not any(net_effects.is_place_of_marker(change.path) for change in made):
            return []
        return net_effects.markers(net_effects.net_effect(self._reader, state, made))

    def net_effect(self, state: BranchState) -> list[StagedNode]:
        """Return the nodes that differ between the branch and its view of trunk; see :func:`net_effects.net_effect`."""
        return net_effects.net_effect(self._reader, state, self._changes(state))

    def _changes(self, state: BranchState) -> Sequence[RowChange]:
        """Return the changes of the branch. No round trip if this instance has made them, and they are few."""
        return self._heads.changes_of(state.own) if state.changes is None else state.changes
