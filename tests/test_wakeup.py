"""Bells: they ring while a thread may wait for them, and disappear with it."""

from __future__ import annotations

import threading

from hbasemk.system import SystemRuntime
from hbasemk.wakeup import LONGEST, Bell, Bells, Flag


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


def test_a_bell_that_nothing_refers_to_leaves_no_entry() -> None:
    bells = Bells()
    # The bells that are kept take the addresses of those that were dropped.
    kept: list[Bell] = []
    for _ in range(50):
        bells.new_bell()
        kept.append(Bell())
    held = bells.new_bell()
    assert list(bells._bells) == [held]
    assert len(bells._bells) == 1


def test_a_sleep_leaves_no_entry() -> None:
    runtime = SystemRuntime()
    kept: list[Bell] = []
    for _ in range(50):
        runtime.sleep(0)
        kept.append(Bell())
    assert not runtime._closing._bells._bells


def test_a_raised_flag_ends_all_waits_while_other_waits_begin_and_end() -> None:
    flag = Flag()
    begun = [threading.Event() for _ in range(4)]

    def wait(number: int) -> None:
        for _ in range(200):
            flag.wait(0)
        begun[number].set()
        flag.wait(LONGEST)

    threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(len(begun))]
    for thread in threads:
        thread.start()
    while not all(one.is_set() for one in begun):
        # Ringing without raising: a wait may end early, but its bell is dropped.
        flag._bells.ring()
    flag.raise_()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not flag._bells._bells
