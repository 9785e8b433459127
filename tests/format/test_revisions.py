"""Revision ids: parts, order, text form, limits."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import InvalidRevisionError, RevisionOverflowError
from hbasemk.format import revisions

MS = st.integers(0, revisions.MAX_MS)
MACHINE = st.integers(0, 0xFFFF)
COUNTER = st.integers(0, 0xFF)


@given(MS, MACHINE, COUNTER)
def test_parts_round_trip(ms: int, machine: int, counter: int) -> None:
    revision = revisions.pack(ms, machine, counter)
    assert (revisions.ms_of(revision), revisions.machine_of(revision), revisions.counter_of(revision)) == (
        ms,
        machine,
        counter,
    )


def test_layout_is_five_bytes_two_bytes_one_byte() -> None:
    assert revisions.pack(0x0102030405, 0xABCD, 0x7E) == 0x0102030405ABCD7E


@given(st.lists(st.tuples(MS, MACHINE, COUNTER), min_size=2))
def test_text_sorts_like_the_number_and_time_comes_first(parts: list[tuple[int, int, int]]) -> None:
    ids = [revisions.pack(*part) for part in parts]
    assert sorted(map(revisions.to_text, ids)) == [revisions.to_text(one) for one in sorted(ids)]
    assert sorted(ids) == [revisions.pack(*part) for part in sorted(parts)]


@given(MS, MACHINE, COUNTER)
def test_text_round_trips(ms: int, machine: int, counter: int) -> None:
    revision = min(revisions.pack(ms, machine, counter), revisions.MAX_REVISION)
    assert revisions.from_text(revisions.to_text(revision)) == revision


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "x" * 16,
        "6608D9770510EB00",
        " 608d9770510eb00",
        "f" * 16,
        "6608d9770510eb000",
        "+608d9770510eb00",
        "6608d9770510eb  ",
        "66 08d9770510 eb",
        "6608d9770510eb0\n",
        "6608d9770510_b00",
        "\u0661" * 16,
        " " * 16,
    ],
)
def test_invalid_revision_is_named_in_the_error(text: str) -> None:
    with pytest.raises(InvalidRevisionError, match="revision id"):
        revisions.from_text(text)


def test_every_id_is_a_timestamp_that_hbase_keeps() -> None:
    assert revisions.MAX_REVISION == 2**63 - 2


def test_the_default_epoch_is_2013_and_ends_in_2030() -> None:
    utc = datetime.timezone.utc
    assert (
        datetime.datetime.fromtimestamp(revisions.DEFAULT_EPOCH_MS / 1000, utc).isoformat()
        == "2013-01-01T00:00:00+00:00"
    )
    last = revisions.last_moment_ms(revisions.DEFAULT_EPOCH_MS)
    end = datetime.datetime.fromtimestamp(last / 1000, utc)
    assert end.replace(microsecond=0).isoformat() == "2030-06-03T21:56:53+00:00"
    assert last % 1000 == 887


@pytest.mark.parametrize("ms", [-1, revisions.MAX_MS + 1])
def test_time_outside_the_format_raises_overflow_with_a_solution(ms: int) -> None:
    with pytest.raises(RevisionOverflowError, match="later epoch"):
        revisions.pack(ms, 0, 0)


@pytest.mark.parametrize(("machine", "counter"), [(-1, 0), (0x10000, 0), (0, -1), (0, 256)])
def test_parts_out_of_range_are_refused(machine: int, counter: int) -> None:
    with pytest.raises(InvalidRevisionError):
        revisions.pack(0, machine, counter)


def test_highest_counter_bit_marks_branches() -> None:
    assert revisions.is_branch(revisions.pack(1, 1, 0x80))
    assert not revisions.is_branch(revisions.pack(1, 1, 0x7F))
