"""Opening a repository rejects invalid numbers; the error names the option."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from hbasemk import InvalidValueError, Repository, connect
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore

NO_TIMES = [-1, -0.001, math.nan, math.inf, -math.inf, 1e300, 10**400, "1", None, True]
NO_COUNTS = [-1, 0.5, math.nan, "1", None, True]


@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_an_interval_of_polls_is_a_time(value: Any) -> None:
    before = set(threading.enumerate())
    with pytest.raises(InvalidValueError, match="poll_interval"):
        connect("memory://", poll_interval=value)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("value", [value for value in NO_TIMES if value not in (math.inf, 1e300, 10**400)], ids=repr)
def test_a_retry_timeout_is_a_time_and_can_be_endless(value: Any, url: str) -> None:
    with pytest.raises(InvalidValueError, match="retry_timeout"):
        connect("memory://", retry_timeout=value)
    with connect(url, poll_interval=0, retry_timeout=math.inf) as repo:
        repo.run(lambda tx: tx.add("/a"))


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_cache_bytes_are_a_number(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="cache_bytes"):
        Repository(MemoryStore(), cache_bytes=value)


@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_a_busy_timeout_is_a_time(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="busy_timeout"):
        SqliteStore(str(tmp_path / "content.db"), busy_timeout=value)


@pytest.mark.parametrize("value", [*NO_TIMES, 0], ids=repr)
@pytest.mark.parametrize("name", ["timeout", "connect_timeout"])
def test_the_timeouts_of_hbase_are_required_times(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=name):
        HBaseStore([Address("127.0.0.1", 1)], **{name: value})


@pytest.mark.parametrize(
    "query",
    [
        "poll_interval=inf",
        "poll_interval=nan",
        "poll_interval=-1",
        "retry_timeout=-1",
        "cache_bytes=-1",
        "busy_timeout=nan",
        "busy_timeout=inf",
        "busy_timeout=-1",
    ],
)
def test_options_in_the_url_are_validated_too(query: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=query.partition("=")[0]):
        connect(f"sqlite:///{tmp_path / 'content.db'}?{query}")
    assert not (tmp_path / "content.db").exists()


def test_zero_is_a_number(url: str) -> None:
    with connect(f"{url}?poll_interval=0&retry_timeout=0&cache_bytes=0&busy_timeout=0") as repo:
        repo.run(lambda tx: tx.add("/a"))
        assert "/a" in repo.head
