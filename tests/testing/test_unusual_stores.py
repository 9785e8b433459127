"""The conformance suite accepts correct stores, also those that differ from the stores of hbasemk."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.store.memory import MemoryStore
from tests.support.conformance import run_test
from tests.support.unusual_stores import ClockAhead, OtherWords, SmallLimits, StampsOneLater

ACCEPTED: list[tuple[type[MemoryStore], str, dict[str, Any]]] = [
    (SmallLimits, "a_store_reports_its_location_and_limits", {}),
    (SmallLimits, "a_value_may_be_large", {}),
    (SmallLimits, "values_and_keys_at_the_limits_are_accepted", {}),
    (SmallLimits, "a_cell_that_is_too_large_with_its_key_is_rejected", {}),
    (SmallLimits, "a_limit_is_checked_before_anything_is_written", {"count": 1}),
    (SmallLimits, "a_limit_is_checked_before_anything_is_written", {"count": 40}),
    (ClockAhead, "a_cell_without_timestamp_gets_the_servers_time", {"how": "write"}),
    (ClockAhead, "a_cell_without_timestamp_gets_the_servers_time", {"how": "check_and_write"}),
    (ClockAhead, "the_server_stamps_cells_with_the_clock_of_the_store", {}),
    (StampsOneLater, "a_set_with_the_servers_time_is_never_older_than_the_checked_cell", {}),
    (OtherWords, "a_limit_or_an_unknown_family_writes_nothing", {}),
    (OtherWords, "an_unknown_family_of_them_is_rejected", {"count": 1}),
    (OtherWords, "a_call_with_an_unknown_family_is_rejected", {}),
]


@pytest.mark.parametrize(("store", "test", "arguments"), ACCEPTED, ids=lambda one: getattr(one, "__name__", None))
def test_the_suite_accepts_a_correct_store(store: type[MemoryStore], test: str, arguments: dict[str, Any]) -> None:
    run_test(store(), f"test_{test}", **arguments)
