"""A bounded cache of branch revisions.

Each entry holds all earlier revisions of its branch, so only few entries of a long branch fit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from hbasemk.format.branch_head import RebaseOf
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.memory_sizes import size_of_state
from hbasemk.kernel.runtime import Runtime

LONGEST: Final = 50_000
"""The total number of ids kept, about 100 bytes each: a branch's own revisions and those of its view of trunk."""
MOST_CHANGES: Final = 100
"""The number of changes that a cached branch revision keeps; those of a longer branch are read again."""
MOST_BYTES: Final = 64 * 1024
"""The size of the states of nodes that a cached branch revision keeps."""
TRUST_SECONDS: Final = 5.0
"""Seconds for which a reader trusts that no sweep has begun to delete a branch, after it has found the branch open."""
MOST_CHECKS: Final = 10_000
"""The number of revisions for which the cache keeps the time of the last check, and of branches with their newest one."""

T = TypeVar("T")


class Begun(NamedTuple):
    """What the first row of a branch stores, besides its view.

    ``rebase_of`` is the branch that a rebase in steps continues with this one, which takes no effect before that one has ended.
    """

    message: str
    rebase_of: RebaseOf | None


@dataclass(frozen=True, slots=True)
class BranchState:
    """A branch revision: the branch's first revision ``root``, its trunk ``base``, and its ``own`` revisions so far.

    ``trunk`` is the branch's fixed view of trunk; ``view`` adds the branch's own revisions. ``changes`` are those of its
    revisions, if this instance has made them all and they are few; else None. ``states`` are those of changed nodes in ``view``
    (None: no such node), as far as this instance knows them and they are small. ``begun`` is known if this instance has begun the
    branch.
    """

    root: int
    base: int
    own: tuple[int, ...]
    trunk: View
    view: View
    changes: tuple[RowChange, ...] | None = None
    states: Mapping[str, NodeState | None] = field(default_factory=dict)
    begun: Begun | None = None

    @classmethod
    def begin(cls, root: int, trunk: View, extent: Extent, begun: Begun) -> BranchState:
        """Return the first revision of a branch that this instance begins on a view of trunk with this extent."""
        view = View.of_branch((root,), extent, trunk.upper)
        return cls(root, trunk.revision, (root,), trunk, view, (), begun=begun)

    def followed_by(self, new: int, plan: ChangeSet) -> BranchState:
        """Return the revision ``new`` of the branch, which follows this one with the changes of ``plan``."""
        own = (*self.own, new)
        view = View.of_branch(own, self.view.extent, self.trunk.upper)
        changes = None if self.changes is None else (*self.changes, *plan.changes)
        if changes is None or len(changes) > MOST_CHANGES:
            return BranchState(self.root, self.base, own, self.trunk, view, begun=self.begun)
        states = {**self.states, **plan.states(new)}
        for node in plan.after:
            if node.repeated:
                # The commit has written a property with its old value. That is another base than the plan's, see
                # change_set.with_unchanged_writes.
                del states[node.path]
        if sum(map(size_of_state, states.values())) > MOST_BYTES:
            states = {}
        return BranchState(self.root, self.base, own, self.trunk, view, changes, states, self.begun)

    @property
    def ids(self) -> int:
        """The approximate number of ids it holds; its other fields count as ten, and each change and each 100 bytes of states."""
        above = 0 if self.view.extent is None else len(self.view.extent.above)
        size = sum(map(size_of_state, self.states.values()))
        return 10 + 2 * len(self.own) + above + 10 * len(self.changes or ()) + size // 100


class BranchCache:
    """The cached branch revisions of one instance. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        # Ordered: the first key of a plain dict becomes slow to find after many evictions.
        self._kept: OrderedDict[int, BranchState] = OrderedDict()
        self._open: OrderedDict[int, float] = OrderedDict()
        self._made: OrderedDict[int, int] = OrderedDict()
        self.ids = 0

    def get(self, revision: int) -> BranchState | None:
        """Return a cached branch revision of any age, or None."""
        return self._kept.get(revision)

    def is_trusted(self, revision: int) -> bool:
        """Return whether a reader of a branch revision needs no check now."""
        checked = self._open.get(revision)
        return checked is not None and self._runtime.monotonic() - checked <= TRUST_SECONDS

    def record_open(self, revision: int, began: float) -> None:
        """Record that the branch of a revision was open at ``began`` or later, by the monotonic clock."""
        with self._lock:
            _remember(self._open, revision, began)

    def keep(self, revision: int, state: BranchState) -> None:
        """Cache a branch revision; evict the oldest entries."""
        with self._lock:
            self.drop(revision)
            self._kept[revision] = state
            self.ids += state.ids
            while self.ids > LONGEST and len(self._kept) > 1:
                self.drop(next(iter(self._kept)))

    def record_made(self, root: int, newest: int) -> None:
        """Record that this instance has made a revision the newest one of a branch."""
        with self._lock:
            _remember(self._made, root, newest)

    def forget_made(self, root: int) -> None:
        """Forget what :meth:`record_made` has recorded for a branch."""
        self._made.pop(root, None)

    def newest_made(self, root: int) -> int | None:
        """Return the newest revision of a branch that this instance has made."""
        return self._made.get(root)

    def drop(self, revision: int) -> None:
        """Remove a branch revision from the cache."""
        with self._lock:
            found = self._kept.pop(revision, None)
            if found is not None:
                self.ids -= found.ids


def _remember(kept: OrderedDict[int, T], key: int, value: T) -> None:
    """Keep a value as the newest of at most :data:`MOST_CHECKS`."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > MOST_CHECKS:
        kept.popitem(last=False)
