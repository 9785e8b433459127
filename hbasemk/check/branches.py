"""The check of branches: their views of trunk, their heads, and the declared cells of the heads."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from hbasemk.check import problem as kinds
from hbasemk.check.context import AT_ONCE, CheckContext, declared_by
from hbasemk.check.declared_cells import compare
from hbasemk.check.problem import Problem
from hbasemk.format import schema
from hbasemk.kernel.branches import heads
from hbasemk.kernel.journal.outcomes import Outcome
from hbasemk.store.abc import Column, Get, Row


class BranchesCheck:
    """Checks the rows of branch revisions, as they come by."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context

    def check(self, rows: Sequence[Row]) -> Iterator[Problem]:
        """What is wrong with these rows, which carry the branch bit."""
        rows_by_key = {row.key: _values(row) for row in rows}
        roots = {found[schema.BRANCH][:8] for found in rows_by_key.values() if len(found.get(schema.BRANCH, b"")) >= 16}
        others = sorted(root for root in roots if root not in rows_by_key and root[0] < 0x80)
        columns = (schema.BRANCH, schema.BRANCH_VIEW, schema.BRANCH_HEAD, schema.ABORT)
        for row in self._context.read(schema.JOURNAL, [Get(root, columns=columns) for root in others]):
            rows_by_key[row.key] = _values(row)
        for row in rows:
            found = rows_by_key[row.key]
            line = found.get(schema.BRANCH)
            if line is None:
                # Aborted without a writer, or an incomplete row, which the check of the journal reports.
                continue
            at = row.key.hex()
            if len(line) % 8 or len(line) < 16 or line[-8:] != row.key:
                yield Problem(kinds.BRANCH, "", at, "its list of the branch's revisions is damaged")
            elif line[:8] == row.key:
                yield from self._check_root(row.key, found)
            elif schema.BRANCH_VIEW not in rows_by_key.get(line[:8], {}):
                yield Problem(kinds.BRANCH, "", at, f"its branch {line[:8].hex()} does not exist")

    def _check_root(self, key: bytes, found: dict[Column, bytes]) -> Iterator[Problem]:
        at = key.hex()
        try:
            view = zlib.decompress(found[schema.BRANCH_VIEW])
        except (KeyError, zlib.error):
            view = b""
        if len(view) < 16 or len(view) % 8:
            yield Problem(kinds.BRANCH, "", at, "its view of trunk is missing or cannot be read")
        data = found.get(schema.BRANCH_HEAD, b"")
        head = heads.decode(data) if data else None
        if head is None:
            yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {data[:20].hex()!r} cannot be read")
        elif head.how == heads.MERGED and head.into is not None:
            outcome = self._context.status(head.into).outcome
            if outcome is not Outcome.COMMITTED and outcome is not Outcome.ABORTED:
                into = schema.revision_key(head.into).hex()
                yield Problem(kinds.BRANCH_HEAD, "", at, f"it was merged as {into}, which is {outcome.value}")
        elif head.how != heads.ABANDONED:
            target = head.newest if head.into is None else head.into
            yield from self._check_head(key, found, head.how, schema.revision_key(target or 0))

    def _check_head(self, key: bytes, root: dict[Column, bytes], how: bytes, target: bytes) -> Iterator[Problem]:
        at, name = key.hex(), target.hex()
        columns = (schema.BRANCH, schema.ABORT)
        head = _values(self._context.read(schema.JOURNAL, [Get(target, columns=columns)])[0])
        if schema.BRANCH not in head:
            yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} does not exist")
        elif how == heads.REBASED:
            return
        elif head[schema.BRANCH][:8] != key:
            yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} belongs to another branch")
        elif schema.YES in (head.get(schema.ABORT), root.get(schema.ABORT)):
            # The head is taken away before anything of a branch is swept.
            if self._is_head(key, target):
                yield Problem(kinds.BRANCH_HEAD, "", at, f"its head {name} has been swept")
        else:
            line = head[schema.BRANCH]
            own = [line[at : at + 8] for at in range(8, len(line) - len(line) % 8, 8) if line[at] < 0x80]
            for at_once in range(0, len(own), AT_ONCE):
                problems = list(self._compare(own[at_once : at_once + AT_ONCE]))
                if problems and self._is_head(key, target):
                    yield from problems

    def _is_head(self, key: bytes, target: bytes) -> bool:
        row = self._context.read(schema.JOURNAL, [Get(key, columns=(schema.BRANCH_HEAD,))])[0]
        return _values(row).get(schema.BRANCH_HEAD) == target

    def _compare(self, own: Sequence[bytes]) -> Iterator[Problem]:
        for row in self._context.read(schema.JOURNAL, [Get(one) for one in own]):
            rows_by_key = [(int.from_bytes(row.key, "big"), change) for change in declared_by(row) or ()]
            yield from compare(self._context, rows_by_key, exact=True)


def _values(row: Row) -> dict[Column, bytes]:
    return {(cell.family, cell.qualifier): cell.value for cell in row.cells}
