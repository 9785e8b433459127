"""The markers that a rebase leaves where trunk and the branch changed the same thing.

A marker is a node below ``:conflict``, named after the kind of conflict. Where the usual place is taken or beyond a limit, the
marker gets a number, also below the ``:conflict`` of an ancestor, and says in ``:path`` which node it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

from hbasemk.errors import BranchError
from hbasemk.format import limits, paths
from hbasemk.format.node import encode_property
from hbasemk.kernel.branches.net_effects import MARKER
from hbasemk.kernel.commit import operations
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging

PATH: Final = ":path"
"""The property in which a numbered marker says which node has the conflict."""


class ConflictMarkers:
    """Writes markers to a staging. ``effect`` holds the nodes of the branch, which a rebase stages before or after a marker."""

    def __init__(self, staging: Staging, effect: Mapping[str, StagedNode]) -> None:
        self._staging = staging
        self._effect = effect

    def add_property(self, kind: str, path: str, name: str, data: bytes) -> None:
        """Mark a property of a node with a value."""
        for holder, is_usual in self._holders(path, kind, path):
            is_free = is_usual or name != PATH
            if is_free and _fits(holder) and self._staging.child(holder, name) is None:
                self._begin(holder, None if is_usual else path)
                self._staging.apply([operations.SetEncoded(holder, name, data)])
                return
        raise _no_place(path)

    def add_node(self, kind: str, path: str, subtree: Mapping[str, dict[str, bytes]]) -> str:
        """Mark a node with a whole subtree, and replace its earlier marker; return the path of the copy."""
        for holder, is_usual in self._holders(paths.parent(path), kind, path):
            into = paths.join(holder, paths.name(path))
            if not all(_fits(paths.rebase(one, path, into)) for one in subtree) or self._has_property(into):
                continue
            self._begin(holder, None if is_usual else path)
            if self._staging.find(into) is not None:
                self._staging.apply([operations.RemoveNode(into)])
            for one, encoded in subtree.items():
                self._staging.apply([operations.AddEncoded(paths.rebase(one, path, into), encoded)])
            return into
        raise _no_place(path)

    def _holders(self, above: str, kind: str, path: str) -> Iterator[tuple[str, bool]]:
        """Yield the possible parents of a marker, the usual one first, and whether it is the usual one."""
        usual = True
        while True:
            marker = paths.join(above, MARKER)
            if _fits(marker) and not self._has_property(marker):
                holder = paths.join(marker, kind)
                if usual and _fits(holder) and not self._has_property(holder):
                    yield holder, True
                yield self._numbered(marker, kind, path), False
            if above == paths.ROOT:
                return
            usual = False
            above = paths.parent(above)

    def _numbered(self, marker: str, kind: str, path: str) -> str:
        """Return the numbered marker of a node, or the first that is free."""
        for number in count(2):
            holder = paths.join(marker, f"{kind}-{number}")
            if not _fits(holder):
                break
            if not self._has_property(holder) and self._is_of(self._staging.find(holder), path):
                staged = self._effect.get(holder)
                if staged is None or not staged.exists or self._is_of(staged, path):
                    break
        return holder

    def _is_of(self, holder: StagedNode | None, path: str) -> bool:
        return holder is None or holder.encoded(PATH) == encode_property(holder.path, PATH, path)

    def _has_property(self, path: str) -> bool:
        """Return whether a node would have the path of a property."""
        above = self._staging.find(paths.parent(path))
        return above is not None and above.encoded(paths.name(path)) is not None

    def _begin(self, holder: str, of: str | None) -> None:
        """Add the parent of a marker, unless it exists; ``of`` is the node that it names in :data:`PATH`."""
        properties = {} if of is None else {PATH: of}
        for one in (paths.parent(holder), holder):
            if self._staging.find(one) is None:
                self._staging.apply([operations.AddNode(one, properties if one == holder else {})])


def _fits(path: str) -> bool:
    return paths.depth(path) <= limits.MAX_DEPTH and limits.size(path) <= limits.MAX_PATH


def _no_place(path: str) -> BranchError:
    return BranchError(
        f"the rebase changed nothing: trunk and the branch both changed {limits.shown(path)}, and no conflict marker for it "
        f"fits below any of its ancestors. A marker needs a node without a property {MARKER!r}, and two more levels than the "
        f"node with its subtree (at most {limits.MAX_DEPTH} levels and {limits.MAX_PATH} bytes are possible). Rename such "
        "a property on trunk, and on the branch if it is there; or move the deepest nodes on trunk; or reset the branch to a "
        "revision before this change. Then rebase again.",
        path=path,
    )
