"""Retries of idempotent operations after an error or a lost reply: for how long, and with which waits.

A call that was *not applied* is retried, and so is a call whose outcome is *unknown*; any other error is raised
unchanged. :class:`TimeLimit` limits the total retry time of all calls of an operation. Without it, the runtime's
``retry_timeout`` limits each call. Retries never nest: :class:`~hbasemk.kernel.retrying_store.RetryingStore` retries
single calls, and :func:`run_with_retries` an operation that holds a lock, in which each call is made once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import ref

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.runtime import Runtime

T = TypeVar("T")
P = ParamSpec("P")

FIRST_WAIT: Final = 0.02
"""Seconds before the second attempt; each further wait is twice as long, with jitter."""
LONGEST_WAIT: Final = 1.0
"""The longest wait in seconds, before jitter; calls continue this soon after an outage."""
AT_LEAST: Final = 0.2
"""Seconds for which a call is retried even if no time is left: one lost connection is not an outage."""
BRIEFLY: Final = 0.0
"""A time limit for callers that try again later themselves: each call is retried for :data:`AT_LEAST` only."""
_SHORTEST: Final = 0.001


class _Limit:
    """The time up to which calls are retried; while ``until`` is None, ``seconds`` from the first failure.

    A success sets ``until`` back to None, unless the limit was made with an end or a call has given up.
    """

    __slots__ = ("__weakref__", "is_final", "seconds", "until")

    def __init__(self, seconds: float, until: float | None = None) -> None:
        self.seconds = seconds
        self.until = until
        self.is_final = until is not None

    def give_up(self, until: float) -> None:
        """Give later calls, such as those of a roll-back, no time of their own, even if some of them succeed."""
        if not self.is_final:
            self.is_final = True
            self.until = until


class _Attempt:
    """One attempt of an operation that is retried as a whole."""

    __slots__ = ("__weakref__",)


# Weak references: if an interrupt prevents the reset of a variable, its value ends with the call that set it.
_limit: ContextVar[ref[_Limit] | None] = ContextVar("hbasemk_limit", default=None)
_attempt: ContextVar[ref[_Attempt] | None] = ContextVar("hbasemk_attempt", default=None)


def _current_limit() -> _Limit | None:
    found = _limit.get()
    return None if found is None else found()


def _is_inside_attempt() -> bool:
    found = _attempt.get()
    return found is not None and found() is not None


class TimeLimit:
    """Limits the total retry time of the calls inside a ``with`` block.

    The limit is ``seconds`` from now. None: until the store has been out of reach for the runtime's ``retry_timeout``; each
    success ends an outage. An earlier limit that is already set stays in force.
    """

    __slots__ = ("_limit", "_runtime", "_seconds", "_token")

    def __init__(self, runtime: Runtime, seconds: float | None = None) -> None:
        self._runtime = runtime
        self._seconds = seconds
        self._limit: _Limit | None = None
        self._token: Token[ref[_Limit] | None] | None = None

    def __enter__(self) -> None:
        outer = _current_limit()
        seconds = self._seconds
        if seconds is None:
            if outer is not None:
                return
            limit = _Limit(self._runtime.retry_timeout)
        else:
            until = self._runtime.monotonic() + seconds
            if outer is not None and outer.until is not None:
                until = min(until, outer.until)
            limit = _Limit(seconds, until)
        self._limit = limit
        self._token = _limit.set(ref(limit))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            _limit.reset(token)


def within_retry_timeout(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Limit the total retry time of a method's calls by the runtime's ``retry_timeout``."""

    @functools.wraps(method)
    def limited(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with TimeLimit(self._runtime):
            return method(self, *args, **kwargs)

    return limited


def wait_before_retry(runtime: Runtime, seconds: float) -> None:
    """Wait before a new attempt; raise ClosedError if the instance is closed or is closed during the wait."""
    runtime.sleep(seconds)
    if runtime.closed:
        raise ClosedError("the repository was closed while a commit waited for its next attempt; nothing was committed")


class RetryBudget:
    """The retries of one operation under the current limit, with exponential waits and jitter.

    ``began`` is when the operation began, by the monotonic clock (None: now).
    """

    __slots__ = ("_began", "_limit", "_next", "_runtime", "_until")

    def __init__(self, runtime: Runtime, began: float | None = None) -> None:
        self._runtime = runtime
        self._limit = _current_limit() or _Limit(runtime.retry_timeout)
        self._began = runtime.monotonic() if began is None else began
        self._next = FIRST_WAIT
        self._until: float | None = None

    def wait(self) -> bool:
        """Wait, then return True; return False if the time is up or the instance is closed.

        The last attempt is made when the time is up.
        """
        if self._until is None:
            until = self._limit.until
            if until is None:
                # Another thread of the operation may end the outage meanwhile.
                until = self._limit.until = self._began + self._limit.seconds
            self._until = max(self._began + AT_LEAST, until)
        left = self._until - self._runtime.monotonic()
        if left <= 0 or self._runtime.closed:
            self._limit.give_up(self._until)
            return False
        wait = self._next * (0.5 + self._runtime.random.random())
        self._runtime.sleep(max(min(wait, left), _SHORTEST))
        self._next = min(self._next * 2, LONGEST_WAIT)
        return True


def retry_call(runtime: Runtime, call: Callable[[], T], in_doubt: Callable[[], None] | None = None) -> T:
    """Return the result of an idempotent call, retrying it until the time is up; then raise its last error.

    If the outcome of any attempt is unknown, the error is a StoreUnknownError, even if the last attempt was refused.
    ``in_doubt`` is called for each lost reply: the store may still apply that attempt later. Inside an operation of
    :func:`run_with_retries` the call is made once.
    """
    began = runtime.monotonic()
    budget: RetryBudget | None = None
    unknown: StoreUnknownError | None = None
    while True:
        try:
            result = call()
        except (StoreNotAppliedError, StoreUnknownError) as error:
            if isinstance(error, StoreUnknownError):
                unknown = error
                if in_doubt is not None:
                    in_doubt()
            if _is_inside_attempt():
                raise
            budget = budget or RetryBudget(runtime, began)
            if not budget.wait():
                if unknown is not None and unknown is not error:
                    raise unknown from error
                raise
        else:
            limit = _current_limit()
            if limit is not None and not limit.is_final:
                # The next outage has the whole time again.
                limit.until = None
            return result


def run_with_retries(runtime: Runtime, operation: Callable[[], T]) -> T:
    """As :func:`retry_call`, for an operation of several calls that is retried as a whole: calls inside it are made once.

    So it holds none of its locks during a wait. Inside another such operation it is only called: that one is retried.
    """
    if _is_inside_attempt():
        return operation()

    def attempt() -> T:
        marker = _Attempt()
        token = _attempt.set(ref(marker))
        try:
            return operation()
        finally:
            _attempt.reset(token)

    return retry_call(runtime, attempt)


class NothingCommitted:
    """Converts the store errors of a ``with`` block before a commit's decision into StoreNotAppliedError.

    The error then says that nothing was committed.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (StoreNotAppliedError, StoreUnknownError)):
            reason = error.reason.rstrip(".")
            # The reason may say that the outcome of a call is unknown. That of the commit is not.
            besides = ", whatever became of the call that failed" if isinstance(error, StoreUnknownError) else ""
            raise StoreNotAppliedError(
                f"nothing was committed{besides}: {reason}. The commit can be repeated."
            ) from error


NOTHING_COMMITTED: Final = NothingCommitted()
