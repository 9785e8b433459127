"""Mending what can be mended without losing anything that was committed (``docs/decisions/0010-repair.md``).

Cells of revisions that can never commit are deleted, one exact version each; revisions that ended writers left are ended the
way that every instance ends them; what hangs wrongly in the tree is put right by ordinary commits, which conflict and are
told like any other. Everything is looked at anew before it is touched, so a problem may be old, or mended by two at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.problem import Problem
from hbasemk.errors import ConflictError, FormatError, LeaseLostError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings as kernel_settings
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.committer import Source
from hbasemk.kernel.commit.staging import StagedNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.outcomes import Outcome
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import again
from hbasemk.store.abc import Get, NewCell, Put

MESSAGE: Final = "repair"
"""The message of its commits."""
RIGHT: Final = "right by now"
"""What is said of something that somebody else, or an earlier repair, has mended."""
RETRY_TIMEOUT: Final = 30.0
"""Seconds that a commit is repeated after conflicts."""


class Repair:
    """Mends problems that a check of the same instance found."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
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
            kinds.UPLOAD: self._delete_upload,
            kinds.COUNT: self._delete_memo,
        }

    def repair(self, problem: Problem) -> str | None:
        """Mend a problem; returns what was done, in words, or None when there was nothing that may be done.

        Raises StoreError (but for damaged data) and what commits raise (but ConflictError); a second check shows what is left.
        """
        if not problem.repairable:
            return None
        try:
            return self._actions[problem.kind](problem)
        except (ConflictError, FormatError):
            # Somebody changes the same all the time; or what would have to be known is damaged itself, which is told.
            return None

    # --- cells -------------------------------------------------------------------------------------------

    def _roll_back(self, problem: Problem) -> str | None:
        """Aborted is for ever: nobody may ever read these cells."""
        if self._instance.outcomes.of(_id(problem)) is not Outcome.ABORTED:
            return None
        return self._delete(problem)

    def _abort_missing(self, problem: Problem) -> str | None:
        """A row that says "aborted" first, so that it can never commit; then as any aborted one."""
        revision = _id(problem)
        outcomes = self._instance.outcomes
        if outcomes.of(revision) is Outcome.ABSENT:
            again(self._instance.runtime, lambda: outcomes.abort_missing(revision))
        done = self._roll_back(problem)
        # Late cells of it stay invisible as those of any that somebody else aborted.
        if done is not None and outcomes.recover_if_over(revision):
            return f"aborted it; {done}"
        return done

    def _delete(self, problem: Problem) -> str:
        store = self._instance.store
        again(self._instance.runtime, lambda: store.delete(schema.NODES, problem.cells))
        count = sum(len(one.cells) for one in problem.cells)
        return f"deleted {count} cell{'s' if count != 1 else ''}"

    def _delete_upload(self, problem: Problem) -> str:
        """Exactly the chunks that are a day old: what an upload that begins now writes is newer."""
        store = self._instance.store
        size = store.batch_rows
        for at in range(0, len(problem.cells), size):
            part = problem.cells[at : at + size]
            again(self._instance.runtime, lambda part=part: store.delete(schema.BLOBS, part))  # type: ignore[misc]
        return f"deleted {len(problem.cells)} chunks"

    def _delete_memo(self, problem: Problem) -> str:
        """Exactly the wrong one; it only spares work, and whoever counts next leaves another."""
        store = self._instance.store
        again(self._instance.runtime, lambda: store.delete(schema.CLUSTER, problem.cells))
        return "deleted the memo"

    # --- revisions ---------------------------------------------------------------------------------------

    def _recover(self, problem: Problem) -> str | None:
        revision = _id(problem)
        if not self._instance.outcomes.recover_if_over(revision):
            return None
        found = self._instance.outcomes.of(revision)
        return "aborted it and deleted its cells" if found is Outcome.ABORTED else None

    def _abort_below_watermark(self, problem: Problem) -> str | None:
        """What must not be visible and lies below the watermark is hidden before anything else."""
        revision = _id(problem)
        outcomes = self._instance.outcomes
        if outcomes.of(revision) is not Outcome.ABORTED and not outcomes.recover_if_over(revision):
            return None
        if outcomes.of(revision) is not Outcome.ABORTED:
            return None
        hidden = self._hide(revision, hide=True)
        outcomes.sweep_again(revision)
        return f"{'hid it, and ' if hidden else ''}deleted its cells"

    def _show(self, problem: Problem) -> str | None:
        revision = _id(problem)
        if self._instance.outcomes.of(revision) is not Outcome.COMMITTED:
            return None
        return "took it off the list of hidden revisions" if self._hide(revision, hide=False) else None

    def _hide(self, revision: int, *, hide: bool) -> bool:
        """Put a revision on the watermark's list of hidden ones, or take it off; False when that has been done already."""
        instance = self._instance
        while True:
            _, current = again(instance.runtime, lambda: kernel_settings.read(instance.store))
            if current is None or (revision in current.hidden) is hide or (hide and revision > current.revision):
                return False
            hidden = current.hidden | {revision} if hide else current.hidden - {revision}
            expected = current.encode()
            put = Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, Watermark(current.revision, hidden).encode())])
            if again(
                instance.runtime,
                lambda expected=expected, put=put: instance.store.check_and_write(  # type: ignore[misc]
                    schema.CLUSTER, schema.WATERMARK, expected, put
                ),
            ):
                return True

    # --- the tree ----------------------------------------------------------------------------------------

    def _unlist(self, problem: Problem) -> str | None:
        """A child that is listed and is not there; if something lives right below it, it is brought back instead."""
        path = problem.path
        done = ""

        def make(snapshot: View) -> Source:
            nonlocal done
            done = ""
            parent, name = paths.parent(path), paths.name(path)
            reader = self._instance.reader
            above = reader.node(snapshot, parent)
            if above is None or reader.node(snapshot, path) is not None or not self._lists(snapshot, parent, name):
                return ()
            if self._below(snapshot, path):
                done = "brought the node back, without properties, because there are nodes below it"
                return lambda: change_set.of_nodes(self._ancestors(snapshot, path, itself=True))
            done = "its parent lists it no more"
            node = StagedNode(parent, above)
            node.child_writes[name] = False
            return lambda: change_set.of_nodes([node])

        revision = self._commit(make)
        return f"{done} (revision {revisions.to_text(revision)})" if done else RIGHT

    def _link(self, problem: Problem) -> str | None:
        """A node that is there and hangs nowhere: it is listed, below ancestors that are brought back if need be."""
        path = problem.path
        done = ""
        refused = False

        def make(snapshot: View) -> Source:
            nonlocal done, refused
            done, refused = "", False
            if self._instance.reader.node(snapshot, path) is None:
                return ()
            nodes = self._ancestors(snapshot, path, itself=False)
            if any(name in node.base.encoded for node in nodes if node.base for name in node.child_writes):
                # There is a property of that name: which of the two is to go, only their owner can say.
                refused = True
                return ()
            back = [node.path for node in nodes if node.is_new]
            if nodes:
                done = f"brought back {', '.join(sorted(back))}, without properties" if back else "its parent lists it"
            return lambda: change_set.of_nodes(nodes)

        revision = self._commit(make)
        if refused:
            return None
        return f"{done} (revision {revisions.to_text(revision)})" if done else RIGHT

    def _ancestors(self, snapshot: View, path: str, *, itself: bool) -> list[StagedNode]:
        """What has to change so that a node hangs in the tree: parents that list what they do not, or live again."""
        nodes: list[StagedNode] = []
        if itself:
            node = StagedNode(path, None)
            node.exists = node.is_new = True
            self._adopt(snapshot, node)
            nodes.append(node)
        while path != paths.ROOT:
            name, path = paths.name(path), paths.parent(path)
            state = self._instance.reader.node(snapshot, path)
            if state is not None and self._lists(snapshot, path, name) and not nodes:
                return []
            node = StagedNode(path, state)
            node.child_writes[name] = True
            nodes.append(node)
            if state is not None:
                return nodes
            node.exists = node.is_new = True
            self._adopt(snapshot, node)
        return nodes

    def _adopt(self, snapshot: View, node: StagedNode) -> None:
        """A node that is brought back lists at once all that lives right below it."""
        for name in self._below(snapshot, node.path):
            node.child_writes[name] = True

    def _below(self, snapshot: View, path: str) -> list[str]:
        levels = self._instance.reader.levels(snapshot, path, 1)
        return [paths.name(state.path) for level in levels for state in level]

    def _lists(self, snapshot: View, parent: str, name: str) -> bool:
        reader = self._instance.reader
        above = reader.node(snapshot, parent)
        cells = reader.cells(snapshot, [Get(paths.key(parent), columns=(schema.child_column(name),))])[0]
        return (
            above is not None
            and bool(cells)
            and cells[0].value == schema.PRESENT
            and cells[0].timestamp >= above.created
        )

    def _commit(self, make: Callable[[View], Source]) -> int:
        try:
            return self._instance.commit(make, MESSAGE, retry_timeout=RETRY_TIMEOUT, max_poll_age=0.0)
        except LeaseLostError:
            # The check may have taken longer than the lease; the next commit claims another machine id.
            return self._instance.commit(make, MESSAGE, retry_timeout=RETRY_TIMEOUT, max_poll_age=0.0)


def _id(problem: Problem) -> int:
    return int(problem.revision, 16)
