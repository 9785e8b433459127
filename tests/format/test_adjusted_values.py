"""A read computes the value of an adjusted property at once, and decodes its parts when a commit needs them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from hbasemk import FormatError
from hbasemk.format import adjusted, exact, schema, values
from hbasemk.format.node import NodeState, from_cells
from hbasemk.store.abc import Cell
from tests.support.seeds import random_of_test

LIFE = 100
NAMES = ("a", "b", "é")


def cell(column: tuple[bytes, bytes], at: int, value: bytes) -> Cell:
    return Cell(*column, at, value)


def some_number(rng: random.Random) -> int | Fraction:
    if rng.random() < 0.7:
        return rng.choice([0, 1, -1, rng.randrange(-(10**30), 10**30)])
    return exact.of_number(rng.choice([0.5, -0.25, 1e300, 3.0]))


def some_base(rng: random.Random) -> bytes:
    plain = rng.choice([7, -1, 2.5, "text", True, [1, 2], 10**40])
    encoded = values.encode(plain)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        return encoded
    if rng.random() < 0.5:
        return encoded
    return adjusted.Adjusted(encoded, some_number(rng), created=rng.random() < 0.3).encode_base()


def some_cells(rng: random.Random) -> list[Cell]:
    found = [cell(schema.DELETED, LIFE, schema.ALIVE), cell(schema.LAST_REVISION, LIFE + 50, schema.TOUCHED)]
    for name in NAMES:
        if rng.random() < 0.8:
            value = values.TOMBSTONE if rng.random() < 0.1 else some_base(rng)
            found.append(cell(schema.property_column(name), LIFE + rng.randrange(-3, 50), value))
        for slot in rng.sample(range(5), rng.randrange(4)):
            value = values.TOMBSTONE if rng.random() < 0.2 else exact.encode(some_number(rng))
            found.append(cell(schema.slot_column(name, slot), LIFE + rng.randrange(-3, 50), value))
    return sorted(found, key=lambda one: one.qualifier)


def state_of(cells: list[Cell]) -> NodeState:
    state, _ = from_cells("/n", cells)
    assert state is not None
    return state


def test_the_values_of_a_read_are_those_of_the_parts() -> None:
    rng = random_of_test()
    adjusted_ones = 0
    for _ in range(2000):
        cells = some_cells(rng)
        state = state_of(cells)
        columns = state.columns
        parts = state.adjusted or {}
        adjusted_ones += len(parts)
        for name in NAMES:
            assert state.encoded.get(name) == state.property_of(name).value()
        written = {
            one.qualifier: one.timestamp
            for one in cells
            if one.timestamp > LIFE
            and (
                one.qualifier[0] == schema.PROPERTY
                or (one.qualifier[0] == schema.SLOT and one.value != values.TOMBSTONE)
            )
        }
        assert state.later == written
        assert columns >= len(state.encoded) + len(state.later) == state.columns
    assert adjusted_ones > 1000


def test_the_version_does_not_depend_on_what_was_read_before() -> None:
    cells = some_cells(random.Random(3))
    one, other = state_of(cells), state_of(cells)
    assert other.adjusted is not None
    assert one.version == other.version


@pytest.mark.parametrize("value", [b"", b"\x02", b"\xff", b"\x0a\x00"])
def test_a_damaged_total_is_found_by_the_read(value: bytes) -> None:
    column = schema.slot_column("a", 1)
    cells = [cell(schema.DELETED, LIFE, schema.ALIVE), cell(column, LIFE + 1, value)]
    with pytest.raises(FormatError) as raised:
        from_cells("/n", cells)
    assert raised.value.column == column


def test_a_damaged_name_without_a_property_is_found_by_the_read() -> None:
    ended, removed, column = ((schema.DATA, bytes([schema.SLOT, 0, 0, 0, slot]) + b"\xff\xff") for slot in range(3))
    cells = [
        cell(schema.DELETED, LIFE, schema.ALIVE),
        cell(ended, LIFE - 1, exact.encode(3)),
        cell(removed, LIFE + 1, values.TOMBSTONE),
        cell(column, LIFE + 1, exact.encode(3)),
    ]
    with pytest.raises(FormatError) as raised:
        from_cells("/n", cells)
    assert raised.value.column == column
    assert str(raised.value).count("`hbasemk check` lists") == 1


@pytest.mark.parametrize("relative", [False, True])
def test_a_damaged_value_that_was_adjusted_is_found_by_the_read(relative: bool) -> None:
    column, damaged = schema.property_column("a"), b"\x03\x01"
    base = adjusted.Adjusted(damaged, 7).encode_base() if relative else damaged
    cells = [
        cell(schema.DELETED, LIFE, schema.ALIVE),
        cell(column, LIFE + 1, base),
        cell(schema.slot_column("a", 1), LIFE + 1, exact.encode(3)),
    ]
    with pytest.raises(FormatError) as raised:
        from_cells("/n", cells)
    assert raised.value.column == column


class Counted(list[Cell]):
    """Cells that count how many a loop has taken."""

    taken = 0

    def __iter__(self) -> Iterator[Cell]:
        for one in super().__iter__():
            self.taken += 1
            yield one


def test_a_read_takes_each_slot_of_removed_properties_at_most_twice() -> None:
    slots = Counted(cell(schema.slot_column(f"p{number}", 1), LIFE + 1, exact.encode(3)) for number in range(100))
    assert adjusted.values_of("/n", [], slots, LIFE) == {}
    assert slots.taken <= 2 * len(slots)
