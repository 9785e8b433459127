"""One node in a view: its properties, and the revisions that created it and last touched it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import FormatError, InvalidValueError, LimitError
from hbasemk.format import adjusted, exact, limits, paths, schema, values
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.exact import Exact
from hbasemk.format.values import PropertyValue, Value
from hbasemk.store.abc import Cell, Column

VERSION_DIGITS: Final = 24
is_version: Final = re.compile(f"[0-9a-f]{{{VERSION_DIGITS}}}").fullmatch
"""Whether a text has the form of a node's version."""


class _AdjustedCells(NamedTuple):
    """The qualifiers and values of the properties of a node in its present life, and the cells of slots in any life."""

    bases: Sequence[tuple[bytes, bytes]]
    slots: Sequence[Cell]


class NodeState:
    """An immutable node state. Revision ``created`` began the node's life, and ``revision`` touched it last.

    ``encoded`` maps property names to encoded values, sums included; values are decoded on first access. ``shareable`` is None
    or the decoded properties, if none of them is a list that a caller could change. If a property was adjusted, the first access
    to :attr:`later` or :attr:`adjusted` decodes both from cells: most reads need neither. ``has_shared_mark``: ``revision`` has
    left a shared mark in the row (:func:`schema.shared_mark`).
    """

    __slots__ = (
        "_adjusted",
        "_cells",
        "_decoded",
        "_later",
        "created",
        "encoded",
        "has_shared_mark",
        "path",
        "revision",
        "shareable",
    )

    def __init__(
        self,
        path: str,
        created: int,
        revision: int,
        encoded: dict[str, bytes],
        later: Mapping[bytes, int],
        adjusted: Mapping[str, Adjusted] | None = None,
        cells: _AdjustedCells | None = None,
        *,
        has_shared_mark: bool = False,
    ) -> None:
        self.path = path
        self.created = created
        self.revision = revision
        self.encoded = encoded
        self._later = later
        self._adjusted = adjusted
        self._cells = cells
        self.has_shared_mark = has_shared_mark
        self._decoded: dict[str, Value] | None = None
        self.shareable: dict[str, Value] | None = None

    @property
    def later(self) -> Mapping[bytes, int]:
        """The newest visible version of each property column written after the node's life began, by qualifier.

        Slots that a fold has emptied are left out: a collector deletes them.
        """
        cells = self._cells
        if cells is not None:
            self._decode_cells(cells)
        return self._later

    @property
    def adjusted(self) -> Mapping[str, Adjusted] | None:
        """The parts of the properties that were adjusted, by name; None if the node has no such property."""
        cells = self._cells
        if cells is not None:
            self._decode_cells(cells)
        return self._adjusted

    def _decode_cells(self, cells: _AdjustedCells) -> None:
        # Another thread may do the same meanwhile. The last assignment shows that both are complete.
        self._adjusted = adjusted.of_columns(self.path, *cells, self.created)
        # A fold writes the property, too, so the version changes without the slots that it has emptied.
        written = {
            cell.qualifier: cell.timestamp
            for cell in cells.slots
            if cell.timestamp > self.created and cell.value != values.TOMBSTONE
        }
        self._later = {**self._later, **written}
        self._cells = None

    @property
    def columns(self) -> int:
        """At least the number of entries in :attr:`encoded` and :attr:`later`."""
        cells = self._cells
        return len(self.encoded) + len(self._later) + (0 if cells is None else len(cells.slots))

    @property
    def properties(self) -> dict[str, Value]:
        """The decoded properties by name; callers must not change them."""
        if self._decoded is None:
            self._decoded = decode_properties(self.path, self.encoded)
            if list not in map(type, self._decoded.values()):
                self.shareable = self._decoded
        return self._decoded

    def copied_lists(self) -> dict[str, Value]:
        """Return the decoded properties with lists that callers may change."""
        return {name: list(value) if isinstance(value, list) else value for name, value in self.properties.items()}

    @property
    def version(self) -> str:
        """A digest of the node's life and of the newest version of each property column (``docs/protocol.md``, section 4).

        Columns that the node's first revision wrote last need not be part of it: that revision determines them.
        """
        digest = hashlib.sha256(self.created.to_bytes(8, "big"))
        for qualifier in sorted(self.later):
            digest.update(len(qualifier).to_bytes(4, "big") + qualifier + self.later[qualifier].to_bytes(8, "big"))
        return digest.hexdigest()[:VERSION_DIGITS]

    def property_of(self, name: str) -> Adjusted:
        """Return a property with its totals; also for a plain one, and for an absent one."""
        parts = self.adjusted
        found = None if parts is None else parts.get(name)
        return Adjusted(self.encoded.get(name)) if found is None else found


_DELETED: Final = schema.DELETED[1]
_LAST_REVISION: Final = schema.LAST_REVISION[1]


def decode_property(path: str, name: str, data: bytes) -> Value:
    """Decode one property of a node; if it is damaged, raise FormatError with its location."""
    try:
        return values.decode(data)
    except FormatError as error:
        raise _damaged_property(path, name, error) from error


def exact_number(path: str, name: str, data: bytes) -> Exact | None:
    """Return the exact number of one property of a node, None if it is none; if it is damaged, as :func:`decode_property`."""
    try:
        return exact.of_value(data)
    except FormatError as error:
        raise _damaged_property(path, name, error) from error


def _damaged_property(path: str, name: str, error: FormatError) -> FormatError:
    return schema.damaged(error.message, schema.NODES, paths.key(path), schema.property_column(name))


def encode_property(path: str, name: str, value: PropertyValue) -> bytes:
    """Encode one property of a node; the errors of :func:`values.encode` then name the node and the property."""
    try:
        return values.encode(value)
    except (InvalidValueError, LimitError) as error:
        raise type(error)(
            f"property {limits.shown(name)} of {limits.shown(path)}: {error.message}", path=path, name=name
        ) from None


def encode_properties(path: str, properties: Mapping[str, PropertyValue]) -> dict[str, bytes]:
    """Encode the properties of a node; raises the errors of :func:`encode_property`."""
    encode = values.encode
    encoded: dict[str, bytes] = {}
    try:
        # Faster than a comprehension.
        for name, value in properties.items():
            encoded[name] = encode(value)
    except (InvalidValueError, LimitError):
        return {name: encode_property(path, name, value) for name, value in properties.items()}
    return encoded


def decode_properties(path: str, encoded: Mapping[str, bytes]) -> dict[str, Value]:
    """Decode the properties of a node; if one is damaged, raise FormatError with its location."""
    return {name: decode_property(path, name, data) for name, data in encoded.items()}


def name_of(path: str, column: Column) -> str:
    """Return the name in a property or child column; if it is damaged, raise FormatError with its location."""
    try:
        return schema.name_of(column)
    except FormatError as error:
        raise schema.damaged("the name is not UTF-8", schema.NODES, paths.key(path), column) from error


def from_cells(path: str, cells: Sequence[Cell]) -> tuple[NodeState | None, int]:
    """Build a node state from the visible cells of a row's data family, one per column.

    ``cells`` are in the order of their qualifiers, as every read returns them, so the cell that begins its life comes first.
    Returns (state, 0), or (None, d) if there is no node; d is the revision that deleted it, or 0 if it never existed.
    Columns older than the newest ``deleted`` cell belong to an earlier life and are ignored.
    """
    life = 0
    last = 0
    has_shared_mark = False
    kept: list[tuple[bytes, bytes]] = []
    slots: Sequence[Cell] = ()
    later: dict[bytes, int] = {}
    for number, (_, qualifier, timestamp, value) in enumerate(cells):
        kind = qualifier[0] if qualifier else None
        if kind == schema.PROPERTY:
            if timestamp > life:
                later[qualifier] = timestamp
            elif timestamp < life:
                continue
            if value != values.TOMBSTONE:
                kept.append((qualifier, value))
        elif kind == schema.SLOT:
            # The slots come last; nothing follows them but damage.
            slots = cells[number:]
            if slots[-1].qualifier[0] != kind:
                slots = [cell for cell in slots if cell.qualifier[0] == kind]
            break
        elif qualifier == _DELETED:
            life = timestamp
            if value != schema.ALIVE:
                return None, life
        elif qualifier == _LAST_REVISION:
            last = timestamp
            has_shared_mark = len(value) > 1 and value == schema.shared_mark(timestamp)
    if not life:
        return None, 0
    try:
        encoded = {schema.property_name(qualifier): value for qualifier, value in kept}
    except FormatError:
        for qualifier, _ in kept:
            name_of(path, (schema.DATA, qualifier))
        raise
    if not slots and not any(map(adjusted.is_relative, encoded.values())):
        return NodeState(path, life, last, encoded, later, has_shared_mark=has_shared_mark), 0
    encoded.update(adjusted.values_of(path, kept, slots, life))
    of_slots = _AdjustedCells(kept, slots)
    return NodeState(path, life, last, encoded, later, cells=of_slots, has_shared_mark=has_shared_mark), 0
