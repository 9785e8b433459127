"""The pins of views: shared by the views of one position, and forgotten when no view has them."""

from __future__ import annotations

from hbasemk.kernel.journal.pins import FEW, Pins


def test_views_of_one_position_share_a_pin() -> None:
    pins = Pins()
    held = [pins.at(position) for position in range(5)]
    assert [pins.at(position) for position in range(5)] == held
    assert pins.before(3) == dict(enumerate(held[:3]))
    pins.drop_before(3)
    assert pins.before(5) == {3: held[3], 4: held[4]}


def test_dead_pins_are_forgotten() -> None:
    pins = Pins()
    held = [pins.at(position) for position in range(0, 10 * FEW, FEW)]
    for position in range(100 * FEW):
        pins.at(position)
    assert len(pins._references) <= 2 * FEW
    assert list(pins.before(100 * FEW).values())[: len(held)] == held


def test_no_python_code_runs_when_a_view_ends() -> None:
    # An interrupt would be lost in it: Python drops exceptions of such callbacks.
    pins = Pins()
    pin = pins.at(0)
    assert [reference.__callback__ for reference in pins._references.values()] == [None]
    assert pins.at(0) is pin
