"""The cell with the last commits of a writer."""

from __future__ import annotations

import pytest

from hbasemk.errors import FormatError
from hbasemk.format import changes, recent_commits, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.store.abc import Cell, Row

FIRST, SECOND = (revisions.pack(ms, 7, 0) for ms in (1000, 2000))
CHANGE = RowChange("/ä", changes.CHANGED, ("p",))
ENCODED = changes.encode([CHANGE])[0].value


def row(data: bytes, at: int = SECOND) -> Row:
    """Return the row of a log, whose commits were written at a timestamp."""
    return Row(schema.log_key(7), [Cell(*schema.RECENT_COMMITS, at, data), Cell(*schema.LOG, SECOND, bytes(8))])


def test_the_commits_are_read_down_to_a_revision() -> None:
    cell = row(recent_commits.encode(SECOND, ENCODED) + recent_commits.encode(FIRST, b"x"))
    assert recent_commits.of_row(cell) == {SECOND: ENCODED, FIRST: b"x"}
    assert recent_commits.of_row(cell, FIRST - 1) == {SECOND: ENCODED, FIRST: b"x"}
    assert recent_commits.of_row(cell, FIRST) == {SECOND: ENCODED}
    assert recent_commits.of_row(cell, float("inf")) == {}


def test_a_log_without_the_cell_shows_no_commits() -> None:
    assert recent_commits.of_row(Row(schema.log_key(7), [])) == {}
    assert recent_commits.of_row(row(b"")) == {}


def test_a_cell_of_an_earlier_write_shows_no_commits() -> None:
    assert recent_commits.of_row(row(recent_commits.encode(FIRST, ENCODED), FIRST)) == {}


def test_the_changes_are_those_of_the_journal() -> None:
    (parsed,) = recent_commits.changes_of(SECOND, ENCODED)
    assert parsed._replace(properties=tuple(parsed.properties)) == CHANGE


@pytest.mark.parametrize("cut", [1, 7, 9, 10, 12])
def test_a_cell_that_ends_early_is_damaged(cut: int) -> None:
    data = recent_commits.encode(SECOND, ENCODED) + recent_commits.encode(FIRST, ENCODED)[:cut]
    with pytest.raises(FormatError, match=r"last commits of a writer .*table 'cluster'.*commits"):
        recent_commits.of_row(row(data))


def test_a_cell_with_an_id_that_is_none_is_damaged() -> None:
    with pytest.raises(FormatError, match="last commits of a writer"):
        recent_commits.of_row(row(b"\xff" * 8 + b"\x00\x01x"))


def test_damaged_changes_name_the_log() -> None:
    with pytest.raises(FormatError, match=r"changes of a revision are damaged .*table 'cluster'") as caught:
        recent_commits.changes_of(SECOND, b"\x01[[]]")
    assert caught.value.row == schema.log_key(7)
    assert caught.value.column == schema.RECENT_COMMITS
