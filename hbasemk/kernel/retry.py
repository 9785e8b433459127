"""Store calls that may be made again: what to do after a failed or a lost reply.

Only calls that do no harm twice go through here. A call that was *not applied* is made again, and so is one whose
outcome is *unknown*, because every caller's call is idempotent; anything else is raised as it is. :func:`time_limit` sets
for how long, for all calls of an operation together; without it each call has the runtime's retry_timeout.
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
"""Seconds, before jitter, that no wait exceeds: calls go on so soon after an outage."""
AT_LEAST: Final = 0.2
"""Seconds for which a call is made again, however little time is left: one lost connection is not an outage."""
_SHORTEST: Final = 0.001


class _Limit:
    """Until when calls are made again; while ``until`` is None, for ``seconds`` from the first failure on.

    ``inner``: an outer call is made again as a whole, so those inside it are made again for a moment only.
    """

    __slots__ = ("__weakref__", "inner", "seconds", "until")

    def __init__(self, seconds: float, until: float | None = None, *, inner: bool = False) -> None:
        self.seconds = seconds
        self.until = until
        self.inner = inner


_limit: ContextVar[ref[_Limit] | None] = ContextVar("hbasemk_limit", default=None)
"""The limit that holds here. The call that set it owns it: an interrupt can keep it from being reset, but not alive."""


def _holds() -> _Limit | None:
    found = _limit.get()
    return None if found is None else found()


@contextmanager
def time_limit(runtime: Runtime, seconds: float | None = None) -> Iterator[None]:
    """Bound for how long the calls inside are made again, all of them together.

    Until ``seconds`` from now; None: until the store has been away for the runtime's retry_timeout. An earlier limit that holds
    already stays.
    """
    outer = _holds()
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
    """Bound all calls of a method together by the runtime's retry_timeout."""

    @functools.wraps(method)
    def limited(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with time_limit(self._runtime):
            return method(self, *args, **kwargs)

    return limited


def pause(runtime: Runtime, seconds: float) -> None:
    """Wait before something is tried again; raises ClosedError when the instance is closed, also meanwhile."""
    runtime.sleep(seconds)
    if runtime.closed:
        raise ClosedError("the repository was closed while a commit waited to be tried again; it was not made")


class Retries:
    """Whether, and after which growing waits with jitter, something that failed is tried again under a limit."""

    __slots__ = ("_began", "_limit", "_next", "_runtime", "_until")

    def __init__(self, runtime: Runtime, limit: _Limit | None, began: float) -> None:
        self._runtime = runtime
        self._limit = limit or _Limit(runtime.retry_timeout)
        self._began = began
        self._next = FIRST_WAIT
        self._until: float | None = None

    def go_on(self) -> bool:
        """Wait, and return True; return False where the time is up or the instance is closed.

        The last attempt comes when the time is up.
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
    """The result of an idempotent call, made again until the time is up; then its last error is raised.

    That is a StoreUnknownError if any attempt's outcome is unknown, also when the last one was refused. ``in_doubt`` is
    told each time a reply was lost: the store may apply that attempt at any later moment. A call that makes such calls
    itself is made again as a whole, once its locks are free; those inside it are made again for :data:`AT_LEAST` only.
    """
    outer = _holds()
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
    """For something larger than a call that is tried again under the limit that holds here."""
    return Retries(runtime, _holds(), runtime.monotonic())


@contextmanager
def nothing_committed() -> Iterator[None]:
    """Say of failed calls what they mean for a commit whose decision none of them can have been: it was not made."""
    try:
        yield
    except (StoreNotAppliedError, StoreUnknownError) as error:
        raise StoreNotAppliedError(f"nothing was committed: {error.reason}; the commit can be made again") from error
