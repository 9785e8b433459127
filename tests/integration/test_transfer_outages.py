"""Imports, exports and verifications continue after an outage of some seconds at any of their calls."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import StoreNotAppliedError, StoreUnknownError, connect
from hbasemk.format import schema
from hbasemk.opening import open_store
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer import retry
from hbasemk.transfer.exporter import export_files
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.files.reader import FileReader, ReaderJob
from hbasemk.transfer.files.verify import Verification, verify
from hbasemk.transfer.files.worker import Batch, Job, Worker
from hbasemk.transfer.json.importer import JsonImport
from hbasemk.transfer.retry import StoreRetry
from tests.support import proof
from tests.support.hbase import HBase
from tests.support.imports import SMALL, differences, in_tree, many_files, on_disk, write_files
from tests.support.proxy import Proxy, proxy
from tests.support.repositories import damage

AT = "/docs"
AWAY = 0.5


class Outage:
    """Lets every opened store fail for ``seconds``, from a given call on, and at least once."""

    def __init__(self, at: int, lost: bool, seconds: float = AWAY) -> None:
        self.at = at
        self.seconds = seconds
        self.lost = lost
        self.calls = 0
        self.failed = 0
        self._until: float | None = None
        self._lock = threading.Lock()

    def open_store(self, url: str) -> tuple[Store, bool, dict[str, Any]]:
        store, owned, more = open_store(url)
        faulty = FaultyStore(store)
        faulty.before = self.before
        faulty.create_tables = self.also(store.create_tables)  # type: ignore[method-assign]
        faulty.verify = self.also(store.verify)  # type: ignore[method-assign]
        return faulty, owned, more

    def also(self, call: Callable[[Any], None]) -> Callable[[Any], None]:
        def made(tables: Any) -> None:
            self.before(Call(call.__name__, schema.NODES, 1))
            call(tables)

        return made

    def before(self, call: Call) -> None:
        with self._lock:
            self.calls += 1
            if self.calls < self.at:
                return
            if self._until is None:
                self._until = time.monotonic() + self.seconds
            elif time.monotonic() >= self._until:
                return
            self.failed += 1
        if self.lost:
            raise StoreUnknownError(f"{call.method} got no answer")
        raise StoreNotAppliedError(f"{call.method} was refused")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files and a repository into which they were imported, to be copied."""
    made = tmp_path_factory.mktemp("imported")
    top = write_files(made / "docs", {**SMALL, "large": b"x" * 100_000})
    Import(f"sqlite:///{made / 'content.db'}", str(top), AT, workers=1).run()
    return made


@pytest.fixture
def top(imported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(imported / "docs", tmp_path / "docs"))


@pytest.fixture
def brought_in(imported: Path, url: str, top: Path, tmp_path: Path) -> str:
    shutil.copy(imported / "content.db", tmp_path / "content.db")
    assert in_tree(url, AT) == on_disk(top)
    return url


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    made = f"sqlite:///{tmp_path / 'content.db'}"
    yield made
    assert damage(made) == []


def prepare(url: str, top: Path, tmp_path: Path) -> None:
    """Run the steps of an import's parent before and after its workers."""
    job = Import(url, str(top), AT)
    job._prepare()
    assert list(job._vanished()) == []


def work(url: str, top: Path, tmp_path: Path) -> None:
    """Run a worker with one batch."""
    with FileReader.spawned(ReaderJob(url, str(top), 65536)) as reader:
        worker = Worker(Job(url, str(top), AT, 60.0), reader)
        with worker.repository:
            # Directories first, in the order of an import.
            found = sorted(entries.walk(str(top), (), lambda _: None), key=lambda one: one.kind != "directory")
            worker.do(Batch(0, entries=found))


def compare(url: str, top: Path, tmp_path: Path) -> None:
    """A verification."""
    assert list(verify(url, str(top), AT, Verification(), retry_timeout=60.0)) == []


def write_back(url: str, top: Path, tmp_path: Path) -> None:
    """An export."""
    waiting = StoreRetry(60.0, lambda _: None)
    with waiting.opened(url, create=False, poll_interval=0) as repository:
        done = export_files(waiting.call(repository.refresh), AT, tmp_path / "out")
    assert done.skipped == []
    assert on_disk(tmp_path / "out") == on_disk(top)


def bring_json(url: str, top: Path, tmp_path: Path) -> None:
    """An import of JSON."""
    (tmp_path / "tree.json").write_text('{"children": {"a": {"properties": {"x": 1}}, "b": {"children": {"c": {}}}}}')
    result = JsonImport(url, tmp_path / "tree.json", "/json", batch=1, retry_timeout=60.0).run()
    assert (result.nodes, result.differences.count) == (4, 0)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "no answer"])
@pytest.mark.parametrize("at", proof.sampled([1, 2, 4, 7, 11, 16], lambda position, _: position % 2 == 0))
@pytest.mark.parametrize("what", [prepare, work, compare, write_back, bring_json])
def test_an_outage_at_any_moment_only_delays_the_work(
    brought_in: str,
    top: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[str, Path, Path], None],
    at: int,
    lost: bool,
) -> None:
    if what is work:
        (top / "readme.txt").write_bytes(b"changed")
        (top / "large").write_bytes(b"y" * 100_000)
        write_files(top, {"new/file": b"new"})
    outage = Outage(at, lost)
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["hbasemk.opening"], "open_store", outage.open_store)
        patched.setattr(retry, "FIRST_WAIT", 0.01)
        what(brought_in, top, tmp_path)

    if what is work:
        assert in_tree(brought_in, AT) == on_disk(top)
    if outage.calls < at:
        pytest.skip(f"it makes only {outage.calls} calls")
    assert outage.failed


def test_a_retry_timeout_ends_and_reports_the_cause(brought_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(
        sys.modules["hbasemk.opening"], "open_store", Outage(1, lost=False, seconds=math.inf).open_store
    )
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.01)

    with pytest.raises(StoreNotAppliedError):
        StoreRetry(0.1, reported.append).opened(brought_in)

    assert reported
    assert "refused" in reported[0]


def test_a_retry_is_reported_once_until_its_reason_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without "retrying" before each wait looked like the end of the command, some 25 times in two minutes."""
    reported: list[str] = []
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    waiting = StoreRetry(60.0, reported.append)
    failures = iter(["refused", "refused", "refused", "no answer", "no answer"])

    def make() -> str:
        for failure in failures:
            raise StoreNotAppliedError(failure)
        return "done"

    assert waiting.call(make) == "done"

    assert waiting.retries == 5
    assert [text.partition(": ")[2] for text in reported] == ["refused", "no answer"]
    assert reported[0] == "retrying for up to 60 s: refused"


# --- a gateway -------------------------------------------------------------------------------------------


@contextmanager
def away(between: Proxy, seconds: float) -> Iterator[None]:
    """The gateway answers nobody, and comes back after so many seconds."""
    between.down = True
    between.drop_all()

    def back() -> None:
        between.down = False

    timer = threading.Timer(seconds, back)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def running(url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "--url", url, "--output", "json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("after", ["the start", "some nodes", "all nodes"])
def test_an_import_survives_a_gateway_outage_of_three_seconds(hbase: HBase, tmp_path: Path, after: str) -> None:
    prefix = hbase.new_prefix()
    top = many_files(tmp_path / "docs", 400)
    direct = hbase.url(prefix)
    with connect(direct, poll_interval=0), proxy(hbase.host, hbase.thrift2) as between:
        url = f"hbase://127.0.0.1:{between.port}/?prefix={prefix}"
        if after == "the start":
            with away(between, 3.0):
                started = running(url, "import", str(top), "--batch", "10")
                time.sleep(1.0)
        else:
            started = running(url, "import", str(top), "--batch", "10")
            until_there(direct, 50 if after == "some nodes" else len(on_disk(top)), started)
            with away(between, 3.0):
                pass
        out, err = started.communicate(timeout=240)

    assert started.returncode == 0, err
    reported = json.loads(out)
    assert (reported["differences"], reported["entries"]) == (0, len(on_disk(top)))
    assert in_tree(direct, AT) == on_disk(top)
    assert differences(direct, top, AT) == []
    assert damage(direct) == []


def until_there(url: str, nodes: int, started: subprocess.Popen[str]) -> None:
    """Wait until so many nodes are committed."""
    deadline = time.monotonic() + 120
    with connect(url, create=False, poll_interval=0) as watching:
        while True:
            root = watching.refresh().nodes([AT])[AT]
            if root is not None and int(str(root[":nodes"])) >= nodes:
                return
            assert started.poll() is None, started.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
