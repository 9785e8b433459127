"""Retries during outages: one rule for all store calls of imports, exports and verifications.

A repository retries its own calls for as long as its ``retry_timeout`` allows (decision 23). Other calls, above
all the opening of the repository, are retried here. Repetition is harmless, because every change reads the tree first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hbasemk.errors import CommitUnknownError, LeaseLostError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format.journal_row import Outcome
from hbasemk.opening import connect
from hbasemk.repository import Repository
from hbasemk.transaction import Transaction

T = TypeVar("T")

RETRY_SECONDS: Final = 120.0
"""How long imports, exports and verifications retry if nobody says otherwise."""
FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
AWAY: Final = (StoreNotAppliedError, StoreUnknownError, CommitUnknownError, LeaseLostError)
"""The errors of an outage; a call that raises one can be repeated, regardless of its outcome."""


class StoreRetry:
    """Retries calls that fail in an outage, each for ``seconds`` from its first failure.

    ``report`` is called with a message before the first wait of a call, and again when the reason changes.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self.seconds = seconds
        self.retries = 0
        self._report = report

    def call(self, make: Callable[[], T]) -> T:
        """Return the result of ``make``. Raises the error of its last attempt, and permanent errors immediately."""
        until: float | None = None
        reported = ""
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
                if str(error) != reported:
                    reported = str(error)
                    self._report(f"retrying for up to {until - now:.3g} s: {reported}")
                time.sleep(min(wait, until - now))
                wait = min(wait * 2, LONGEST_WAIT)

    def opened(self, url: str, **options: Any) -> Repository:
        """Open the repository at a URL; its own calls are then retried for the same time."""
        return self.call(lambda: connect(url, retry_timeout=self.seconds, **options))

    def run(self, repository: Repository, change: Callable[[Transaction], T], message: str) -> T:
        """Commit ``change``, which must read the tree first, so that a repetition changes nothing.

        Returns the result of the committed call of ``change``: an unknown outcome is read before the next attempt.
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
