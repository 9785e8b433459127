"""Slots: the private columns in which this process keeps the totals of its adjusts.

A slot belongs to one machine id and one number, so that two writers rarely use the same one at the same time. That only
saves work: every writer of a slot depends on it, so the read-back finds a second writer, and the attempt is repeated with
another slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

from hbasemk.format import exact, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column

REMEMBERED: Final = 10_000
"""The number of adjusted properties whose slots an instance remembers. A forgotten slot may have to be tried again."""
MOST: Final = 0xFFFF
LINEAR: Final = 8
"""After so many collisions of a commit, its next slots are those from 256, 512, 1024 ... up, not the next higher ones."""
MANY: Final = 64
"""A property with more slots than this is reported, so that those of dead writers can be folded."""

Place: TypeAlias = tuple[str, str]
"""A path and the name of a property."""


class _Known:
    """What this process knows of its slots of one property: the newest version of each, and the numbers in use now."""

    __slots__ = ("in_use", "newest")

    def __init__(self) -> None:
        self.in_use: set[int] = set()
        self.newest: dict[int, int] = {}


class Slots:
    """The slots that this instance uses. Thread-safe."""

    def __init__(self, runtime: Runtime, journal: Journal) -> None:
        self._journal = journal
        self._lock = runtime.lock()
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._crowded: dict[Place, None] = {}

    def choose(self, draft: Draft, places: Iterable[Place]) -> None:
        """Choose a slot for each property that the draft may adjust, unless it has one.

        It is the lowest number of this process's machine id that no other commit of this process uses now. The newest known
        version of the slot must be in the draft's view. After :data:`LINEAR` collisions the numbers begin higher each time.
        """
        machine = revisions.machine_of(draft.revision)
        # An earlier holder of the machine id may have used any number of slots.
        first = 0 if draft.collisions < LINEAR else min(1 << draft.collisions, MOST)
        with self._lock:
            for place in places:
                if place not in draft.slots:
                    draft.slots[place] = machine << 16 | self._take(place, draft.view, first)

    def _take(self, place: Place, view: View, first: int) -> int:
        """Take a slot of a property, with the lock; return its number."""
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = _Known()
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(place)
        number = first
        while number < MOST:
            newest = known.newest.get(number)
            if number not in known.in_use and (newest is None or self._journal.sees(view, newest)):
                break
            number += 1
        known.in_use.add(number)
        return number

    def release(self, draft: Draft, committed: bool) -> None:
        """End the use of a draft's slots, and remember the versions that it committed."""
        newest = draft.revision if committed else None
        with self._lock:
            for place, slot in draft.slots.items():
                self._release(place, slot & MOST, newest)

    def _release(self, place: Place, number: int, newest: int | None) -> None:
        """Release one slot, with the lock."""
        known = self._known.get(place)
        if known is None:
            return
        known.in_use.discard(number)
        if newest is not None:
            known.newest[number] = newest

    def report_crowded(self, places: Iterable[Place]) -> None:
        """Let the next :meth:`take_crowded` return properties with many slots."""
        self._crowded.update(dict.fromkeys(places))

    def take_crowded(self) -> list[Place]:
        """Return the properties with many slots that were reported since the last call."""
        crowded, self._crowded = self._crowded, {}
        return list(crowded)

    def is_collision(self, draft: Draft, path: str, column: Column, taken: Iterable[tuple[str, Column, int]]) -> bool:
        """Return whether a draft that has lost over ``column`` has lost only over one of its slots.

        The next try then uses others for all that are ``taken``: paths, slots and versions, the newest one first.
        """
        if self._chosen_for(draft, path, column) is None:
            return False
        with self._lock:
            for one, slot, version in taken:
                place = self._chosen_for(draft, one, slot)
                if place is not None:
                    self._release(place, draft.slots.pop(place) & MOST, version)
        draft.collisions += 1
        return True

    def _chosen_for(self, draft: Draft, path: str, column: Column) -> Place | None:
        """Return the property for which a draft has chosen this column as its slot."""
        if not schema.is_slot(column):
            return None
        place = path, schema.name_of(column)
        slot = draft.slots.get(place)
        return place if slot is not None and column == schema.slot_column(place[1], slot) else None


def places(plan: ChangeSet) -> list[Place]:
    """Return the properties that a change set adjusts through slots."""
    return [(node.path, name) for node, _, _ in plan.adjusting for name in node.slot_adjusts]


def use(plan: ChangeSet, slots: dict[Place, int]) -> list[Place]:
    """Let a change set write its adjusts to these slots, in place of those of an earlier try.

    Returns the adjusted properties that have many slots.
    """
    crowded: list[Place] = []
    # A new list: the roll-back of an earlier try may still use the old one.
    changes = plan.changes = plan.changes.copy()
    for node, row, at in plan.adjusting:
        amounts = node.adjusted or {}
        chosen: dict[str, int] = {}
        totals: dict[Column, bytes] = {}
        adjusted: list[tuple[str, int, int]] = []
        for name in node.slot_adjusts:
            slot = chosen[name] = slots[node.path, name]
            before = node.property_of(name).totals
            if len(before) > MANY:
                crowded.append((node.path, name))
            totals[schema.slot_column(name, slot)] = exact.encode(before.get(slot, 0) + amounts[name])
            adjusted.append((name, slot >> 16, slot & MOST))
        node.slots = chosen
        row.use_slots(totals)
        changes[at] = RowChange(*changes[at][:5], adjusted)
    return crowded
