"""What the integrity check reads of a repository: its tables, and how one instance sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hbasemk.errors import FormatError, RevisionCollectedError
from hbasemk.format import paths, schema
from hbasemk.format.limits import shown
from hbasemk.format.node import NodeState
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Cell, Get, Store


class Inspection:
    """Reads for a check. ``store`` has the tables, ``settings`` the settings that were read first."""

    def __init__(self, store: RetryingStore, runtime: Runtime, settings: Settings, lease: Lease) -> None:
        self.store = store
        self.settings = settings
        self._runtime = runtime
        self._lease = lease

    @classmethod
    def unopened(cls, store: Store, runtime: Runtime, settings: Settings) -> Inspection:
        """Return the inspection of a repository that cannot be opened: no revision is visible."""
        retrying = RetryingStore(store, runtime)
        return cls(retrying, runtime, settings, Lease(retrying, runtime, settings))

    def sees(self, _: int) -> bool:
        """Return whether a revision belongs to the checked view."""
        return False

    def deferred(self) -> Sequence[int]:
        """Return the revisions that this process must still end."""
        return ()

    def is_lease_over(self, revision: int) -> bool:
        """Return whether the lease of a revision's writer has expired; False if the lease is damaged (reported elsewhere)."""
        try:
            return self._lease.is_over(revision)
        except FormatError:
            return False

    def now_ms(self) -> float:
        """Measure the store's clock; return a lower bound of its time in ms since 1970."""
        self._lease.measure()
        return self._lease.server.at_least(self._runtime.monotonic())


class HeadInspection(Inspection):
    """Inspects the view at the head of an instance, which polls first."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.store, instance.runtime, instance.settings, instance.lease)
        self._instance = instance
        instance.poll()
        self._view = instance.head()

    def sees(self, revision: int) -> bool:
        """Return whether a revision belongs to the checked view."""
        return self._instance.journal.sees(self._view, revision)

    def deferred(self) -> Sequence[int]:
        """Return the revisions that this process must still end."""
        return self._instance.outcomes.deferred

    def cells(self, gets: Sequence[Get]) -> Sequence[Sequence[Cell]]:
        """Return the cells of each get that are visible in the checked view, one per column.

        Raises RevisionCollectedError if parts of the view have been deleted since the check began.
        """
        try:
            return self._instance.reader.cells(self._view, gets)
        except RevisionCollectedError as error:
            # The check writes nothing: the repository may be read-only or damaged. So the user keeps the snapshot.
            raise RevisionCollectedError(
                f"the check reads the snapshot at revision {error.revision} of the repository at {self.store.location}. Since "
                "the check began, the snapshot has become older than the retention, and parts of it have been deleted. Make a "
                "checkpoint before the check, for longer than the check takes (`hbasemk checkpoint make`), and check again.",
                revision=error.revision,
                oldest=error.oldest,
            ) from error

    def poll(self) -> None:
        """Let the instance see every revision that was decided before. The checked view stays as it is."""
        self._instance.poll()

    def newest_node(self, path: str) -> NodeState | None:
        """Return a node at the newest head, which may be later than the checked view; None if there is none."""
        return self._instance.node(self._instance.head(), path)

    def count_present(self, view: View, path: str, created: int, columns: Collection[bytes]) -> int:
        """Return how many of these child columns show a child in a view, in the node's life that began at ``created``."""
        return self._instance.reader.count_present((view,), path, created, columns)[0]


def require_no_lost_life(instance: Instance, view: View, path: str) -> None:
    """Raise FormatError if the row of a missing node has cells, but nothing that began or ended a life in this view.

    A new life of the node would hide these cells for good.
    """
    key = paths.key(path)
    (cells,) = instance.reader.cells(view, [Get(key, families=(schema.DATA,))])
    if cells and not any(cell[:2] == schema.DELETED for cell in cells):
        raise schema.damaged(
            f"there are cells of {shown(path)}, but its life has no beginning", schema.NODES, key, schema.DELETED
        )
