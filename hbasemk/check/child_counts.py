"""The check of the memos in the ``cluster`` table that hold the child counts of wide nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError, InvalidPathError, RevisionCollectedError
from hbasemk.format import paths, schema
from hbasemk.format.plural import counted
from hbasemk.kernel.inspection import HeadInspection
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.store.abc import Cell, CellVersion, Delete, Get, Page, Scan

PREFIX: Final = schema.child_count_key(b"")
ROWS: Final = 100
CHILDREN: Final = 5000
"""The number of child columns in one read."""


class CountsCheck:
    """Compares each memo with a new count, because instances build on a wrong memo."""

    def __init__(self, context: CheckContext, inspection: HeadInspection) -> None:
        self._context = context
        self._inspection = inspection

    def run(self) -> Iterator[Problem]:
        """Yield every memo that is unreadable or wrong. A memo of an earlier life of its node is harmless."""
        end = PREFIX[:-1] + bytes([PREFIX[-1] + 1])
        scan = Scan(PREFIX, end, ROWS, columns=(schema.CHILD_COUNT,))
        for rows in self._context.pages(schema.CLUSTER, scan):
            # The writer of a memo had seen every revision decided up to it; a poll after that sees them too.
            self._inspection.poll()
            for row in rows:
                yield from self._check(row.key[len(PREFIX) :], row.cells[0])

    def _check(self, key: bytes, cell: Cell) -> Iterator[Problem]:
        delete = (Delete(PREFIX + key, [CellVersion(*schema.CHILD_COUNT, cell.timestamp)]),)
        try:
            path = paths.check_path(paths.path_of(key))
        except (FormatError, InvalidPathError):
            shown = ascii(key[:200])[2:-1]
            yield Problem(kinds.COUNT, shown, "", "no node can have this row key", kinds.LEFTOVER, True, delete)
            return
        try:
            memo = Memo.decode(cell.value, path)
        except FormatError as error:
            yield Problem(kinds.COUNT, path, "", str(error), kinds.DAMAGE, True, delete)
            return
        state = self._inspection.newest_node(path)
        if state is None or state.created != memo.created:
            return
        try:
            found = self._count(path, memo)
        except RevisionCollectedError:
            # Readers do not use a memo that the horizon has passed.
            return
        if found != memo.children:
            detail = f"the memo says {counted(memo.children, 'child', 'children')}, but the node has {found}"
            yield Problem(kinds.COUNT, path, text(memo.view.revision), detail, kinds.DAMAGE, True, delete)

    def _count(self, path: str, memo: Memo) -> int:
        view = memo.view
        count = 0
        after: bytes | None = None
        while True:
            get = Get(paths.key(path), page=Page(schema.CHILDREN, after, CHILDREN))
            columns = [cell.qualifier for cell in self._context.read(schema.NODES, [get])[0].cells]
            if columns:
                count += self._inspection.count_present(view, path, memo.created, columns)
                after = columns[-1]
            if len(columns) < CHILDREN:
                return count
