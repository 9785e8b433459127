"""The log of a writer: what a reader gets of its ids, and damage."""

from __future__ import annotations

import pytest

from hbasemk.errors import FormatError
from hbasemk.format import revisions, schema, writer_log
from hbasemk.store.abc import Cell, Row

IDS = tuple(revisions.pack(400_000_000_000 + ms, 7, 0) for ms in (1, 2, 5, 9))
BASE = revisions.pack(400_000_000_000, 7, 0)


def row(data: bytes, bound: int = IDS[-1]) -> Row:
    return Row(schema.log_key(7), [Cell(*schema.LOG, bound, data)])


def written(*ids: int) -> Row:
    _, _, data, bound = writer_log.cell(BASE, ids, IDS[-1])
    assert data is not None
    assert bound is not None
    return row(data, bound)


@pytest.mark.parametrize("above", [0, 1, BASE, *IDS, IDS[1] + 1, IDS[-1] + 1])
def test_a_reader_gets_the_ids_above_one(above: int) -> None:
    log = writer_log.decode(written(*reversed(IDS)), above)
    assert (log.base, log.ids, log.bound) == (BASE, tuple(one for one in IDS if one > above), IDS[-1])


def test_a_log_without_ids_has_a_base() -> None:
    for above in (0, BASE):
        assert writer_log.decode(written(), above)[2:5] == (BASE, (), IDS[-1])


@pytest.mark.parametrize("above", [0, BASE])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "its length is 0"),
        (b"1234567", "its length is 7"),
        (revisions.to_bytes((BASE, *IDS)) + b"\0", "its length is 41"),
        (revisions.to_bytes((BASE, IDS[1], IDS[1] + 1, IDS[0] + 1)), "the ids are not in their order"),
        (revisions.to_bytes((BASE, IDS[-1] + 1)), "an id is greater than the bound"),
        (revisions.to_bytes((IDS[-1] + 1, *IDS)), "an id is greater than the bound"),
        (revisions.to_bytes((BASE, revisions.MAX_REVISION + 1)), "greater than any revision id"),
    ],
)
def test_damage_is_an_error(data: bytes, reason: str, above: int) -> None:
    with pytest.raises(FormatError, match=reason):
        writer_log.decode(row(data), above)
