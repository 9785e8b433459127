"""The methods of the MicroKernel interface (Apache Jackrabbit, 2013/14), on a repository of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final

from hbasemk import arguments as check
from hbasemk import jsop
from hbasemk.errors import BranchError, ConflictError, InvalidPathError
from hbasemk.format import paths, revisions
from hbasemk.format.node import NodeState
from hbasemk.kernel import checkpoints, diff
from hbasemk.kernel.branches import rebase
from hbasemk.kernel.journal.view import View
from hbasemk.microkernel import arguments, commit, get_nodes, journal
from hbasemk.microkernel.arguments import note_of, revision_of, text, text_or_none, whole
from hbasemk.microkernel.filters import Filter
from hbasemk.microkernel.gone import without_gone
from hbasemk.microkernel.hash_index import Hashes
from hbasemk.microkernel.jsop_diff import tell
from hbasemk.repository import Repository

LONGEST_WAIT: Final = 4_000_000
"""Seconds (46 days): platforms do not wait for any longer at once."""


class MicroKernel:
    """One MicroKernel on a repository, which stays open when this is dropped. Safe to be used by many threads.

    Several on one store behave as a cluster. ``None`` stands for the head where a revision is optional. What cannot be
    done raises a subclass of HbasemkError, arguments that do not fit together ValueError, one of a wrong type TypeError.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = check.instance(repository, Repository, "repository")
        self._hashes = Hashes(repository.instance)

    # --- revisions ---------------------------------------------------------------------------------------

    def get_head_revision(self) -> str:
        """The newest trunk revision of this instance."""
        return revisions.to_text(self.repository.instance.head().revision)

    def checkpoint(self, lifetime_ms: int) -> str:
        """The head, which stays readable for at least ``lifetime_ms``, by every process and after restarts.

        Raises ValueError unless the lifetime is positive.
        """
        if whole(lifetime_ms, "lifetime_ms") <= 0:
            raise ValueError(f"a checkpoint must live for more than {lifetime_ms} ms")
        instance = self.repository.instance
        instance.poll()
        head = instance.head().revision
        checkpoints.keep(instance, head, instance.runtime.now_ms() + lifetime_ms)
        return revisions.to_text(head)

    def wait_for_commit(self, old_head: str | None, timeout_ms: int) -> str:
        """Wait until the head is newer than ``old_head``, at most ``timeout_ms``; returns the head either way.

        Who knows no older head (None) gets the present one at once.
        """
        seconds = min(whole(timeout_ms, "timeout_ms") / 1000, LONGEST_WAIT)
        instance = self.repository.instance
        old = self._snapshot(old_head, "old_head")
        if seconds > 0 and old_head is not None:
            self.repository.wait(lambda: instance.head() != old, seconds)
        return self.get_head_revision()

    def get_revision_history(self, since_ms: int, max_entries: int, path: str | None = None) -> str:
        """The trunk revisions since a time (ms since 1970) that touch ``path``, oldest first, as JSON.

        ``max_entries`` < 0 gives all of them.
        """
        since, limit = whole(since_ms, "since_ms"), whole(max_entries, "max_entries")
        return journal.history(self.repository.instance, since, limit, _path(path))

    def get_journal(self, from_revision: str, to_revision: str | None, path: str | None = None) -> str:
        """The revisions between two, both included, with their changes, as JSON; ``[]`` when they are not in order."""
        limit = _path(path)
        first, last = self._snapshot(from_revision, "from_revision"), self._snapshot(to_revision, "to_revision")
        return journal.journal(self.repository.instance, first.revision, last.revision, limit)

    def diff(self, from_revision: str | None, to_revision: str | None, path: str | None = None, depth: int = -1) -> str:
        """The JSOP that makes the tree at one revision that at the other; empty when they are equal.

        Limited to the subtree ``path`` and to ``depth`` levels below it (negative: all).
        Costs what changed in between, not the tree.
        """
        top = _path(path)
        if whole(depth, "depth") < -1:
            raise ValueError(f"depth {depth} is neither -1 nor a number of levels")
        before, after = self._snapshot(from_revision, "from_revision"), self._snapshot(to_revision, "to_revision")
        return tell(diff.diff(self.repository.instance, before, after, top), top, depth)

    # --- reading -----------------------------------------------------------------------------------------

    def node_exists(self, path: str, revision_id: str | None = None) -> bool:
        """Whether there is a node."""
        text(path, "path")
        snapshot = self._snapshot(revision_id, "revision_id")
        return self.repository.instance.reader.node(snapshot, paths.check_path(path)) is not None

    def get_child_node_count(self, path: str, revision_id: str | None = None) -> int:
        """How many children a node has; raises NodeNotFoundError. Does not list a wide node's children each time, see
        :meth:`hbasemk.Snapshot.child_count`.
        """
        text(path, "path")
        snapshot = self._snapshot(revision_id, "revision_id")
        instance = self.repository.instance
        return instance.counts.of(snapshot, instance.reader.require(snapshot, paths.check_path(path)))

    def get_nodes(
        self,
        path: str,
        revision_id: str | None = None,
        depth: int = 1,
        offset: int = 0,
        max_child_nodes: int = -1,
        filter: str | None = None,
    ) -> str | None:
        """The tree at ``path`` as JSON text, None when there is none.

        Depth 0 has the properties and the names of the children as empty objects, each further level expands those;
        depth -1 has no children at all. ``max_child_nodes`` (-1: all) holds on every level, ``offset`` for the children of
        the top. ``path`` may also be a ``:hash`` or ``:id`` that an earlier call has shown. Raises ValueError for a
        depth or limit below -1, a negative offset, and an offset together with a filter of nodes.
        """
        text(path, "path")
        for name, number in (("depth", depth), ("offset", offset), ("max_child_nodes", max_child_nodes)):
            whole(number, name)
        if depth < -1 or offset < 0 or max_child_nodes < -1:
            raise ValueError(f"depth {depth}, offset {offset} or max_child_nodes {max_child_nodes} is out of range")
        chosen = Filter(text_or_none(filter, "filter"))
        if offset > 0 and chosen.nodes is not None:
            raise ValueError("an offset cannot be combined with a filter of nodes")
        found = self._locate(path, revision_id)
        if found is None:
            return None
        snapshot, top = found
        instance = self.repository.instance
        hashes: dict[str, tuple[int, str]] = {}

        def remember(value: str, at: str) -> None:
            hashes[value] = (snapshot.revision, at)

        shown = get_nodes.tree(
            instance.reader, instance.counts, snapshot, top, depth, offset, max_child_nodes, chosen, remember
        )
        self._hashes = self._hashes.of(instance)
        self._hashes.remember(hashes)
        return shown

    def _locate(self, path: str, revision_id: str | None) -> tuple[View, NodeState] | None:
        instance = self.repository.instance
        if path.startswith("/"):
            snapshot = self._snapshot(revision_id, "revision_id")
            paths.check_path(path)
        elif (known := self._hashes.find(path)) is not None:
            at, path = known
            snapshot = instance.at(at)
        else:
            made, _, rest = path.partition(":")
            if not rest.startswith("/"):
                raise InvalidPathError(f"{path!r} is neither an absolute path nor a :hash or :id that was shown here")
            snapshot = instance.at(revisions.from_text(made))
            path = paths.check_path(rest)
        top = instance.reader.node(snapshot, path)
        return None if top is None else (snapshot, top)

    # --- changing ----------------------------------------------------------------------------------------

    def commit(self, path: str, jsop_diff: str, revision_id: str | None = None, message: str | None = None) -> str:
        """Apply a change text to the tree at a revision and commit it; returns the new revision.

        Relative paths in it start at ``path``. What happened on trunk since the revision is merged where it does not
        conflict, else ConflictError; a node or property that was there and is gone by now may be removed, unless another
        operation of the text has to do with it. On a branch revision, the commit goes to that branch. A text without
        effect returns the unchanged head, unless somebody has changed what it found: then it is made again, or conflicts. On
        a branch nothing of such a text is recorded, so the merge does not know of it.
        """
        told = jsop.parse(text(jsop_diff, "jsop_diff"), text_or_none(path, "path") or "")
        note = note_of(message)
        instance = self.repository.instance
        build = commit.builder(instance.reader, told)
        if revision_id is None:
            made = self.repository.commit_on_head(lambda snapshot: lambda: build(snapshot), note)
            return revisions.to_text(made)
        asked = revision_of(revision_id, "revision_id")
        if revisions.is_branch(asked):
            return revisions.to_text(instance.branches.commit(asked, build, note))
        return revisions.to_text(self._commit_on(instance.at(asked), told, note))

    def _commit_on(self, base: View, told: Sequence[jsop.Operation], message: str) -> int:
        instance = self.repository.instance
        while True:
            build = commit.builder(instance.reader, told)
            try:
                made = instance.commit_on(base, lambda build=build: build(base), message)  # type: ignore[misc]
            except ConflictError:
                instance.poll()
                left = without_gone(instance.reader, base, instance.head(), told)
                if len(left) == len(told):
                    raise
                told = left
                continue
            return instance.head().revision if made == base.revision else made

    # --- branches ----------------------------------------------------------------------------------------

    def branch(self, trunk_revision_id: str | None = None) -> str:
        """A private revision on a trunk revision; raises BranchError for a branch revision."""
        snapshot = self._snapshot(trunk_revision_id, "trunk_revision_id")
        return revisions.to_text(self.repository.instance.branches.begin(snapshot))

    def merge(self, branch_revision_id: str, message: str | None = None) -> str:
        """Make a branch's net effect a trunk revision; returns the new head.

        Raises ConflictError, leaving both sides as they were, and BranchError.
        """
        note = note_of(message)
        instance = self.repository.instance
        instance.poll()
        return revisions.to_text(instance.branches.merge(self._branch(branch_revision_id), note))

    def rebase(self, branch_revision_id: str, new_base_revision_id: str | None = None) -> str:
        """Move a branch to a newer trunk revision; conflicts become markers below ``:conflict``."""
        instance = self.repository.instance
        on = self._branch(branch_revision_id)
        if new_base_revision_id is None:
            instance.poll()
        base = self._snapshot(new_base_revision_id, "new_base_revision_id")
        return revisions.to_text(rebase.rebase(instance.branches, instance.reader, on, base, ""))

    def reset(self, branch_revision_id: str, ancestor_revision_id: str) -> str:
        """Take a branch back to an earlier revision of its own; raises BranchError for any other revision."""
        instance = self.repository.instance
        on, ancestor = self._branch(branch_revision_id), revision_of(ancestor_revision_id, "ancestor_revision_id")
        instance.at(ancestor)  # one that is nowhere is unknown, not just no ancestor
        return revisions.to_text(instance.branches.reset(on, ancestor))

    # --- blobs -------------------------------------------------------------------------------------------

    def write(self, stream: BinaryIO) -> str:
        """Keep the content of a stream and close it, whatever happens; returns its id.

        Raises what the stream raises, and InvalidValueError when it yields something else than bytes.
        """
        arguments.stream(stream, "stream")
        try:
            return self.repository.instance.blobs.write(stream)
        finally:
            if hasattr(stream, "close"):
                stream.close()

    def read(self, blob_id: str, position: int, length: int) -> bytes:
        """Bytes of a blob; fewer at its end, none past it. Raises BlobNotFoundError and ValueError."""
        begin, limit = whole(position, "position"), whole(length, "length")
        return self.repository.instance.blobs.read(text(blob_id, "blob_id"), begin, limit)

    def get_length(self, blob_id: str) -> int:
        """The length of a blob in bytes; raises BlobNotFoundError."""
        return self.repository.instance.blobs.length(text(blob_id, "blob_id"))

    # --- arguments ---------------------------------------------------------------------------------------

    def _snapshot(self, revision_id: str | None, name: str) -> View:
        instance = self.repository.instance
        return instance.head() if revision_id is None else instance.at(revision_of(revision_id, name))

    def _branch(self, revision_id: str) -> int:
        found = revision_of(revision_id, "branch_revision_id")
        if not revisions.is_branch(found):
            self.repository.instance.at(found)  # one that is nowhere is unknown, not trunk's
            raise BranchError(f"{revision_id} is a trunk revision; a branch's is needed", revision=revision_id)
        return found


def _path(path: str | None) -> str:
    return paths.check_path(text_or_none(path, "path") or paths.ROOT)
