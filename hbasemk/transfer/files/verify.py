"""The verification of an import: a fresh instance compares each node with the directory, and the totals.

It compares contents by the digests of the stored content and of the file on disk. Memory stays bounded: each
node is compared during the walk. Different nodes are different entries, so equal numbers of both mean that no entry is
missing. Only if the numbers differ, the verification searches for missing entries.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hbasemk.errors import BlobNotFoundError
from hbasemk.format.plural import counted
from hbasemk.repository import Repository
from hbasemk.snapshot import Node, Snapshot
from hbasemk.transfer import own_files
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.entries import CONTENT, DIGEST, FILE, SIZE, TOTALS, Answer, Contents, Seen, Skipped
from hbasemk.transfer.files.reader import FileReader, ReaderJob
from hbasemk.transfer.own_files import OwnFiles
from hbasemk.transfer.retry import RETRY_SECONDS, StoreRetry

_BATCH: Final = 1000
_AT_ONCE: Final = 200
"""The number of nodes in one request to the reader."""
LARGEST: Final = 4 << 20
"""The bytes of contents above which a request takes no further node."""


@dataclass(slots=True)
class Verification:
    """The extent of a comparison: the numbers of nodes, contents and their bytes, and the compared revision."""

    nodes: int = 0
    contents: int = 0
    bytes: int = 0
    revision: str = ""


def verify(
    url: str,
    top: str,
    at: str,
    found: Verification,
    *,
    exclude: Sequence[str] = (),
    limit: int = entries.DEFAULT_LIMIT,
    contents: Contents = "all",
    retry_timeout: float = RETRY_SECONDS,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Yield a description of every difference; none means that the tree equals the directory.

    ``exclude``, ``limit`` and ``contents`` are those of the import: they exclude entries and contents. Calls are retried for
    ``retry_timeout`` seconds in an outage; ``note`` receives a message when an outage begins. Raises NodeNotFoundError if
    there is no node ``at``, and StoreError.
    """
    top = entries.resolved(top)
    sums = dict.fromkeys(TOTALS, 0)
    equal = 0
    # The reader is another process: this one has the repository open, and must not open files that may be its own.
    job = ReaderJob(url, top, limit)
    retry = StoreRetry(retry_timeout, note)
    with FileReader.spawned(job) as reader, retry.opened(url, create=False, poll_interval=0) as repository:
        snapshot = retry.call(repository.refresh)
        found.revision = snapshot.revision
        root = snapshot[at]
        walk = (node for node in snapshot.walk(at) if node.path != at)
        for node, on_disk in _with_entries(walk, reader, top, at, exclude):
            found.nodes += 1
            for name, number in entries.counts(node).items():
                sums[name] += number
            if isinstance(on_disk, str):
                yield f"{_printable(node.path)}: {on_disk}"
                continue
            equal += 1
            yield from _compare(node, on_disk)
            if on_disk.kind == FILE:
                needed = contents == "all" or (contents == "small" and (on_disk.size or 0) <= limit)
                yield from _compare_content(repository, node, on_disk, needed, found)
        for name, number in sums.items():
            if root.get(name) != number:
                yield (
                    f"{at}: the total {name} is {root.get(name)!r}, the sum over the tree is {number}. Something other than an "
                    f"import changed nodes below it; correct it: hbasemk set -t integer {shlex.quote(_printable(at))} {name} "
                    f"{number}"
                )
        yield from _missing(snapshot, top, at, exclude, equal, own_files.of(url))


def _with_entries(
    walk: Iterator[Node], reader: FileReader, top: str, at: str, exclude: Sequence[str]
) -> Iterator[tuple[Node, Seen | str]]:
    """Yield each node with its entry on disk, or with the reason why it should not exist.

    While this process compares one batch and reads the nodes of the next one, the reader reads the disk.
    """
    before: list[tuple[Node, str | None]] = []
    answers: Iterator[tuple[str, Answer]] = iter(())
    while True:
        batch = []
        relatives = []
        size = 0
        for node in islice(walk, _AT_ONCE):
            relative, reason = _entry(node, top, at, exclude)
            batch.append((node, reason))
            if reason is None:
                relatives.append(relative)
            content = node.get(CONTENT)
            size += len(content) if isinstance(content, (bytes, str)) else 0
            if size >= LARGEST:
                break
        for node, reason in before:
            yield node, reason or _on_disk(next(answers)[1])
        if not batch:
            return
        before = batch
        answers = reader.states(relatives, "none")


def _entry(node: Node, top: str, at: str, exclude: Sequence[str]) -> tuple[str, str | None]:
    """Return the entry of a node, and the reason if it cannot have one (None: the disk decides)."""
    try:
        relative = entries.relative_path(node.path, at)
        entries.to_disk(top, relative)
    except ValueError:
        return "", "has a name that nothing on disk can have"
    if entries.is_excluded(relative, exclude):
        return "", "is a node, but excluded from the import"
    return relative, None


def _on_disk(answer: Answer) -> Seen | str:
    return f"is a node, but the entry {answer.reason}" if isinstance(answer, Skipped) else answer


def _compare(node: Node, seen: Seen) -> Iterator[str]:
    on_disk = entries.attributes(entries.entry_of(node.name), seen)
    kept = dict(node)
    kept.pop(CONTENT, None)
    for name in sorted({*on_disk, *kept}):
        if on_disk.get(name) != kept.get(name):
            yield (
                f"{_printable(node.path)}: {name} is {_short(kept.get(name))} and on disk {_short(on_disk.get(name))}"
            )


def _compare_content(
    repository: Repository, node: Node, seen: Seen, needed: bool, found: Verification
) -> Iterator[str]:
    """Compare the stored content with the file on disk."""
    if CONTENT not in node:
        if needed:
            yield f"{_printable(node.path)}: the content is missing"
        return
    digest = hashlib.sha256()
    size = 0
    try:
        for piece in entries.pieces(node[CONTENT], repository.blobs.stream):
            digest.update(piece)
            size += len(piece)
    except (ValueError, BlobNotFoundError) as error:
        yield f"{_printable(node.path)}: the content cannot be read: {error}"
        return
    found.contents += 1
    found.bytes += size
    if digest.hexdigest() != seen.digest:
        yield (
            f"{_printable(node.path)}: the content has {counted(size, 'byte')} and {DIGEST} {digest.hexdigest()}; on disk it has "
            f"{SIZE} {seen.size} and {DIGEST} {seen.digest}"
        )


def _missing(snapshot: Snapshot, top: str, at: str, exclude: Sequence[str], equal: int, own: OwnFiles) -> Iterator[str]:
    """Yield the entries without a node, unless all entries are among the ``equal`` nodes."""
    skipped: list[Skipped] = []
    there = sum(1 for _ in entries.walk(top, exclude, skipped.append, own))
    for one in skipped:
        if one.failed:
            yield f"{_printable(entries.node_path(at, one.relative))}: {one.reason}"
    if equal != there:
        walk = entries.walk(top, exclude, lambda _: None, own)
        while found := [entry.relative for entry in islice(walk, _BATCH)]:
            batch = []
            for relative in found:
                impossible = entries.impossible(at, relative)
                if impossible is None:
                    batch.append(entries.node_path(at, relative))
                else:
                    yield f"{_printable(relative)}: {impossible.reason}"
            for path, node in snapshot.nodes(batch).items():
                if node is None:
                    yield f"{_printable(path)}: is on disk, but not in the tree"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
