"""Bells: they ring while a thread may wait for them, and disappear with it."""

from __future__ import annotations

from hbasemk.wakeup import Bells


def test_bells_are_awaited_while_a_thread_holds_one() -> None:
    bells = Bells()
    assert not bells.are_awaited()
    one, other = bells.new_bell(), bells.new_bell()
    assert bells.are_awaited()
    del one
    assert bells.are_awaited()
    del other
    assert not bells.are_awaited()
    bells.ring()
    assert not bells.are_awaited()


def test_a_ring_ends_the_waits_of_all() -> None:
    bells = Bells()
    one, other = bells.new_bell(), bells.new_bell()
    bells.ring()
    bells.ring()
    assert one.wait(0)
    assert other.wait(0)
    assert not one.wait(0)
