"""Watches: iterators over commits that survive outages, can be stopped from any thread, and say where to resume."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import paths
from hbasemk.format.extent import Extent
from hbasemk.kernel import log
from hbasemk.kernel.feed import Batch, Feed
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import resume_token
from hbasemk.kernel.log import LogEntry
from hbasemk.kernel.retry import BRIEFLY, TimeLimit
from hbasemk.maintenance import POLL_EVERY
from hbasemk.wakeup import Bells

if TYPE_CHECKING:
    from hbasemk.repository import Repository

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
"""Seconds between attempts to read from a store that is out of reach."""
LONGEST_SILENCE: Final = 60.0
"""Seconds after which a watch checks for new revisions although nothing woke it."""

_log = logging.getLogger("hbasemk")


class Watch(Iterator[LogEntry]):
    """The revisions that touch one subtree, in the order in which this instance sees them; see ``Repository.watch``.

    Use it as an iterator, by one thread at a time, and as a context manager. The iteration ends when the watch or its
    repository is closed, or when no entry has arrived for ``timeout`` seconds. While the store is unavailable, it waits and
    retries. It raises other errors, also StoreUnusableError if only background polls have met it; the next call of
    :func:`next` continues at the same place.
    """

    def __init__(
        self,
        repository: Repository,
        instance: Callable[[], Instance],
        arrivals: Bells,
        extent: Extent,
        path: str,
        timeout: float | None,
        *,
        polls: bool,
    ) -> None:
        self._repository = repository
        # A function, because a forked child has an instance of its own.
        self._instance = instance
        self._settings = instance().settings
        self._feed = Feed(extent)
        self._path = path
        self._timeout = timeout
        self._until = float("inf") if timeout is None else time.monotonic() + timeout
        self._polls = polls
        self._polled_at_end = False
        self._batch_is_last = False
        self._read: tuple[Batch | None, Sequence[LogEntry]] = (None, ())
        self._last: str | None = None
        self._closed = False
        self._wait = FIRST_WAIT
        self._bell = arrivals.new_bell()

    @property
    def resume_token(self) -> str:
        """The text with which ``Repository.watch(since=...)`` continues after the last entry returned.

        It is valid in every process, as long as the revisions after it are recorded (:attr:`Repository.retention`). It has
        about 20 characters after some seconds without commits, and up to 11 more for each revision of the last seconds. It also
        covers revisions that change nothing below the path, so that a later watch does not read them again.
        """
        return resume_token.to_text(self._feed.extent, self._settings)

    @property
    def revision(self) -> str | None:
        """The id of the last revision returned, None before the first. Resume with :attr:`resume_token` instead."""
        return self._last

    def close(self) -> None:
        """End the iteration, also where another thread waits in it. Idempotent, and safe in signal handlers."""
        self._closed = True
        self._bell.ring()

    def __next__(self) -> LogEntry:
        while not self._closed:
            try:
                batch = self._feed.batch
                known, entries = self._read
                if batch.given >= len(batch.revisions):
                    self._read_next()
                elif known is not batch:
                    instance = self._instance()
                    with TimeLimit(instance.runtime, BRIEFLY):
                        self._read = (batch, list(log.entries(instance, batch.revisions)))
                else:
                    entry = entries[batch.given]
                    if entry.is_fold or (self._path != paths.ROOT and not entry.touches(self._path)):
                        batch.given += 1
                        continue
                    if self._timeout is not None:
                        self._until = time.monotonic() + self._timeout
                        self._polled_at_end = False
                        self._batch_is_last = False
                    # Nothing here can be interrupted: what is counted is also returned.
                    self._last = entry.revision
                    batch.given += 1
                    return entry
            except ClosedError:
                if not (self._closed or self._repository.closed):
                    # The store was closed, but neither the watch nor the repository.
                    raise
                self._closed = True
            except (StoreNotAppliedError, StoreUnknownError) as error:
                self._is_out_of_reach(error)
            else:
                self._wait = FIRST_WAIT
        raise StopIteration

    def _read_next(self) -> None:
        """Read the next batch of revisions. If it is empty, wait for a short time; a poll that finds a revision ends the wait.

        So does a background poll that finds that the store cannot be used; then the next call raises its error.
        """
        instance = self._instance()
        if self._batch_is_last:
            if self._polled_at_end or not self._polls:
                instance.require_usable()
                self._closed = True
                return
            self._poll(instance, at_end=True)
        left = self._until - time.monotonic()
        with TimeLimit(instance.runtime, BRIEFLY):
            batch = self._feed.advance(instance)
        if batch.revisions:
            # The end does not wait for later commits: those to other subtrees may arrive as fast as the watch reads them.
            self._batch_is_last = left <= 0 and batch.reaches_end
            return
        instance.require_usable()
        if left <= 0 and (self._polled_at_end or not self._polls):
            self._closed = True
        elif not self._polls:
            self._bell.wait(min(left, LONGEST_SILENCE))
        else:
            self._bell.wait(min(left, POLL_EVERY))
            # The caller may have been busy since the last entry, so that nothing has polled in the whole time.
            self._poll(instance, at_end=left <= POLL_EVERY)

    def _poll(self, instance: Instance, *, at_end: bool) -> None:
        self._polled_at_end = at_end
        if not self._closed:
            with TimeLimit(instance.runtime, BRIEFLY):
                instance.poll()

    def _is_out_of_reach(self, error: StoreNotAppliedError | StoreUnknownError) -> None:
        if self._wait == FIRST_WAIT:
            _log.warning("a watch on %s cannot read; retrying: %s", self._repository, error)
        left = self._until - time.monotonic()
        if left <= 0:
            self._closed = True
            return
        self._bell.wait(min(left, self._wait))
        self._wait = min(self._wait * 2, LONGEST_WAIT)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Watch:
        return self

    def __repr__(self) -> str:
        return f"<Watch {self._path} of {self._repository!r}>"
