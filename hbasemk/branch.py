"""Branches, differences, blobs and watching, in the Pythonic face."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from hbasemk import arguments
from hbasemk.errors import BranchError, InvalidValueError
from hbasemk.format import limits, paths, revisions
from hbasemk.format.node import decode_properties
from hbasemk.format.values import BlobRef, Value
from hbasemk.kernel import diff as kernel_diff
from hbasemk.kernel.branches import rebase
from hbasemk.kernel.instance import Instance
from hbasemk.repository import OTHERS_SNAPSHOT, Snapshot
from hbasemk.transaction import Transaction

if TYPE_CHECKING:
    from hbasemk.repository import Repository


@dataclass(frozen=True, slots=True)
class Change:
    """One node that differs between two snapshots; its properties on either side, None where it is not there."""

    path: str
    before: dict[str, Value] | None
    after: dict[str, Value] | None

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def diff(before: Snapshot, after: Snapshot, path: str = paths.ROOT) -> Iterator[Change]:
    """The nodes at or below ``path`` that differ between two snapshots of one repository, parents before children.

    Costs what changed between the two, not the tree. Raises ValueError for snapshots of two Repository objects.
    """
    arguments.instance(before, Snapshot, "before")
    arguments.instance(after, Snapshot, "after")
    arguments.path(path)
    if before.instance is not after.instance:
        raise ValueError(OTHERS_SNAPSHOT.format(before.revision))
    return _diff(before, after, path)


def _diff(before: Snapshot, after: Snapshot, path: str) -> Iterator[Change]:
    found = kernel_diff.diff(after.instance, before.prefix, after.prefix, path)
    for one, old, new in found:
        yield Change(
            one,
            None if old is None else decode_properties(one, old.encoded),
            None if new is None else decode_properties(one, new.encoded),
        )


class Branch:
    """A private line of revisions on a fixed view of trunk; made by :meth:`Repository.branch`.

    Used in a ``with`` statement it is merged at the end of the block, unless that raised. It survives its process:
    ``repo.branch(revision=branch.revision)`` goes on with it, from any instance.
    """

    def __init__(self, repository: Repository, at: int, message: str = "") -> None:
        self._repository = repository
        self._at = at
        self._message = message
        self._merged: str | None = None

    @property
    def revision(self) -> str:
        """The branch's newest revision, in text form."""
        return revisions.to_text(self._at)

    @property
    def merged(self) -> str | None:
        """The trunk revision that it was merged as; None before, and after a change that followed a merge of nothing."""
        return self._merged

    @property
    def head(self) -> Snapshot:
        """The tree as it is on the branch."""
        instance = self._repository.instance
        return Snapshot(instance, instance.at(self._at))

    def run(self, change: Callable[[Transaction], object], message: str = "") -> str:
        """Call ``change`` with a transaction on the branch and commit it; returns the branch's new revision.

        Raises BranchError when somebody else has committed to the branch since, or it has ended.
        """
        arguments.function(change, "change")
        instance = self._repository.instance
        transaction = Transaction(instance, instance.at(self._at), message)
        change(transaction)
        self._at = instance.branches.commit(self._at, lambda _: transaction.staged(), message)
        self._merged = None
        return self.revision

    def merge(self, message: str | None = None) -> str:
        """Make the branch's net effect one trunk revision; returns the new head.

        Raises ConflictError, leaving both as they were; :meth:`rebase` tells where.
        """
        text = self._message if message is None else limits.check_message(message)
        instance = self._repository.instance
        instance.poll()
        self._merged = revisions.to_text(instance.branches.merge(self._at, text))
        return self._merged

    def rebase(self, base: Snapshot | None = None) -> list[str]:
        """Move the branch to a newer trunk snapshot (None: the newest); returns the paths of conflict markers.

        Where both sides changed the same, trunk's is taken, and a child ``:conflict`` holds the branch's. Remove the
        markers before merging.
        """
        instance = self._repository.instance
        target = (self._repository.refresh() if base is None else self._repository.own(base, "base")).prefix
        self._at = rebase.rebase(instance.branches, instance.reader, self._at, target, self._message)
        self._merged = None
        return instance.branches.markers(instance.branches.find(self._at))

    def reset(self, to: str) -> None:
        """Take the branch back to an earlier revision of its own."""
        self._at = self._repository.instance.branches.reset(self._at, arguments.revision(to, "to"))
        self._merged = None

    def abandon(self) -> None:
        """Give the branch up: it can no longer be committed to or merged, and is swept an hour later.

        Raises BranchError when it has ended already, or somebody else has committed to it since.
        """
        self._repository.instance.branches.abandon(self._at)

    def __enter__(self) -> Branch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._merged is None:
            self.merge()


class RepositoryBlobs:
    """The blobs of a repository: ``repo.blobs``."""

    def __init__(self, instance: Instance) -> None:
        # It ends when nothing refers to it.
        self._instance = instance
        self._blobs = instance.blobs

    def write(self, content: BinaryIO | bytes | bytearray | memoryview) -> BlobRef:
        """Keep bytes, or what a binary stream yields, in bounded memory; returns the reference to store in a property.

        A stream is read to its end and not closed. Raises InvalidValueError for anything else, such as a stream of text.
        """
        if not isinstance(content, (bytes, bytearray, memoryview)) and not callable(getattr(content, "read", None)):
            raise InvalidValueError(
                "content must be bytes, or a binary stream such as open(path, 'rb') or io.BytesIO(data), not "
                f"{type(content).__name__}"
            )
        stream = io.BytesIO(bytes(content)) if isinstance(content, (bytes, bytearray, memoryview)) else content
        return BlobRef(self._blobs.write(stream))

    def read(self, ref: BlobRef | str, position: int = 0, length: int | None = None) -> bytes:
        """Bytes of a blob; raises BlobNotFoundError."""
        _check_range(position, length)
        return self._blobs.read(_id(ref), position, length)

    def stream(self, ref: BlobRef | str, position: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The same in pieces of at most 1 MiB, in bounded memory."""
        _check_range(position, length)
        return self._blobs.stream(_id(ref), position, length)

    def length(self, ref: BlobRef | str) -> int:
        """How many bytes a blob has; raises BlobNotFoundError."""
        return self._blobs.length(_id(ref))


def _id(ref: BlobRef | str) -> str:
    found = ref.id if isinstance(ref, BlobRef) else ref
    if not isinstance(found, str):
        raise arguments.wrong("ref", "a BlobRef or the id of a blob", ref)
    return found


def _check_range(position: int, length: int | None) -> None:
    arguments.count(position, "position")
    if length is not None:
        arguments.count(length, "length")


def resume(repository: Repository, at: str) -> Branch:
    """Go on with a branch by its newest revision; raises BranchError and UnknownRevisionError."""
    made = arguments.revision(at, "revision")
    if not revisions.is_branch(made):
        raise BranchError(f"{at} is a trunk revision; a branch's is needed", revision=at)
    repository.instance.branches.require_head(made)
    return Branch(repository, made)
