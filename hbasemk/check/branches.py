"""The check of branches: their views of trunk, their heads, and the declared cells of the heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.context import AT_ONCE, CheckContext, declared_by, text
from hbasemk.check.declared_cells import compare
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.branch_head import ABANDONED, MERGED, REBASED, BranchHead
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.batches import batched
from hbasemk.store.abc import Column

_READABLE: Final[Mapping[Column, tuple[str, Callable[[JournalRow], object]]]] = {
    schema.BRANCH_CLAIM: ("the claim on it", lambda row: row.branch_claim),
    schema.REBASE_OF: ("the branch that it continues", lambda row: row.rebase_of),
}
"""Columns of the first row that only have to be readable: what they hold, and their decoders."""


class BranchesCheck:
    """Checks the rows of branch revisions."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context

    def check(self, rows: Sequence[JournalRow]) -> Iterator[Problem]:
        """Yield the problems of these rows, which carry the branch bit."""
        known = {row.revision: row for row in rows}
        lists = {row.revision: _branch_of(row) for row in rows if row.branch_root is not None}
        others = sorted({own[0] for own in lists.values() if own} - known.keys())
        columns = (schema.BRANCH, schema.BRANCH_VIEW, *_READABLE, schema.BRANCH_HEAD, schema.ABORT)
        known.update((row.revision, row) for row in self._context.journal_rows(others, columns))
        # Other rows are aborted without a writer, or incomplete, which the check of the journal reports.
        for revision, own in lists.items():
            if not own or own[-1] != revision:
                yield Problem(kinds.BRANCH, "", text(revision), "its list of the branch's revisions is damaged")
            elif own[0] == revision:
                yield from self._check_root(known[revision])
            elif known[own[0]].value(schema.BRANCH_VIEW) is None and not self._context.is_collected(own[0]):
                yield Problem(kinds.BRANCH, "", text(revision), f"its branch {text(own[0])} does not exist")

    def _check_root(self, root: JournalRow) -> Iterator[Problem]:
        at = text(root.revision)
        if not _has_view(root):
            yield Problem(kinds.BRANCH, "", at, "its view of trunk is missing or cannot be read")
        head = _head_of(root)
        if head is None:
            data = root.value(schema.BRANCH_HEAD) or b""
            yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {data[:20].hex()!r} cannot be read")
        elif head.how == MERGED and head.into is not None:
            decided = (Outcome.COMMITTED, Outcome.ABORTED)
            outcome = self._context.status(head.into).outcome
            if outcome not in decided:
                # The check of the nodes may have read it before the merge was decided.
                outcome = self._context.current_status(head.into).outcome
            is_decided = outcome in decided
            if not is_decided and not self._context.is_trimmed(head.into):
                yield Problem(
                    kinds.BRANCH_HEAD, "", at, f"it was merged as {text(head.into)}, which is {outcome.value}"
                )
        elif head.how != ABANDONED:
            target = head.newest if head.into is None else head.into
            yield from self._check_head(root, head.how, target or 0)
        for column, (what, read) in _READABLE.items():
            if not _is_readable(root, read):
                data = root.value(column) or b""
                yield Problem(kinds.BRANCH_HEAD, "", at, f"{what} {data[:20].hex()!r} cannot be read")

    def _check_head(self, root: JournalRow, how: bytes, target: int) -> Iterator[Problem]:
        at, name = text(root.revision), text(target)
        (head,) = self._context.journal_rows([target], (schema.BRANCH, schema.ABORT))
        if head.branch_root is None:
            # A collector deletes the rows of a branch that a sweep has ended.
            is_gone = self._context.is_collected(target) if how == REBASED else not self._is_head(root.revision, target)
            if not is_gone:
                yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} does not exist")
        elif how == REBASED:
            return
        elif head.branch_root != root.revision:
            yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} belongs to another branch")
        elif head.aborted or root.aborted:
            # A sweep deletes the head first.
            if self._is_head(root.revision, target):
                yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} has been swept")
        else:
            own = _branch_of(head)[1:]
            for part in batched(own, AT_ONCE):
                problems = list(self._compare(part))
                if problems and self._is_head(root.revision, target):
                    yield from problems

    def _is_head(self, root: int, target: int) -> bool:
        (row,) = self._context.journal_rows([root], (schema.BRANCH_HEAD,))
        return _head_of(row) == BranchHead(b"", target)

    def _compare(self, own: Sequence[int]) -> Iterator[Problem]:
        for row in self._context.journal_rows(own):
            declared = [(row.revision, change) for change in declared_by(row) or ()]
            yield from compare(self._context, declared, exact=True)


def _branch_of(row: JournalRow) -> Sequence[int]:
    """Return the branch's revisions in a row; empty if they are missing or damaged."""
    try:
        return row.branch or ()
    except FormatError:
        return ()


def _has_view(root: JournalRow) -> bool:
    try:
        return root.branch_view is not None
    except FormatError:
        return False


def _is_readable(root: JournalRow, read: Callable[[JournalRow], object]) -> bool:
    try:
        read(root)
    except FormatError:
        return False
    return True


def _head_of(root: JournalRow) -> BranchHead | None:
    """Return the head in the first row of a branch; None if it is missing or damaged."""
    try:
        return root.branch_head
    except FormatError:
        return None
