"""Going on when the store is away for a while: changes that do no harm twice are simply made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from hbasemk.errors import CommitUnknownError, LeaseLostError, StoreNotAppliedError, StoreUnknownError
from hbasemk.repository import Repository
from hbasemk.transaction import Transaction

T = TypeVar("T")

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0


def patiently(
    repository: Repository,
    change: Callable[[Transaction], T],
    message: str,
    patience: float,
    told: Callable[[str], None],
) -> T:
    """Commit ``change``, and while the store is away wait for it, up to ``patience`` seconds; returns what it returned.

    ``change`` must look at what is there, so that it changes nothing the second time. ``told`` hears of each commit that is
    done again. Raises what the last attempt raised, and at once what no waiting mends.
    """
    deadline = time.monotonic() + patience
    wait = FIRST_WAIT
    while True:
        try:
            return repository.run(change, message, patience)
        except (StoreNotAppliedError, StoreUnknownError, CommitUnknownError, LeaseLostError) as error:
            # Whatever became of the commit: the change looks at what is there, so it can simply be done again.
            if time.monotonic() > deadline:
                raise
            told(str(error))
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
