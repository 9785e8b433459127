"""How soon background polling looks for news again."""

from __future__ import annotations

from typing import Any

from hbasemk.pace import (
    LONGEST_COSTLY_GAP,
    LONGEST_GAP,
    LONGEST_REST,
    SHORTEST_GAP,
    SHORTEST_POLL_GAP,
    Pace,
    rest,
)

QUICK: dict[str, Any] = {"awaited": False, "busy": 0.0, "took": 0.0}


def test_a_slow_poll_rests_for_a_limited_time() -> None:
    assert rest(0.2, 19) == LONGEST_REST
    assert rest(0.2, 0.001) == 0.2
    assert rest(3, 19) == 3


def test_comparisons_become_rarer_after_the_last_news() -> None:
    pace = Pace(100.0, 0.2)
    gaps = [pace.after_comparison(100.0 + seconds, 0.0) for seconds in (0.0, 0.05, 0.5, 10.0)]
    assert gaps == [SHORTEST_GAP, SHORTEST_GAP, 0.01, LONGEST_GAP]
    pace.after_poll(110.0, found=True, **QUICK)
    assert pace.after_comparison(110.1, 0.0) == SHORTEST_GAP


def test_a_change_without_a_revision_does_not_make_comparisons_more_frequent() -> None:
    # Each renewal of the instance's own lease did, so that an idle process took a third more of a processor.
    pace = Pace(100.0, 0.2)
    pace.after_poll(110.0, found=False, **QUICK)
    assert pace.after_comparison(110.1, 0.0) == LONGEST_GAP


def test_an_idle_thread_takes_less_than_one_percent_of_a_processor() -> None:
    pace = Pace(100.0, 0.2)
    gaps = [pace.after_comparison(1000.0, 0.0002) for _ in range(100)]
    assert gaps[0] == LONGEST_GAP
    assert 0.0002 / gaps[-1] < 0.01
    for _ in range(100):
        pace.after_comparison(1000.0, 0.002)
    assert pace.after_comparison(1000.0, 0.002) == LONGEST_COSTLY_GAP
    pace.after_poll(1000.0, found=True, **QUICK)
    assert pace.after_comparison(1000.0, 0.002) == SHORTEST_GAP


def test_polls_that_find_nothing_become_rarer_up_to_the_interval() -> None:
    pace = Pace(100.0, 0.2)
    pauses = [pace.after_poll(100.0, found=False, **QUICK) for _ in range(8)]
    assert pauses == [0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.2, 0.2]
    assert pace.after_poll(100.0, found=True, **QUICK) == SHORTEST_GAP


def test_a_poll_that_used_a_processor_pauses_longer_but_less_if_a_thread_waits() -> None:
    pace = Pace(100.0, 10.0)
    assert pace.after_poll(100.0, found=True, awaited=False, busy=0.001, took=0.001) == 0.1
    assert pace.after_poll(100.0, found=True, awaited=True, busy=0.001, took=0.001) == 0.025
    assert pace.after_poll(100.0, found=True, awaited=False, busy=19.0, took=19.0) == 10.0


def test_polls_without_a_counter_are_frequent_after_news() -> None:
    pace = Pace(100.0, 0.2)
    quiet = [pace.after_poll_without_counter(100.0 + seconds, found=False, **QUICK) for seconds in (0.0, 0.2)]
    assert quiet == [0.2, 0.2]
    pauses = [
        pace.after_poll_without_counter(101.0 + seconds, found=not seconds, **QUICK)
        for seconds in (0.0, 0.2, 1.0, 60.0)
    ]
    assert pauses == [SHORTEST_POLL_GAP, SHORTEST_POLL_GAP, 0.05, 0.2]


def test_polls_without_a_counter_take_a_limited_share_of_the_processor_and_of_the_time() -> None:
    pace = Pace(100.0, 0.2)
    assert pace.after_poll_without_counter(100.0, found=True, awaited=False, busy=0.001, took=0.001) == 0.05
    assert pace.after_poll_without_counter(100.0, found=True, awaited=True, busy=0.001, took=0.001) == 0.025
    assert pace.after_poll_without_counter(100.0, found=True, awaited=False, busy=0.001, took=0.02) == 0.1
    assert pace.after_poll_without_counter(100.0, found=True, awaited=True, busy=1.0, took=9.0) == LONGEST_REST
