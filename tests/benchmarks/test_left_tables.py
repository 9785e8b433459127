"""Trees whose creation or whose process fails leave no table on HBase."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from benchmarks.harness import Harness
from benchmarks.registry import ENTRIES, Entry
from benchmarks.results import Run
from benchmarks.scenarios import footprint
from benchmarks.sizes import TINY
from benchmarks.system import Properties
from benchmarks.systems.hbasemk import DistributedHbasemk
from tests.support.benchmarks import tables
from tests.support.hbase import HBase

pytestmark = pytest.mark.integration


class Killed(DistributedHbasemk):
    """hbasemk, whose process is killed when it adds nodes."""

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def place(hbase: HBase, monkeypatch: pytest.MonkeyPatch) -> str:
    if hbase.thrift1 is None:
        pytest.skip("no Thrift1 gateway: set HBASEMK_TEST_HBASE_THRIFT1=host:port")
    monkeypatch.setenv("HBASEMK_BENCH_THRIFT1", f"{hbase.host}:{hbase.thrift1}")
    return f"{hbase.host}:{hbase.thrift2}/{hbase.new_prefix()}"


def then(error: type[BaseException]) -> Callable[[Any], Callable[..., None]]:
    """Return a wrapper of a call that fails after it."""

    def wrap(call: Callable[..., object]) -> Callable[..., None]:
        def called(*arguments: Any, **options: Any) -> None:
            call(*arguments, **options)
            raise error("on purpose")

        return called

    return wrap


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize(
    ("key", "owner", "method"),
    [
        ("hbasemk", "hbasemk.store.hbase.store:HBaseStore", "create_tables"),
        ("baseline", "hbasemk.store.hbase.store:HBaseStore", "create_tables"),
        ("published_2013", "hbasemk.store.hbase.store:HBaseStore", "create_tables"),
        ("published_2013_happybase", "benchmarks.peers.published_2013_cells:Thrift1Cells", "create"),
    ],
)
def test_a_creation_that_fails_after_its_tables_leaves_none(
    key: str,
    owner: str,
    method: str,
    error: type[BaseException],
    place: str,
    hbase: HBase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (entry,) = (one for one in ENTRIES if (one.store, one.key) == ("hbase", key))
    entry.load()
    module, _, name = owner.partition(":")
    found = getattr(import_module(module), name)
    monkeypatch.setattr(found, method, then(error)(getattr(found, method)))
    with pytest.raises(error):
        entry.create(place)
    assert tables(hbase, place.partition("/")[2]) == []


def test_a_worker_that_is_killed_leaves_no_table(place: str, hbase: HBase) -> None:
    run = Run("r", "hbase", {})
    entry = Entry("hbasemk", "hbase", "hbasemk", f"{__name__}:Killed")
    with Harness(run, [entry], place, TINY) as harness:
        footprint.memory(harness)
    assert [(result.operation, result.failed) for result in run.results] == [("memory after 60 nodes", True)]
    assert tables(hbase, place.partition("/")[2]) == []
