"""Background maintenance: polling, lease renewal, recovery; and orderly shutdown.

One thread of an opened repository runs it. Without background polling, some of the user's calls run it at their end.
Errors do not end it: it tries again, more slowly, and logs the first error. If maintenance finds damage, polls go on as
before, and only the next maintenance comes later. Only the user's own calls raise errors. If a poll finds that the store
cannot be used, the calls that wait for polls raise its error. An unexpected error, which only a defect of hbasemk can cause,
goes to ``threading.excepthook`` each time.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from hbasemk.errors import (
    ClosedError,
    FormatError,
    HbasemkError,
    LeaseLostError,
    SchemaVersionError,
    StoreUnusableError,
)
from hbasemk.interrupts import Deferred, start_thread
from hbasemk.kernel.collection.background import BackgroundCollection
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.retry import AT_LEAST, BRIEFLY, TimeLimit
from hbasemk.pace import SHORTEST_GAP, Pace
from hbasemk.store.named_memory import NamedStore
from hbasemk.system import SystemRuntime
from hbasemk.wakeup import Bell, Bells
from hbasemk.weak_set import WeakSet

POLL_EVERY: Final = 0.1
"""Seconds between the polls of a caller that waits in a repository without background polling."""
LONGEST_PAUSE: Final = 5.0
CLOSING: Final = 3.0
"""The longest time in seconds that closing waits for the store to finish background work and release the lease."""
STOPPING: Final = 1.0
"""The longest time in seconds that closing waits for a background thread that is inside a store call."""

_log = logging.getLogger("hbasemk")


def run_with_timeout(seconds: float, call: Callable[[], object]) -> None:
    """Make a call in a thread, and wait at most ``seconds`` for its end; raise its error if it ends in time."""
    raised: list[BaseException] = []
    left = threading.Event()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            if left.is_set():
                _log.debug("a call that had timed out ended: %s", error)
            raised.append(error)

    thread = threading.Thread(target=work, name="hbasemk-close", daemon=True)
    try:
        start_thread(thread)
    except RuntimeError:
        # The interpreter is about to end and starts no more threads.
        call()
        return
    thread.join(seconds)
    if thread.is_alive():
        left.set()
        return
    if raised:
        raise raised[0]


class _OutageLog:
    """Logs the first failure of a series, and the success that ends it.

    Logs each loss of the lease, and once that the process may not commit any more.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._failing = False
        self._is_outdated = False

    def record_failure(self, error: HbasemkError) -> None:
        """Log the error unless the last attempt failed too."""
        if isinstance(error, SchemaVersionError):
            # The store has not failed, and does not become available again.
            if not self._is_outdated:
                _log.warning("this process cannot commit to %s any more: %s", self.location, error)
            self._is_outdated = True
            return
        if isinstance(error, LeaseLostError):
            # The store has not failed, and no commit has.
            _log.warning(
                "this process lost machine id %#06x of the repository at %s: another process ended its lease, because this "
                "process did not renew it in time (it was paused, or the store was out of reach); its next commit claims a new "
                "machine id",
                error.machine,
                self.location,
            )
            return
        if not self._failing:
            _log.warning("background work on %s failed; retrying: %s", self.location, error)
        self._failing = True

    def record_success(self) -> None:
        """Log that the store is reachable, if the last attempt failed."""
        if self._failing:
            _log.warning("%s is available again", self.location)
        self._failing = False


class InlineMaintenance:
    """Maintains one instance when it is called, in the caller's thread and in one thread at a time."""

    def __init__(self, instance: Instance) -> None:
        # Weak, since the instance refers to this.
        self._instance = weakref.ref(instance)
        self._lock = threading.Lock()
        self._outage_log = _OutageLog(instance.location)

    def __call__(self) -> None:
        """Maintain now, unless another thread does. Failures are retried next time; the user's call already succeeded."""
        instance = self._instance()
        if instance is None:
            return
        with Deferred() as interrupts:
            if not self._lock.acquire(blocking=False):
                return
            try:
                with interrupts.suspended():
                    self._maintain(instance)
            finally:
                self._lock.release()

    def _maintain(self, instance: Instance) -> None:
        try:
            with TimeLimit(instance.runtime, BRIEFLY):
                instance.maintain()
            self._outage_log.record_success()
        except ClosedError:
            return
        except HbasemkError as error:
            self._outage_log.record_failure(error)


class Background:
    """Keeps one instance up to date until it is stopped. The thread does not keep the instance alive.

    Every ``interval`` seconds it runs maintenance. Where the store has a change counter, it compares the counter every few
    milliseconds, and polls when it has changed. On other stores it polls every ``interval`` seconds, and more often after
    news. ``arrivals`` are the bells of the threads that wait for news.
    """

    def __init__(self, instance: Instance, interval: float, arrivals: Bells) -> None:
        # Waiting on a bell takes less than on a flag, and this thread wakes up a hundred times a second.
        self._bell = Bell()
        # The first poll on a store without a counter would find nothing: opening has polled.
        pause = interval if instance.revalidate() is None else SHORTEST_GAP
        arguments = (weakref.ref(instance), interval, pause, arrivals, self._bell, _OutageLog(instance.location))
        self._thread = threading.Thread(target=_work, args=arguments, name="hbasemk-poll", daemon=True)
        start_thread(self._thread)

    def stop(self, seconds: float) -> None:
        """End the thread; wait for it at most ``seconds``, since it may be inside a store call that hangs."""
        self._bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=seconds)


def _maintain(instance: Instance, outage_log: _OutageLog) -> bool:
    """Maintain an instance; return whether it met no damage. If the store fails, raise."""
    try:
        instance.maintain()
    except FormatError as error:
        # If it has stopped the store, this raises it again: polls do not go on, and it is logged once.
        instance.revalidate()
        outage_log.record_failure(error)
        return False
    outage_log.record_success()
    return True


def _end_waits(instance: Instance, arrivals: Bells, error: HbasemkError) -> None:
    """Let the threads that wait for news raise an error after which polls cannot find any."""
    # A copy: the traceback would refer to the instance, which the garbage collector would then have to find.
    instance.failure = copy.copy(error)
    arrivals.ring()


def _work(
    reference: weakref.ref[Instance],
    interval: float,
    pause: float,
    arrivals: Bells,
    bell: Bell,
    outage_log: _OutageLog,
) -> None:
    began = time.monotonic()
    pace = Pace(began, interval)
    due_at = began + interval
    maintenance_log = _OutageLog(outage_log.location)
    used = time.thread_time()
    while not bell.wait(pause):
        instance = reference()
        if instance is None:
            return
        before, used = used, time.thread_time()
        began = time.monotonic()
        # Whether it is maintenance that fails, not the poll.
        polled = False
        try:
            due = began >= due_at
            unchanged = instance.revalidate()
            changed = not unchanged
            if changed or due:
                # Before the poll: what it finds ends their waits.
                awaited = arrivals.are_awaited()
                with TimeLimit(instance.runtime, BRIEFLY):
                    found = changed and bool(instance.poll())
                    polled, instance.failure = True, None
                    busy = time.thread_time() - used
                    if due:
                        whole = _maintain(instance, maintenance_log)
                        due_at = began + (interval if whole else max(interval, LONGEST_PAUSE))
            instance.failure = None
            outage_log.record_success()
            if unchanged:
                pause = pace.after_comparison(began, used - before)
            else:
                after = pace.after_poll_without_counter if unchanged is None else pace.after_poll
                pause = after(began, found=found, awaited=awaited, busy=busy, took=time.monotonic() - began)
        except ClosedError as error:
            _end_waits(instance, arrivals, error)
            return
        except HbasemkError as error:
            outage_log.record_failure(error)
            if isinstance(error, StoreUnusableError) and not polled:
                _end_waits(instance, arrivals, error)
            pause = min(max(pause, 0.1) * 2, LONGEST_PAUSE)
        except Exception:
            # A defect. Python shows it as it shows an error that ends a thread, but this thread still has a lease to renew.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            pause = min(max(pause, 0.1) * 2, LONGEST_PAUSE)
        finally:
            # Before the pause: it would not be collected during it.
            del instance


class LiveInstance(Instance):
    """An instance with its background work. Ends by :meth:`end`, or when nothing refers to it any more.

    Snapshots, transactions, branches, watches and iterators refer to it, so they can be used without the
    Repository object they came from.
    """

    _live = False
    _background: Background | None = None
    _owns_store = False
    _pid = -1
    _interval = 0.0
    _arrivals: Bells
    _collection: BackgroundCollection | None = None

    def begin(self, interval: float, arrivals: Bells, *, owns_store: bool, collect: bool) -> None:
        """Start background polling every ``interval`` seconds; 0: maintenance runs inside calls, now and then.

        ``collect``: the background thread also collects old revisions. Each revision that becomes visible rings ``arrivals``,
        and so does :meth:`end`.
        """
        self._pid = os.getpid()
        self._owns_store = owns_store
        self._interval = interval
        self._arrivals = arrivals
        self.max_poll_age = interval * 2
        self.journal.watchers.append(arrivals.ring)
        if interval > 0:
            if collect:
                self._collection = BackgroundCollection(self.runtime)
            self._background = Background(self, interval, arrivals)
        else:
            self.periodic_work.on_backlog = InlineMaintenance(self)
        _live.add(self)
        self._live = True

    def maintain(self) -> None:
        """Run periodic maintenance, and continue the collection of old revisions. See :meth:`Instance.maintain`.

        A forked child leaves this to its parent. A poll with an iterator or a snapshot of the parent may call it there.
        """
        if self._live and not self.is_own():
            return
        damage = Damage()
        with damage.kept():
            super().maintain()
        if self._collection is not None:
            with damage.kept():
                self._collection.step(self)
        damage.report()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait at most ``seconds`` until a condition holds, and return it. Each arrival of a revision checks it.

        Without background polling it polls every 0.1 s. Returns at once when the instance ends. Raises StoreUnusableError if
        the store cannot be used.
        """
        deadline = time.monotonic() + seconds
        # Created before the first check of the condition, so that no arrival is missed.
        bell = self._arrivals.new_bell()
        while not condition():
            left = deadline - time.monotonic()
            failure = self.failure
            # In this order: a failure that the end of the instance causes comes after it.
            if failure is not None and self._live:
                raise copy.copy(failure)
            if left <= 0 or not self._live:
                return condition()
            if self._interval > 0:
                bell.wait(left)
                continue
            bell.wait(min(left, POLL_EVERY))
            try:
                self.poll()
            except ClosedError:
                if self._live:
                    raise
        return True

    def end(self, seconds: float = CLOSING) -> None:
        """End the background work, release the lease, and close the store if it is the repository's own; idempotent.

        Waits ``seconds`` at most for a store that does not answer. With 0 seconds, makes no call of the store; the lease then
        expires by itself.
        """
        try:
            self._live = False
            self._arrivals.ring()
            if self._background is not None:
                self._background.stop(min(seconds, STOPPING))
            try:
                if seconds > 0:
                    # In this thread, which may itself be inside an attempt.
                    self.end_attempts(min(seconds / 2, STOPPING))
                    run_with_timeout(seconds, partial(self._close_in_time, seconds))
                else:
                    self.lease.forget()
            finally:
                if isinstance(self.runtime, SystemRuntime):
                    self.runtime.close()
        finally:
            if self._owns_store:
                self.store.close()
        _live.discard(self)

    def _close_in_time(self, seconds: float) -> None:
        with TimeLimit(self.runtime, seconds):
            self.close()

    def __reduce__(self) -> NoReturn:
        # Snapshots, nodes, transactions and blobs refer to it.
        raise TypeError(
            f"cannot pickle an object of the repository at {self.location}: it belongs to this process; pass the URL with a path "
            "or a revision, and call hbasemk.connect in the other process"
        )

    def is_own(self) -> bool:
        """Return whether this process opened the instance; a forked child has copies of its parent's instances."""
        return self._pid == os.getpid()

    def __del__(self) -> None:
        if self._live and self.is_own():
            self._live = False
            # In a separate thread, because the garbage collector also runs where this thread holds locks of the store.
            ending = threading.Thread(target=self._end_collected, name="hbasemk-end", daemon=True)
            try:
                warnings.warn(
                    f"a repository at {self.store.location} was not closed before nothing referred to it any more; use it in "
                    "a with statement, or call close()",
                    ResourceWarning,
                    source=self,
                    stacklevel=1,
                )
            finally:
                try:
                    start_thread(ending)
                except RuntimeError:
                    # The interpreter is about to end and starts no more threads.
                    self._end_collected()

    def _end_collected(self) -> None:
        if isinstance(self.store.inner, NamedStore):
            # The contents of a named store must not depend on when Python frees an object.
            self._owns_store = False
        self.end()


_live: WeakSet[LiveInstance] = WeakSet()


@atexit.register
def _end_all() -> None:
    """Release, at the end of the interpreter, the leases of repositories that are still open.

    All together have the time that closing one has. Each gets a share of what is left, so that one whose store is out of
    reach does not use up the time of the others.
    """
    deadline = time.monotonic() + CLOSING
    own = [instance for instance in _live if instance.is_own()]
    for done, instance in enumerate(own):
        left = deadline - time.monotonic()
        instance.end(max(left / (len(own) - done), AT_LEAST) if left > 0 else 0.0)
