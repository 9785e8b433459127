"""A repository is not created with settings with which nobody could use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hbasemk import InvalidValueError, Settings, connect
from hbasemk.cli.changing import init
from hbasemk.kernel import revision, schema
from hbasemk.kernel import settings as kernel_settings
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import START_MS, World, open_instance

IMPOSSIBLE: list[tuple[str, Any]] = [
    (name, value)
    for name, least in (("lease_ms", 1000), ("max_clock_skew_ms", 100), ("max_lag_ms", 100))
    for value in (-1, 0, least - 1, 1e4, 10**30, "5000", None, True)
]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_times_that_no_repository_can_live_with_are_refused_and_nothing_is_made(
    name: str, value: Any, tmp_path: Path
) -> None:
    path = tmp_path / "content.db"
    with pytest.raises(InvalidValueError, match=name):
        connect(f"sqlite:///{path}", settings=Settings(**{name: value}))
    assert not path.exists()


def test_the_shortest_times_are_those_of_the_command_line_and_can_be_used(store: MemoryStore, world: World) -> None:
    shortest = {
        "max_clock_skew": kernel_settings.SHORTEST_SKEW_MS,
        "max_lag": kernel_settings.SHORTEST_LAG_MS,
        "lease": kernel_settings.SHORTEST_LEASE_MS,
    }
    assert {one.name: one.type.min for one in init.params if one.name in shortest} == shortest  # type: ignore[attr-defined]
    settings = Settings(**{f"{name}_ms": value for name, value in shortest.items()})
    instance = open_instance(store, world, settings)
    assert instance.settings.lease_ms == 1000


@pytest.mark.parametrize(
    "epoch_ms", [START_MS + 1, START_MS + 10**12, START_MS - revision.MAX_MS - 1, -(10**15)], ids=str
)
def test_an_epoch_that_leaves_no_ids_is_told_as_such_and_another_one_can_be_taken(
    store: MemoryStore, world: World, epoch_ms: int
) -> None:
    with pytest.raises(InvalidValueError, match=r"the epoch must lie in the past, at most 17\.4 years ago"):
        open_instance(store, world, Settings(epoch_ms=epoch_ms))
    assert open_instance(store, world, Settings(epoch_ms=START_MS)).settings.epoch_ms == START_MS


@pytest.mark.parametrize("epoch_ms", [1.4e12, "2013", None], ids=repr)
def test_an_epoch_is_a_whole_number(store: MemoryStore, world: World, epoch_ms: Any) -> None:
    with pytest.raises(InvalidValueError, match="epoch_ms"):
        open_instance(store, world, Settings(epoch_ms=epoch_ms))


def test_the_oldest_epoch_that_is_possible_can_be_taken(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, Settings(epoch_ms=START_MS - revision.MAX_MS))
    assert revision.ms_of(instance.settings.root_revision) == revision.MAX_MS


def test_settings_that_hold_are_read_whatever_is_allowed_now(store: MemoryStore, world: World) -> None:
    first = open_instance(store, world).settings.root_revision
    kept = Settings(lease_ms=50, max_clock_skew_ms=50, root_revision=first)
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, kept.encode())])])
    assert open_instance(store, world).settings == kept
