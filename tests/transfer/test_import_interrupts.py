"""Ctrl-C during an import: no traceback, exit code 130, no process remains, and its counts match the repository.

By signals to the command, and by an interrupt at each point of the importing process (``HBASEMK_INTERRUPT_SECONDS``).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hbasemk import Outcome, Repository, StoreNotAppliedError, connect
from hbasemk.kernel.instance import Instance
from hbasemk.transfer.files.importer import Import, Result, _Worker
from hbasemk.transfer.files.verify import Verification, verify
from hbasemk.transfer.files.worker import Batch
from hbasemk.transfer.json.importer import JsonImport
from tests.support import quick_processes
from tests.support.hbase import HBase
from tests.support.interrupting import SECONDS, Point, each_point, in_files, interrupted_at, points_of
from tests.support.repositories import Checked

FILES = 400
RUNS = 5
AGAIN_EVERY = 5
NODES = 14
BATCH = 4


def a_tree(nodes: int) -> bytes:
    """Return the JSON of a tree of so many nodes, including the root."""
    children = {f"n{number:05}": {"properties": {"n": number}} for number in range(nodes - 1)}
    return json.dumps({"properties": {"root": True}, "children": children}).encode()


def json_nodes(repository: Repository, at: str) -> int:
    """Return how many of them a repository holds, without those that have no properties."""
    head = repository.refresh()
    return sum(1 for node in head.walk(at) if len(node)) if at in head else 0


@pytest.mark.slow
@pytest.mark.timeout(0 if not SECONDS else 300)
@pytest.mark.no_cover
# A file or repository ends with this warning if an interrupt falls between its opening and the with block.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_json_import_interrupted_at_any_point_counts_its_committed_nodes(checked: Checked, tmp_path: Path) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}?busy_timeout=3600&durable=no")
    file = tmp_path / "tree.json"
    file.write_bytes(a_tree(NODES))
    jobs: list[JsonImport] = []

    def work() -> None:
        jobs[-1].run(verify=False)

    with connect(url, poll_interval=0) as other:

        def prepare() -> str:
            # The last node exists without properties.
            at = f"/t{len(jobs)}"
            other.run(lambda tx: [tx.add(at), tx.add(f"{at}/n{NODES - 2:05}")])
            jobs.append(JsonImport(url, file, at, batch=BATCH))
            return at

        def test(point: Point) -> None:
            at = prepare()
            interrupted = interrupted_at(point, work)
            result = jobs[-1].result
            found = json_nodes(other, at)
            assert result.unknown == 0
            assert (result.done, result.added + result.changed) == (found, found)
            assert result.commits == -(-found // BATCH)
            assert result.last == (None if not found else at if found == 1 else f"{at}/n{found - 2:05}")
            assert interrupted or found == NODES
            if len(jobs) % AGAIN_EVERY:
                return
            # It resumes, also over existing nodes.
            again = JsonImport(url, file, at, batch=BATCH)
            again.run()
            assert (again.result.done, again.result.added + again.result.changed) == (NODES, NODES - found)

        points: list[Point] = []
        for _ in range(2):
            prepare()
            points = list(dict.fromkeys([*points, *points_of(work)]))
        each_point(points, test, in_files("json/importer.py", "transfer/retry.py", "repository.py"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreNotAppliedError("the store is away")])
def test_a_json_import_that_cannot_read_an_outcome_reports_a_lower_bound(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}?durable=no")
    file = tmp_path / "tree.json"
    file.write_bytes(a_tree(NODES))
    commits: list[int] = []
    real = Instance.commit

    def commit(self: Instance, *arguments: Any, **options: Any) -> int:
        commits.append(real(self, *arguments, **options))
        if len(commits) == 2:
            raise KeyboardInterrupt
        return commits[-1]

    def outcome(self: Repository, revision: str) -> Outcome:
        raise error

    job = JsonImport(url, file, "/t", batch=BATCH)
    with monkeypatch.context() as patched:
        patched.setattr(Instance, "commit", commit)
        patched.setattr(Repository, "outcome", outcome)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    with connect(url, poll_interval=0) as repository:
        assert (job.result.done, job.result.unknown, json_nodes(repository, "/t")) == (BATCH, BATCH, 2 * BATCH)


class Folder:
    """A folder that changes before each import, and its nodes in the repository."""

    def __init__(self, url: str, top: Path) -> None:
        self.url = url
        self.top = top
        self.number = 0
        for name in ("a", "b", "a/c"):
            (top / name).mkdir(parents=True)

    def change(self) -> None:
        """Change three files, remove one, add one."""
        self.number += 1
        for name in ("a/changed", "b/changed", "changed"):
            (self.top / name).write_text(str(self.number))
        (self.top / "a" / "c" / f"new-{self.number}").write_text("")
        (self.top / "a" / "c" / f"new-{self.number - 1}").unlink(missing_ok=True)

    def job(self) -> Import:
        return Import(self.url, str(self.top), "/top", workers=2, batch=2)

    def nodes(self, repository: Repository) -> dict[str, dict[str, object]]:
        """Return the nodes that an import counts: all below its own."""
        head = repository.refresh()
        found = {node.path: dict(node) for node in head.walk("/top")} if "/top" in head else {}
        found.pop("/top", None)
        return found

    def differences(self) -> list[str]:
        return list(verify(self.url, str(self.top), "/top", Verification()))


@pytest.fixture
def folder(checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if not SECONDS:
        # With all points, workers start as usual.
        monkeypatch.setattr(multiprocessing, "get_context", quick_processes.usual_context)
    return Folder(checked(f"sqlite:///{tmp_path / 'content.db'}?busy_timeout=3600&durable=no"), tmp_path / "top")


def assert_counted(result: Result, before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> None:
    """Compare the counts of an import with the changes in the repository."""
    changed = sum(before[path] != after[path] for path in before.keys() & after.keys())
    found = (len(after.keys() - before.keys()), changed, len(before.keys() - after.keys()))
    assert (result.added, result.changed, result.removed) == found


@pytest.mark.slow
@pytest.mark.timeout(0 if not SECONDS else 300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_parent_of_an_import_can_be_interrupted_at_any_point(folder: Folder) -> None:
    jobs: list[Import] = []

    def work() -> None:
        jobs[-1].run()

    def prepare() -> None:
        folder.change()
        jobs[:] = [folder.job()]

    points: list[Point] = []
    for _ in range(2):
        prepare()
        points = list(dict.fromkeys([*points, *points_of(work)]))
    points = [point for point in points if in_files("files/importer.py")(point)]

    with connect(folder.url, poll_interval=0) as other:

        def test(point: Point) -> None:
            before = folder.nodes(other)
            commits = sum(entry.message.startswith("import batch") for entry in other.log("/top"))
            prepare()
            interrupted_at(point, work)
            assert multiprocessing.active_children() == []
            assert jobs[-1].result.is_exact
            after = folder.nodes(other)
            assert_counted(jobs[-1].result, before, after)
            done = sum(entry.message.startswith("import batch") for entry in other.log("/top"))
            assert jobs[-1].result.committed == done - commits
            again = folder.job()
            again.run()
            assert_counted(again.result, after, folder.nodes(other))
            assert folder.differences() == []

        handles_workers = {
            "_start",
            "_give",
            "give",
            "_receive_answer",
            "_take_answer",
            "_request_end",
            "_terminate",
            "run",
        }
        each_point(points, test, lambda point: point[0].co_name in handles_workers)


@pytest.mark.parametrize("second", ["_request_end", "_collect_last_results"])
def test_a_second_interrupt_ends_the_workers_immediately(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    job = folder.job()
    given: list[Batch] = []
    really_give = _Worker.give

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def give(self: _Worker, batch: Batch) -> None:
        really_give(self, batch)
        given.append(batch)
        raise KeyboardInterrupt

    folder.change()
    monkeypatch.setattr(_Worker, "give", give)
    monkeypatch.setattr(Import, second, interrupted)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert multiprocessing.active_children() == []
    assert job.result.open == {batch.number for batch in given}
    assert len(given) == 1
    assert not job.result.is_exact
    monkeypatch.undo()
    folder.job().run()
    assert folder.differences() == []


INTERRUPTED = """
import os, signal, sys, threading
from hbasemk.__main__ import run
from hbasemk.kernel.instance import Instance
left, pause = int(sys.argv.pop(1)), float(sys.argv.pop(1))
commit = Instance.commit
def counted(self, *arguments, **options):
    global left
    left -= 1
    if left == 0:
        threading.Timer(pause, os.kill, (os.getpid(), signal.SIGINT)).start()
    return commit(self, *arguments, **options)
Instance.commit = counted
run()
"""
"""The command line, which interrupts itself some time after its first argument's commit: another process might be too late."""


def interrupt_json_imports(urls: Sequence[str], tmp_path: Path, nodes: int) -> None:
    """Interrupt an import of a tree of so many nodes to each URL, and compare its count with the repository."""
    file = tmp_path / "tree.json"
    file.write_bytes(a_tree(nodes))
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    counts = []
    ended = 0
    for url in urls:
        # Each commit has two nodes, so at least half of the commits follow.
        at, pause = str(chance.randrange(1, nodes // 4)), str(chance.random() * 0.02)
        command = [sys.executable, "-c", INTERRUPTED, at, pause, "--url", url, "import", "-f", "json", "-b", "2"]
        running = subprocess.run(
            [*command, "--at", "/t", str(file)], capture_output=True, text=True, timeout=300, check=False
        )
        stderr = running.stderr
        if running.returncode == 0:
            # The import ended before the interrupt, on a busy machine. Or Python dropped the interrupt, because a callback of
            # a weak reference raised it, and the import went on.
            with connect(url, poll_interval=0) as repository:
                assert json_nodes(repository, "/t") == nodes
            ended += "Exception ignored in" not in stderr
            continue
        assert "Traceback" not in stderr
        assert running.returncode == 130, stderr
        counted = re.search(rf"(at least )?(\d+) of {nodes} nodes", stderr)
        with connect(url, poll_interval=0) as repository:
            found = json_nodes(repository, "/t")
        counts.append(found)
        if found or counted is not None:
            assert counted is not None, stderr
            assert (counted[1], int(counted[2])) == (None, found)
    print("nodes", counts)
    assert 2 * ended <= len(urls), "most imports must still run when they are interrupted"


@pytest.mark.slow
def test_an_interrupted_json_import_prints_the_committed_nodes(checked: Checked, tmp_path: Path) -> None:
    urls = [checked(f"sqlite:///{tmp_path / f'{run}.db'}?durable=no") for run in range(3)]
    interrupt_json_imports(urls, tmp_path, nodes=1200)


@pytest.mark.slow
@pytest.mark.integration
def test_an_interrupted_json_import_prints_the_committed_nodes_on_hbase(
    hbase: HBase, checked: Checked, tmp_path: Path
) -> None:
    interrupt_json_imports([checked(hbase.url(hbase.new_prefix()))], tmp_path, nodes=300)


@pytest.mark.slow
@pytest.mark.no_cover
def test_an_interrupted_import_reports_the_committed_nodes(checked: Checked, tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(FILES):
        folder = top / str(number % 20)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{number}").write_text(str(number))
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    codes = []
    for run in range(RUNS):
        file = tmp_path / f"{run}.db"
        url = checked(f"sqlite:///{file}?durable=no")
        command = [sys.executable, "-m", "hbasemk", "--url", url, "import", str(top), "-b", "2", "-w", "3"]
        # Its own process group, as in a terminal: all of its processes receive the signal.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            while not file.exists() and running.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random() * 2.5)
            os.killpg(running.pid, signal.SIGINT)
            _, stderr = running.communicate(timeout=120)
        codes.append(running.returncode)
        assert "Traceback" not in stderr
        assert running.returncode in (0, 130), stderr
        if running.returncode == 0:
            continue
        assert "interrupted" in stderr
        counted = re.search(r"interrupted; (at least )?(\d+) nodes added, 0 changed and 0 removed", stderr)
        if counted is None:
            # Before or after the import itself.
            continue
        with connect(url, poll_interval=0) as repo:
            found = sum(1 for _ in repo.head.walk("/top")) - 1 if "/top" in repo.head else 0
        if counted[1]:
            assert found >= int(counted[2])
        else:
            assert found == int(counted[2])
    print("exit codes", codes)


SPAWNS = """
import signal, sys
from multiprocessing import util
masked = []
real = util.spawnv_passfds
def recording(*arguments):
    masked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return real(*arguments)
util.spawnv_passfds = recording
if __name__ == "__main__":
    if sys.argv[1] == "reader":
        from hbasemk.transfer.files.reader import FileReader, ReaderJob
        FileReader.spawned(ReaderJob("memory://x", "/", 1)).close()
    else:
        from hbasemk.transfer.files.importer import _Worker
        from hbasemk.transfer.files.worker import Job
        worker = _Worker(Job("sqlite:///no/such/file", "/", "/x", 0.0))
        worker.pipe.close()
        worker.process.join()
    print(*masked)
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.parametrize("process", ["reader", "worker"])
def test_a_process_of_an_import_starts_with_sigint_blocked(tmp_path: Path, process: str) -> None:
    # In a new process, for the first spawn also starts Python's resource tracker, which unblocks SIGINT.
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    ran = subprocess.run(
        [sys.executable, str(script), process], capture_output=True, text=True, check=True, timeout=120
    )
    (*_, own), after = ran.stdout.splitlines()[0].split(), ran.stdout.splitlines()[1]
    assert (own, after) == ("True", "False")
