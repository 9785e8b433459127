"""The Pythonic face: a repository, its snapshots, and the nodes in them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from hbasemk import options
from hbasemk.background import Background, OnDemand, within
from hbasemk.errors import ClosedError, PropertyNotFoundError
from hbasemk.kernel import history, paths, revision
from hbasemk.kernel.cache import DEFAULT_ENTRIES
from hbasemk.kernel.commit import CommitStatistics, Source
from hbasemk.kernel.history import LogEntry
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.node import NodeState
from hbasemk.kernel.outcome import Outcome
from hbasemk.kernel.settings import Settings
from hbasemk.kernel.snapshot import Snapshot as Prefix
from hbasemk.kernel.values import Value
from hbasemk.store.abc import Store
from hbasemk.system import PerProcess, SystemRuntime
from hbasemk.transaction import Isolation, Transaction

if TYPE_CHECKING:
    from hbasemk.branches import Branch, Change, RepositoryBlobs

T = TypeVar("T")

DEFAULT_POLL_INTERVAL: Final = 0.2
DEFAULT_PATIENCE: Final = 60.0
CLOSING: Final = 3.0
"""Seconds that closing gives a store to end what was left and take the lease back."""
OTHERS_SNAPSHOT: Final = (
    "the snapshot at {} belongs to another Repository object, or to this one before a fork: what it shows is told by that "
    "one's order of revisions. Ask this repository for its own, with at(snapshot.revision)."
)


class Node(Mapping[str, Value]):
    """A node in a snapshot: a read-only mapping of property names to values."""

    __slots__ = ("_snapshot", "_state")

    def __init__(self, snapshot: Snapshot, state: NodeState) -> None:
        self._snapshot = snapshot
        self._state = state

    @property
    def path(self) -> str:
        """Where the node is."""
        return self._state.path

    @property
    def name(self) -> str:
        """The last name of the path; empty for the root."""
        return paths.name(self._state.path)

    @property
    def created(self) -> str:
        """The revision that began this node's life."""
        return revision.to_text(self._state.created)

    @property
    def revision(self) -> str:
        """The revision that touched this node last (its properties, or which children it has)."""
        return revision.to_text(self._state.revision)

    @property
    def children(self) -> list[str]:
        """The names of all children, in the order of their UTF-8 bytes. One round trip for each 10,000."""
        return self._snapshot.children(self._state.path)

    @property
    def child_count(self) -> int:
        """How many children there are; see :meth:`Snapshot.child_count`."""
        return self._snapshot.instance.counts.of(self._snapshot.prefix, self._state)

    def child(self, name: str) -> Node:
        """The child of this name; raises NodeNotFoundError."""
        return self._snapshot[paths.join(self._state.path, name)]

    def __getitem__(self, name: str) -> Value:
        try:
            value = self._state.properties[name]
        except KeyError:
            raise PropertyNotFoundError(
                f"the node {self._state.path} has no property {name!r} in revision {self._snapshot.revision}",
                path=self._state.path,
                name=name,
            ) from None
        return list(value) if isinstance(value, list) else value

    def __contains__(self, name: object) -> bool:
        return name in self._state.encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.encoded)

    def __len__(self) -> int:
        return len(self._state.encoded)

    def __repr__(self) -> str:
        return f"<Node {self._state.path} {dict(self)!r}>"


class Snapshot(Mapping[str, Node]):
    """The tree at one revision, as a read-only mapping of paths to nodes. It never changes."""

    __slots__ = ("instance", "prefix")

    def __init__(self, instance: Instance, prefix: Prefix) -> None:
        self.instance = instance
        self.prefix = prefix

    @property
    def revision(self) -> str:
        """The revision's id as text."""
        return revision.to_text(self.prefix.revision)

    def __getitem__(self, path: str) -> Node:
        return Node(self, self.instance.reader.require(self.prefix, paths.check_path(path)))

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.instance.reader.node(self.prefix, paths.check_path(path)) is not None

    def __iter__(self) -> Iterator[str]:
        return (node.path for node in self.walk())

    def __len__(self) -> int:
        return sum(1 for _ in self.walk())

    def __bool__(self) -> bool:
        return True

    def nodes(self, wanted: Sequence[str]) -> dict[str, Node | None]:
        """Many nodes at once, None for those that are not there; one round trip for each 1000."""
        found = self.instance.reader.nodes(self.prefix, [paths.check_path(path) for path in wanted])
        return {path: None if state is None else Node(self, state) for path, state in found.items()}

    def children(self, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Names of children after the name ``after``, at most ``limit``; raises NodeNotFoundError."""
        names = self.instance.reader.children(self.prefix, paths.check_path(path), after, limit)
        if not names:
            self.instance.reader.require(self.prefix, path)
        return names

    def child_count(self, path: str) -> int:
        """How many children a node has; raises NodeNotFoundError.

        One round trip for up to 1,000. A wider node's children are read once; from then on each count, by any process,
        takes a few round trips at most and costs what has changed.
        """
        return self[path].child_count

    def walk(self, path: str = paths.ROOT, depth: int | None = None) -> Iterator[Node]:
        """The node and its subtree down to ``depth`` levels below it (None: all), level by level.

        Each level comes in the order of its paths' bytes, in batches of up to 1000 nodes a round trip. Raises
        NodeNotFoundError.
        """
        top = self.instance.reader.require(self.prefix, paths.check_path(path))
        yield Node(self, top)
        for batch in self.instance.reader.levels(self.prefix, path, depth):
            for state in batch:
                yield Node(self, state)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Snapshot) and self.prefix == other.prefix)

    def __hash__(self) -> int:
        return hash(self.prefix.revision)

    def __repr__(self) -> str:
        return f"<Snapshot {self.revision}>"


class _Here(NamedTuple):
    """What one process's threads share of a repository."""

    lock: threading.Lock
    arrived: threading.Condition


class Repository:
    """An opened repository. Safe to be used by many threads, and by a forked child (which becomes an instance of
    its own at its first use). Use it as a context manager, or call :meth:`close`.

    ``poll_interval`` is in seconds; 0 polls on demand only, and then a call of which on some hundred more revisions are
    known ends loose ends and moves the watermark. ``patience`` is how many seconds :meth:`run` goes on retrying after
    conflicts. ``cache_entries`` bounds the node cache. ``settings`` count only where a repository is created.
    """

    def __init__(
        self,
        store: Store,
        *,
        create: bool = True,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
        patience: float = DEFAULT_PATIENCE,
        cache_entries: int = DEFAULT_ENTRIES,
        settings: Settings | None = None,
        owns_store: bool = True,
    ) -> None:
        self.store = store
        self._owns_store = owns_store
        self._poll_interval = options.seconds("poll_interval", poll_interval)
        self._patience = options.seconds("patience", patience, endless=True)
        self._cache_entries = options.count("cache_entries", cache_entries)
        self._closed = False
        # After a fork, locks may be held by threads that the child lacks.
        self._here = PerProcess(lambda: _Here(threading.Lock(), threading.Condition()))
        self._begin(create, settings)

    def _begin(self, create: bool, settings: Settings | None) -> None:
        self._runtime = SystemRuntime()
        self._kernel = Instance.open(
            self.store, self._runtime, create=create, wanted=settings, cache_entries=self._cache_entries
        )
        self._kernel.journal.watchers.append(self._tell)
        self._background: Background | None = None
        if self._poll_interval > 0:
            self._background = Background(self._kernel, self._poll_interval)
        else:
            self._kernel.when_many = OnDemand(self._kernel)
        # Last: whoever finds the process told uses the rest without a lock.
        self._pid = os.getpid()

    def _tell(self) -> None:
        arrived = self._here.get().arrived
        with arrived:
            arrived.notify_all()

    @property
    def instance(self) -> Instance:
        """The kernel under this face; in a forked child a new one, with its own lease."""
        if self._closed:
            raise ClosedError(f"the repository at {self.store.location} has been closed")
        if self._pid != os.getpid():
            with self._here.get().lock:
                if self._closed:
                    raise ClosedError(f"the repository at {self.store.location} has been closed")
                if self._pid != os.getpid():
                    self._begin(create=False, settings=None)
        return self._kernel

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def head(self) -> Snapshot:
        """The newest snapshot of this instance; no round trip. :meth:`refresh` looks for what others committed."""
        instance = self.instance
        return Snapshot(instance, instance.head())

    def at(self, wanted: str) -> Snapshot:
        """The snapshot of a revision, in text form; polls if it is not known yet.

        Raises InvalidRevisionError and UnknownRevisionError.
        """
        instance = self.instance
        return Snapshot(instance, instance.at(revision.from_text(wanted)))

    def refresh(self) -> Snapshot:
        """The newest snapshot after asking the store for what others committed. One round trip if nothing new."""
        self.instance.poll()
        return self.head

    def log(self, path: str = paths.ROOT, upto: str | None = None) -> Iterator[LogEntry]:
        """The revisions that touched the subtree of ``path``, newest first; polls first.

        ``upto`` is the newest revision to tell (None: the head). Reads the journal as the iterator goes on.
        """
        newest = None if upto is None else revision.from_text(upto)
        return history.log(self.instance, paths.check_path(path), newest)

    # --- changing ----------------------------------------------------------------------------------------

    def transaction(
        self, message: str = "", base: Snapshot | None = None, isolation: Isolation = "snapshot"
    ) -> Transaction:
        """Changes on the head (or on ``base``) that are committed together when the ``with`` block ends.

        Whatever became visible after that snapshot and touches the same columns is a ConflictError; :meth:`run`
        repeats instead. ``base`` is a trunk snapshot of this Repository object; ValueError for another's, BranchError for a
        branch's. Polls first unless a poll has just been made. With ``isolation="serializable"`` it also is when it
        touches what was read through the transaction, see :class:`Transaction`.
        """
        instance = self.instance
        if base is None and not instance.journal.fresh(self._poll_interval * 2):
            instance.poll()
        return Transaction(instance, instance.head() if base is None else self.own(base).prefix, message, isolation)

    def run(
        self,
        change: Callable[[Transaction], T],
        message: str = "",
        patience: float | None = None,
        isolation: Isolation = "snapshot",
    ) -> T:
        """Call ``change`` with a transaction, commit it, and repeat both after a conflict.

        It may be called many times, so its effects should be those on the transaction only. Returns what its last
        call returned; that call's transaction then has the ``revision``.
        Raises ConflictError after ``patience`` seconds, and what ``change`` and the commit raise.
        """
        instance = self.instance
        attempts: list[tuple[Transaction, T]] = []

        def attempt(prefix: Prefix) -> Source:
            transaction = Transaction(instance, prefix, message, isolation)
            attempts[:] = [(transaction, change(transaction))]
            return transaction.source()

        made = self.commit_on_head(attempt, message, patience)
        last, result = attempts[0]
        last.ended(made)
        return result

    def branch(self, message: str = "", *, base: Snapshot | None = None, revision: str | None = None) -> Branch:
        """A new branch on the newest trunk snapshot (or on ``base``), or the one that stands at ``revision``.

        ``with repo.branch() as branch: branch.run(…)`` merges it at the end of the block.
        """
        from hbasemk.branches import Branch, resume

        if revision is not None:
            return resume(self, revision)
        snapshot = self.refresh() if base is None else self.own(base)
        return Branch(self, self.instance.branches.begin(snapshot.prefix, message), message)

    def watch(self, path: str = paths.ROOT, timeout: float | None = None) -> Iterator[LogEntry]:
        """What anyone commits to the subtree of ``path`` from now on, in the order in which this instance sees it.

        Goes on until the repository is closed, or nothing of the kind has come for ``timeout`` seconds.
        """
        instance = self.instance
        return self._watch(instance, instance.head(), paths.check_path(path), timeout)

    def _watch(self, instance: Instance, seen: Prefix, path: str, timeout: float | None) -> Iterator[LogEntry]:
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._closed:
                head = instance.head()
                if head == seen:
                    left = 3600.0 if until is None else until - time.monotonic()
                    if not self.wait(lambda known=seen: instance.head() != known, left) and until is not None:  # type: ignore[misc]
                        return
                    continue
                # Others may join the journal just now: they are for the next turn.
                made = [one for one in instance.journal.since(seen) if instance.journal.sees(head, one)]
                seen = head
                for entry in history.entries(instance, made):
                    if path == paths.ROOT or entry.touches(path):
                        yield entry
                        until = None if timeout is None else time.monotonic() + timeout
        except ClosedError:
            if not self._closed:
                raise

    @property
    def blobs(self) -> RepositoryBlobs:
        """Large contents, kept once each."""
        from hbasemk.branches import RepositoryBlobs

        return RepositoryBlobs(self.instance.blobs)

    def diff(self, before: Snapshot, after: Snapshot | None = None, path: str = paths.ROOT) -> Iterator[Change]:
        """The nodes that differ between two snapshots (``after`` None: the head); see :func:`hbasemk.diff`."""
        from hbasemk.branches import diff

        return diff(self.own(before), self.head if after is None else self.own(after), path)

    def own(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, if it is one of this Repository object; raises ValueError."""
        if snapshot.instance is not self.instance:
            raise ValueError(OTHERS_SNAPSHOT.format(snapshot.revision))
        return snapshot

    def sweep_branches(self, retention: float) -> list[str]:
        """Give up branches that nobody has touched for ``retention`` seconds, and free what ended ones left.

        Returns the first revisions of those that were swept.
        """
        swept = self.instance.branches.sweep(round(retention * 1000))
        return [revision.to_text(root) for root in swept]

    def commit_on_head(self, make: Callable[[Prefix], Source], message: str, patience: float | None = None) -> int:
        """Commit what ``make`` makes of the head, again after conflicts; for the faces of the kernel."""
        return self.instance.commit(
            make,
            message,
            patience=self._patience if patience is None else patience,
            fresh=self._poll_interval * 2,
        )

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, at most ``seconds``; looks at each arrival of a revision. Returns the condition.

        Without background polling it polls every 0.1 s.
        """
        deadline = time.monotonic() + seconds
        arrived = self._here.get().arrived
        with arrived:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return condition()
                if self._background is not None:
                    arrived.wait(left)
                    continue
                arrived.wait(min(left, 0.1))
                arrived.release()
                try:
                    self.instance.poll()
                except ClosedError:
                    if not self._closed:
                        raise
                finally:
                    arrived.acquire()
        return True

    def outcome(self, asked: str) -> Outcome:
        """How a revision turned out, for CommitUnknownError; ends it first if this instance left it undecided."""
        return self.instance.outcome(revision.from_text(asked))

    @property
    def statistics(self) -> CommitStatistics:
        """How many commits and conflicts this instance has had."""
        return self.instance.statistics

    # --- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End background work and free everything; idempotent. Later calls raise ClosedError.

        Waits a few seconds at most for a store that does not answer; then its lease runs out by itself.
        """
        with self._here.get().lock:
            if self._closed:
                return
            self._closed = True
        self._tell()
        try:
            if self._pid == os.getpid():
                if self._background is not None:
                    self._background.stop()
                try:
                    within(CLOSING, self._kernel.close)
                finally:
                    self._runtime.close()
        finally:
            if self._owns_store:
                self.store.close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Repository {self.store.location}>"
