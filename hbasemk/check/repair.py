"""Repair of problems without loss of committed data (``docs/decisions/0010-repair.md``).

Repair deletes cells of revisions that can never commit, one exact version each. It recovers the revisions of dead writers
as every instance does. It corrects the tree by ordinary commits, which may conflict and appear in the log like any other.
It reads everything again before it changes anything, so problems may be old, and several instances may repair at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.problem import Problem
from hbasemk.errors import ConflictError, FormatError, LeaseLostError, RevisionCollectedError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.plural import counted
from hbasemk.kernel import rollback
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_source import ChangeSource, OperationList, ReadyChangeSet
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.inspection import require_no_lost_life
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View

MESSAGE: Final = "repair"
"""The message of repair commits."""
RIGHT: Final = "already correct"
"""The result for a problem that another instance or an earlier repair has corrected."""
RETRY_TIMEOUT: Final = 30.0
"""Seconds for which a commit is retried after conflicts."""


class Repair:
    """The repair of problems that a check of the same instance found.

    Make it before the check. It then reads the watermark and its journal row, in two round trips. If the watermark is wrong, the
    instance may lack revisions, and the tree is left as it is.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lacks_revisions = rollback.may_lack_revisions(instance)
        self._watermark_stays = False
        """Whether the watermark has stopped at other damage, or at a live writer: it would stop there again."""
        self._actions: dict[str, Callable[[Problem], str | None]] = {
            kinds.NO_ROW: self._abort_missing,
            kinds.ABORTED: self._roll_back,
            kinds.SWEPT: self._roll_back,
            kinds.LATE: self._roll_back,
            kinds.DANGLING: self._unlist,
            kinds.ORPHAN: self._link,
            kinds.UNLISTED: self._link,
            kinds.DEAD: self._recover,
            kinds.UNSWEPT: self._recover,
            kinds.BELOW_WATERMARK: self._abort_below_watermark,
            kinds.NOT_HIDDEN: self._abort_below_watermark,
            kinds.HIDDEN: self._show,
            kinds.UNANNOUNCED: self._pass,
            kinds.NOT_NUMBERED: self._number,
            kinds.UPLOAD: self._delete_upload,
            kinds.COUNT: self._delete_memo,
            kinds.LEASE: self._replace_lease,
        }

    def repair(self, problem: Problem) -> str | None:
        """Repair a problem; return a description of the repair, or None if repair is not possible.

        Raises StoreError (except for damaged data) and the errors of commits (except ConflictError). A second check shows
        which problems remain.
        """
        if not problem.repairable:
            return None
        try:
            return self._actions[problem.kind](problem)
        except (ConflictError, FormatError, RevisionCollectedError):
            # Other instances keep changing the same data, a collector has deleted its journal row, or required data is itself
            # damaged, which the check reports.
            return None

    # --- cells -------------------------------------------------------------------------------------------

    def _roll_back(self, problem: Problem) -> str | None:
        """Delete cells of an aborted revision."""
        return _deleted(problem) if rollback.delete_aborted(self._instance, _id(problem), problem.cells) else None

    def _abort_missing(self, problem: Problem) -> str | None:
        """Create an aborted journal row, so that the revision can never commit; then delete its cells."""
        swept = rollback.abort_missing(self._instance, _id(problem), problem.cells)
        if swept is None:
            return None
        return f"aborted it; {_deleted(problem)}" if swept else _deleted(problem)

    def _delete_upload(self, problem: Problem) -> str:
        """Delete exactly the chunks that are a day old, unless the upload has ended; a new upload writes newer ones."""
        if not rollback.delete_upload(self._instance, problem.path, problem.cells):
            return RIGHT
        return f"deleted {counted(len(problem.cells), 'chunk')}"

    def _delete_memo(self, problem: Problem) -> str:
        """Delete exactly the wrong memo; the next count stores a new one."""
        rollback.delete_cells(self._instance, schema.CLUSTER, problem.cells)
        return "deleted the memo"

    def _replace_lease(self, problem: Problem) -> str:
        """Replace a lease that cannot be read by one that no process holds."""
        machine = int(problem.path.removeprefix("machine "), 16)
        if not rollback.replace_damaged_lease(self._instance, machine):
            return RIGHT
        return "replaced it by a lease that expires soon; any instance then recovers the revisions of its writer"

    # --- revisions ---------------------------------------------------------------------------------------

    def _recover(self, problem: Problem) -> str | None:
        recovered = rollback.recover_one(self._instance, _id(problem))
        return "aborted it and deleted its cells" if recovered else None

    def _abort_below_watermark(self, problem: Problem) -> str | None:
        """Hide an aborted revision below the watermark, then delete its cells."""
        newly_hidden = rollback.hide_aborted(self._instance, _id(problem))
        if newly_hidden is None:
            return None
        return f"{'hid it, and ' if newly_hidden else ''}deleted its cells"

    def _show(self, problem: Problem) -> str | None:
        shown = rollback.show_committed(self._instance, _id(problem))
        return "removed it from the list of hidden revisions" if shown else None

    def _pass(self, problem: Problem) -> str | None:
        """Move the watermark past a committed revision, so that all instances that open now read it."""
        if self._watermark_stays:
            return None
        passed = rollback.pass_committed(self._instance, _id(problem))
        self._watermark_stays = not passed
        return "the watermark has passed it" if passed else None

    def _number(self, problem: Problem) -> str | None:
        """Give the row of a committed revision an arrival number, by which polls find it."""
        numbered = rollback.number_committed(self._instance, _id(problem))
        if numbered is None:
            return None
        return "gave its row an arrival number" if numbered else RIGHT

    # --- the tree ----------------------------------------------------------------------------------------

    def _unlist(self, problem: Problem) -> str | None:
        """Remove a dangling child entry; restore the child instead if it has children."""
        path = problem.path
        done = ""

        def make(view: View) -> ChangeSource:
            nonlocal done
            done = ""
            parent, name = paths.parent(path), paths.name(path)
            above = self._instance.node(view, parent)
            if above is None or self._instance.node(view, path) is not None:
                return OperationList(())
            if not self._instance.lists(view, above, name):
                return OperationList(())
            require_no_lost_life(self._instance, view, path)
            if self._below(view, path):
                done = "restored the node without properties, because there are nodes below it"
                return ReadyChangeSet(change_set.of_nodes(self._ancestors(view, path, itself=True)))
            done = "its parent no longer lists it"
            node = StagedNode(parent, above)
            node.write_child(name, is_present=False)
            return ReadyChangeSet(change_set.of_nodes([node]))

        if self._lacks_revisions:
            return None
        revision = self._commit(make)
        return f"{done} (revision {revisions.to_text(revision)})" if done else RIGHT

    def _link(self, problem: Problem) -> str | None:
        """List an orphaned node in its parent, and restore missing ancestors."""
        path = problem.path
        done = ""
        refused = False

        def make(view: View) -> ChangeSource:
            nonlocal done, refused
            done, refused = "", False
            if self._instance.node(view, path) is None:
                return OperationList(())
            nodes = self._ancestors(view, path, itself=False)
            if any(name in node.base.encoded for node in nodes if node.base for name in node.child_writes):
                # The parent has a property of that name; only the owner can decide which of the two to remove.
                refused = True
                return OperationList(())
            back = [node.path for node in nodes if node.is_new]
            if nodes:
                done = f"restored {', '.join(sorted(back))} without properties" if back else "its parent lists it"
            return ReadyChangeSet(change_set.of_nodes(nodes))

        if self._lacks_revisions:
            return None
        revision = self._commit(make)
        if refused:
            return None
        return f"{done} (revision {revisions.to_text(revision)})" if done else RIGHT

    def _ancestors(self, view: View, path: str, *, itself: bool) -> list[StagedNode]:
        """Return the changes that connect a node to the tree: parents that list it, and restored ancestors."""
        nodes: list[StagedNode] = []
        if itself:
            node = StagedNode(path, None)
            node.exists = node.is_new = True
            self._adopt(view, node)
            nodes.append(node)
        while path != paths.ROOT:
            name, path = paths.name(path), paths.parent(path)
            state = self._instance.node(view, path)
            if state is not None and not nodes and self._instance.lists(view, state, name):
                return []
            node = StagedNode(path, state)
            node.write_child(name, is_present=True)
            nodes.append(node)
            if state is not None:
                return nodes
            require_no_lost_life(self._instance, view, path)
            node.exists = node.is_new = True
            self._adopt(view, node)
        return nodes

    def _adopt(self, view: View, node: StagedNode) -> None:
        """Let a restored node list all its existing children."""
        for name in self._below(view, node.path):
            node.write_child(name, is_present=True)

    def _below(self, view: View, path: str) -> list[str]:
        levels = self._instance.levels(view, path, 1)
        return [paths.name(state.path) for level in levels for state in level]

    def _commit(self, make: Callable[[View], ChangeSource]) -> int:
        try:
            return self._instance.commit(make, MESSAGE, retry_timeout=RETRY_TIMEOUT, max_poll_age=0.0)
        except LeaseLostError:
            # The check may have outlasted the lease; the next commit claims another machine id.
            return self._instance.commit(make, MESSAGE, retry_timeout=RETRY_TIMEOUT, max_poll_age=0.0)


def _deleted(problem: Problem) -> str:
    count = sum(len(one.cells) for one in problem.cells)
    return f"deleted {counted(count, 'cell')}"


def _id(problem: Problem) -> int:
    return int(problem.revision, 16)
