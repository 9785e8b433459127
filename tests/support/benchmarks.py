"""The contract of systems under test: a test class with one subclass for each system."""

from __future__ import annotations

import math
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import ClassVar

import pytest

from benchmarks.harness import Harness
from benchmarks.system import System
from benchmarks.systems.hbasemk import DistributedHbasemk, EmbeddedHbasemk
from hbasemk.repository import instance_of
from tests.support.hbase import HBase
from tests.support.repositories import damage

PROCESSES, INCREMENTS = 2, 40


def load(target: str) -> type[System]:
    """Import the class at ``module:Class``. Skips the test if a required package is not installed."""
    module, _, name = target.partition(":")
    try:
        found: type[System] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    return found


def damage_in(system: System) -> list[str]:
    """Return the findings of the integrity check on hbasemk's tree; none for other systems."""
    return damage(system.address()) if isinstance(system, (EmbeddedHbasemk, DistributedHbasemk)) else []


@pytest.fixture
def checked_trees(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check the trees of all scenarios before the harness removes them."""
    found: list[str] = []
    drop = Harness.drop

    def check_and_drop(harness: Harness, name: str) -> None:
        for contender in harness._trees.get(name, ()):
            found.extend(damage_in(contender.system))
        drop(harness, name)

    monkeypatch.setattr(Harness, "drop", check_and_drop)
    yield
    assert not found, "\n".join(found)


def increment(target: str, address: str, times: int) -> int:
    """Increment in a worker process. Returns the number of retries."""
    system = load(target).join(address)
    try:
        for _ in range(times):
            system.increment("/shared", "count")
        return system.retries
    finally:
        system.close()


def adjust(target: str, address: str, times: int) -> None:
    """Adjust in a worker process."""
    system = load(target).join(address)
    try:
        for _ in range(times):
            system.adjust("/shared", "count", 1)
    finally:
        system.close()


def add_siblings(target: str, address: str, names: list[str]) -> None:
    """Add siblings in a worker process."""
    system = load(target).join(address)
    try:
        for name in names:
            system.add([(f"/shared/{name}", {"by": name})])
    finally:
        system.close()


def stop_polls(system: System) -> None:
    """Let hbasemk see the changes of others only when it is asked to: a background poll may come at any moment."""
    if isinstance(system, (DistributedHbasemk, EmbeddedHbasemk)):
        instance = instance_of(system.repository)
        assert instance._background is not None
        instance._background.stop(60)
        instance.max_poll_age = math.inf


class SystemContract:
    """The tests. A subclass provides the fixture ``place``, and the class variables describe the system."""

    target: ClassVar[str]
    multiprocess: ClassVar[bool] = True
    supports_history: ClassVar[bool] = True
    supports_diff: ClassVar[bool] = True
    adjusts: ClassVar[bool] = True

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def system(self, place: str) -> Iterator[System]:
        made = load(self.target).create(place)
        yield made
        found = damage_in(made)
        assert not found, "\n".join(found)
        made.close()

    def test_added_nodes_are_read_with_their_properties(self, system: System) -> None:
        system.add([("/a", {"title": "Trees", "count": 3}), ("/a/b", {"deep": "yes"}), ("/a/b/c", {})])
        system.add([("/a/d", {"late": -(2**70)})])
        for _ in range(2):
            assert dict(system.read("/a") or {}) == {"title": "Trees", "count": 3}
            assert dict(system.read("/a/b") or {}) == {"deep": "yes"}
            assert system.read("/a/b/c") == {}
            assert dict(system.read("/a/d") or {}) == {"late": -(2**70)}
            assert system.read("/a/nothing") is None
            assert system.read("/nothing/at/all") is None
            system.clear_caches()

    def test_a_set_property_keeps_its_value(self, system: System) -> None:
        system.add([("/a", {"value": 1, "other": "kept"})])
        system.set("/a", "value", "changed")
        system.set("/a", "new", 7)
        system.increment("/a", "new")
        system.clear_caches()
        assert dict(system.read("/a") or {}) == {"value": "changed", "other": "kept", "new": 8}

    def test_adjusts_add_up(self, system: System) -> None:
        system.add([("/a", {})])
        if not self.adjusts:
            with pytest.raises(NotImplementedError):
                system.adjust("/a", "count", 1)
            return
        system.adjust("/a", "count", 5)
        system.adjust("/a", "count", -2)
        system.adjust("/a", "other", 7)
        system.clear_caches()
        assert (system.counter("/a", "count"), system.counter("/a", "other")) == (3, 7)

    def test_invalid_changes_are_rejected_and_change_nothing(self, system: System) -> None:
        system.add([("/a", {"value": 1})])
        with pytest.raises((KeyError, ValueError)):
            system.add([("/b", {}), ("/a", {"value": 2})])
        with pytest.raises(KeyError):
            system.add([("/nothing/child", {})])
        with pytest.raises(KeyError):
            system.set("/nothing", "value", 2)
        assert system.read("/b") is None
        assert dict(system.read("/a") or {}) == {"value": 1}
        system.add([("/b", {})])
        assert system.read("/b") == {}

    def test_children_are_sorted_and_paged(self, system: System) -> None:
        names = [f"n{number:03}" for number in range(120)]
        system.add([("/folder", {})])
        system.add([(f"/folder/{name}", {}) for name in reversed(names)])
        system.add([("/folder/n0405", {})])
        names.insert(41, "n0405")
        found: list[str] = []
        while page := system.children("/folder", found[-1] if found else None, 50):
            assert len(page) <= 50
            found += page
        assert found == names
        assert system.children("/folder", "n0401", 2) == ["n0405", "n041"]
        assert system.children("/folder/n000", None, 5) == []

    def test_a_subtree_has_all_descendants(self, system: System) -> None:
        system.add([("/a", {}), ("/ab", {"x": 1})])
        system.add([(f"/a/{i}", {"i": i}) for i in range(30)])
        system.add([(f"/a/{i}/{k}", {"k": k}) for i in range(3) for k in range(20)])
        for _ in range(2):
            assert system.subtree("/a") == 90
            assert system.subtree("/a/1") == 20
            assert system.subtree("/ab") == 0
            assert system.subtree("/") == 92
            system.clear_caches()

    def test_another_connection_sees_commits(self, system: System) -> None:
        system.add([("/a", {"value": 1})])
        if not self.multiprocess:
            with pytest.raises(NotImplementedError):
                type(system).join(system.address())
            return
        other = type(system).join(system.address())
        try:
            assert dict(other.read("/a") or {}) == {"value": 1}
            system.set("/a", "value", 2)
            other.refresh()
            assert dict(other.read("/a") or {}) == {"value": 2}
            other.add([("/a/b", {})])
            system.refresh()
            assert system.read("/a/b") == {}
        finally:
            other.close()

    def test_a_conflicting_change_is_retried_and_counted(self, system: System) -> None:
        if not self.multiprocess:
            pytest.skip("one process at a time")
        system.add([("/a", {"value": 1})])
        other = type(system).join(system.address())
        try:
            system.refresh()
            stop_polls(system)
            other.increment("/a", "value")
            assert (other.retries, system.retries) == (0, 0)
            system.increment("/a", "value")
            assert (other.retries, system.retries) == (0, 1)
            assert dict(system.read("/a") or {}) == {"value": 3}
        finally:
            other.close()

    def test_concurrent_increments_are_not_lost(self, system: System) -> None:
        if not self.multiprocess:
            pytest.skip("one process at a time")
        system.add([("/shared", {"count": 0})])
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            jobs = [pool.submit(increment, self.target, system.address(), INCREMENTS) for _ in range(PROCESSES)]
            for _ in range(INCREMENTS):
                system.increment("/shared", "count")
            for job in jobs:
                job.result(timeout=120)
        system.refresh()
        assert dict(system.read("/shared") or {}) == {"count": INCREMENTS * (PROCESSES + 1)}

    def test_concurrent_adjusts_are_not_lost(self, system: System) -> None:
        if not self.multiprocess or not self.adjusts:
            pytest.skip("one process at a time, or no adjusts")
        system.add([("/shared", {})])
        system.adjust("/shared", "count", 1)
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            jobs = [pool.submit(adjust, self.target, system.address(), INCREMENTS) for _ in range(PROCESSES)]
            for job in jobs:
                job.result(timeout=120)
        system.refresh()
        assert system.counter("/shared", "count") == 1 + INCREMENTS * PROCESSES

    def test_siblings_of_several_processes_all_exist(self, system: System) -> None:
        if not self.multiprocess:
            pytest.skip("one process at a time")
        system.add([("/shared", {})])
        given = [[f"p{process}-{number:02}" for number in range(INCREMENTS)] for process in range(PROCESSES)]
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            for job in [pool.submit(add_siblings, self.target, system.address(), names) for names in given]:
                job.result(timeout=120)
        system.refresh()
        assert system.children("/shared", None, 1000) == sorted(name for names in given for name in names)
        assert system.subtree("/shared") == PROCESSES * INCREMENTS
        assert dict(system.read("/shared/p1-07") or {}) == {"by": "p1-07"}

    def test_old_states_can_be_read(self, system: System) -> None:
        system.add([("/a", {"value": 1})])
        if not self.supports_history:
            with pytest.raises(NotImplementedError):
                system.mark()
            return
        mark = system.mark()
        for value in range(5):
            system.set("/a", "value", f"later {value}")
        system.add([("/b", {})])
        assert dict(system.read_at(mark, "/a") or {}) == {"value": 1}
        assert system.read_at(mark, "/b") is None
        assert dict(system.read("/a") or {}) == {"value": "later 4"}
        assert dict(system.read_at(system.mark(), "/a") or {}) == {"value": "later 4"}

    def test_changes_since_a_mark_are_counted(self, system: System) -> None:
        system.add([(f"/n{number}", {"value": number}) for number in range(20)])
        if not self.supports_diff:
            mark = system.mark() if self.supports_history else None
            with pytest.raises(NotImplementedError):
                system.changed(mark)
            return
        mark = system.mark()
        assert system.changed(mark) == 0
        for number in range(0, 20, 4):
            system.set(f"/n{number}", "value", "changed")
        system.set("/n0", "value", "changed again")
        system.set("/n1", "value", "there")
        system.set("/n1", "value", 1)  # and back
        assert system.changed(mark) == 5

    def test_size_grows_with_the_content(self, system: System) -> None:
        before = system.size()
        system.add([(f"/n{number}", {"text": f"{number:0500}"}) for number in range(100)])
        assert system.size() > before + 100 * 500

    def test_nothing_runs_after_close(self, place: str) -> None:
        me = pytest.importorskip("psutil").Process()
        threads, children = set(threading.enumerate()), me.children(recursive=True)
        system = load(self.target).create(place)
        system.add([("/a", {})])
        assert damage_in(system) == []
        if self.multiprocess:
            other = type(system).join(system.address())
            assert other.read("/a") == {}
            other.close()
        system.close()
        assert set(threading.enumerate()) == threads
        assert me.children(recursive=True) == children


def tables(hbase: HBase, prefix: str) -> list[str]:
    """Return the names of tables with a prefix, from the Thrift1 gateway."""
    happybase = pytest.importorskip("happybase")
    connection = happybase.Connection(hbase.host, hbase.thrift1)
    try:
        return [name.decode() for name in connection.tables() if name.decode().startswith(prefix)]
    finally:
        connection.close()
