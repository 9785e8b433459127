"""Branches: private lines of revisions that are merged as one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from hbasemk import arguments
from hbasemk.format import limits, revisions
from hbasemk.kernel.branches import rebase
from hbasemk.snapshot import Snapshot
from hbasemk.transaction import Transaction

if TYPE_CHECKING:
    from hbasemk.repository import Repository

T = TypeVar("T")


class Branch:
    """A private line of revisions on a fixed trunk snapshot; created by :meth:`Repository.branch`.

    The end of a ``with`` block merges it, unless the block raised. A branch survives its process:
    ``repo.resume_branch(branch.revision)`` continues it in any other.
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
        """The trunk revision of the merge; None before it, and after a change that follows a merge without effect."""
        return self._merged

    @property
    def head(self) -> Snapshot:
        """The newest snapshot of the branch."""
        instance = self._repository.instance
        return Snapshot(instance, instance.at(self._at))

    def run(self, change: Callable[[Transaction], T], message: str = "") -> T:
        """Call ``change`` with a transaction on the branch, commit it, and return what ``change`` returned.

        :attr:`revision` is the new revision then. Nothing is retried: a branch has one writer at a time. Raises BranchError
        when another writer has committed to the branch since, or the branch has ended.
        """
        arguments.function(change, "change")
        instance = self._repository.instance
        transaction = Transaction(instance, instance.at(self._at), message)
        result = change(transaction)
        self._at = instance.branches.commit(self._at, lambda _: transaction.staged(), message)
        self._merged = None
        return result

    def merge(self, message: str | None = None) -> str:
        """Commit the net effect of the branch to trunk as one revision, and return it.

        Raises ConflictError and changes nothing if trunk and the branch changed the same; :meth:`rebase` shows where.
        """
        text = self._message if message is None else limits.check_message(message)
        instance = self._repository.instance
        instance.poll()
        self._merged = revisions.to_text(instance.branches.merge(self._at, text))
        return self._merged

    def rebase(self, base: Snapshot | None = None) -> list[str]:
        """Move the branch to a newer trunk snapshot (None: the newest), and return the paths of conflict markers.

        Where both sides changed the same, the branch takes trunk's value, and a child ``:conflict`` holds its own. Remove
        the markers before merging.
        """
        instance = self._repository.instance
        target = (self._repository.refresh() if base is None else self._repository.own(base, "base")).prefix
        self._at = rebase.rebase(instance.branches, instance.reader, self._at, target, self._message)
        self._merged = None
        return instance.branches.markers(instance.branches.find(self._at))

    def reset(self, to: str) -> None:
        """Reset the branch to one of its earlier revisions."""
        self._at = self._repository.instance.branches.reset(self._at, arguments.revision(to, "to"))
        self._merged = None

    def abandon(self) -> None:
        """Abandon the branch: it accepts no commits and no merge any more, and its data is deleted an hour later.

        Raises BranchError if the branch has ended, or another writer has committed to it since.
        """
        self._repository.instance.branches.abandon(self._at)

    def __enter__(self) -> Branch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._merged is None:
            self.merge()
