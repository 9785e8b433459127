"""MicroKernels over each store, one instance or two on the same one."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbasemk import MicroKernel, Repository
from hbasemk.store.abc import Store
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.collecting import set_grace
from tests.support.hbase import HBase
from tests.support.microkernel import Cluster
from tests.support.proof import LONG, PROOF
from tests.support.repositories import Instances, instances

PROVEN = 4
"""The cases of each test function on HBase that the proof runs. All of them run in memory and on SQLite in each test run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one case of each test function on HBase, with two instances, in the sample.

    The proof runs some more of each function, and the long proof the others. Coverage is measured in memory only: on the
    other stores these tests run the same lines of the MicroKernel.
    """
    sampled: set[str] = set()
    proven: Counter[str] = Counter()
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if {"sqlite", "hbase"}.intersection(re.split(r"[\[\]-]", item.name)):
            item.add_marker("no_cover")
        if not item.get_closest_marker("integration"):
            continue
        function = item.nodeid.partition("[")[0]
        if function not in sampled and "one instance" not in item.nodeid:
            sampled.add(function)
            continue
        proven[function] += 1
        for mark in (PROOF,) if proven[function] <= PROVEN else LONG:
            item.add_marker(mark)


@pytest.fixture(params=["memory", "sqlite", pytest.param("hbase", marks=pytest.mark.integration)])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one more handle on the store under test."""
    if request.param == "memory":
        shared = MemoryStore()
        return lambda: copy.copy(shared)
    if request.param == "sqlite":
        return lambda: SqliteStore(str(tmp_path / "content.db"))
    server: HBase = request.getfixturevalue("hbase")
    prefix = server.prefix_with_tables()
    return lambda: HBaseStore([Address(server.host, server.thrift2)], prefix=prefix)


@pytest.fixture
def opened(new_store: Callable[[], Store]) -> Iterator[Instances]:
    """Opens instances on one repository; the integrity check runs at the end."""
    with instances(new_store) as made:
        yield made


@pytest.fixture(params=["same MicroKernel", "another one"])
def writer_and_reader(
    request: pytest.FixtureRequest, new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MicroKernel, MicroKernel]]:
    """A MicroKernel whose revisions can be collected at once, and one that reads: the same, or one of another instance."""
    set_grace(monkeypatch, 0.0)
    with Repository(new_store(), poll_interval=0) as repo, Repository(new_store(), poll_interval=0) as other:
        writer = MicroKernel(repo)
        yield writer, writer if request.param == "same MicroKernel" else MicroKernel(other)


@pytest.fixture(params=[1, 2], ids=["one instance", "two instances"])
def mk(request: pytest.FixtureRequest, opened: Instances) -> Cluster:
    """MicroKernels on a repository that holds only ``/test``."""
    cluster = Cluster(opened, request.param)
    cluster.commit(
        "/",
        '+"test":{"stringProp":"stringVal","intProp":42,"floatProp":42.2,"booleanProp":true,"multiIntProp":[1,2,3]}',
        None,
        "",
    )
    return cluster
