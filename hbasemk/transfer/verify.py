"""The proof of an import: a fresh instance compares the tree with the directory, node by node, and the totals.

Memory stays bounded: each node is compared with the disk as the walk meets it, and since different nodes are different
entries, equal numbers of both mean that nothing is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hbasemk.connect import connect
from hbasemk.transfer import entries
from hbasemk.transfer.entries import TOTALS, Entry, Skipped


@dataclass(slots=True)
class Verification:
    """What was compared: the number of nodes, and the revision that was looked at."""

    nodes: int = 0
    revision: str = ""


def verify(url: str, top: str, at: str, text_limit: int, exclude: Sequence[str], found: Verification) -> Iterator[str]:
    """Yield every difference, in words; none means that the tree is what the directory is."""
    top = os.path.abspath(top)
    sums = dict.fromkeys(TOTALS, 0)
    with connect(url, create=False, poll_interval=0) as repository:
        snapshot = repository.refresh()
        found.revision = snapshot.revision
        root = snapshot[at]
        for node in snapshot.walk(at):
            if node.path == at:
                continue
            relative = node.path[len(at) + 1 :] if at != "/" else node.path[1:]
            entry = Entry(relative, str(node.get("kind")))
            found.nodes += 1
            try:
                wanted = entries.properties(top, entry, text_limit)
            except OSError as error:
                yield f"{node.path}: there is no such {entry.kind} on disk ({error.strerror})"
                continue
            kept = dict(node)
            for name in sorted({*wanted, *kept}):
                if wanted.get(name) != kept.get(name):
                    yield f"{node.path}: {name} is {_short(kept.get(name))} and on disk {_short(wanted.get(name))}"
            for name, number in entries.counts(entry, wanted).items():
                sums[name] += number
        for name, number in sums.items():
            if root.get(name) != number:
                yield f"{at}: the total of {name} is {root.get(name)!r}, the sum over the tree is {number}"
    skipped: list[Skipped] = []
    there = sum(1 for _ in entries.walk(top, exclude, skipped.append))
    if there != found.nodes:
        yield f"{at}: the tree has {found.nodes} nodes, the directory {there} entries"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
