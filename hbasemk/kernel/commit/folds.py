"""Folds: commits that move the totals of dead writers into the base of a property.

Without them, a property that many processes have adjusted over the years would keep a slot of each machine id. A fold keeps the
value: it removes totals from their slots, and subtracts them from the sum that the base has seen.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import ConflictError
from hbasemk.format import exact, paths, revisions, schema, values
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.changes import FOLDED, RowChange
from hbasemk.kernel.commit.change_set import ChangeSet, RowPlan
from hbasemk.kernel.commit.change_source import ReadyChangeSet
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.slots import Place
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Column, Get

REST_MS: Final = 3600 * 1000
"""A slot is folded only if nobody has written to it for so many ms of id time."""
TRY_EVERY: Final = 600.0
"""Seconds between two checks of the same property."""
MESSAGE: Final = "fold"


class Folds(Committing):
    """The folds that one instance makes, of properties that its own commits have met."""

    def __init__(self, context: CommitContext, committer: Committer, lease: Lease) -> None:
        super().__init__(context)
        self._committer = committer
        self._lease = lease
        self._checked: dict[Place, float] = {}

    def run(self) -> None:
        """Fold the properties with many slots. Without such properties, make no round trip.

        A fold that conflicts with another commit is not repeated.
        """
        now = self._runtime.monotonic()
        self._checked = {place: at for place, at in self._checked.items() if now - at < TRY_EVERY}
        crowded = [place for place in self._slots.take_crowded() if place not in self._checked]
        damage = Damage()
        try:
            while crowded:
                with damage.kept(f"property {crowded[-1][1]!r} of {crowded[-1][0]} cannot be folded"):
                    self._fold(self._journal.head, crowded[-1])
                self._checked[crowded.pop()] = now
        finally:
            # If the store failed, the next call continues.
            self._slots.report_crowded(crowded)
        damage.report()

    def _fold(self, view: View, place: Place) -> None:
        path, name = place
        state = self._reader.node(view, path)
        found = None if state is None else state.property_of(name)
        if state is None or found is None or found.plain is None or exact.of_value(found.plain) is None:
            return
        plan = plan_of(path, name, found, self._at_rest(view, path, name, found))
        if plan is not None:
            try:
                self._committer.on_base(view, ReadyChangeSet(plan), MESSAGE)
            except ConflictError:
                # Another commit has changed the property meanwhile; a later fold serves as well.
                return

    def _at_rest(self, view: View, path: str, name: str, found: Adjusted) -> list[int]:
        """Return the slots of dead writers to which no adjust was added for an hour."""
        columns = {schema.slot_column(name, slot): slot for slot in found.totals}
        cells = self._reader.cells(view, [Get(paths.key(path), columns=list(columns))])[0]
        oldest = self._lease.time() - REST_MS
        resting = [cell for cell in cells if revisions.ms_of(cell.timestamp) <= oldest]
        newest: dict[int, int] = {}
        for cell in resting:
            machine = columns[cell.family, cell.qualifier] >> 16
            newest[machine] = max(newest.get(machine, 0), cell.timestamp)
        over = set(self._lease.over(newest.values()))
        gone = {machine for machine, version in newest.items() if version in over}
        return [slot for cell in resting if (slot := columns[cell.family, cell.qualifier]) >> 16 in gone]


def plan_of(path: str, name: str, found: Adjusted, slots: list[int]) -> ChangeSet | None:
    """Return the change set that folds these slots of a property; None if ``slots`` is empty."""
    if not slots:
        return None
    folded = sum(found.totals[slot] for slot in slots)
    base = found._replace(seen=found.seen - folded, created=False)
    own = schema.property_column(name)
    written: dict[Column, bytes] = {own: base.encode_base()}
    written.update((schema.slot_column(name, slot), values.TOMBSTONE) for slot in slots)
    cells = (
        *((*column, data, None) for column, data in written.items()),
        (*schema.LAST_REVISION, schema.TOUCHED, None),
    )
    depends_on: dict[Column, None] = {schema.DELETED: None, **dict.fromkeys(written)}
    change = RowChange(path, FOLDED, [name], adjusted=[(name, slot >> 16, slot & 0xFFFF) for slot in slots])
    return ChangeSet([RowPlan(path, paths.key(path), cells, depends_on)], [change], [])
