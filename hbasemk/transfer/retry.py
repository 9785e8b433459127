"""Waiting for a store that is away: one rule for everything that imports, exports and verifications ask of it.

A repository retries its own calls for as long as its ``retry_timeout`` allows (decision 23). What is not such a call, above all
the opening of the repository, is retried here: it does no harm twice, as every change here looks at what is there first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hbasemk.connect import connect
from hbasemk.errors import CommitUnknownError, LeaseLostError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format.journal_row import Outcome
from hbasemk.repository import Repository
from hbasemk.transaction import Transaction

T = TypeVar("T")

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
AWAY: Final = (StoreNotAppliedError, StoreUnknownError, CommitUnknownError, LeaseLostError)
"""What is raised while a store is away; whatever became of the call, it can be made again."""


class StoreRetry:
    """Retries whatever fails because the store is away, each for ``seconds`` from its first failure on.

    ``report`` is called with the reason before each wait.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self.seconds = seconds
        self.retries = 0
        self._report = report

    def call(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns. Raises what its last attempt raised, and at once what no waiting can repair."""
        until: float | None = None
        wait = FIRST_WAIT
        while True:
            try:
                return make()
            except AWAY as error:
                now = time.monotonic()
                if until is None:
                    until = now + self.seconds
                if now >= until:
                    raise
                self.retries += 1
                self._report(str(error))
                time.sleep(min(wait, until - now))
                wait = min(wait * 2, LONGEST_WAIT)

    def opened(self, url: str, **options: Any) -> Repository:
        """Open the repository at a URL, whose own calls are then retried for as long."""
        return self.call(lambda: connect(url, retry_timeout=self.seconds, **options))

    def run(self, repository: Repository, change: Callable[[Transaction], T], message: str) -> T:
        """Commit ``change``, which must look at what is there, so that it changes nothing the second time.

        Returns what the call of ``change`` that was committed returned: an unknown outcome is asked for before the next try.
        """
        results: list[T] = []
        unknown: list[str] = []

        def attempt(tx: Transaction) -> T:
            results[:] = [change(tx)]
            return results[0]

        def make() -> T:
            if unknown and repository.outcome(unknown[0]) is Outcome.COMMITTED:
                return results[0]
            unknown.clear()
            try:
                return repository.run(attempt, message, self.seconds)
            except CommitUnknownError as error:
                unknown[:] = [error.revision]
                raise

        return self.call(make)
