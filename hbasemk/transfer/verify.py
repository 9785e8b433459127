"""The proof of an import: a fresh instance compares the tree with the directory, node by node, and the totals.

Memory stays bounded: each node is compared with the disk as the walk meets it. Since different nodes are different
entries, equal numbers of both mean that nothing is missing; only where they differ are the missing ones looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hbasemk.connect import connect
from hbasemk.kernel.values import PropertyValue
from hbasemk.repository import Node, Snapshot
from hbasemk.transfer import entries, own_files
from hbasemk.transfer.entries import TOTALS, Answer, Entry, Seen, Skipped
from hbasemk.transfer.own_files import OwnFiles
from hbasemk.transfer.reader import FileReader, ReaderJob

_BATCH: Final = 1000
_AT_ONCE: Final = 200
"""Nodes that the reader is asked about at once."""


@dataclass(slots=True)
class Verification:
    """What was compared: the number of nodes, and the revision that was looked at."""

    nodes: int = 0
    revision: str = ""


def verify(url: str, top: str, at: str, text_limit: int, exclude: Sequence[str], found: Verification) -> Iterator[str]:
    """Yield every difference, in words; none means that the tree is what the directory is.

    Raises NodeNotFoundError when there is no node ``at``, and StoreError.
    """
    top = os.path.abspath(top)
    sums = dict.fromkeys(TOTALS, 0)
    equal = 0
    # The reader is another process: this one has the repository open, and must not open files that may be its own.
    job = ReaderJob(url, top, text_limit)
    with FileReader.spawned(job) as reader, connect(url, create=False, poll_interval=0) as repository:
        snapshot = repository.refresh()
        found.revision = snapshot.revision
        root = snapshot[at]
        walk = (node for node in snapshot.walk(at) if node.path != at)
        for node, wanted in _with_entries(walk, reader, top, at, exclude):
            found.nodes += 1
            for name, number in entries.counts(node).items():
                sums[name] += number
            if isinstance(wanted, str):
                yield f"{_printable(node.path)}: {wanted}"
                continue
            equal += 1
            yield from _compare(node, entries.properties(node.name, wanted))
        for name, number in sums.items():
            if root.get(name) != number:
                yield f"{at}: the total of {name} is {root.get(name)!r}, the sum over the tree is {number}"
        yield from _missing(snapshot, top, at, exclude, equal, own_files.of(url))


def _with_entries(
    walk: Iterator[Node], reader: FileReader, top: str, at: str, exclude: Sequence[str]
) -> Iterator[tuple[Node, Seen | str]]:
    """Each node with what is on disk at its place, or in words why it should not be there.

    While this process compares one batch and reads the nodes of the next one, the reader looks at the disk.
    """
    before: list[tuple[Node, str | None]] = []
    answers: Iterator[tuple[str, Answer]] = iter(())
    while True:
        batch = [(node, _not_wanted(node, top, at, exclude)) for node in islice(walk, _AT_ONCE)]
        for node, reason in before:
            yield node, reason or _on_disk(next(answers)[1])
        if not batch:
            return
        before = batch
        answers = reader.look([_relative(node, at) for node, reason in batch if reason is None], "content")


def _relative(node: Node, at: str) -> str:
    return node.path[len(at) :].lstrip("/")


def _not_wanted(node: Node, top: str, at: str, exclude: Sequence[str]) -> str | None:
    """Why there cannot be an entry for a node; None when the disk has to be looked at."""
    relative = _relative(node, at)
    if entries.is_excluded(relative, exclude):
        return "is a node, but excluded from the import"
    try:
        entries.to_disk(top, relative)
    except ValueError:
        return "has a name that nothing on disk can have"
    return None


def _on_disk(answer: Answer) -> Seen | str:
    return f"{answer.reason}, but there is a node" if isinstance(answer, Skipped) else answer


def _compare(node: Node, wanted: dict[str, PropertyValue]) -> Iterator[str]:
    kept = dict(node)
    for name in sorted({*wanted, *kept}):
        if wanted.get(name) != kept.get(name):
            yield (
                f"{_printable(node.path)}: {name} is {_short(kept.get(name))} and on disk {_short(wanted.get(name))}"
            )


def _missing(snapshot: Snapshot, top: str, at: str, exclude: Sequence[str], equal: int, own: OwnFiles) -> Iterator[str]:
    """The entries that have no node, if ``equal`` nodes that are entries are not all of them."""
    skipped: list[Skipped] = []
    there = sum(1 for _ in entries.walk(top, exclude, skipped.append, own))
    for one in skipped:
        if one.failed:
            yield f"{_printable(entries.node_path(at, Entry(one.relative, '')))}: {one.reason}"
    if equal != there:
        walk = entries.walk(top, exclude, lambda _: None, own)
        while batch := [entries.node_path(at, entry) for entry in islice(walk, _BATCH)]:
            for path, node in snapshot.nodes(batch).items():
                if node is None:
                    yield f"{_printable(path)}: is on disk, but no node"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
