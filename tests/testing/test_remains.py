"""The state of objects as a value, by which explorations know what remains of ended processes."""

from __future__ import annotations

from typing import Any

from tests.support.simulation.remains import state_of


class Linked:
    def __init__(self, number: int, after: Any = None) -> None:
        self.number = number
        self.after = after


def test_objects_of_equal_attributes_have_an_equal_state() -> None:
    assert state_of(Linked(1, [Linked(2)])) == state_of(Linked(1, [Linked(2)]))
    assert state_of(Linked(1, [Linked(2)])) != state_of(Linked(1, [Linked(3)]))
    assert state_of(Linked(1), but="number") == state_of(Linked(2), but="number")


def test_the_state_shows_which_objects_are_the_same() -> None:
    one = Linked(1)
    assert state_of([one, one]) != state_of([one, Linked(1)])


def test_an_object_that_refers_to_itself_has_a_state() -> None:
    one, two = Linked(1), Linked(1)
    one.after, two.after = one, two
    assert state_of(one) == state_of(two) != state_of(Linked(1))
