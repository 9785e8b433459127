"""One worker process of an import: takes batches from a pipe and commits them, each with its totals.

A batch reads what is there before it changes anything, in the same transaction. So a batch that is repeated, after a crash
or a lost reply, changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from hbasemk.errors import HbasemkError
from hbasemk.format import paths
from hbasemk.format.node import decode_properties, encode_properties
from hbasemk.format.values import BlobRef, PropertyValue
from hbasemk.processes import end_with_parent, ignore_interrupts
from hbasemk.repository import Repository, instance_of
from hbasemk.transaction import Transaction, add_encoded, load_encoded
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.entries import CONTENT, FILE, KIND, TOTALS, Contents, Entry, Skipped
from hbasemk.transfer.files.reader import FileReader, ReaderDiedError, ReaderJob
from hbasemk.transfer.retry import StoreRetry

LARGEST: Final = 4 << 20
"""The bytes of contents above which a commit takes no further node."""

Kept: TypeAlias = dict[str, dict[str, PropertyValue]]
"""Properties by the node's path."""


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters of all workers of an import.

    ``retry_timeout``: seconds for which calls are retried. ``limit``: the largest content in bytes stored in its node.
    ``message``: that of each commit; None: the number of its batch.
    """

    url: str
    top: str
    at: str
    retry_timeout: float
    limit: int = entries.DEFAULT_LIMIT
    contents: Contents = "all"
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Work for one commit: entries to import, or paths of nodes to remove with their subtrees."""

    number: int
    entries: Sequence[Entry] = ()
    to_remove: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one batch of ``handled`` entries or paths, with the counts of the worker's instance so far.

    ``without_content`` is how many of the batch's files are kept without their content, ``blobs`` how many have it in a blob.
    """

    number: int
    handled: int
    added: int
    changed: int
    removed: int
    without_content: int
    blobs: int
    skipped: Sequence[Skipped]
    committed: int
    conflicts: int
    retries: int
    notes: Sequence[str]


BatchResult: TypeAlias = Report | HbasemkError | OSError
"""The result of a batch, or the error that ends the import."""


def work(job: Job, pipe: Connection) -> None:
    """Run one worker until its parent sends the end or dies."""
    # No batch is interrupted.
    ignore_interrupts()
    # Before anything opens the repository: the reader must never hold a connection.
    with FileReader.forked(ReaderJob(job.url, job.top, job.limit), [pipe]) as reader:
        # A batch that waits for the store must not be committed later, over those of the next import.
        end_with_parent()
        _work(job, reader, pipe)


def _work(job: Job, reader: FileReader, pipe: Connection) -> None:
    try:
        worker = Worker(job, reader)
    except HbasemkError as error:
        _send(pipe, error)
        return
    try:
        while True:
            batch = _next(pipe)
            if batch is None:
                return
            try:
                answer: BatchResult = worker.do(batch)
            except ReaderDiedError:
                # This process ends as well. The parent replaces both, and gives the batch to another worker.
                return
            except (HbasemkError, OSError) as error:
                # Each process would fail in the same way, for example if there is no space for temporary files.
                answer = error
            if not _send(pipe, answer) or isinstance(answer, Exception):
                return
    finally:
        worker.repository.close()


def _next(pipe: Connection) -> Batch | None:
    """Return the next batch; None at the end, or if the parent died: the next import resumes after the committed batches."""
    try:
        batch: Batch | None = pipe.recv()
    except (EOFError, OSError):
        return None
    return batch


def _send(pipe: Connection, answer: BatchResult) -> bool:
    """Send an answer to the parent; return False if it died."""
    try:
        pipe.send(answer)
    except OSError:
        return False
    return True


@dataclass(slots=True)
class _Done:
    """The progress of one batch."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    without_content: int = 0
    blobs: int = 0
    skipped: list[Skipped] = field(default_factory=list)


class _Applied(NamedTuple):
    """The numbers of added, changed and removed nodes, the paths without a parent, and removed nodes that no import created."""

    added: int
    changed: int
    removed: int
    without_parent: list[str]
    foreign: list[str]


class Worker:
    """Commits batches, one after the other, with its own repository instance."""

    def __init__(self, job: Job, reader: FileReader) -> None:
        self._job = job
        self._reader = reader
        self._notes: list[str] = []
        self._retry = StoreRetry(job.retry_timeout, self._notes.append)
        self.repository: Repository = self._retry.opened(job.url)

    def do(self, batch: Batch) -> Report:
        """Read the batch's entries and commit the changes; raises HbasemkError or OSError if that is not possible.

        This takes one commit, or several if the contents are large, so that memory stays bounded.
        """
        done = _Done()
        kept: Kept = {}
        size = 0
        large: list[str] = []
        for relative, found in self._reader.states([entry.relative for entry in batch.entries], self._job.contents):
            if isinstance(found, Skipped):
                done.skipped.append(found)
            elif found.kind == FILE and found.digest is None:
                large.append(relative)
            else:
                kept[self._path(relative)] = entries.properties(relative.rpartition("/")[2], found)
                size += len(found.content or b"")
                if size >= LARGEST:
                    self._commit(batch, kept, done)
                    kept, size = {}, 0
        kept.update(self._keep_large(large, done))
        if batch.to_remove:
            # Other workers may have committed these nodes a moment ago. A transaction that does not see them removes nothing.
            self._retry.call(self.repository.refresh)
        self._commit(batch, kept, done, batch.to_remove)
        return self._report(batch, done)

    def _path(self, relative: str) -> str:
        return entries.node_path(self._job.at, relative)

    def _keep_large(self, large: Sequence[str], done: _Done) -> Kept:
        """Write the contents of large files as blobs, and return the nodes that will refer to them."""
        kept: Kept = {}
        if not large:
            return kept
        there = self.repository.head.nodes([self._path(relative) for relative in large])
        for relative in large:
            path = self._path(relative)
            node = there[path]
            before = None if node is None else node.get(CONTENT)
            # An existing blob need not be sent through the pipe.
            known = before.id if isinstance(before, BlobRef) else None
            found = self._reader.stream(relative, known, self._keep_blob)
            if isinstance(found, Skipped):
                done.skipped.append(found)
                continue
            kept[path] = entries.properties(relative.rpartition("/")[2], found)
            if found.digest is not None:
                kept[path][CONTENT] = BlobRef(found.digest)
                done.blobs += 1
        return kept

    def _keep_blob(self, stream: BinaryIO) -> None:
        # The commit that refers to it makes it durable.
        blobs = instance_of(self.repository).blobs
        blobs.write(stream, durable=False)

    def _commit(self, batch: Batch, kept: Kept, done: _Done, to_remove: Sequence[str] = ()) -> None:
        if not kept and not to_remove:
            return
        left = kept
        message = f"import batch {batch.number}" if self._job.message is None else self._job.message
        for looked_again in (False, True):
            if looked_again:
                # Another worker may have just committed the directories; a new poll shows them.
                self._retry.call(self.repository.refresh)
            applied = self._retry.run(self.repository, partial(self._apply, kept=left, to_remove=to_remove), message)
            done.added += applied.added
            done.changed += applied.changed
            done.removed += applied.removed
            if applied.foreign:
                self._notes.append(_removed(applied.foreign))
            left, to_remove = {path: kept[path] for path in applied.without_parent}, ()
            if not left:
                break
        for path in left:
            done.skipped.append(
                Skipped(entries.relative_path(path, self._job.at), "the directory that it is in vanished", False, True)
            )
        done.without_content += sum(
            not entries.keeps_content(properties) for path, properties in kept.items() if path not in left
        )

    def _report(self, batch: Batch, done: _Done) -> Report:
        notes = self._notes.copy()
        self._notes.clear()
        counted = self.repository.statistics
        return Report(
            number=batch.number,
            handled=len(batch.entries) + len(batch.to_remove),
            added=done.added,
            changed=done.changed,
            removed=done.removed,
            without_content=done.without_content,
            blobs=done.blobs,
            skipped=done.skipped,
            committed=counted.committed,
            conflicts=counted.conflicts,
            retries=counted.conflicts + counted.too_slow + self._retry.retries,
            notes=notes,
        )

    def _apply(self, tx: Transaction, kept: Kept, to_remove: Sequence[str]) -> _Applied:
        """Make the changes."""
        totals = dict.fromkeys(TOTALS, 0)
        added = changed = removed = 0
        without_parent: list[str] = []
        foreign: list[str] = []
        parents = {paths.parent(path): None for path in (*kept, *to_remove)}
        found = load_encoded(tx, list(dict.fromkeys([*kept, *parents, self._job.at, *to_remove])))
        for path, wanted in kept.items():
            stored = found[path]
            parent = paths.parent(path)
            if stored is None and found[parent] is None and (parent not in kept or parent in without_parent):
                # The directory had vanished and exists again: the next import finds it.
                without_parent.append(path)
                continue
            if stored is None:
                add_encoded(tx, path, encode_properties(path, wanted))
                added += 1
            elif (before := decode_properties(path, stored)) == wanted:
                continue
            else:
                tx.update(path, {**dict.fromkeys(before.keys() - wanted.keys()), **wanted})
                changed += 1
                _count(totals, before, -1)
            _count(totals, wanted, 1)
        for path in to_remove:
            for below_path, below in tx.subtree(path):
                _count(totals, below, -1)
                removed += 1
                if KIND not in below:
                    foreign.append(below_path)
            if tx.exists(path):
                tx.remove(path)
        for name, difference in totals.items():
            if difference:
                # Adjusts of concurrent workers do not conflict.
                tx.adjust(self._job.at, name, difference)
        return _Applied(added, changed, removed, without_parent, foreign)


def _count(totals: dict[str, int], kept: Mapping[str, PropertyValue], sign: int) -> None:
    """Add or subtract a node, unless no import created it: the totals do not count such nodes."""
    if KIND in kept:
        for name, number in entries.counts(kept).items():
            totals[name] += sign * number


def _removed(foreign: Sequence[str]) -> str:
    """Return the note about nodes that an import has removed although no import has created them."""
    if len(foreign) == 1:
        return f"removed 1 node that no import has created and that is not in the directory: {foreign[0]}"
    number = len(foreign)
    return f"removed {number} nodes that no import has created and that are not in the directory, the first one {foreign[0]}"
