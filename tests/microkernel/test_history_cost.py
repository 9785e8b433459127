"""``get_revision_history`` and the log read about as many rows of the journal as they return entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice

import pytest

from hbasemk import MicroKernel
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Instances

COMMITS = 120


@pytest.fixture
def counting(new_store: Callable[[], Store], opened: Instances) -> tuple[CountingStore, MicroKernel, list[str]]:
    """A counting store, a MicroKernel on it that has polled, and the revisions that another one committed."""
    writer = MicroKernel(opened())
    ids = [writer.commit("", '+"/a":{}'), *(writer.commit("/a", f'^"p":{number}') for number in range(COMMITS))]
    store = CountingStore(new_store())
    reader = opened(store)
    reader.refresh()
    return store, MicroKernel(reader), ids


def test_a_history_with_a_limit_reads_about_what_it_returns(
    counting: tuple[CountingStore, MicroKernel, list[str]],
) -> None:
    store, mk, ids = counting
    begin = json.loads(mk.get_revision_history(0, -1, "/a"))[0]["ts"]
    for limit, most in ((0, 0), (1, 2), (5, 10), (20, 40)):
        store.traffic()
        found = [entry["id"] for entry in json.loads(mk.get_revision_history(begin, limit, "/a"))]
        traffic = store.traffic()
        assert found == ids[:limit]
        assert traffic.rows_read <= most, limit
        assert traffic.calls <= 1, limit


def test_the_first_entries_of_a_log_do_not_read_all_rows(
    counting: tuple[CountingStore, MicroKernel, list[str]],
) -> None:
    store, mk, ids = counting
    store.traffic()
    assert [entry.revision for entry in islice(mk.repository.log(), 5)] == ids[:-6:-1]
    assert store.traffic().rows_read <= 40
