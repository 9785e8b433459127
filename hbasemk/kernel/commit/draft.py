"""The state of one attempt to commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.branch_end import BranchEnd
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import NewCell

UNKNOWN_ARRIVAL: Final = -1
"""In place of the arrival number of a revision whose decision was applied before, with a lost reply."""


@dataclass(slots=True)
class Draft:
    """An attempt to commit the changes of ``source`` on ``view``, and how far its newest try has come.

    A try whose revision can no longer commit is followed by another one with a new ``revision``, which ``begun`` receives
    before the store does. ``plan`` is kept for it, and ``encoded``: its changes as cells of the journal row. ``created`` is
    the arrival number of that row, 1 without order, and None until the row exists; a commit in one transaction creates no row
    before it. ``touched`` lists the rows to which the try has begun to write cells, outside of a transaction. ``slots`` holds
    the slots of the properties, by path and name, that it may adjust; ``collisions`` counts the tries that found other writers
    in them. ``reply_lost`` says that a reply to a write of the revision was lost, ``decision_in_doubt`` that it was the reply
    to the decision. ``decision_arrival`` is the arrival number of the decision; 0: not decided; :data:`UNKNOWN_ARRIVAL`:
    decided, but the number is not known. It is 1 without order. ``sole_row`` is the key of the only existing row that the try
    changes and depends on, if any; ``stage`` says how the try treats it, ``found_others`` that it has versions not in the view.
    """

    view: View
    source: ChangeSource
    message: str
    begun: Callable[[int], None] | None = None
    plan: ChangeSet | None = None
    revision: int = 0
    nonce: bytes = b""
    encoded: Sequence[NewCell] = ()
    created: int | None = None
    touched: Sequence[RowChange] = ()
    slots: dict[tuple[str, str], int] = field(default_factory=dict)
    collisions: int = 0
    reply_lost: bool = False
    decision_in_doubt: bool = False
    decision_arrival: int = 0
    stage: Stage = Stage.ORDINARY
    sole_row: bytes | None = None
    found_others: bool = False
    is_hot: bool = False
    """Given by a commit on the head: whether it changes a column for which this process has lost a conflict lately."""
    competes: bool = False
    """Whether the try may compare the shared mark of another process, and give up if one has written what it depends on."""
    ends: BranchEnd | None = None
    """Given by a merge: the end of its branch."""

    @property
    def leaves_shared_mark(self) -> bool:
        """Whether the try, if it commits, has marked its row for all: it alone has written it since the view."""
        return self.stage is Stage.ALONE or (self.stage is Stage.MARK and self.competes and not self.found_others)

    def start_try(self, revision: int, nonce: bytes) -> None:
        """Begin a try with a new revision id, and with random bytes that tell its journal row from any other."""
        if self.begun is not None:
            self.begun(revision)
        self.revision, self.nonce = revision, nonce
        self.created, self.touched = None, ()
        self.decision_arrival = 0
        self.stage, self.found_others, self.competes = Stage.ORDINARY, False, False
        self.reply_lost = self.decision_in_doubt = False

    def lose_reply(self) -> None:
        """Record that the reply to a write was lost."""
        self.reply_lost = True

    def lose_decision(self) -> None:
        """Record that the reply to the decision was lost."""
        self.reply_lost = self.decision_in_doubt = True
