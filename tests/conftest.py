"""What all tests share: the HBase of the run, started by the first test that asks for it."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.hbase import HBase, missing, running
from tests.support.quick_processes import get_context
from tests.support.repositories import Checked, Instances, instances, judge
from tests.support.runtime import World

_NONE = pytest.StashKey[str]()
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_SHARED = frozenset({"shown", "wide"})
"""Fixtures of a class or module that take long: one process runs all tests of that class or module that use them."""


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs so, and every process that a test starts would inherit it and ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reason = missing()
    if reason is not None:
        config.stash[_NONE] = reason


def pytest_report_header(config: pytest.Config) -> str:
    reason = config.stash.get(_NONE, None)
    if reason is None:
        return f"hbase: {os.environ.get('HBASEMK_TEST_HBASE', 'in a container of this run')}"
    return f"hbase: none, tests marked 'integration' are skipped ({reason})"


@pytest.hookimpl(tryfirst=True)  # before pytest-cov begins
def pytest_sessionstart(session: pytest.Session) -> None:
    """Stop the first of the two measurements that pytest-cov begins in a process of pytest-xdist; it reports only the second.

    A pause of the second one would resume the first, and save no time.
    """
    first = getattr(session.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if first is not None and hasattr(session.config, "workerinput"):
        first.cov.stop()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reason = config.stash.get(_NONE, None)
    for item in items:
        if item.get_closest_marker("integration"):
            # They share one HBase, and mostly wait for it: two processes run them. One of them runs all tests that start
            # gateways in it, and so takes their ports.
            part = "integration" if item.path.parent.name == "integration" else "others"
            item.add_marker(pytest.mark.xdist_group(f"hbase {part}"))
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
        elif isinstance(item, pytest.Function) and "hbase_server" in item.fixturenames:
            # Any process would run it, and it would not be skipped where there is no HBase.
            raise pytest.UsageError(f"{item.nodeid} uses HBase; mark it with pytest.mark.integration")
        elif isinstance(item, pytest.Function) and not _SHARED.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.rpartition("::")[0]))
    if getattr(config.option, "loadgroup", False):
        # A slow test that begins last would keep one process busy while the others wait. The tests on HBase begin first.
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("slow", "integration")])


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember how many cases of the proofs ``-m`` leaves out, in the process that reports it."""
    config = items[0].config
    marks = config.option.markexpr
    long = sum(one.get_closest_marker("long") is not None for one in items)
    proof = sum(one.get_closest_marker("proof") is not None for one in items) - long
    if marks == "not proof" and proof + long < len(items):
        return  # -k removed these, before -m: this expression removes only cases of proofs
    left_out = {
        "scripts/proof": proof if "not proof" in marks else 0,
        "scripts/proof --all": long if "not proof" in marks or "not long" in marks else 0,
    }
    config.stash[_LEFT_OUT] = left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the number from a process of pytest-xdist."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show how much of the proofs was left out."""
    for command, count in config.stash.get(_LEFT_OUT, {}).items():
        if count:
            terminalreporter.write_line(f"{count} cases of proofs were left out; {command} runs them")


def pytest_collection_finish(session: pytest.Session) -> None:
    # The thousands of tests and modules stay until the end: no collection of garbage needs to look at them again.
    gc.collect()
    gc.freeze()
    if getattr(session.config.option, "loadgroup", False):
        apart = [
            one.nodeid for one in session.items if one.get_closest_marker("integration") and "@hbase " not in one.nodeid
        ]
        assert not apart, f"every process, not two, would run tests on HBase: {apart[:3]}"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Fail the test that leaves SIGINT ignored: every process that a later test starts would ignore Ctrl-C."""
    yield
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pytest.fail("the test leaves SIGINT ignored")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Do not measure coverage of the integrity check at the end of each test: it is slow, and tests/check runs its lines."""
    measures = getattr(item.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if measures is None:
        return (yield)
    measures.pause()
    try:
        return (yield)
    finally:
        measures.resume()


@pytest.fixture(scope="session", autouse=True)
def quick_processes() -> Iterator[None]:
    """Processes that tests start are forks, see :mod:`tests.support.quick_processes`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", get_context)
        yield


@pytest.fixture(scope="session")
def hbase_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """The HBase of this run."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent  # all processes of the run have it
    with running(directory) as found:
        yield found


@pytest.fixture
def hbase(hbase_server: HBase) -> Iterator[HBase]:
    """The HBase of this run; the tables that a test makes under its prefixes are dropped after it."""
    yield hbase_server
    hbase_server.drop()


@pytest.fixture
def checked(request: pytest.FixtureRequest) -> Iterator[Checked]:
    """Called with a URL or a store in memory: at the end the repository there is checked."""
    made = Checked()
    yield made
    made.finish(request.node)


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instances]:
    """Opens instances on one repository; at the end its integrity is checked."""
    if request.param == "memory":
        shared = MemoryStore()

        def new_store() -> Store:
            # A shallow copy shares cells and lock, and is closed for itself.
            return copy.copy(shared)
    else:

        def new_store() -> Store:
            return SqliteStore(str(tmp_path / "content.db"))

    with instances(new_store) as made:
        yield made


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A time that moves only when a test moves it; at the end the repositories opened in it are checked and closed."""
    made = World()
    yield made
    try:
        judge(request.node, made.problems())
    finally:
        made.close()


@pytest.fixture
def store(world: World) -> MemoryStore:
    """A store whose clock shows that time."""
    return MemoryStore(world.clock)


@pytest.fixture
def real_store(checked: Checked) -> MemoryStore:
    """A store whose clock is this machine's; the repository in it is checked at the end."""
    return checked(MemoryStore())


@pytest.fixture
def url(checked: Checked, tmp_path: Path) -> str:
    """Where there is no repository yet; it is checked at the end if there is one then."""
    return checked(f"sqlite:///{tmp_path / 'content.db'}")
