"""The nodes of entries that have vanished from the disk, or that an import excludes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from hbasemk.format import paths
from hbasemk.kernel.batches import batched
from hbasemk.repository import Repository, instance_of
from hbasemk.snapshot import Snapshot, view_of

DIRECTORIES: Final = 100
"""The children of so many directories are read in one call."""


def vanished(
    repository: Repository,
    at: str,
    there: AbstractSet[str],
    unreadable: Collection[str],
    directories: AbstractSet[str] | None,
) -> Iterator[str]:
    """Yield the nodes below ``at`` that are not in ``there``, the topmost of each subtree.

    ``there`` are the paths of the entries on disk. Nodes at or below ``unreadable`` paths stay. If nothing was below ``at``
    before the import, ``directories`` are the paths of all entries that were directories during it: only their nodes have
    children, and the rest of the tree is not read. Else it is None.
    """
    head = repository.refresh()
    listed = None if directories is None else sorted({at, *directories} & {at, *there})
    for path in _paths(head, at) if listed is None else _children(repository, head, listed):
        if path in there or path == at or any(paths.is_at_or_below(path, one) for one in unreadable):
            continue
        if paths.parent(path) in there or paths.parent(path) == at:
            yield path


def _paths(head: Snapshot, at: str) -> Iterator[str]:
    """Yield the paths of all nodes."""
    return (node.path for node in head.walk(at))


def _children(repository: Repository, head: Snapshot, directories: Collection[str]) -> Iterator[str]:
    """Yield the children of the nodes at some paths."""
    instance = instance_of(repository)
    view = view_of(instance, head)
    for part in batched(directories, DIRECTORIES):
        states = [state for state in instance.nodes(view, part).values() if state is not None]
        for path, found in instance.children_of(view, states).items():
            yield from (paths.join(path, name) for name in found.names)
