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
from hbasemk.transfer import entries
from hbasemk.transfer.entries import TOTALS, Entry, Skipped

_BATCH: Final = 1000


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
    with connect(url, create=False, poll_interval=0) as repository:
        snapshot = repository.refresh()
        found.revision = snapshot.revision
        root = snapshot[at]
        for node in snapshot.walk(at):
            if node.path == at:
                continue
            found.nodes += 1
            wanted = _wanted(top, node, at, text_limit, exclude)
            for name, number in entries.counts(node).items():
                sums[name] += number
            if isinstance(wanted, str):
                yield f"{_printable(node.path)}: {wanted}"
                continue
            equal += 1
            yield from _compare(node, wanted)
        for name, number in sums.items():
            if root.get(name) != number:
                yield f"{at}: the total of {name} is {root.get(name)!r}, the sum over the tree is {number}"
        yield from _missing(snapshot, top, at, exclude, equal)


def _wanted(top: str, node: Node, at: str, text_limit: int, exclude: Sequence[str]) -> dict[str, PropertyValue] | str:
    """What the node should hold, or in words why it should not be there."""
    relative = node.path[len(at) :].lstrip("/")
    if entries.is_excluded(relative, exclude):
        return "is a node, but excluded from the import"
    try:
        entry = entries.on_disk(top, relative)
        if entry is None:
            return "is neither file, directory nor link on disk"
        return entries.properties(top, entry, text_limit)
    except OSError as error:
        return f"cannot be found and read on disk ({error.strerror})"
    except ValueError:
        return "has a name that nothing on disk can have"


def _compare(node: Node, wanted: dict[str, PropertyValue]) -> Iterator[str]:
    kept = dict(node)
    for name in sorted({*wanted, *kept}):
        if wanted.get(name) != kept.get(name):
            yield (
                f"{_printable(node.path)}: {name} is {_short(kept.get(name))} and on disk {_short(wanted.get(name))}"
            )


def _missing(snapshot: Snapshot, top: str, at: str, exclude: Sequence[str], equal: int) -> Iterator[str]:
    """The entries that have no node, if ``equal`` nodes that are entries are not all of them."""
    skipped: list[Skipped] = []
    there = sum(1 for _ in entries.walk(top, exclude, skipped.append))
    for one in skipped:
        if one.failed:
            yield f"{_printable(entries.node_path(at, Entry(one.relative, '')))}: {one.reason}"
    if equal != there:
        walk = entries.walk(top, exclude, lambda _: None)
        while batch := [entries.node_path(at, entry) for entry in islice(walk, _BATCH)]:
            for path, node in snapshot.nodes(batch).items():
                if node is None:
                    yield f"{_printable(path)}: is on disk, but no node"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
