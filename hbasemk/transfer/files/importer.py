"""The import of one directory tree into one repository by several concurrent processes.

The parent process walks the directory and hands out batches over pipes; directories precede their entries. A worker
that dies loses nothing: another one gets its batch, finds what is committed, and leaves it unchanged.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Final

from hbasemk.errors import HbasemkError, InvalidChangeError, InvalidPathError, InvalidValueError
from hbasemk.format import paths
from hbasemk.interrupts import Deferred
from hbasemk.kernel.batches import batched
from hbasemk.processes import spawn
from hbasemk.transaction import Transaction
from hbasemk.transfer import own_files
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.entries import DIRECTORY, FILE, KIND, LINK, OLD_TOTALS, TOTALS, Contents, Entry, Skipped
from hbasemk.transfer.files.vanished import vanished
from hbasemk.transfer.files.worker import Batch, Job, Report, work
from hbasemk.transfer.retry import RETRY_SECONDS, StoreRetry

RESTARTS: Final = 3
"""The number of replacements of dead workers, for each worker."""


LAST_ANSWERS: Final = 10.0
"""The seconds for which workers may finish their batch when an import is interrupted."""


@dataclass(slots=True)
class Result:
    """The result of an import. ``seconds`` excludes the verification; ``retries`` counts repeated commits and batches.

    ``without_content`` is the number of files, old and new, whose content is not kept; ``blobs`` that of files whose content is
    in a blob. ``open`` are the numbers of the batches that a worker got and has not answered. They are not counted, but may be
    committed.
    """

    entries: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    without_content: int = 0
    blobs: int = 0
    committed: int = 0
    conflicts: int = 0
    retries: int = 0
    restarts: int = 0
    seconds: float = 0.0
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    @property
    def is_exact(self) -> bool:
        """Whether the counts include every commit. A worker that died may have committed more."""
        return not self.open and not self.restarts


class _Worker:
    """A worker process from its parent's view."""

    def __init__(self, job: Job) -> None:
        self.process, self.pipe = spawn(work, job)
        self.batch: Batch | None = None
        self.committed = self.conflicts = self.retries = 0

    def give(self, batch: Batch) -> None:
        with Deferred():
            # Completely: the worker would read half a message together with the next one.
            self.batch = batch
            try:
                self.pipe.send(batch)
            except OSError:
                # The worker has just died; its end of the pipe shows it, and another worker gets the batch.
                return


class Import:
    """One import of the directory ``top`` to the node ``at``.

    ``workers`` processes commit batches of up to ``batch`` nodes. ``on_report`` is called with every report, for progress;
    ``retry_timeout`` is the number of seconds for which workers retry after outages and conflicts. ``contents`` says which
    contents of files are kept: ``all``, the ``small`` ones of up to ``limit`` bytes, or ``none``. Larger ones than ``limit``
    become blobs. ``message`` is that of each commit; None: a text about the import. ``note`` is called with each note as soon
    as it is known.
    """

    def __init__(
        self,
        url: str,
        top: str,
        at: str,
        *,
        workers: int = 4,
        batch: int = 200,
        exclude: Iterable[str] = (),
        limit: int = entries.DEFAULT_LIMIT,
        contents: Contents = "all",
        retry_timeout: float = RETRY_SECONDS,
        message: str | None = None,
        on_report: Callable[[Report, int], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        if url.lower().startswith("memory:"):
            raise InvalidValueError(
                f"cannot import to {url!r}: other processes do not see a repository in memory; use a sqlite:/// or "
                "hbase:// URL"
            )
        self._job = Job(url, entries.resolved(top), _check_target(at), retry_timeout, limit, contents, message)
        self._count = workers
        self._size = batch
        self._exclude = tuple(exclude)
        self._on_report = on_report
        self._note_too = note
        self._retry = StoreRetry(retry_timeout, self._note)
        self._workers: list[_Worker] = []
        self._numbers = iter(range(10**12))
        self._directories: set[str] = set()
        self._is_first = False
        self.result = Result()

    def run(self) -> Result:
        """Run the import. After KeyboardInterrupt it can run again and resumes.

        Raises OSError if the directory cannot be listed or temporary files have no space, InvalidChangeError if ``at`` is a
        file or a link, or a node with children that no import to it made, and HbasemkError for errors of workers.
        """
        began = time.monotonic()
        self._workers.clear()
        self._directories.clear()
        levels = self._levels()
        self._prepare()
        try:
            for _ in range(self._count):
                self._start()
            for level in levels:
                self._commit_batches(self._batches(level))
            self._commit_batches(self._vanished())
            self._request_end()
            for worker in self._workers:
                worker.process.join()
        except BaseException:
            # A second interrupt ends this wait.
            try:
                self._request_end()
                self._collect_last_results(time.monotonic() + LAST_ANSWERS)
                for worker in self._workers:
                    worker.process.join(1)
            finally:
                self._terminate()
            raise
        self._terminate()
        self.result.retries += self._retry.retries
        self.result.seconds = time.monotonic() - began
        return self.result

    # --- the batches -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the import's root with its totals, and the nodes above it."""

        def change(tx: Transaction) -> None:
            at = self._job.at
            above = [at]
            while above[-1] != paths.ROOT:
                above.append(paths.parent(above[-1]))
            found = tx.load(above)
            root = found[at]
            if root is not None and root.keys() >= set(OLD_TOTALS):
                raise InvalidChangeError(
                    f"{at} was imported by an earlier version of hbasemk, with another layout, and cannot be updated. Remove it "
                    "first (hbasemk rm), or import to another path (--at).",
                    path=at,
                )
            for path in above:
                kind = (found[path] or {}).get(KIND)
                if kind in (FILE, LINK):
                    raise InvalidChangeError(
                        f"{path} is a {'file' if kind == FILE else 'link'}, which cannot contain entries. Import to another path "
                        "(--at), or remove the node first (hbasemk rm).",
                        path=path,
                    )
            if root is not None and not root.keys() >= set(TOTALS) and tx.children(at, limit=1):
                # An import removes nodes without an entry on disk.
                outer = next((path for path in above if (found[path] or {}).keys() >= set(TOTALS)), None)
                whose = "no import to this node created" if outer is None else f"belong to the import to {outer}"
                raise InvalidChangeError(
                    f"{at} has children that {whose}, and this import would remove them; import to another path (--at)",
                    path=at,
                )
            outer = next((path for path in above[1:] if (found[path] or {}).keys() >= set(TOTALS)), None)
            if outer is not None and not (root or {}).keys() >= set(TOTALS):
                raise InvalidChangeError(
                    f"{at} is below {outer}, the target of another import, which would remove {at} when it is repeated. "
                    "Import to another path (--at).",
                    path=at,
                )
            for path in reversed(above):
                if found[path] is None:
                    tx.add(path)
            root = root or {}
            for name in TOTALS:
                if name not in root:
                    tx.set(self._job.at, name, 0)

        with self._retry.opened(self._job.url) as repository:
            message = self._job.message
            self._retry.run(
                repository, change, f"import of {os.path.basename(self._job.top)}" if message is None else message
            )
            self._is_first = not repository.head.children(self._job.at, limit=1)

    def _levels(self) -> Iterator[list[Entry]]:
        """Yield directories level by level, then all other entries."""
        own = own_files.of(self._job.url)
        levels: dict[int, list[Entry]] = {}
        rest: list[Entry] = []
        for entry in entries.walk(self._job.top, self._exclude, self.result.skipped.append, own):
            self.result.entries += 1
            impossible = entries.impossible(self._job.at, entry.relative)
            if impossible is not None:
                self.result.skipped.append(impossible)
            elif entry.kind == DIRECTORY:
                levels.setdefault(entry.depth, []).append(entry)
                self._directories.add(entries.node_path(self._job.at, entry.relative))
            else:
                rest.append(entry)
        return iter([*(levels[depth] for depth in sorted(levels)), rest])

    def _batches(self, level: list[Entry]) -> Iterator[Batch]:
        # All workers share even a level with few entries.
        size = max(1, min(self._size, -(-len(level) // self._count)))
        for part in batched(level, size):
            yield Batch(next(self._numbers), entries=part)

    def _vanished(self) -> Iterator[Batch]:
        """Yield the removal of the nodes of vanished or excluded entries."""
        skipped = list(self.result.skipped)
        own = own_files.of(self._job.url)
        there: set[str] = set()
        for entry in entries.walk(self._job.top, self._exclude, skipped.append, own):
            path = entries.node_path(self._job.at, entry.relative)
            there.add(path)
            if entry.kind == DIRECTORY:
                self._directories.add(path)
        unreadable = [entries.node_path(self._job.at, one.relative) for one in skipped if one.failed]
        directories = self._directories if self._is_first else None
        with self._retry.opened(self._job.url, poll_interval=0) as repository:
            to_remove = list(vanished(repository, self._job.at, there, unreadable, directories))
        for part in batched(to_remove, self._size):
            yield Batch(next(self._numbers), to_remove=part)

    # --- the workers ----------------------------------------------------------------------------------

    def _commit_batches(self, batches: Iterator[Batch]) -> None:
        """Let the workers commit all of these batches."""
        again: deque[Batch] = deque()

        def following() -> Batch | None:
            return again.popleft() if again else next(batches, None)

        for worker in self._workers:
            batch = following()
            if batch is not None:
                self._give(worker, batch)
        while busy := {worker.pipe: worker for worker in self._workers if worker.batch is not None}:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                batch = worker.batch
                if not self._receive_answer(worker):
                    assert batch is not None
                    again.append(batch)
                    worker = self._replace(worker)
                batch = following()
                if batch is not None:
                    self._give(worker, batch)

    def _give(self, worker: _Worker, batch: Batch) -> None:
        with Deferred():
            # A batch is open as soon as its worker may have received it.
            self.result.open.add(batch.number)
            worker.give(batch)

    def _receive_answer(self, worker: _Worker) -> bool:
        """Receive a worker's answer; return False if the worker died."""
        with Deferred():
            # Count every received answer.
            answer = self._take_answer(worker)
        if answer is not None and self._on_report is not None:
            self._on_report(answer, self.result.entries)
        return answer is not None

    def _take_answer(self, worker: _Worker) -> Report | None:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Report)
        worker.batch = None
        result = self.result
        result.open.discard(answer.number)
        result.committed += answer.committed - worker.committed
        result.conflicts += answer.conflicts - worker.conflicts
        result.retries += answer.retries - worker.retries
        worker.committed, worker.conflicts, worker.retries = answer.committed, answer.conflicts, answer.retries
        result.added += answer.added
        result.changed += answer.changed
        result.removed += answer.removed
        result.without_content += answer.without_content
        result.blobs += answer.blobs
        result.skipped += answer.skipped
        for note in answer.notes:
            self._note(note)
        return answer

    def _note(self, text: str) -> None:
        self.result.notes.append(text)
        if self._note_too is not None:
            self._note_too(text)

    def _replace(self, dead: _Worker) -> _Worker:
        dead.process.join()
        self.result.restarts += 1
        code = dead.process.exitcode
        self._note(f"worker process {dead.process.pid} died (exit code {code}); another process repeats its batch")
        if self.result.restarts > RESTARTS * self._count:
            raise HbasemkError(
                f"worker processes ended unexpectedly, the last with exit code {code}; committed nodes stay. Run the import "
                "again to continue, and look for the cause (out of memory?)."
            )
        with Deferred():
            # Count it once.
            self.result.retries += 1
            self._workers.remove(dead)
        return self._start()

    def _start(self) -> _Worker:
        with Deferred():
            # Every started worker is recorded.
            self._workers.append(_Worker(self._job))
            return self._workers[-1]

    def _request_end(self) -> None:
        for worker in self._workers:
            with Deferred():
                # Completely, as in _Worker.give.
                try:
                    worker.pipe.send(None)
                except OSError:
                    # It has already ended.
                    continue

    def _terminate(self) -> None:
        with Deferred():
            # No worker outlives the import.
            for worker in self._workers:
                if worker.process.is_alive():
                    worker.process.terminate()
                worker.process.join()
                worker.pipe.close()

    def _collect_last_results(self, deadline: float) -> None:
        """Count the last batches of the workers: each ends after its present one."""
        while busy := {worker.pipe: worker for worker in self._workers if worker.batch is not None}:
            ready = wait(list(busy), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                try:
                    with Deferred():
                        if self._take_answer(worker) is not None:
                            continue
                except (HbasemkError, OSError) as error:
                    self.result.notes.append(f"the last batch of worker process {worker.process.pid} failed: {error}")
                worker.batch = None


def _check_target(at: str) -> str:
    """Return the path; raises InvalidPathError if nothing can be imported there."""
    for name in paths.check_path(at).split("/"):
        if name.startswith(":") and not name.startswith("::"):
            raise InvalidPathError(
                f"cannot import to {at!r}: names that begin with one ':' are reserved. Choose another path (--at); for an entry "
                f"with this name, double the colon: {':' + name!r}."
            )
    return at
