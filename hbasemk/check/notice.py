"""The check of the journal row that is no revision: polls read the horizon and the trim level in it."""

from __future__ import annotations

from collections.abc import Iterator

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.horizon import decode_notice
from hbasemk.format.trim_level import TrimLevel
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import Get


def check_notice(context: CheckContext) -> Iterator[Problem]:
    """Yield a problem if the row cannot be read, or shows other values than the settings row.

    One transaction writes both. So what the row shows lies between two reads of the settings.
    """
    before = _published(context)
    (row,) = context.read(schema.JOURNAL, [Get(schema.revision_key(schema.NOTICE))])
    after = _published(context)
    cells = {(cell.family, cell.qualifier): cell.value for cell in row.cells}
    detail = None
    try:
        shown = decode_notice(cells.get(schema.NOTICE_HORIZON)), TrimLevel.decode(cells.get(schema.NOTICE_TRIMMED))
    except FormatError as error:
        detail = str(error)
    else:
        if not cells.keys() <= {schema.NOTICE_HORIZON, schema.NOTICE_TRIMMED} or (
            cells and schema.NOTICE_HORIZON not in cells
        ):
            detail = "the horizon or the trim level in it cannot be read; polls need them"
        elif before is not None and after is not None:
            if not before[0] <= shown[0] <= after[0]:
                detail = "polls read another horizon in it than the settings row has"
            elif not before[1] <= shown[1] <= after[1]:
                detail = "polls read another trim level in it than the settings row has"
    if detail is not None:
        yield Problem(kinds.JOURNAL_VALUE, "", text(schema.NOTICE), detail)


def _published(context: CheckContext) -> tuple[int, TrimLevel] | None:
    """Return the horizon and the trim level in the settings row; None if the row by which polls learn them is not in use."""
    if not context.store.supports_transactions:
        return None
    try:
        return fence.read_horizon(context.store).revision, fence.read_trim_level(context.store)
    except FormatError:
        # The check of the settings reports it.
        return None
