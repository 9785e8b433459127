"""The state of one attempt to commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.journal.view import View


class Created(NamedTuple):
    """When the creation of a journal row was sent and acknowledged, by the monotonic clock; its arrival number, or 0."""

    sent: float
    received: float
    arrival: int


_NOT_CREATED: Final = Created(0, 0, 0)


@dataclass(slots=True)
class Draft:
    """An attempt to commit the changes of ``source`` on ``view``, and how far its newest try has come.

    A try that creates its journal row too late is followed by another one with a new ``revision``, which ``begun`` receives
    before the store does. ``plan`` is kept for it. ``touched`` lists the rows that the try may write; ``wrote`` says that it
    has begun to write cells outside of a transaction. ``slots`` holds the slots of the properties, by path and name, that it
    may adjust. ``reply_lost`` says that a reply to a write of the revision was lost, ``decision_in_doubt`` that it was the
    reply to the decision. ``decision_arrival`` is the arrival number of the decision; 0 or less: unknown, or no order.
    """

    view: View
    source: ChangeSource
    message: str
    begun: Callable[[int], None] | None = None
    plan: ChangeSet | None = None
    revision: int = 0
    created: Created = _NOT_CREATED
    touched: Sequence[RowChange] = ()
    wrote: bool = False
    slots: dict[tuple[str, str], int] = field(default_factory=dict)
    reply_lost: bool = False
    decision_in_doubt: bool = False
    decision_arrival: int = 0
    merges: int = 0
    """The first revision of the branch that the commit merges; 0: it merges none."""

    def start_try(self, revision: int) -> None:
        """Begin a try with a new revision id."""
        if self.begun is not None:
            self.begun(revision)
        self.revision, self.touched = revision, ()
        self.decision_arrival = 0
        self.wrote = self.reply_lost = self.decision_in_doubt = False

    def lose_reply(self) -> None:
        """Record that the reply to a write was lost."""
        self.reply_lost = True

    def lose_decision(self) -> None:
        """Record that the reply to the decision was lost."""
        self.reply_lost = self.decision_in_doubt = True
