"""MicroKernels over each store, one instance or two on the same one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbasemk import MicroKernel
from hbasemk.store.abc import Store
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.hbase import HBase
from tests.support.proof import PROOF
from tests.support.repositories import Instances, instances


class Cluster:
    """One or two MicroKernels. Calls go to them in turn, each after a poll, like those of a cluster's clients."""

    def __init__(self, opened: Instances, count: int) -> None:
        self.kernels = [MicroKernel(opened()) for _ in range(count)]
        self._turn = 0

    @property
    def next(self) -> MicroKernel:
        """The next MicroKernel in turn, after a poll."""
        self._turn += 1
        kernel = self.kernels[self._turn % len(self.kernels)]
        kernel.repository.refresh()
        return kernel

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self.next, name)  # type: ignore[no-any-return]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one case of each test function on HBase, with two instances, in the sample; the proof runs the others."""
    met = set()
    for item in items:
        if not item.get_closest_marker("integration") or Path(__file__).parent not in item.path.parents:
            continue
        function = item.nodeid.partition("[")[0]
        if function in met or "one instance" in item.nodeid:
            item.add_marker(PROOF)
        else:
            met.add(function)


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
