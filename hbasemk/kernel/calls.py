"""Store calls that may be made again: what to do after a failed or a lost reply.

Only calls that do no harm twice go through here. A call that was *not applied* is made again, and so is one whose
outcome is *unknown*, because every caller's call is idempotent; anything else is raised as it is, and so is the error
of a store that has itself waited for as long as it was told to (``StoreNotAppliedError.waited``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.runtime import Runtime

T = TypeVar("T")

ATTEMPTS: Final = 4
FIRST_WAIT: Final = 0.02
"""Seconds before the second attempt; each further wait is twice as long, with jitter."""


def pause(runtime: Runtime, seconds: float) -> None:
    """Wait before something is tried again; raises ClosedError when the instance is closed, also meanwhile."""
    runtime.sleep(seconds)
    if runtime.closed:
        raise ClosedError("the repository was closed while a commit waited to be tried again; it was not made")


def again(
    runtime: Runtime,
    call: Callable[[], T],
    attempts: int = ATTEMPTS,
    in_doubt: Callable[[], None] | None = None,
) -> T:
    """The result of an idempotent call, made up to ``attempts`` times; then its last error is raised.

    That is a StoreUnknownError if any attempt's outcome is unknown, also when the last one was refused. ``in_doubt`` is
    told each time a reply was lost: the store may apply that attempt at any later moment.
    """
    wait = FIRST_WAIT
    unknown: StoreUnknownError | None = None
    for left in range(attempts - 1, -1, -1):
        try:
            return call()
        except (StoreNotAppliedError, StoreUnknownError) as error:
            if isinstance(error, StoreUnknownError):
                unknown = error
                if in_doubt is not None:
                    in_doubt()
            if not left or (isinstance(error, StoreNotAppliedError) and error.waited):
                if unknown is not None and unknown is not error:
                    raise unknown from error
                raise
            runtime.sleep(wait * (0.5 + runtime.random.random()))
            wait *= 2
    raise AssertionError("attempts must be positive")
