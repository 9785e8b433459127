"""One worker process of an import: takes batches from a pipe and commits them, each with its totals.

A batch looks at what is there before it changes anything, in the same transaction; so doing it twice, after a crash or
a lost reply, changes nothing the second time.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from hbasemk.connect import connect
from hbasemk.errors import HbasemkError
from hbasemk.kernel import paths
from hbasemk.kernel.values import PropertyValue
from hbasemk.repository import Repository
from hbasemk.transaction import Transaction
from hbasemk.transfer import entries
from hbasemk.transfer.entries import TOTALS, Entry, Skipped
from hbasemk.transfer.patience import patiently
from hbasemk.transfer.reader import FileReader, ReaderDiedError, ReaderJob


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers of an import need to know. ``patience``: seconds without a store before giving up."""

    url: str
    top: str
    at: str
    text_limit: int
    patience: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Work for one commit: entries to bring in, or paths of nodes to remove with their subtrees."""

    number: int
    entries: Sequence[Entry] = ()
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker did for one batch of ``handled`` entries or paths, with its instance's counts so far.

    ``bare`` is how many of the batch's files are kept without their content.
    """

    number: int
    handled: int
    added: int
    changed: int
    removed: int
    bare: int
    skipped: Sequence[Skipped]
    committed: int
    conflicts: int
    retries: int
    notes: Sequence[str]


def work(job: Job, pipe: Connection) -> None:
    """A worker's whole life: until it is told to stop, or its parent is gone."""
    # Ctrl-C reaches the whole group; the parent decides, so that no batch is cut off.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Before anything opens the repository: the reader must never hold a connection.
    with FileReader.forked(ReaderJob(job.url, job.top, job.text_limit), [pipe]) as reader:
        _work(job, reader, pipe)


def _work(job: Job, reader: FileReader, pipe: Connection) -> None:
    try:
        worker = Worker(job, reader)
    except HbasemkError as error:
        _tell(pipe, error)
        return
    try:
        while True:
            batch = _next(pipe)
            if batch is None:
                return
            try:
                answer: Report | HbasemkError = worker.do(batch)
            except ReaderDiedError:
                # This process ends as well; the parent replaces both, and gives the batch to another.
                return
            except HbasemkError as error:
                answer = error
            if not _tell(pipe, answer) or isinstance(answer, HbasemkError):
                return
    finally:
        worker.repository.close()


def _next(pipe: Connection) -> Batch | None:
    """The next batch; None at the end, and when the parent is gone: the next import goes on from what is committed."""
    try:
        batch: Batch | None = pipe.recv()
    except (EOFError, OSError):
        return None
    return batch


def _tell(pipe: Connection, answer: Report | HbasemkError) -> bool:
    """Answer the parent; False when it is gone."""
    try:
        pipe.send(answer)
    except OSError:
        return False
    return True


class Worker:
    """Does batches, one after another, with a repository instance of its own."""

    def __init__(self, job: Job, reader: FileReader) -> None:
        self._job = job
        self._reader = reader
        self._notes: list[str] = []
        self._redone = 0
        self.repository: Repository = connect(job.url)

    def do(self, batch: Batch) -> Report:
        """Read the batch's entries and commit what is new of them; raises HbasemkError when that is not possible."""
        skipped: list[Skipped] = []
        kept: dict[str, tuple[Entry, dict[str, PropertyValue]]] = {}
        by_path = {entry.relative: entry for entry in batch.entries}
        for relative, found in self._reader.look(by_path, "content"):
            if isinstance(found, Skipped):
                skipped.append(found)
                continue
            path = entries.node_path(self._job.at, by_path[relative])
            kept[path] = (by_path[relative], entries.properties(paths.name(path), found))
        added, changed, removed = patiently(
            self.repository,
            lambda tx: self._apply(tx, kept, batch.gone),
            f"import batch {batch.number}",
            self._job.patience,
            self._done_again,
        )
        notes, self._notes = self._notes, []
        counted = self.repository.statistics
        handled = len(batch.entries) + len(batch.gone)
        retries = counted.conflicts + counted.too_slow + self._redone
        return Report(
            batch.number,
            handled,
            added,
            changed,
            removed,
            sum(not entries.keeps_content(properties) for _, properties in kept.values()),
            skipped,
            counted.committed,
            counted.conflicts,
            retries,
            notes,
        )

    def _done_again(self, why: str) -> None:
        self._notes.append(why)
        self._redone += 1

    def _apply(
        self, tx: Transaction, kept: dict[str, tuple[Entry, dict[str, PropertyValue]]], gone: Sequence[str]
    ) -> tuple[int, int, int]:
        totals = dict.fromkeys(TOTALS, 0)
        added = changed = removed = 0
        # What is changed together with an entry, its parent and the totals, comes in the same round trip.
        found = tx.load([*kept, *{paths.parent(path): None for path in (*kept, *gone)}, self._job.at, *gone])
        for path, (_, wanted) in kept.items():
            before = found[path]
            if before is None:
                tx.add(path, wanted)
                added += 1
            elif before == wanted:
                continue
            else:
                tx.update(path, {**dict.fromkeys(before.keys() - wanted.keys()), **wanted})
                changed += 1
                _count(totals, before, -1)
            _count(totals, wanted, 1)
        for path in gone:
            for below in tx.subtree(path):
                _count(totals, below, -1)
                removed += 1
            if tx.exists(path):
                tx.remove(path)
        for name, difference in totals.items():
            if difference:
                tx.increment(self._job.at, name, difference)
        return added, changed, removed


def _count(totals: dict[str, int], kept: Mapping[str, PropertyValue], sign: int) -> None:
    for name, number in entries.counts(kept).items():
        totals[name] += sign * number
