"""The journal rows of branches, as their writer creates them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.branch_head import BranchHead
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import BranchView, JournalRow
from hbasemk.kernel.branches.cache import Begun, BranchState
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, NewCell, Put, Row


def expected_first_row(root: int, newest: int, begun: Begun) -> JournalRow:
    """Return the head and what :class:`Begun` names, as read from the first row of a branch that is open and not claimed."""
    cells = [
        Cell(*schema.MESSAGE, 0, journal_row.encode_message(begun.message)),
        Cell(*schema.BRANCH_HEAD, 0, BranchHead(b"", newest).encode()),
    ]
    if begun.rebase_of is not None:
        cells.append(Cell(*schema.REBASE_OF, 0, begun.rebase_of.encode()))
    return JournalRow(Row(schema.revision_key(root), cells))


class BranchRows:
    """Makes the rows of the branch revisions of one instance."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def first(self, root: int, head: int, base: View, extent: Extent, begun: Begun) -> Put:
        """Return the row of the first revision ``root`` of a branch on a view of trunk, whose newest revision is ``head``."""
        cells = [
            NewCell(*schema.BRANCH_VIEW, BranchView(extent, base.upper).encode()),
            NewCell(*schema.BRANCH_HEAD, BranchHead(b"", head).encode()),
        ]
        if begun.rebase_of is not None:
            cells.append(NewCell(*schema.REBASE_OF, begun.rebase_of.encode()))
        return self._row(root, (root, root), base.revision, begun.message, cells)

    def further(
        self, revision: int, state: BranchState, own: Sequence[int], message: str, encoded: Iterable[NewCell]
    ) -> Put:
        """Return the row of a new revision that follows the revisions ``own`` of a branch; ``encoded``: its changes."""
        return self._row(revision, (state.root, *own, revision), state.base, message, encoded)

    def _row(self, revision: int, branch: Sequence[int], base: int, message: str, cells: Iterable[NewCell]) -> Put:
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        ids = NewCell(*schema.BRANCH, revisions.to_bytes(branch))
        return Put(schema.revision_key(revision), [*journal_row.begin(nonce, base, message), ids, *cells])
