"""The comparison of nodes with the cells that revisions declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.format import changes, paths, schema
from hbasemk.format.changes import RowChange
from hbasemk.store.abc import Column, Get


def compare(context: CheckContext, declared: Sequence[tuple[int, RowChange]], *, exact: bool) -> Iterator[Problem]:
    """Compare rows with their declared cells; without ``exact``, a declared property may be missing."""
    usable = [(revision, change) for revision, change in declared if _key_of(change.path) is not None]
    gets = [_get(revision, change) for revision, change in usable]
    for (revision, change), row in zip(usable, context.read(schema.NODES, gets), strict=True):
        found = {(cell.family, cell.qualifier): cell.value for cell in row.cells}
        properties = {schema.property_column(name) for name in change.properties}
        properties.update(schema.slot_column(name, machine << 16 | number) for name, machine, number in change.adjusted)
        if change.lives or exact:
            optional: set[Column] = set()
        else:
            optional = properties
            if not found and not change.children_added and not change.children_removed:
                continue
        expected = dict.fromkeys(map(schema.child_column, change.children_added), schema.PRESENT)
        expected.update(dict.fromkeys(map(schema.child_column, change.children_removed), schema.GONE))
        if change.lives:
            expected[schema.DELETED] = schema.ALIVE if change.kind == changes.ADDED else schema.DEAD
        at = text(revision)
        missing = [one for one in change.columns() if one not in found and one not in optional]
        if missing and context.is_collected(revision):
            missing = []
        if missing == [schema.LAST_REVISION] and found:
            detail = "the revision wrote other columns of this row, but not this one"
            yield Problem(kinds.NO_LAST_REVISION, change.path, at, detail)
        elif missing:
            what = ", ".join(map(schema.describe, missing[:5])) + (", …" if len(missing) > 5 else "")
            yield Problem(kinds.MISSING, change.path, at, f"{what}: the revision is committed and declares it")
        for column, value in expected.items():
            if column in found and found[column] != value and found[column] in (schema.NO, schema.YES):
                detail = f"{schema.describe(column)} is {found[column].hex()}, but the revision declares {value.hex()}"
                yield Problem(kinds.UNDECLARED, change.path, at, detail)


def _get(revision: int, change: RowChange) -> Get:
    """Return the read of the cells that a revision wrote into one row."""
    get = Get(_key_of(change.path) or b"", since=revision, before=revision + 1)
    if change.kind == changes.ADDED and not change.children_added and not change.children_removed:
        # Most nodes are added once and have few versions, so their row costs less than one lookup for each column.
        return get._replace(families=(schema.DATA,))
    return get._replace(columns=list(change.columns()))


def _key_of(path: str) -> bytes | None:
    try:
        return paths.key(path)
    except ValueError:
        return None
