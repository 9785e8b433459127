"""Branches: private lines of revisions that are merged as one."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from hbasemk import arguments
from hbasemk.errors import ClosedError
from hbasemk.format import limits, revisions
from hbasemk.kernel.instance import Instance
from hbasemk.snapshot import Snapshot, base_of
from hbasemk.transaction import Isolation, Transaction, check_run, run_on_branch

T = TypeVar("T")


class Branch:
    """A private line of revisions on a fixed trunk snapshot; created by :meth:`Repository.branch`.

    The end of a ``with`` block merges it, or abandons it if it has no effect, unless the block raised, or merged or abandoned
    it itself. A branch survives its process: ``repo.resume_branch(branch.revision)`` continues it in any other.
    """

    def __init__(self, instance: Callable[[], Instance], head: int) -> None:
        # A function, because a forked child has an instance of its own.
        self._instance = instance
        self._at = head
        # The revision of the branch that was merged, and the result of the merge. It does not hold for a later revision.
        self._merge_result: tuple[int, str] | None = None
        self._abandoned = False
        # The process that began the `with` block, which merges the branch at its end.
        self._pid = os.getpid()

    @property
    def revision(self) -> str:
        """The branch's newest revision, in text form."""
        return revisions.to_text(self._at)

    @property
    def merged(self) -> str | None:
        """The trunk revision of the merge; None before it, and after a change that follows a merge without effect."""
        result = self._merge_result
        return None if result is None or result[0] != self._at else result[1]

    @property
    def head(self) -> Snapshot:
        """The newest snapshot of the branch."""
        instance = self._instance()
        return Snapshot(instance, instance.at(self._at))

    @property
    def base(self) -> Snapshot:
        """The snapshot of trunk on which the branch is based, the same in every process; :meth:`rebase` changes it.

        ``repo.diff(branch.base, branch.head)`` yields the changes of the branch.
        """
        instance = self._instance()
        return Snapshot(instance, instance.branch(self._at).trunk)

    def run(
        self,
        change: Callable[[Transaction], T],
        message: str = "",
        retry_timeout: float | None = None,
        isolation: Isolation = "snapshot",
    ) -> T:
        """Call ``change`` with a transaction on the branch, commit it, and return what ``change`` returned.

        ``message`` describes the revision on the branch, in at most 64 KiB; a merge has its own.
        :attr:`revision` is the new revision then, and that of the transaction. Store calls of the transaction and the commit
        are retried for at most ``retry_timeout`` seconds together while the store is unreachable (None: as in any other call).

        ``change`` runs once. A commit succeeds only on :attr:`revision`, so the commits of a branch form one line: they are
        serializable with both kinds of ``isolation``, and a conflict with another writer is a BranchError. A merge depends on
        the changes of the branch, not on its reads. Raises LimitError for a message that is too long, and BranchError when
        another writer has committed to the branch since, or the branch has ended; also the errors of ``change`` and the store's
        errors. :meth:`Repository.resume_branch` continues from another writer's revision.
        """
        check_run(change, message, isolation, retry_timeout)
        at = self._at
        revision, result = run_on_branch(self._instance(), at, change, message, isolation, retry_timeout)
        self._move(at, revision)
        return result

    def merge(self, message: str | None = None) -> str:
        """Commit the net effect of the branch to trunk as one revision, and return it.

        ``message`` describes the revision (None: the branch's message). A branch without effect makes no revision and stays
        open, also after a ``with`` block, until :meth:`abandon` ends it; the result is then the revision of the head.

        Raises ConflictError and changes nothing if trunk and the branch changed the same property or child; :meth:`rebase`
        shows where. Raises LimitError for a message that is too long.
        """
        return self._merge(message, abandons=False)

    def _merge(self, message: str | None, *, abandons: bool) -> str:
        if message is not None:
            limits.check_message(message)
        instance = self._instance()
        at = self._at
        merged = revisions.to_text(instance.merge_branch(at, message, abandons=abandons))
        if at == self._at:
            # Otherwise another thread has moved the branch after a merge without effect, and may have merged it.
            self._merge_result = at, merged
        return merged

    def rebase(self, base: Snapshot | None = None) -> list[str]:
        """Move the branch to ``base``, a trunk snapshot (None: the newest); return the paths of conflict markers.

        Without ``base`` it polls first, unless the last poll is recent.
        Where both sides changed the same property or child, the branch takes trunk's value, and a node ``:conflict`` holds its
        own. Remove the markers before merging. The branch keeps its message. A snapshot that is older than :attr:`base` moves
        the branch back; a later rebase moves it forward again.
        """
        instance = self._instance()
        view = base_of(instance, base)
        at = self._at
        revision = instance.rebase_branch(at, view)
        self._move(at, revision)
        return instance.conflict_markers(revision)

    def reset(self, to: str) -> None:
        """Reset the branch to its earlier revision ``to``, in text form.

        :attr:`revision` is then ``to``, or a new one with the same content: on HBase, and if a merge or rebase was tried before.

        Raises BranchError for any other revision, and if another writer has committed to the branch since.
        """
        at = self._at
        self._move(at, self._instance().reset_branch(at, arguments.revision(to, "to")))

    def abandon(self) -> None:
        """Abandon the branch: it accepts no more commits and no merge, and its data is deleted an hour later.

        A merge that another process has begun before may still commit.
        Raises BranchError if the branch has ended, or another writer has committed to it since.
        """
        self._instance().abandon_branch(self._at)
        self._abandoned = True

    def _move(self, before: int, after: int) -> None:
        """Continue at ``after``, to which a call has moved the branch from ``before``."""
        # Threads may share this object. A call that changes nothing must not replace the revision of another thread, which has
        # moved the branch meanwhile. Of two calls that change the same revision, the store accepts one.
        if after != before:
            self._merge_result = None
            self._at = after

    def __enter__(self) -> Branch:
        self._pid = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.merged is None and not self._abandoned:
            if self._pid != os.getpid():
                raise ClosedError(
                    "this with block of a branch began before a fork, in the parent process, which merges the branch; call "
                    "merge() to merge it here"
                )
            self._merge(None, abandons=True)

    def __repr__(self) -> str:
        return f"<Branch {self.revision}>"
