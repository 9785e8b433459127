"""One node of a change set: its state in the view, and what the operations of a commit make of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from hbasemk.format import exact, values
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.exact import Exact
from hbasemk.format.node import NodeState

_NONE: Final = cast("dict[str, Any]", MappingProxyType({}))
"""The children of most nodes; an assignment to an item raises TypeError."""


class StagedNode:
    """A node after the operations so far.

    ``base`` is its state in the view. ``is_new`` says that its life began in this staging. ``written`` holds the
    properties written (None: removed), ``child_writes`` the child columns written (False: removed), ``staged_children``
    the staged nodes right below. ``repeated`` holds the properties that were set to the value of the view, and
    ``withdrawn`` the children that were added and removed again; a commit does not write these but depends on them.
    ``adjusted`` holds the amounts by which properties were adjusted, after their value in ``written``, or else in the view;
    ``slots`` the slots that a commit uses for the latter. ``exact`` holds the properties whose value was read to write it.
    """

    __slots__ = (
        "adjusted",
        "base",
        "child_writes",
        "exact",
        "exists",
        "is_new",
        "loaded",
        "path",
        "repeated",
        "slots",
        "staged_children",
        "withdrawn",
        "written",
    )

    def __init__(self, path: str, base: NodeState | None) -> None:
        self.path = path
        self.base = base
        self.exists = base is not None
        self.is_new = False
        self.loaded = False
        self.written: dict[str, bytes | None] = {}
        # Most nodes of a large commit need none of these, and so share an empty dict, or have None.
        self.child_writes: dict[str, bool] = _NONE
        self.staged_children: dict[str, StagedNode] = _NONE
        self.repeated: dict[str, None] | None = None
        self.withdrawn: dict[str, None] | None = None
        self.adjusted: dict[str, Exact] | None = None
        self.slots: dict[str, int] | None = None
        self.exact: dict[str, None] | None = None

    def end_life(self) -> None:
        """End the life of the node, and drop all writes of this staging to it."""
        self.exists = self.is_new = False
        self.written = {}
        self.child_writes = _NONE
        self.adjusted = self.exact = None

    def write_child(self, name: str, *, is_present: bool) -> None:
        """Write the column of a child."""
        if self.child_writes is _NONE:
            self.child_writes = {}
        self.child_writes[name] = is_present

    def stage_child(self, name: str, child: StagedNode) -> None:
        """Keep a child that is staged, too."""
        if self.staged_children is _NONE:
            self.staged_children = {}
        self.staged_children[name] = child

    def add_child(self, name: str, child: StagedNode) -> None:
        """Stage a child whose life begins, and write its column."""
        self.stage_child(name, child)
        self.write_child(name, is_present=True)

    def remove_child(self, name: str, child: StagedNode) -> None:
        """Stage a child whose life has ended, and write its column.

        If it was added by this staging, what remains is the dependency on its absence.
        """
        self.stage_child(name, child)
        if child.base is not None:
            self.write_child(name, is_present=False)
            return
        if name in self.child_writes:
            del self.child_writes[name]
        if self.withdrawn is None:
            self.withdrawn = {}
        self.withdrawn[name] = None

    def take_properties(self, encoded: Mapping[str, bytes], adjusted: Mapping[str, Adjusted] | None) -> None:
        """Give a node whose life begins the properties of another one: their values, and the parts of adjusted ones.

        Sums of adjusts stay exact: a number that a value cannot hold becomes a value and an adjust.
        """
        self.written.update(encoded)
        if adjusted:
            for name, found in adjusted.items():
                plain, by = found.without_totals()
                if by:
                    self.written[name] = plain
                    self.adjust(name, by)

    def property_of(self, name: str) -> Adjusted:
        """Return a property in the view; absent if the node's life began in this staging."""
        return Adjusted(None) if self.base is None or self.is_new else self.base.property_of(name)

    def encoded(self, name: str) -> bytes | None:
        """Return the encoded value of a property, or None if the node does not have it."""
        if self.adjusted is not None and name in self.adjusted:
            return self._adjusted_value(name)
        if name in self.written:
            return self.written[name]
        return self.base.encoded.get(name) if self.base and not self.is_new else None

    def all_encoded(self, after: Mapping[str, Adjusted] | None = None) -> dict[str, bytes]:
        """Return the encoded values of all properties; ``after`` is the result of :meth:`all_adjusted`, if it is known."""
        if self.is_new and not self.adjusted:
            written = self.written
            if None not in written.values():
                return cast("dict[str, bytes]", written.copy())
            return {name: data for name, data in written.items() if data is not None}
        found = dict(self.base.encoded) if self.base and not self.is_new else {}
        for name, data in self.written.items():
            if data is None:
                found.pop(name, None)
            else:
                found[name] = data
        for name in self.adjusted or ():
            value = self._adjusted_value(name) if after is None else after[name].value()
            if value is not None:
                found[name] = value
        return found

    def _adjusted_value(self, name: str) -> bytes | None:
        if name not in self.written and self.adjusted is not None:
            before = self.property_of(name)
            if before.plain is not None:
                return before.value(self.adjusted[name])
        return self.property_after(name, 0).value()

    def property_after(self, name: str, slot: int) -> Adjusted:
        """Return a property after the writes so far; an adjust that is not part of a set goes through ``slot``."""
        before = self.property_of(name)
        by = None if self.adjusted is None else self.adjusted.get(name)
        if name in self.written:
            after = before.set(self.written[name], by or 0)
            return after.compact() if self.is_new else after
        return before if by is None else before.adjust(slot, by)

    def all_adjusted(self) -> dict[str, Adjusted] | None:
        """Return the parts of each property that was adjusted; None if the node has no such property."""
        before = self.base.adjusted if self.base and not self.is_new else None
        if not before and not self.adjusted:
            return None
        found = dict(before or {})
        for name in (*self.written, *(self.adjusted or ())):
            if name in found or (self.adjusted and name in self.adjusted):
                found[name] = self.property_after(name, (self.slots or {}).get(name, 0))
        return found

    def base_of(self, name: str, data: bytes | None) -> bytes:
        """Return the bytes of the own column of a property that is set to ``data``."""
        if (self.base is None or not self.base.adjusted) and not self.adjusted:
            return values.TOMBSTONE if data is None else data
        return self.property_after(name, 0).encode_base()

    @property
    def created(self) -> list[str]:
        """The absent properties that an adjust creates."""
        if not self.adjusted or self.base is None:
            return []
        present, written = self.base.encoded, self.written
        return [name for name in self.adjusted if name not in present and name not in written]

    @property
    def slot_adjusts(self) -> list[str]:
        """The properties that a commit adjusts through a slot."""
        if not self.written:
            return list(self.adjusted or ())
        return [name for name in self.adjusted or () if name not in self.written]

    def adjust(self, name: str, by: Exact, *, creates: bool = False) -> None:
        """Adjust a property that is a number, or absent, with the writes so far.

        ``creates``: adjusts that add up to 0 still create an absent property.
        """
        if (self.is_new or name in self.written) and self.encoded(name) is None:
            self.write(name, exact.ZERO)
        if self.adjusted is None:
            self.adjusted = {}
        total = self.adjusted.pop(name, 0) + by
        if total or (creates and self.encoded(name) is None):
            self.adjusted[name] = total

    def write(self, name: str, data: bytes | None) -> None:
        """Set a property (None: remove it). Setting what the view has writes nothing, but depends on it."""
        if self.adjusted is not None:
            self.adjusted.pop(name, None)
        before = self.base.encoded.get(name) if self.base and not self.is_new else None
        if data == before and (self.base is None or not self.base.adjusted or self.property_of(name).is_set_to(data)):
            self.written.pop(name, None)
            self.repeat(name)
        else:
            self.written[name] = data

    def drop_restored(self, name: str) -> None:
        """Write nothing, as :meth:`write`, if a set and the adjusts after it have restored exactly what the view has.

        The set is in :attr:`written`.
        """
        if self.base is None or self.is_new:
            return
        before, after = self.property_of(name), self.property_after(name, 0)
        if before.plain is None or after.plain is None or before.plain[:1] != after.plain[:1]:
            # The kind of number that was set last decides how later sums read.
            return
        value = after.value()
        if before.has_value_of(after) and before.is_set_to(value):
            self.write(name, value)

    def repeat(self, name: str) -> None:
        """Let a commit depend on a property without writing it."""
        if self.repeated is None:
            self.repeated = {}
        self.repeated[name] = None

    @property
    def has_known_children(self) -> bool:
        """Whether a child that is not staged cannot exist in the view: there is no node, or its subtree is loaded."""
        return self.base is None or self.loaded

    @property
    def dirty(self) -> bool:
        """Whether the node differs from the view."""
        return (
            self.exists != (self.base is not None)
            or self.is_new
            or bool(self.written)
            or bool(self.child_writes)
            or bool(self.adjusted)
        )

    @property
    def depends_on_base(self) -> bool:
        """Whether a change without effect depends on this node's state in the view."""
        return bool(self.repeated or self.withdrawn) and self.exists and self.base is not None and not self.is_new
