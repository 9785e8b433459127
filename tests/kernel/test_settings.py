"""A repository is not created with unusable settings."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hbasemk import InvalidValueError, Settings, connect
from hbasemk.cli.edit import init
from hbasemk.format import revisions, schema
from hbasemk.format.limits import shown
from hbasemk.kernel import settings as kernel_settings
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import START_MS, World, open_instance

IMPOSSIBLE: list[tuple[str, Any]] = [
    (name, value)
    for name, least in (("lease_ms", 1000), ("max_clock_skew_ms", 100))
    for value in (-1, 0, least - 1, 1e4, 10**30, "5000", None, True)
]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_unusable_times_are_rejected_and_nothing_is_created(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "content.db"
    with pytest.raises(InvalidValueError, match=name):
        connect(f"sqlite:///{path}", settings=Settings(**{name: value}))
    assert not path.exists()


def test_shortest_times_match_the_command_line_and_work(store: MemoryStore, world: World) -> None:
    shortest = {
        "max_clock_skew": kernel_settings.SHORTEST_SKEW_MS,
        "lease": kernel_settings.SHORTEST_LEASE_MS,
    }
    assert {one.name: one.type.min for one in init.params if one.name in shortest} == shortest  # type: ignore[attr-defined]
    settings = Settings(**{f"{name}_ms": value for name, value in shortest.items()})
    instance = open_instance(store, world, settings)
    assert instance.settings.lease_ms == 1000


YEAR_MS = 365 * 24 * 3600 * 1000
EARLIEST = START_MS + YEAR_MS - revisions.MAX_MS


@pytest.mark.parametrize(
    ("epoch_ms", "said"),
    [
        (START_MS + 1, "lies in the future"),
        (START_MS + 10**12, "lies in the future"),
        (EARLIEST - 1, r"leaves revision ids until 2028-01-15 only"),
        (START_MS - revisions.MAX_MS, r"leaves revision ids until 2027-01-15 only"),
        (START_MS - revisions.MAX_MS - 1, "leaves revision ids until"),
        (-(10**15), "leaves revision ids until"),
        (10**18, "lies in the future"),
        (-(10**18), "leaves revision ids until"),
    ],
    ids=str,
)
def test_epoch_with_less_than_a_year_of_ids_is_rejected_and_another_works(
    store: MemoryStore, world: World, epoch_ms: int, said: str
) -> None:
    with pytest.raises(InvalidValueError, match=said) as caught:
        open_instance(store, world, Settings(epoch_ms=epoch_ms))
    assert f"epoch_ms {epoch_ms} " in str(caught.value)
    assert f"(epoch_ms {EARLIEST} to {START_MS})" in str(caught.value)
    assert "choose an epoch from 2010-08-15 to 2027-01-15" in str(caught.value)
    assert open_instance(store, world, Settings(epoch_ms=START_MS)).settings.epoch_ms == START_MS


@pytest.mark.parametrize("ahead", [-540_000_000_000, 86_400_000])
def test_an_impossible_epoch_leaves_no_file(tmp_path: Path, ahead: int) -> None:
    epoch_ms = time.time_ns() // 1_000_000 + ahead
    with pytest.raises(InvalidValueError, match="The repository was not created"):
        connect(f"sqlite:///{tmp_path}/content.db", settings=Settings(epoch_ms=epoch_ms))
    assert list(tmp_path.iterdir()) == []


def test_connect_rejects_an_epoch_that_lasts_only_days(tmp_path: Path) -> None:
    ten_days_left = int(time.time() * 1000) + 10 * 24 * 3600 * 1000 - revisions.MAX_MS
    with pytest.raises(InvalidValueError, match="at least a year"):
        connect(f"sqlite:///{tmp_path}/content.db", settings=Settings(epoch_ms=ten_days_left))


def test_end_of_ids_is_available(store: MemoryStore, world: World) -> None:
    settings = Settings()
    assert settings.ids_end_ms == revisions.DEFAULT_EPOCH_MS + revisions.MAX_MS
    assert datetime.fromtimestamp(settings.ids_end_ms / 1000, timezone.utc).strftime("%Y-%m") == "2030-06"
    assert kernel_settings.possible_epochs_ms(START_MS) == (EARLIEST, START_MS)
    instance = open_instance(store, world)
    assert instance.settings.ids_end_ms == settings.ids_end_ms


@pytest.mark.parametrize("epoch_ms", [1.4e12, "2013", None, True, 10**30, -(10**30), 10**5000], ids=shown)
def test_an_epoch_is_an_int_of_a_sensible_size(store: MemoryStore, world: World, epoch_ms: Any) -> None:
    with pytest.raises(InvalidValueError, match="epoch_ms"):
        open_instance(store, world, Settings(epoch_ms=epoch_ms))


def test_oldest_possible_epoch_works(store: MemoryStore, world: World) -> None:
    instance = open_instance(store, world, Settings(epoch_ms=EARLIEST))
    assert revisions.ms_of(instance.settings.root_revision) == revisions.MAX_MS - YEAR_MS


def test_stored_settings_are_read_though_new_ones_must_differ(store: MemoryStore, world: World) -> None:
    first = open_instance(store, world).settings.root_revision
    kept = Settings(lease_ms=50, max_clock_skew_ms=50, root_revision=first)
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, kept.encode())])])
    assert open_instance(store, world).settings == kept
