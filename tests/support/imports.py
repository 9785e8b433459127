"""Directories to import, and checks of the result."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import Repository, Transaction, connect
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.importer import Import, Result
from hbasemk.transfer.files.reader import FileReader, ReaderJob
from hbasemk.transfer.files.verify import Verification, verify
from hbasemk.transfer.files.worker import Batch, Job, Worker

SMALL = {
    "readme.txt": b"Trees\n",
    "empty": b"",
    "binary": b"\x00\xff",
    "a/one.txt": b"one\n",
    "a/b/two.txt": "zw\u00f6lf\n".encode(),
    "a/b/c/three.txt": b"three\n",
    "z/last.txt": b"last\n",
}


def changed(url: str, change: Callable[[Transaction], object]) -> None:
    """Commit a change to the repository at a URL."""
    with connect(url) as repository:
        repository.run(change)


def write_files(top: Path, files: dict[str, bytes]) -> Path:
    """Write files, and the directories that they need, below ``top``; return ``top``."""
    for relative, data in files.items():
        where = top / relative
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(data)
    return top


def many_files(top: Path, count: int, per_directory: int = 25) -> Path:
    """Write ``count`` files into subdirectories of ``top``; return ``top``."""
    return write_files(
        top, {f"d{number // per_directory:03}/f{number:05}.txt": f"{number}\n".encode() for number in range(count)}
    )


def on_disk(top: Path) -> dict[str, tuple[str, str]]:
    """Return kind and content (or target) of every entry below a directory, by relative path, without the importer."""
    found: dict[str, tuple[str, str]] = {}
    for where, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(where, name)
            relative = os.path.relpath(path, top)
            if os.path.islink(path):
                found[relative] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[relative] = ("directory", "")
            else:
                found[relative] = ("file", hashlib.sha256(Path(path).read_bytes()).hexdigest())
    return found


def in_tree(url: str, at: str) -> dict[str, tuple[str, str]]:
    """Return the same of an imported tree."""
    found: dict[str, tuple[str, str]] = {}
    with connect(url, create=False, poll_interval=0) as repository:
        for node in repository.refresh().walk(at):
            if node.path != at:
                kept: Any = node.get(":sha256", node.get(":target", ""))
                names = [name[name.startswith("::") :] for name in node.path[len(at.rstrip("/")) + 1 :].split("/")]
                found["/".join(names)] = (str(node[":kind"]), kept)
    return found


def totals(url: str, at: str) -> dict[str, Any]:
    """Return the properties of an import's root."""
    with connect(url, create=False, poll_interval=0) as repository:
        return dict(repository.refresh()[at])


def differences(url: str, top: Path, at: str, **options: Any) -> list[str]:
    """Return the differences that the verification finds."""
    return list(verify(url, str(top), at, Verification(), **options))


def around_runs(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[int], None] = lambda _: None,
    after: Callable[[int], None] = lambda _: None,
) -> None:
    """Call functions before and after each ``Repository.run`` with its number, from 1; they may raise errors."""
    real = Repository.run
    numbers = itertools.count(1)

    def run(self: Repository, *arguments: Any) -> Any:
        number = next(numbers)
        before(number)
        result = real(self, *arguments)
        after(number)
        return result

    monkeypatch.setattr(Repository, "run", run)


def deny_listing(monkeypatch: pytest.MonkeyPatch, ending: bytes) -> None:
    """Let the system refuse to list the directories whose path ends with ``ending``."""
    real = os.scandir

    def scandir(path: bytes) -> Any:
        if path.endswith(ending):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


AT = "/docs"


def bring_in(url: str, top: Path, at: str = AT, **options: Any) -> Result:
    options.setdefault("workers", 2)
    return Import(url, str(top), at, **options).run()


def assert_imported(url: str, top: Path, at: str = AT) -> None:
    """Assert that the tree equals the directory, by the verification and by an independent comparison."""
    assert differences(url, top, at) == []
    wanted = on_disk(top)
    assert in_tree(url, at) == wanted
    found = totals(url, at)
    kinds = [kind for kind, _ in wanted.values()]
    assert found[":nodes"] == len(wanted)
    assert found[":files"] == kinds.count("file")
    assert found[":directories"] == kinds.count("directory")
    assert found[":links"] == kinds.count("link")
    assert found[":bytes"] == sum((top / name).stat().st_size for name, (kind, _) in wanted.items() if kind == "file")


@contextmanager
def one_worker(url: str, top: Path, retry_timeout: float = 30.0) -> Iterator[Worker]:
    """Open a worker in this process, with a reader in another one."""
    job = Job(url, str(top), AT, retry_timeout)
    with FileReader.spawned(ReaderJob(url, str(top), 65536)) as reader:
        worker = Worker(job, reader)
        with worker.repository:
            yield worker


@contextmanager
def one_batch(url: str, top: Path, retry_timeout: float = 30.0) -> Iterator[tuple[Worker, Batch]]:
    """Open a worker, with all entries of a directory without subdirectories as its first batch."""
    Import(url, str(top), AT, workers=1, exclude=["*"]).run()
    with one_worker(url, top, retry_timeout) as worker:
        yield worker, Batch(0, entries=list(entries.walk(str(top), (), lambda _: None)))
