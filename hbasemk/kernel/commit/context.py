"""The parts of the kernel with which commits work, on trunk and on branches."""

from __future__ import annotations

from dataclasses import dataclass

from hbasemk.kernel.commit.slots import Slots
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The parts of one instance that its commits use."""

    store: RetryingStore
    runtime: Runtime
    clock: IdClock
    announcements: Announcements
    journal: Journal
    reader: Reader
    outcomes: Outcomes
    slots: Slots
    sole_rows: SoleRows


class Committing:
    """The base of the classes that carry out steps of commits in a context."""

    def __init__(self, context: CommitContext) -> None:
        self._store = context.store
        self._runtime = context.runtime
        self._clock = context.clock
        self._announcements = context.announcements
        self._journal = context.journal
        self._reader = context.reader
        self._outcomes = context.outcomes
        self._slots = context.slots
        self._sole_rows = context.sole_rows
