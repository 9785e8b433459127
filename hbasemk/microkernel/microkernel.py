"""The methods of the MicroKernel interface (Apache Jackrabbit, 2013/14) on a :class:`hbasemk.Repository`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import BinaryIO, Final

from hbasemk import arguments as check
from hbasemk import jsop
from hbasemk.errors import (
    BranchError,
    ConflictError,
    InvalidPathError,
    InvalidRevisionError,
    InvalidValueError,
    RevisionCollectedError,
    UnknownRevisionError,
)
from hbasemk.format import limits, paths, revisions
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState
from hbasemk.kernel import checkpoints, diff
from hbasemk.kernel.blobs import Blobs
from hbasemk.kernel.journal.view import View
from hbasemk.maintenance import LiveInstance
from hbasemk.microkernel import arguments, commit, get_nodes, journal
from hbasemk.microkernel.arguments import note_of, revision_of, text, text_or_none, whole
from hbasemk.microkernel.child_counts import child_count
from hbasemk.microkernel.filters import filter_of
from hbasemk.microkernel.hash_index import Hashes, Shown
from hbasemk.microkernel.jsop_diff import shows, subtree_operations
from hbasemk.repository import Repository, instance_of
from hbasemk.snapshot import Snapshot, view_of

LONGEST_WAIT: Final = 4_000_000
"""Seconds (46 days): the longest time that all platforms can wait in one call."""


class MicroKernel:
    """A MicroKernel on ``repository``, which is open. Thread-safe; it does not close the repository.

    Several on one store behave as a cluster. For an optional revision, ``None`` means the head. A failed operation raises a
    subclass of HbasemkError; a number out of range or an invalid combination of arguments raises InvalidValueError, a wrong
    type TypeError. A revision that is not a revision id raises InvalidRevisionError, whatever its type.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = check.instance(repository, Repository, "repository")
        self._hashes = Hashes(self._instance())

    def __repr__(self) -> str:
        return f"<MicroKernel of {self.repository!r}>"

    # --- revisions ---------------------------------------------------------------------------------------

    def get_head_revision(self) -> str:
        """Return the newest trunk revision of this instance."""
        return revisions.to_text(self._instance().head().revision)

    def checkpoint(self, lifetime_ms: int) -> str:
        """Return the head, and keep it readable for at least ``lifetime_ms``, for every process and after restarts.

        It then reads the same in every process. Raises InvalidValueError unless the lifetime is positive, and CheckpointError
        as :meth:`Repository.checkpoint`. The longest lifetime ends with the year 9999.
        """
        if whole(lifetime_ms, "lifetime_ms") <= 0:
            raise InvalidValueError(f"lifetime_ms must be positive, got {lifetime_ms}")
        return revisions.to_text(checkpoints.keep_head(self._instance(), lifetime_ms, shared=True).revision)

    def wait_for_commit(self, old_head: str | None, timeout_ms: int) -> str:
        """Wait until the head differs from ``old_head``, at most ``timeout_ms``; return the head in both cases.

        Without an ``old_head`` (None), or if it has been collected, return the current head immediately. Raises
        UnknownRevisionError for a revision that does not exist, or of a branch whose data is deleted: no head is ever one of
        these. No round trip if ``old_head`` is the head, so a silent store does not delay the end.
        """
        seconds = min(whole(timeout_ms, "timeout_ms") / 1000, LONGEST_WAIT)
        instance = self._instance()
        if old_head is not None:
            old = revision_of(old_head, "old_head")
            # The store need not answer for the revision of the present head.
            if old != instance.head().revision:
                # No collector deletes parts of the newest snapshot, so the head is newer than a collected revision.
                with contextlib.suppress(RevisionCollectedError):
                    instance.at(old)
            if seconds > 0:
                # A checkpoint gives the revision of the head another view.
                instance.wait_for(lambda: instance.head().revision != old, seconds)
        return self.get_head_revision()

    def get_revision_history(self, since_ms: int, max_entries: int, path: str | None = None) -> str:
        """Return the trunk revisions since ``since_ms`` (since 1970) that changed the subtree ``path``, oldest first, as JSON.

        A negative ``max_entries`` means no limit.
        """
        since, limit = whole(since_ms, "since_ms"), whole(max_entries, "max_entries")
        return journal.history(self._instance(), since, limit, _path(path))

    def get_journal(self, from_revision: str, to_revision: str | None, path: str | None = None) -> str:
        """Return the revisions from ``from_revision`` to ``to_revision``, both included, with their changes, as JSON.

        ``path``: only revisions and changes in this subtree (None: all). Returns ``[]`` if the two are not in order. Raises
        BranchError unless they lead along trunk, from trunk to a branch, or along one branch, and RevisionCollectedError if
        the snapshot before one of them has been collected.
        """
        limit = _path(path)
        first, last = self._view(from_revision, "from_revision"), self._view(to_revision, "to_revision")
        return journal.journal(self._instance(), first.revision, last.revision, limit)

    def diff(self, from_revision: str | None, to_revision: str | None, path: str | None = None, depth: int = -1) -> str:
        """Return the changes from ``from_revision`` to ``to_revision`` as JSOP; empty if the trees are equal.

        Compares only the subtree ``path``, and shows ``depth`` levels below it (-1: all). A subtree that differs only deeper
        is shown as ``^"/p":{}``; an added subtree is cut at the depth. The cost depends on the changes in between, not on the
        tree's size, and with a depth on the nodes shown. From a branch's base to a revision of the branch, only the changes of
        the branch appear, in every process.
        """
        top = _path(path)
        if whole(depth, "depth") < -1:
            raise InvalidValueError(f"depth must be -1 (unlimited) or a number of levels, got {depth}")
        instance = self._instance()
        views = self._view(from_revision, "from_revision"), self._view(to_revision, "to_revision")
        if from_revision is not None and to_revision is not None:
            views = diff.with_exact_base(instance, *views)
        changes = diff.diff(instance, *views, top, None if depth < 0 else depth, shows)
        return jsop.write(subtree_operations(instance, views[0], changes, top, depth))

    # --- reading -----------------------------------------------------------------------------------------

    def node_exists(self, path: str, revision_id: str | None = None) -> bool:
        """Return whether a node exists at ``path`` in the revision ``revision_id``."""
        path = text(path, "path")
        view = self._view(revision_id, "revision_id")
        return self._instance().node(view, paths.check_path(path)) is not None

    def get_child_node_count(self, path: str, revision_id: str | None = None) -> int:
        """Return the number of children of the node at ``path`` in the revision ``revision_id``, without hidden ones.

        Raises NodeNotFoundError. Does not list a wide node's children in each call; see :meth:`hbasemk.Snapshot.child_count`.
        """
        path = text(path, "path")
        view = self._view(revision_id, "revision_id")
        instance = self._instance()
        return child_count(instance, view, instance.require(view, paths.check_path(path)))

    def get_nodes(
        self,
        path: str,
        revision_id: str | None = None,
        depth: int = 1,
        offset: int = 0,
        max_child_nodes: int = -1,
        filter: str | None = None,
    ) -> str | None:
        """Return the tree at ``path`` in ``revision_id`` as JSON text, or None if there is no node.

        At ``depth`` 0, the text has the properties, and the children as empty objects. Each further level expands these. Depth
        -1 omits the children. ``max_child_nodes`` (-1: all) applies at every level, ``offset`` only to the children of the top
        node. ``filter`` is a JSON text of globs. ``path`` may also be a ``:hash`` or ``:id`` that an earlier call returned; the
        revision then has no effect. Raises UnknownRevisionError if its snapshot is no longer known.
        Raises InvalidValueError for a depth or limit below -1, a negative offset, and an offset combined with a filter of
        nodes.
        """
        return self._get_nodes(path, revision_id, depth, offset, max_child_nodes, filter)

    def _get_nodes(
        self, path: str, at: str | View | None, depth: int, offset: int, max_child_nodes: int, filter: str | None
    ) -> str | None:
        path = text(path, "path")
        for name, number in (("depth", depth), ("offset", offset), ("max_child_nodes", max_child_nodes)):
            whole(number, name)
        if depth < -1 or offset < 0 or max_child_nodes < -1:
            raise InvalidValueError(
                f"depth {depth}, offset {offset} or max_child_nodes {max_child_nodes} is out of range; expected a depth and "
                "max_child_nodes of at least -1, and an offset of at least 0"
            )
        chosen = filter_of(text_or_none(filter, "filter"))
        if offset > 0 and chosen.nodes is not None:
            raise InvalidValueError("an offset cannot be combined with a filter of nodes; leave out one of them")
        instance = self._instance()
        self._hashes = self._hashes.of(instance)
        located = self._locate(path, at)
        if located is None:
            return None
        view, top = located
        name = instance.view_name(view)
        hashes: dict[str, Shown] = {}

        def remember(value: str, at: str) -> None:
            hashes[value] = Shown(view.revision, name, at)

        shown = get_nodes.tree(instance, view, top, depth, offset, max_child_nodes, chosen, remember)
        self._hashes.remember(hashes)
        return shown

    def _locate(self, path: str, at: str | View | None) -> tuple[View, NodeState] | None:
        instance = self._instance()
        if not path.startswith("/") and at is not None and not isinstance(at, View):
            # A token names its own snapshot, but a wrong argument is an error there, too.
            revision_of(at, "revision_id")
        if path.startswith("/"):
            view = at if isinstance(at, View) else self._view(at, "revision_id")
            paths.check_path(path)
        elif (known := self._hashes.find(path)) is not None:
            return self._locate_hash(path, known)
        else:
            token, _, rest = path.partition(":")
            if not rest.startswith("/") or not _begins_with_revision(token):
                raise InvalidPathError(
                    f"{limits.shown(path)} is not an absolute path; expected one, or a :hash or :id that this MicroKernel "
                    "returned"
                )
            path = paths.check_path(rest)
            view = instance.head()
            if instance.subtree_token(view, path) != token:
                view = instance.view_named(token)
        top = instance.node(view, path)
        return None if top is None else (view, top)

    def _locate_hash(self, value: str, known: Shown) -> tuple[View, NodeState]:
        """Find a subtree by its hash in the snapshot that showed it, or in one where it has the same hash.

        Round trips as a read; if this process no longer knows the snapshot, also those of :meth:`SubtreeHashes.of`, twice at
        most. Raises UnknownRevisionError if the subtree differs there.
        """
        instance = self._instance()
        if known.view is not None:
            # Collected, of a branch that has ended, or the revision now names another snapshot.
            with contextlib.suppress(UnknownRevisionError):
                view = instance.view_named(known.view)
                return view, instance.require(view, known.path)
        # What has not changed since is also in the head.
        for find in (instance.head, lambda: instance.at(known.revision)):
            view = find()
            top = instance.node(view, known.path)
            if top is not None and instance.subtree_hashes(view, top, [])[known.path] == value:
                return view, top
        revision = revisions.to_text(known.revision)
        raise UnknownRevisionError(
            f"this process no longer knows the snapshot of revision {revision} in which {shortened(known.path)} had the hash "
            f"{value}; read the tree again by its path",
            revision=revision,
        )

    # --- changing ----------------------------------------------------------------------------------------

    def commit(self, path: str, jsop_diff: str, revision_id: str | None = None, message: str | None = None) -> str:
        """Apply ``jsop_diff`` to the tree at ``revision_id`` and commit it with ``message``; return the new revision.

        Relative paths in the text start at ``path``. The commit merges with trunk's later changes, or raises ConflictError if
        they conflict. The text may remove a node or property that trunk has removed since, unless another operation of the
        text depends on it. With a branch revision, the commit goes to that branch. A text without effect returns the
        unchanged head. If another commit has changed data that it read, it is applied again or conflicts. A branch does not
        record a text without effect, so the merge does not check it. Raises LimitError for a message that is too long.
        """
        operations = jsop.parse(text(jsop_diff, "jsop_diff"), text_or_none(path, "path") or "")
        note = note_of(message)
        instance = self._instance()
        if revision_id is None:
            source = commit.JsopChanges(operations)
            return revisions.to_text(instance.commit(lambda _: source, note))
        revision = revision_of(revision_id, "revision_id")
        if revisions.is_branch(revision):
            return revisions.to_text(instance.commit_on_branch(revision, commit.JsopChanges(operations), note))
        return revisions.to_text(self._commit_on(instance.at(revision), operations, note))

    def _commit_on(self, base: View, operations: Sequence[jsop.Operation], message: str) -> int:
        instance = self._instance()
        while True:
            # The other commit may remove the same things.
            removes = any(isinstance(one, jsop.Remove) for one in operations)
            try:
                source = commit.JsopChanges(operations)
                revision = instance.commit_on(base, source, message, wait_for_winner=removes)
            except ConflictError:
                instance.poll()
                remaining = commit.without_redundant_removals(instance, base, operations)
                if len(remaining) == len(operations):
                    raise
                operations = remaining
                continue
            return instance.head().revision if revision == base.revision else revision

    # --- branches ----------------------------------------------------------------------------------------

    def branch(self, trunk_revision_id: str | None = None) -> str:
        """Create a branch on ``trunk_revision_id`` and return its first revision; raise BranchError for a branch revision."""
        view = self._view(trunk_revision_id, "trunk_revision_id")
        return revisions.to_text(self._instance().begin_branch(view))

    def merge(self, branch_revision_id: str, message: str | None = None) -> str:
        """Commit the net effect of the branch up to ``branch_revision_id`` to trunk; return the new head.

        ``message`` describes the revision (None: the branch's message, which :meth:`hbasemk.Repository.branch` takes).
        Raises ConflictError, which leaves both sides unchanged, and BranchError.
        """
        note = None if message is None else note_of(message)
        return revisions.to_text(self._instance().merge_branch(self._branch(branch_revision_id), note))

    def rebase(self, branch_revision_id: str, new_base_revision_id: str | None = None) -> str:
        """Move the branch at ``branch_revision_id`` to ``new_base_revision_id``, a trunk revision; return its new head.

        Records conflicts as markers below ``:conflict``. Raises BranchError if the revision is not the newest of its branch.
        """
        instance = self._instance()
        revision = self._branch(branch_revision_id)
        if new_base_revision_id is None:
            instance.poll_unless_recent()
        base = self._view(new_base_revision_id, "new_base_revision_id")
        return revisions.to_text(instance.rebase_branch(revision, base))

    def reset(self, branch_revision_id: str, ancestor_revision_id: str) -> str:
        """Reset the branch at ``branch_revision_id`` to ``ancestor_revision_id``, an earlier revision of its own.

        Returns the ancestor, or a new revision with the same content: on HBase, and if a merge or rebase was tried before.
        Raises BranchError for any other revision.
        """
        instance = self._instance()
        revision, ancestor = self._branch(branch_revision_id), revision_of(ancestor_revision_id, "ancestor_revision_id")
        instance.at(ancestor)  # an unknown revision raises its own error, not BranchError
        return revisions.to_text(instance.reset_branch(revision, ancestor))

    # --- blobs -------------------------------------------------------------------------------------------

    def write(self, stream: BinaryIO) -> str:
        """Store the content of the binary ``stream`` as a blob; return its id. Closes the stream, also after an error.

        Raises the stream's errors, and InvalidValueError if the stream returns anything but bytes.
        """
        arguments.stream(stream, "stream")
        try:
            return self._blobs().write(stream)
        finally:
            if hasattr(stream, "close"):
                stream.close()

    def read(self, blob_id: str, position: int, length: int) -> bytes:
        """Read up to ``length`` bytes of the blob ``blob_id`` from byte ``position`` on: fewer at its end, none past it.

        Raises BlobNotFoundError, and InvalidValueError for a negative number.
        """
        begin, limit = whole(position, "position"), whole(length, "length")
        return self._blobs().read(text(blob_id, "blob_id"), begin, limit)

    def get_length(self, blob_id: str) -> int:
        """Return the length of the blob ``blob_id`` in bytes; raise BlobNotFoundError if it does not exist."""
        return self._blobs().length(text(blob_id, "blob_id"))

    def _instance(self) -> LiveInstance:
        return instance_of(self.repository)

    def _blobs(self) -> Blobs:
        return self._instance().blobs

    # --- arguments ---------------------------------------------------------------------------------------

    def _view(self, revision_id: str | None, name: str) -> View:
        instance = self._instance()
        return instance.head() if revision_id is None else instance.at(revision_of(revision_id, name))

    def _branch(self, revision_id: str) -> int:
        revision = revision_of(revision_id, "branch_revision_id")
        if not revisions.is_branch(revision):
            self._instance().at(revision)  # an unknown revision raises its own error, not BranchError
            raise BranchError(f"{revision_id} is a trunk revision; expected a branch revision", revision=revision_id)
        return revision


def get_nodes_of(
    kernel: MicroKernel,
    snapshot: Snapshot,
    path: str,
    depth: int,
    offset: int,
    max_child_nodes: int,
    filter: str | None,
) -> str | None:
    """As :meth:`MicroKernel.get_nodes`, in a snapshot. One by time may contain more than the snapshot of its revision."""
    view = view_of(kernel._instance(), snapshot)
    return kernel._get_nodes(path, view, depth, offset, max_child_nodes, filter)


def _begins_with_revision(token: str) -> bool:
    """Return whether the token of an ``:id`` begins with a revision."""
    try:
        revisions.from_text(token.partition(".")[0])
    except InvalidRevisionError:
        return False
    return True


def _path(path: str | None) -> str:
    return paths.check_path(text_or_none(path, "path") or paths.ROOT)
