"""Hashes of subtrees, kept at the head until a revision touches the subtree.

The hash of a subtree combines the node's properties with the hashes of its children's subtrees. So after a change only the
hashes from the changed node up to the root are computed again. The children of a node with many of them are divided into groups
by their names, and each group has a hash, so only one group of them is visited again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.known_revisions import Arrival, touched
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.child_groups import ChildGroups, Children, hash_of, in_groups, parts_of
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.runtime import Runtime

BYTES_OF_GROUPS: Final = 250
"""The bytes of groups of children for each hash that may be kept, which takes as many."""
FEW: Final = 1000
"""After a change, up to so many nodes that the cache lacks are read by their paths; with more, the whole subtree is read."""


class SubtreeHashes:
    """The hashes of one instance. Thread-safe.

    ``most`` limits the number kept; those of the topmost nodes stay. The groups of children take at most as much memory as these
    hashes. ``position`` is that of the last revision that joined before this object listened to arrivals. A kept hash is valid
    from its position of the sequence on: an arrival drops the hashes of what it touches and of all nodes above, before any view
    contains it. It also drops the hash of the group to which each of these nodes belongs.
    """

    def __init__(self, runtime: Runtime, reader: Reader, most: int, position: int) -> None:
        self._lock = runtime.lock()
        self._reader = reader
        self._most = most
        self._kept: dict[str, tuple[int, bytes]] = {}
        self._groups: dict[str, ChildGroups] = {}
        self._dropped: set[str] = set()
        self._last_arrival = position

    def of(self, view: View, top: NodeState, below: Sequence[str]) -> dict[str, str]:
        """Return the hashes of a node and of some nodes below it, by path.

        Two hashes are equal exactly if the subtrees' structures and properties are. No round trip if no revision touched the
        subtree since the last call, and a few if few did. Otherwise the whole subtree is read, level by level.
        """
        wanted = (top.path, *below)
        known = {path: digest for path in wanted if (digest := self._get(path, view)) is not None}
        if len(known) < len(set(wanted)):
            groups: dict[str, ChildGroups] = {}
            known = self._from_cache(view, wanted, groups) or self._from_walk(view, top, groups)
            self._keep(view, known, groups)
        return {path: known[path].hex() for path in wanted}

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Drop the hashes that arriving revisions change. The journal calls this before any view contains them."""
        with self._lock:
            self._last_arrival = arrivals[-1].position
            if self._kept or self._groups:
                self._drop(touched(arrivals))

    def forget(self, position: int) -> None:
        """Drop everything: the revision announced at this position never joined."""
        with self._lock:
            self._last_arrival = position
            self._kept = {}
            self._groups = {}

    def _drop(self, changed: Iterable[str]) -> None:
        if len(self._dropped) > self._most:
            self._dropped.clear()
        for path in paths.with_ancestors(changed):
            if self._kept.pop(path, None) is not None:
                self._dropped.add(path)
            if self._groups and path != paths.ROOT and (above := self._groups.get(paths.parent(path))) is not None:
                above.touch(paths.name(path))

    def _get(self, path: str, view: View) -> bytes | None:
        kept = self._kept.get(path)
        return kept[1] if kept is not None and view.extent is None and kept[0] <= view.position else None

    def _children(self, path: str, view: View, names: Sequence[str]) -> Children:
        """Return the children with these names; if there are many, in groups with the hashes that are known in a view."""
        with self._lock:
            kept = self._groups.get(path)
            if kept is not None:
                kept = kept.copy() if view.extent is None and kept.position <= view.position else None
        return in_groups(names, view.position, kept)

    def _keep(self, view: View, digests: dict[str, bytes], groups: dict[str, ChildGroups]) -> None:
        """Keep hashes that were computed parents last, unless a revision has arrived since the view."""
        with self._lock:
            if view.extent is not None or view.position < self._last_arrival:
                return
            if len(self._kept) + len(digests) > self._most:
                self._kept = {}
            for path, digest in islice(reversed(digests.items()), self._most):
                self._kept[path] = view.position, digest
            self._groups.update(groups)
            if groups and sum(one.size for one in self._groups.values()) > self._most * BYTES_OF_GROUPS:
                self._groups = {}

    def _from_cache(self, view: View, wanted: Sequence[str], groups: dict[str, ChildGroups]) -> dict[str, bytes] | None:
        """Compute the hashes from kept ones and from cached nodes, parents last; None if the cache lacks too many nodes.

        Adds the ``groups`` of the children of these nodes. Two round trips for each level of which the cache lacks nodes.
        """
        to_read = FEW if view.extent is None and wanted[0] in self._dropped else 0
        digests: dict[str, bytes] = {}
        found: dict[str, tuple[NodeState, Children]] = {}
        level: Collection[str] = set(wanted)
        while level:
            missing: list[str] = []
            known: dict[str, tuple[NodeState, Sequence[str]]] = {}
            for path in level:
                digest = self._get(path, view)
                if digest is not None:
                    digests[path] = digest
                elif (cached := self._reader.cached_with_names(view, path)) is not None:
                    known[path] = cached
                else:
                    missing.append(path)
            if len(missing) > to_read:
                return None
            if missing:
                to_read -= len(missing)
                read = self._reader.with_names(view, missing)
                if len(read) < len(missing):
                    return None
                known.update(read)
            below: list[str] = []
            for path, (state, names) in known.items():
                children = self._children(path, view, names)
                found[path] = state, children
                below += [paths.join(path, name) for name in _unknown(children)]
            level = [path for path in below if path not in found and path not in digests]
        for path in sorted(found, key=paths.depth, reverse=True):
            state, children = found[path]
            of_children = {name: digests[paths.join(path, name)] for name in _unknown(children)}
            digests[path] = _digest(state, children, of_children, groups)
        return digests

    def _from_walk(self, view: View, top: NodeState, groups: dict[str, ChildGroups]) -> dict[str, bytes]:
        """Read the whole subtree and compute all its hashes, parents last. Adds the ``groups`` of children."""
        nodes = [top]
        for batch in self._reader.levels(view, top.path):
            nodes += batch
        below: dict[str, dict[str, bytes]] = {}
        digests: dict[str, bytes] = {}
        for state in reversed(nodes):
            of_children = below.pop(state.path, {})
            children = in_groups(list(reversed(of_children)), view.position)
            digest = digests[state.path] = _digest(state, children, of_children, groups)
            if state is not top:
                below.setdefault(paths.parent(state.path), {})[paths.name(state.path)] = digest
        return digests


def _unknown(children: Children) -> Sequence[str]:
    """Return the names of the children whose hashes are needed for the hash of their parent."""
    return children.unknown() if isinstance(children, ChildGroups) else children


def _digest(
    state: NodeState, children: Children, digests: Mapping[str, bytes], groups: dict[str, ChildGroups]
) -> bytes:
    """Return the hash of a node; ``digests`` are those of the children that :func:`_unknown` names.

    If the children are in groups, all hashes of these become known, and the groups are added to ``groups``.
    """
    parts = [(b"p", paths.encode(name), data) for name, data in sorted(state.encoded.items())]
    if isinstance(children, ChildGroups):
        groups[state.path] = children
        parts += children.parts(digests)
    else:
        parts += parts_of(children, digests)
    return hash_of(parts)
