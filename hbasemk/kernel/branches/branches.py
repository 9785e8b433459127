"""Branches: private revisions on a fixed view of trunk (``docs/protocol.md``, section 7).

A branch's view of trunk is told in full with its first row, so that every instance sees the same one. Its commits carry
the branch bit and are visible only in its own snapshots; one compare-and-set on the first row makes a commit the branch's
new head. A merge is one ordinary commit of the net effect on that view (``docs/decisions/0007-merge-rewrites.md``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from hbasemk.errors import BranchError, ClosedError, CommitUnknownError, StoreError, UnknownRevisionError
from hbasemk.format import changes, journal_row, paths, revisions, schema
from hbasemk.kernel.batches import write_changes, write_nodes
from hbasemk.kernel.branches.cache import BranchState, BranchStates
from hbasemk.kernel.branches.heads import ABANDONED, MERGED, REBASED, BranchEnds, Head
from hbasemk.kernel.commit import change_set, noop
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.staging import StagedNode
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import BY_EXTENT, Journal
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retry import again, nothing_committed, patient, time_limit
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Get, NewCell, Put, Store

MARKER: Final = ":conflict"
REBASE: Final = "Rebase the branch, which tells where both sides changed the same, and merge it again."


class Branches:
    """Branches of one instance's repository. Any instance may go on with any branch."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        clock: IdClock,
        journal: Journal,
        reader: Reader,
        outcomes: Outcomes,
        committer: Committer,
        lease: Lease,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._journal = journal
        self._reader = reader
        self._outcomes = outcomes
        self._committer = committer
        self._known = BranchStates(runtime)
        self._ends = BranchEnds(store, runtime, outcomes, lease)

    def retry_timeout(self) -> AbstractContextManager[None]:
        """Bound the calls of several methods together, see :func:`hbasemk.kernel.retry.time_limit`."""
        return time_limit(self._runtime)

    # --- making and finding ------------------------------------------------------------------------------

    @patient
    def begin(self, base: View, message: str = "") -> int:
        """A new branch on a trunk snapshot; returns its first revision. One round trip.

        Raises BranchError for a branch's snapshot.
        """
        if revisions.is_branch(base.revision):
            raise BranchError(
                f"a branch begins on a trunk revision; {revisions.to_text(base.revision)} is a branch's",
                revision=revisions.to_text(base.revision),
            )
        floor, above = self._journal.contents(base)
        view = _encode((floor, base.upper, *above))
        made = again(self._runtime, lambda: self._clock.next(max(base.upper, self._journal.highest_seen), branch=True))
        put = Put(
            schema.revision_key(made),
            [
                *self._common(message, base.revision),
                NewCell(*schema.BRANCH, _encode((made, made))),
                NewCell(*schema.BRANCH_VIEW, zlib.compress(view, 1)),
                NewCell(*schema.BRANCH_HEAD, Head(b"", made).encode()),
            ],
        )
        if not again(
            self._runtime, lambda: self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put)
        ) and self._ends.head(made) != schema.revision_key(made):
            raise BranchError(f"branch {revisions.to_text(made)} exists already", revision=revisions.to_text(made))
        return made

    def find(self, wanted: int) -> BranchState:
        """A branch revision; two round trips when it is not known here yet, one now and then to see that it still is there.

        Raises UnknownRevisionError when there is no such branch revision, or it has been swept.
        """
        found = self._known.get(wanted)
        if found is None:
            return self._remembered(wanted)
        if not self._known.is_current(wanted):
            # The newest of a branch are swept first: where this one is not, nothing that it shows is gone.
            if self._row(wanted, (schema.ABORT,)).get(schema.ABORT) != schema.NO:
                self._known.drop(wanted)
                raise self._unknown(wanted)
            self._known.keep(wanted, found)
        return found

    def _remembered(self, wanted: int) -> BranchState:
        found = self._known.get(wanted)
        if found is None:
            found = self._read(wanted)
            self._known.keep(wanted, found)
        return found

    def _read(self, wanted: int) -> BranchState:
        columns = (schema.BRANCH, schema.BRANCH_VIEW, schema.BASE, schema.ABORT)
        told = self._row(wanted, columns)
        if schema.BRANCH not in told or told.get(schema.ABORT) == schema.YES:
            raise self._unknown(wanted)
        try:
            root, *own = _decode(told[schema.BRANCH])
            if not own:
                raise ValueError("no revisions")
            if root != wanted:
                told = {**told, **self._row(root, (schema.BRANCH_VIEW,))}
            (base,) = _decode(told[schema.BASE])
            floor, upper, *above = _decode(zlib.decompress(told[schema.BRANCH_VIEW]))
        except (ValueError, KeyError, zlib.error) as error:
            raise schema.damaged(
                f"the journal row of branch revision {revisions.to_text(wanted)} at {self._store.location} is damaged: it does "
                "not show the branch's revisions, its base and its view of trunk",
                schema.JOURNAL,
                schema.revision_key(wanted),
                schema.BRANCH,
            ) from error
        if self._journal.highest_seen < upper or not self._journal.is_recent(0.0):
            # Everything below the floor was decided when the branch began; a poll since then has seen it.
            again(self._runtime, self._journal.poll)
        trunk = View(base, BY_EXTENT, floor, upper, frozenset(above), base)
        snapshot = View(wanted, BY_EXTENT, floor, max(upper, *own), frozenset((*above, *own)), base)
        return BranchState(root, base, tuple(own), trunk, snapshot)

    def _unknown(self, wanted: int) -> UnknownRevisionError:
        text = revisions.to_text(wanted)
        return UnknownRevisionError(
            f"branch revision {text} is not known in the repository at {self._store.location}: it was never made, "
            "belongs to another repository, or its branch was abandoned and swept",
            revision=text,
        )

    def _row(self, which: int, columns: Sequence[tuple[bytes, bytes]]) -> dict[tuple[bytes, bytes], bytes]:
        get = Get(schema.revision_key(which), columns=columns)
        row = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0]
        return {(cell.family, cell.qualifier): cell.value for cell in row.cells}

    def _common(self, message: str, base: int) -> list[NewCell]:
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        return journal_row.begin(nonce, base, message)

    def require_head(self, wanted: int) -> BranchState:
        """A branch revision that must be its branch's newest; raises BranchError when it is not, or is no more."""
        self.resolve_pending()
        # Whether it has been swept, the head tells.
        found = self._remembered(wanted)
        head = self._ends.told(found.root)
        if head == (b"", wanted, None):
            return found
        text = revisions.to_text(wanted)
        raise BranchError(
            f"branch revision {text} is not the newest of its branch: {head or 'it has none'}", revision=text
        )

    def lacks(self, state: BranchState, other: View) -> bool:
        """Whether a trunk snapshot has revisions that the branch's view has not: two may go by the same name."""
        return any(self._journal.sees(other, made) for made in self._journal.since(state.trunk))

    def _moved_on(self, on: int) -> BranchError:
        """The error for a head that was not at ``on`` any more when it was to be moved."""
        self.require_head(on)
        text = revisions.to_text(on)
        return BranchError(
            f"branch revision {text} was not the newest of its branch for a moment; try again", revision=text
        )

    # --- commits on a branch -----------------------------------------------------------------------------

    @patient
    def commit(self, on: int, build: Callable[[View], ChangeSet], message: str) -> int:
        """Commit on the newest revision of a branch; returns the branch's new head, or ``on`` if there is nothing to write.

        Properties that are set to the value they have are written too: the merge relies on what they were on trunk.

        Raises BranchError when ``on`` is not the newest, what ``build`` raises, and the store's errors, after which the
        branch is as it was, or CommitUnknownError.
        """
        with nothing_committed():
            return self._commit(on, build, message)

    def _commit(self, on: int, build: Callable[[View], ChangeSet], message: str) -> int:
        self._outcomes.resolve_pending()
        state = self.require_head(on)
        plan = change_set.with_unchanged_writes(build(state.snapshot))
        change_set.require_free_names(self._reader, state.snapshot, plan)
        self._store.check_puts(plan.puts(0))
        if not plan.changes:
            return on
        told = changes.encode(plan.changes)
        inline = changes.size_of(told) <= changes.INLINE
        above = max(state.snapshot.upper, self._journal.highest_seen)
        made = again(self._runtime, lambda: self._clock.next(above, branch=True))
        put = Put(
            schema.revision_key(made),
            [
                *self._common(message, state.base),
                NewCell(*schema.BRANCH, _encode((state.root, *state.own, made))),
                *(told if inline else ()),
            ],
        )
        try:
            again(
                self._runtime,
                lambda: self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put, durable=False),
            )
            if not inline:
                write_changes(self._store, self._runtime, made, told)
            write_nodes(self._store, self._runtime, plan.each_put(made), between=self._clock.keep_lease)
        except BaseException:
            self._outcomes.defer(made, plan.changes)
            self._outcomes.resolve_pending_quietly()
            raise
        doubts: list[bool] = []
        try:
            moved = self._ends.move(
                state.root, schema.revision_key(on), schema.revision_key(made), lambda: doubts.append(True)
            )
            # After a lost reply others may have seen it and gone on: then it is of the branch all the same.
            moved = moved or self.outcome(made) is Outcome.COMMITTED
        except (StoreError, ClosedError) as error:
            if not doubts:
                self._outcomes.defer(made, plan.changes)
                self._outcomes.resolve_pending_quietly()
                raise
            text = revisions.to_text(made)
            raise CommitUnknownError(
                f"the store at {self._store.location} failed while {text} became the head of its branch ({error}); ask "
                "Repository.outcome with this id when the store is back",
                revision=text,
            ) from error
        if not moved:
            try:
                self._outcomes.abort_own(made, plan.changes)
            except StoreError:
                self._outcomes.defer(made, plan.changes)
            raise self._moved_on(on)
        return made

    def outcome(self, asked: int) -> Outcome:
        """Whether a branch revision ever became its branch's head; of what was merged or rebased that stays told for ever."""
        columns = (schema.BRANCH, schema.ABORT)
        told = self._row(asked, columns)
        if schema.BRANCH not in told:
            return Outcome.ABORTED
        head = self._ends.told(self._own(asked, told)[0])
        gone = told.get(schema.ABORT) == schema.YES
        if head is None or head.newest is None:
            # Ended by a version that did not keep what its newest revision was.
            return Outcome.ABORTED if gone else Outcome.COMMITTED
        newest = self._row(head.newest, columns)
        if head.how not in (MERGED, REBASED) and (gone or newest.get(schema.ABORT) == schema.YES):
            return Outcome.ABORTED
        return Outcome.COMMITTED if asked in self._own(head.newest, newest) else Outcome.ABORTED

    def _own(self, which: int, told: Mapping[Column, bytes]) -> list[int]:
        """The first revision of a branch and all of its own that its row names; none without such a row."""
        data = told.get(schema.BRANCH)
        try:
            found = [] if data is None else _decode(data)
        except ValueError:
            found = []
        if data is not None and not found:
            raise schema.damaged(
                f"the row of branch revision {revisions.to_text(which)} is damaged",
                schema.JOURNAL,
                schema.revision_key(which),
                schema.BRANCH,
            )
        return found

    @patient
    def reset(self, on: int, ancestor: int) -> int:
        """Take a branch back to an earlier revision of its own; returns the branch's head.

        Raises BranchError when ``on`` is not the newest, or ``ancestor`` is none of its branch's revisions.
        """
        state = self.require_head(on)
        if ancestor not in state.own:
            raise BranchError(
                f"{revisions.to_text(ancestor)} is no ancestor of {revisions.to_text(on)} on the same branch",
                revision=revisions.to_text(ancestor),
            )
        if ancestor != on and not self._ends.move(state.root, schema.revision_key(on), schema.revision_key(ancestor)):
            raise self._moved_on(on)
        return ancestor

    @patient
    def abandon(self, on: int) -> None:
        """End a branch without merging it: nothing is committed to it any more, and a later sweep deletes what it left.

        Raises BranchError when ``on`` is not its newest revision, or it has ended.
        """
        state = self.require_head(on)
        if not self._ends.abandoned(state.root, on):
            raise self._moved_on(on)

    # --- merge -------------------------------------------------------------------------------------------

    @patient
    def merge(self, on: int, message: str) -> int:
        """Make the branch's net effect one trunk revision; returns the new head, or the present one without effect.

        Raises ConflictError when trunk has changed what the branch wrote or relied on since its base; both sides are
        then as they were. Raises BranchError when ``on`` is not the newest, the branch carries conflict markers, or, with
        the revision that it is merged as, when somebody committed to the branch so late that this is not merged.
        """
        with nothing_committed():
            state = self.require_head(on)
            nodes = self.net_effect(state)
            # A sweep moves the head before it deletes anything: where the head still stands, the effect was read whole.
            self.require_head(on)
        marker = next((node.path for node in nodes if _is_marker(node)), None)
        if marker is not None:
            raise BranchError(
                f"the branch cannot be merged while it carries conflict markers: resolve and remove {marker}",
                revision=revisions.to_text(on),
                path=marker,
            )
        if noop.is_noop(nodes):
            self._committer.on_base(state.trunk, lambda: noop.without_noop(change_set.of_nodes(nodes)), message, REBASE)
            return self._journal.head.revision
        try:
            made = self._committer.on_base(state.trunk, lambda: change_set.of_nodes(nodes), message, REBASE)
        except CommitUnknownError as error:
            self._ends.in_doubt(state.root, on, revisions.from_text(error.revision))
            raise
        # It is merged, whatever becomes of this: a store that goes away just now must not make it look refused.
        if not self._ends.merged(state.root, on, made):
            try:
                head = self._ends.told(state.root)
            except StoreError:
                # The merge stands. All that is known of the branch is that it has moved on.
                head = Head(b"", None)
            if head is not None and head.how != ABANDONED:
                text = revisions.to_text(on)
                raise BranchError(
                    f"branch revision {text} is merged into trunk as {revisions.to_text(made)}, but meanwhile {head}, and "
                    "what came to it since is not merged. A merge of that meets this one: rebase it first.",
                    revision=text,
                )
        return made

    def resolve_pending(self) -> None:
        """Let the branches end that are merged and could not be told so."""
        self._ends.resolve_pending()

    def close_rebased(self, state: BranchState, on: int, into: int) -> None:
        """Let the branch end because it goes on as another one; else that is given up, and BranchError tells why."""
        if not self._ends.rebased(state.root, on, into):
            self.give_up(self.find(into).root, into)
            raise self._moved_on(on)

    def give_up(self, root: int, on: int) -> None:
        """Let a branch that nobody has been told of end, if the store can be reached; a later sweep would find it too."""
        try:
            self._ends.abandoned(root, on)
        except StoreError:
            return

    def sweep(self, retention_ms: int | None) -> list[int]:
        """Give up the branches that nobody has touched for the retention time (None: none), and delete what ended ones left.

        Returns the first revisions of the branches that were swept.
        """
        swept = self._ends.sweep(retention_ms)
        for made_all in swept.values():
            for made in made_all:
                self._known.drop(made)
        return list(swept)

    def markers(self, state: BranchState) -> list[str]:
        """The paths of the conflict markers that the branch carries, for which it cannot be merged."""
        found = [node.path for node in self.net_effect(state) if _is_marker(node)]
        return sorted({path if paths.name(path) == MARKER else paths.parent(path) for path in found})

    def net_effect(self, state: BranchState) -> list[StagedNode]:
        """The nodes that differ between the branch and its view of trunk, as changes on the latter.

        With those of which the branch wrote a property that is now as it was: a merge relies on that.
        """
        touched: dict[str, tuple[set[str], set[str]]] = {}
        for change in self._ends.changes_of(state.own):
            names, child_names = touched.setdefault(change.path, (set(), set()))
            names.update(change.properties)
            child_names.update(change.present, change.gone)
        before = self._reader.nodes(state.trunk, list(touched))
        after = self._reader.nodes(state.snapshot, list(touched))
        nodes: list[StagedNode] = []
        for path, (names, child_names) in touched.items():
            node, now = StagedNode(path, before[path]), after[path]
            node.exists = now is not None
            if now is not None:
                node.is_new = node.base is None or node.base.created != now.created
                for name in now.encoded if node.is_new else names:
                    node.write(name, now.encoded.get(name))
                for name in child_names:
                    child = paths.join(path, name)
                    was, there = before.get(child), after.get(child)
                    renewed = was is not None and there is not None and was.created != there.created
                    if (there is not None) if node.is_new else ((was is None) != (there is None) or renewed):
                        node.child_writes[name] = there is not None
            if node.dirty or node.depends_on_base:
                nodes.append(node)
        return nodes


def _is_marker(node: StagedNode) -> bool:
    """Whether the branch added a conflict marker, or a kind of conflict to a node of trunk's that has the marker's name."""
    added = node.exists and (node.base is None or node.is_new)
    return added and MARKER in node.path.split("/")[-2:]


def _encode(numbers: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def _decode(data: bytes) -> list[int]:
    found = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
    if len(data) % 8 or any(one > revisions.MAX_REVISION for one in found):
        raise ValueError("these are not revision ids")
    return found
