"""Retries of idempotent store calls after an error or a lost reply.

Every call made through this module must be idempotent. So a call that was *not applied* is retried, and so is a call
whose outcome is *unknown*; any other error is raised unchanged. :func:`time_limit` limits the total retry time of all
calls of an operation. Without it, the runtime's ``retry_timeout`` limits each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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

    ``inner``: an outer call is retried as a whole, so calls inside it are retried only briefly.
    """

    __slots__ = ("__weakref__", "inner", "seconds", "until")

    def __init__(self, seconds: float, until: float | None = None, *, inner: bool = False) -> None:
        self.seconds = seconds
        self.until = until
        self.inner = inner


_limit: ContextVar[ref[_Limit] | None] = ContextVar("hbasemk_limit", default=None)
"""The current limit, as a weak reference: if an interrupt prevents its reset, it ends with the call that set it."""


def _current_limit() -> _Limit | None:
    found = _limit.get()
    return None if found is None else found()


@contextmanager
def time_limit(runtime: Runtime, seconds: float | None = None) -> Iterator[None]:
    """Limit the total retry time of the calls inside.

    The limit is ``seconds`` from now. None: until the store has been out of reach for the runtime's ``retry_timeout``.
    An earlier limit that is already set stays in force.
    """
    outer = _current_limit()
    if outer is not None and (seconds is None or outer.inner):
        yield
        return
    if seconds is None:
        limit = _Limit(runtime.retry_timeout)
    else:
        until = runtime.monotonic() + seconds
        if outer is not None and outer.until is not None:
            until = min(until, outer.until)
        limit = _Limit(seconds, until)
    token = _limit.set(ref(limit))
    try:
        yield
    finally:
        _limit.reset(token)


def patient(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Limit the total retry time of a method's calls by the runtime's ``retry_timeout``."""

    @functools.wraps(method)
    def limited(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with time_limit(self._runtime):
            return method(self, *args, **kwargs)

    return limited


def pause(runtime: Runtime, seconds: float) -> None:
    """Wait before a new attempt; raise ClosedError if the instance is closed or is closed during the wait."""
    runtime.sleep(seconds)
    if runtime.closed:
        raise ClosedError("the repository was closed while a commit waited for its next attempt; it was not made")


class Retries:
    """The retries of one operation under a limit, with exponential waits and jitter."""

    __slots__ = ("_began", "_limit", "_next", "_runtime", "_until")

    def __init__(self, runtime: Runtime, limit: _Limit | None, began: float) -> None:
        self._runtime = runtime
        self._limit = limit or _Limit(runtime.retry_timeout)
        self._began = began
        self._next = FIRST_WAIT
        self._until: float | None = None

    def go_on(self) -> bool:
        """Wait, then return True; return False if the time is up or the instance is closed.

        The last attempt is made when the time is up.
        """
        if self._until is None:
            limit = self._limit
            if limit.until is None and not limit.inner:
                limit.until = self._began + limit.seconds
            self._until = max(self._began + AT_LEAST, self._began if limit.until is None else limit.until)
        left = self._until - self._runtime.monotonic()
        if left <= 0 or self._runtime.closed:
            return False
        wait = self._next * (0.5 + self._runtime.random.random())
        self._runtime.sleep(max(min(wait, left), _SHORTEST))
        self._next = min(self._next * 2, LONGEST_WAIT)
        return True


def again(runtime: Runtime, call: Callable[[], T], in_doubt: Callable[[], None] | None = None) -> T:
    """Return the result of an idempotent call, retrying it until the time is up; then raise its last error.

    If the outcome of any attempt is unknown, the error is a StoreUnknownError, even if the last attempt was refused.
    ``in_doubt`` is called for each lost reply: the store may still apply that attempt later. If ``call`` itself makes
    such calls, it is retried as a whole, once its locks are free, and the inner calls are retried only for
    :data:`AT_LEAST`.
    """
    outer = _current_limit()
    inner = _Limit(AT_LEAST, inner=True)
    began = runtime.monotonic()
    waits: Retries | None = None
    unknown: StoreUnknownError | None = None
    while True:
        token = _limit.set(ref(inner))
        try:
            return call()
        except (StoreNotAppliedError, StoreUnknownError) as error:
            if isinstance(error, StoreUnknownError):
                unknown = error
                if in_doubt is not None:
                    in_doubt()
            waits = waits or Retries(runtime, outer, began)
            if not waits.go_on():
                if unknown is not None and unknown is not error:
                    raise unknown from error
                raise
        finally:
            _limit.reset(token)


def retries(runtime: Runtime) -> Retries:
    """Return the retries of an operation larger than one call, under the current limit."""
    return Retries(runtime, _current_limit(), runtime.monotonic())


@contextmanager
def nothing_committed() -> Iterator[None]:
    """Convert store errors before a commit's decision into StoreNotAppliedError: nothing was committed."""
    try:
        yield
    except (StoreNotAppliedError, StoreUnknownError) as error:
        raise StoreNotAppliedError(f"nothing was committed: {error.reason}; the commit can be repeated") from error
