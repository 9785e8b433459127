"""The Python API: an opened repository."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterator
from types import EllipsisType, TracebackType
from typing import Final, NoReturn, TypeVar

from hbasemk import arguments, checkpoint, open_branch, options
from hbasemk.blobs import RepositoryBlobs
from hbasemk.branch import Branch
from hbasemk.changes import Change, diff
from hbasemk.checkpoint import Checkpoint
from hbasemk.errors import BranchError, ClosedError, InvalidValueError
from hbasemk.format import limits, paths, revisions
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import log, schema_change, time_travel
from hbasemk.kernel.collection import retention as collection
from hbasemk.kernel.commit.statistics import CommitStatistics
from hbasemk.kernel.journal.view import require_trunk
from hbasemk.kernel.log import LogEntry
from hbasemk.kernel.reading.cache import DEFAULT_BYTES, CacheStatistics
from hbasemk.kernel.retry import BRIEFLY, TimeLimit
from hbasemk.kernel.settings import LONGEST_MS, Settings
from hbasemk.maintenance import LiveInstance
from hbasemk.open_branch import OpenBranch
from hbasemk.since import extent_before
from hbasemk.snapshot import Snapshot, base_of, view_of
from hbasemk.store.abc import Store
from hbasemk.system import DEFAULT_RETRY_TIMEOUT, PerProcess, SystemRuntime
from hbasemk.transaction import Isolation, Transaction, check_isolation, check_run, run_on_head
from hbasemk.wakeup import Bells
from hbasemk.watch import Watch

T = TypeVar("T")

DEFAULT_POLL_INTERVAL: Final = 0.2
LONGEST: Final = 1e300
"""More seconds than any retention; an error can still show them."""


class Repository:
    """An opened repository. Many threads may use it, and a forked child (which becomes an instance of its own at its first
    use). Use it as a context manager, or call :meth:`close`.

    ``store`` holds the repository; :func:`connect` takes a URL instead. If there is no repository in it, it is created if
    ``create`` is True, else StoreUnusableError is raised. ``owns_store`` says whether :meth:`close` closes the store too.
    ``poll_interval`` is the time in seconds between two runs of maintenance and, on HBase, the longest between background
    polls, which are more frequent after news; on other stores the background thread polls when the store changes. 0
    disables background polling; maintenance then runs inside a call, once every 500 new revisions. ``retry_timeout`` is the
    number of seconds for which :meth:`run` retries conflicts, and any call retries while the store is unreachable; opening
    does not retry. ``cache_bytes`` bounds the cache of nodes and lists of children; 0 disables it. ``settings`` apply only
    when the repository is created. ``schema_version`` is the schema number of the application that this process accepts, or
    a range of them (None: all). SchemaVersionError is raised if the repository has another one, and later by commits, a few
    seconds after it has changed. A new repository begins with the number that it names, or with 0 for None and several numbers;
    SchemaVersionError is raised if these do not contain 0. ``collect`` says whether this process, while it commits, deletes old
    revisions in the background (:attr:`retention`).
    """

    def __init__(
        self,
        store: Store,
        *,
        create: bool = True,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
        retry_timeout: float = DEFAULT_RETRY_TIMEOUT,
        cache_bytes: int = DEFAULT_BYTES,
        settings: Settings | None = None,
        schema_version: int | range | None = None,
        owns_store: bool = True,
        collect: bool = True,
    ) -> None:
        if not isinstance(store, Store):
            raise arguments.wrong("store", "a hbasemk.store.abc.Store; hbasemk.connect takes a URL", store)
        self.store = store
        arguments.flag(create, "create")
        if settings is not None:
            arguments.instance(settings, Settings, "settings")
        self._owns_store = arguments.flag(owns_store, "owns_store")
        self._collects = arguments.flag(collect, "collect")
        self._poll_interval = options.seconds("poll_interval", poll_interval)
        self._retry_timeout = options.seconds("retry_timeout", retry_timeout, endless=True)
        self._cache_bytes = options.count("cache_bytes", cache_bytes)
        self._schema_version = None if schema_version is None else arguments.schema_versions(schema_version)
        self._closed = False
        self._ended = False
        # After a fork, a lock may be held by a thread that the child lacks.
        self._beginning = PerProcess(threading.Lock)
        self._arrivals = Bells()
        # A wrong address is reported at once.
        self._begin(create, settings, BRIEFLY)

    def _begin(self, create: bool, settings: Settings | None, retry_timeout: float) -> None:
        runtime = SystemRuntime(self._retry_timeout)
        with TimeLimit(runtime, retry_timeout):
            self._live = LiveInstance.open(
                self.store,
                runtime,
                create=create,
                wanted=settings,
                cache_bytes=self._cache_bytes,
                accepted=self._schema_version,
            )
            self._live.require_revisions()
        self._live.begin(self._poll_interval, self._arrivals, owns_store=self._owns_store, collect=self._collects)
        # Last: a thread that finds the pid set uses the rest without a lock.
        self._pid = os.getpid()

    def _instance(self) -> LiveInstance:
        """Return the kernel instance behind this object. A forked child gets one of its own, with its own lease."""
        if self._closed:
            raise ClosedError(f"the repository at {self.store.location} has been closed; open it again with connect()")
        if self._pid != os.getpid():
            with self._beginning.get():
                if self._closed:
                    raise ClosedError(
                        f"the repository at {self.store.location} has been closed; open it again with connect()"
                    )
                if self._pid != os.getpid():
                    self._begin(create=False, settings=None, retry_timeout=self._retry_timeout)
        return self._live

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def head(self) -> Snapshot:
        """The newest snapshot that this instance knows; no round trip. :meth:`refresh` polls for the commits of others.

        If the store failed right after a commit of this instance, it polls first, to show the commit. Then it raises a
        StoreError if the store is still away.
        """
        instance = self._instance()
        return Snapshot(instance, instance.head())

    def at(self, revision: str | None = None, *, time: datetime.datetime | None = None) -> Snapshot:
        """Return the snapshot at ``revision``, given in text form, or the newest one known to be committed before ``time``.

        Polls if the revision is not known yet. ``time`` is an aware datetime; the store's clock decides what was committed
        before it. That snapshot ends below the first revision that was pending at that moment.

        Raises InvalidRevisionError for a text that is not a revision id, UnknownRevisionError for a revision that does not exist
        or a time before the first one, and RevisionCollectedError for a snapshot that is too old. Raises InvalidValueError for a
        naive datetime or a time in the future, and TypeError unless exactly one of the two is given.
        """
        instance = self._instance()
        if (revision is None) == (time is None):
            raise TypeError("at() takes exactly one of revision and time")
        if time is not None:
            return Snapshot(instance, time_travel.view_before(instance, arguments.moment_ms(time, "time")))
        return Snapshot(instance, instance.at(arguments.revision(revision, "revision")))

    def refresh(self) -> Snapshot:
        """Poll, and return the newest snapshot. One round trip if nothing is new."""
        instance = self._instance()
        instance.poll()
        return Snapshot(instance, instance.head())

    def log(self, path: str = paths.ROOT, until: str | Snapshot | None = None) -> Iterator[LogEntry]:
        """Return the revisions that touched the subtree of ``path``, newest first; poll first.

        ``until`` is the newest revision to return (None: the head), or a snapshot of this Repository object that contains them.
        With a snapshot of :meth:`at` by time, pass the snapshot: it may contain revisions that the snapshot of its revision
        lacks. The cost depends on the revisions that touched the path: a path that never existed costs a few round trips. The
        iterator reads further entries when the caller requests them.
        """
        instance = self._instance()
        if isinstance(until, Snapshot):
            return log.log(instance, arguments.path(path), view_of(instance, until, "until"))
        newest = None if until is None else arguments.revision(until, "until")
        return log.log(instance, arguments.path(path), newest)

    # --- changing ----------------------------------------------------------------------------------------

    def transaction(
        self, message: str = "", base: Snapshot | None = None, isolation: Isolation = "snapshot"
    ) -> Transaction:
        """Begin a transaction on the head, or on ``base``; the end of the ``with`` block commits it.

        ``message`` describes the commit in the log, in at most 64 KiB; a longer one raises LimitError.
        The commit raises ConflictError if a later revision touches the same columns; :meth:`run` retries instead. With
        ``isolation="serializable"`` it also conflicts with changes of data that the transaction read, see :class:`Transaction`.
        ``base`` must be a trunk snapshot of this Repository object: the snapshot of another object raises InvalidValueError,
        the snapshot of a branch BranchError. Polls first unless the last poll is recent.
        """
        limits.check_message(message)
        check_isolation(isolation)
        instance = self._instance()
        if base is None:
            view = instance.recent_head()
        else:
            view = view_of(instance, base, "base")
            require_trunk(view)
        return Transaction(instance, view, message, isolation)

    def run(
        self,
        change: Callable[[Transaction], T],
        message: str = "",
        retry_timeout: float | None = None,
        isolation: Isolation = "snapshot",
    ) -> T:
        """Call ``change`` with a transaction and commit it; retry both after a conflict.

        ``message`` and ``isolation`` are those of :meth:`transaction`.
        ``change`` may run many times, so it should have no effects but those on the transaction. Returns the result of its
        last call; the transaction of that call then has the ``revision``.
        Raises LimitError for a message that is too long, ConflictError after ``retry_timeout`` seconds, and the errors of
        ``change`` and of the commit. An async or generator function raises TypeError, because its changes would come after
        the commit. So does a function that returns a coroutine or a generator. If ``change`` forks, the call commits in the
        parent, and raises ClosedError in the child.
        """
        check_run(change, message, isolation, retry_timeout)
        return run_on_head(self._instance(), change, message, isolation, retry_timeout)

    def adjust(
        self,
        path: str,
        name: str,
        by: int | float,
        message: str = "",
        *,
        if_version: str | EllipsisType | None = ...,
    ) -> str:
        """Add ``by`` to the number in the property ``name`` of the node at ``path``, in one commit; return its revision.

        ``message`` describes the commit. ``if_version`` is the expected version of the node (``...``: any); with another one,
        VersionMismatchError is raised. See :meth:`Transaction.adjust`. If ``by`` is 0, nothing changes, and the result is
        the revision of the head.
        """

        def change(tx: Transaction) -> Transaction:
            tx.adjust(path, name, by, if_version=if_version)
            return tx

        revision = self.run(change, message).revision
        assert revision is not None
        return revision

    def branch(self, message: str = "", *, base: Snapshot | None = None) -> Branch:
        """Begin a branch on the newest trunk snapshot, or on ``base``. Polls first unless the last poll is recent.

        ``message`` describes the revision that a merge will make; a branch has no name but its revision.
        ``with repo.branch() as branch: branch.run(…)`` merges the branch at the end of the block.
        """
        limits.check_message(message)
        instance = self._instance()
        return Branch(self._instance, instance.begin_branch(base_of(instance, base), message))

    def resume_branch(self, revision: str) -> Branch:
        """Continue a branch, from any process, by its newest ``revision`` in text form.

        Raises InvalidRevisionError, UnknownRevisionError, and BranchError for a trunk revision, a branch that has ended, or
        an earlier revision of the branch. In the last case ``error.continues_at`` is a newer one.
        """
        found = arguments.revision(revision, "revision")
        if not revisions.is_branch(found):
            # Raises the error for a revision that does not exist.
            self._instance().at(found)
            raise BranchError(f"{revision} is a trunk revision; expected a revision of a branch", revision=revision)
        self._instance().require_branch_head(found)
        return Branch(self._instance, found)

    def watch(
        self, path: str = paths.ROOT, timeout: float | None = None, *, since: str | Snapshot | None = None
    ) -> Watch:
        """Return an iterator over new commits to the subtree of ``path``, from now on or after ``since``.

        The iterator yields each revision once as a :class:`LogEntry`, in the order in which this instance sees them. It ends
        when it or the repository is closed, or after ``timeout`` seconds without an entry. Without background polling
        it polls once more before the timeout ends it. An outage of the store does not end it.

        ``since`` is one of: the ``resume_token`` of a watch, also of an earlier process, so that both watches together miss
        and repeat nothing; a snapshot of any Repository object on this repository; or the id of a trunk revision. For the
        last two, the watch yields every revision that is not part of the snapshot, or of ``repo.at(id)``. Processes see
        revisions in different orders, so an id is exact only for revisions that are some seconds old.
        Raises InvalidRevisionError for an invalid text or a token of another repository, UnknownRevisionError for revisions
        that the repository lacks, RevisionCollectedError for those that are no longer recorded, BranchError for revisions of
        a branch, and InvalidValueError for a snapshot of another repository.
        """
        path = arguments.path(path)
        if timeout is not None:
            options.seconds("timeout", timeout, endless=True)
        if since is not None and not isinstance(since, (str, Snapshot)):
            raise arguments.wrong("since", "a resume token, a revision id, a Snapshot or None", since)
        extent = extent_before(since, self._instance())
        return Watch(self, self._instance, self._arrivals, extent, path, timeout, polls=self._poll_interval == 0)

    @property
    def blobs(self) -> RepositoryBlobs:
        """The blobs of this repository: large contents, stored once each."""
        return RepositoryBlobs(self._instance())

    def diff(self, before: Snapshot, after: Snapshot | None = None, path: str = paths.ROOT) -> Iterator[Change]:
        """Return the nodes at or below ``path`` that differ between the snapshots ``before`` and ``after`` (None: the head).

        See :func:`hbasemk.diff`.
        """
        last = self.head if after is None else after
        instance = self._instance()
        for snapshot, name in ((before, "before"), (last, "after")):
            view_of(instance, snapshot, name)
        return diff(before, last, path)

    def checkpoint(self, lifetime: float, snapshot: Snapshot | None = None, message: str = "") -> Checkpoint:
        """Keep ``snapshot`` (None: the newest; polls) readable for ``lifetime`` seconds, exactly as it is, for every process.

        From its next poll on, each process reads this snapshot at ``repo.at(checkpoint.revision)``, also after a restart.
        ``message`` says why it is kept, in at most 1024 bytes. Two round trips or more.

        Raises InvalidValueError for a lifetime that is not above 0 or is more than 100 years, and for a snapshot of another
        Repository object; BranchError for the snapshot of a branch. Raises CheckpointError if a checkpoint keeps another
        snapshot with the same revision: that of a process that saw concurrent revisions in another order. Without a
        ``snapshot``, a kept one that contains more serves as well.
        """
        return checkpoint.make(self._instance, lifetime, snapshot, message)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of all processes, by revision. One round trip for each 1000. Some may have expired.

        Raises FormatError if the checkpoints of a revision are damaged. `hbasemk checkpoint list` shows the others.
        """
        return checkpoint.list_all(self._instance)

    def branches(self) -> list[OpenBranch]:
        """Return the branches of all processes that have not ended, by the time at which they began.

        Reads all branches that began within the retention, also those that have ended. For each 1000 of them, one round trip
        if no branch is open, else three. Raises FormatError for a damaged branch.
        """
        return open_branch.list_all(self._instance())

    def sweep_branches(self, retention: float) -> list[str]:
        """Abandon branches without a commit for ``retention`` seconds, and delete the data of branches that ended earlier.

        The data of a branch is deleted an hour after its end, or ``retention`` after it if that is shorter. So this deletes
        the data of the branches that it abandons only if ``retention`` is 0; else a later sweep does.

        Returns the first revision of each branch that was abandoned, or whose data was deleted. Raises InvalidValueError unless
        ``retention`` is from 0 to 100 years.
        """
        options.seconds("retention", retention, most=options.CENTURY)
        swept = self._instance().sweep_branches(round(retention * 1000))
        return [revisions.to_text(root) for root in swept]

    def outcome(self, revision: str) -> Outcome:
        """Return the outcome of ``revision``, given in text form; decide it first if this instance left it undecided.

        For CommitUnknownError, and for an interrupted commit (:attr:`Transaction.attempted`). On HBase ABORTED for a revision of
        a branch is final after the next change of the branch; before, a gateway may still apply a request that it held. Raises
        RevisionCollectedError if the revision was decided so long ago that it is no longer recorded.
        """
        return self._instance().outcome(arguments.revision(revision, "revision"))

    @property
    def retention(self) -> float | None:
        """The seconds for which old revisions stay readable, in all processes; None: without limit. One round trip.

        A new repository has 7 days. Assign at least 60, or None, to change it; a longer retention does not bring back what
        has been deleted. Assigning another value raises InvalidValueError.
        """
        found = collection.read(self._instance())
        return None if found is None else found / 1000

    @retention.setter
    def retention(self, seconds: float | None) -> None:
        found = None
        try:
            if seconds is not None:
                bounded = float(min(seconds, LONGEST)) if type(seconds) is int else seconds
                found = round(1000 * min(options.seconds("retention", bounded, endless=True), LONGEST))
            collection.check(found)
        except InvalidValueError:
            raise InvalidValueError(
                f"retention must be a number of seconds from {collection.SHORTEST_MS // 1000} to "
                f"{LONGEST_MS // 1000}, or None for no limit, got {limits.shown(seconds)}; nothing was changed"
            ) from None
        collection.write(self._instance(), found)

    @property
    def oldest(self) -> str | None:
        """The oldest revision whose snapshot is certainly readable, as far as this instance knows; None: the first one.

        No round trip. Snapshots that a checkpoint or a branch keeps are never older.
        """
        horizon = self._instance().horizon
        return revisions.to_text(horizon) if horizon else None

    @property
    def schema_version(self) -> int:
        """The schema number of the application, 0 at first. The library gives it no meaning. One round trip."""
        return schema_change.current(self._instance())

    def set_schema_version(self, new: int, *, expected: int) -> None:
        """Set the schema number to ``new`` if it is ``expected``; both are ints from 0 to 2**63 - 1.

        When it returns, no process commits any more that was opened with a ``schema_version`` other than ``new``; but on HBase,
        a commit to a branch that had begun before may still arrive. For that it waits until each other process has renewed its
        lease twice, or its lease has expired: some seconds, and with the default settings up to 19 s if one of them is killed
        meanwhile. On HBase it waits longer if a lease is renewed late. It waits also if the number is ``new`` already, because
        an earlier call may have ended before its wait did. Raises SchemaVersionError if the number is not ``expected``,
        InvalidValueError for a number out of range, and FormatError if a lease cannot be read; then nothing was written. An error
        of the wait says that the number is set; set it again then, with ``expected=new``.
        """
        arguments.schema_number(new, "new")
        arguments.schema_number(expected, "expected")
        schema_change.change(self._instance(), new, expected)

    @property
    def settings(self) -> Settings:
        """The settings of the repository, chosen when it was created. No round trip."""
        return self._instance().settings

    @property
    def statistics(self) -> CommitStatistics:
        """The numbers of commits and conflicts of this instance."""
        return self._instance().statistics

    @property
    def cache_statistics(self) -> CacheStatistics:
        """The hits, misses and size in bytes of this instance's cache of nodes and lists of children."""
        return self._instance().cache_statistics

    # --- the end -----------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closed

    def close(self) -> None:
        """Stop background work and release all resources; idempotent. Later calls raise ClosedError.

        A call that an interrupt ends leaves the rest to the next call. Waits a few seconds at most for a store that does not
        answer; the lease then expires by itself.
        """
        with self._beginning.get():
            if self._ended:
                return
            self._closed = True
        self._arrivals.ring()
        if self._pid == os.getpid():
            self._live.end()
        elif self._owns_store:
            self.store.close()
        self._ended = True

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Repository {self.store.location}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle {self!r}: it belongs to this process; pass its URL, and call hbasemk.connect in the other process"
        )


def instance_of(repository: Repository) -> LiveInstance:
    """Return the kernel instance of a repository in this process, for the other front ends and tools.

    Raises ClosedError after :meth:`Repository.close`, and StoreError if a forked child cannot open its own instance.
    """
    return repository._instance()
