"""One node as a snapshot shows it: its properties, and the revisions that made it so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hbasemk.errors import FormatError
from hbasemk.format import paths, schema, values
from hbasemk.format.values import Value
from hbasemk.store.abc import Cell, Column


class NodeState:
    """An immutable node state. ``created`` and ``revision`` are the ids that began its life and touched it last.

    ``encoded`` maps property names to stored bytes; values are decoded when they are first asked for.
    """

    __slots__ = ("_decoded", "created", "encoded", "path", "revision")

    def __init__(self, path: str, created: int, revision: int, encoded: dict[str, bytes]) -> None:
        self.path = path
        self.created = created
        self.revision = revision
        self.encoded = encoded
        self._decoded: dict[str, Value] | None = None

    @property
    def properties(self) -> dict[str, Value]:
        """The decoded properties by name; callers must not change them."""
        if self._decoded is None:
            self._decoded = decode_properties(self.path, self.encoded)
        return self._decoded


def decode_property(path: str, name: str, data: bytes) -> Value:
    """The value of a node's property; raises FormatError naming its place when it is damaged."""
    try:
        return values.decode(data)
    except FormatError as error:
        raise schema.damaged(error.message, schema.NODES, paths.key(path), schema.property_column(name)) from error


def decode_properties(path: str, encoded: Mapping[str, bytes]) -> dict[str, Value]:
    """The values of a node's properties; raises FormatError naming the place of one that is damaged."""
    return {name: decode_property(path, name, data) for name, data in encoded.items()}


def name_of(path: str, column: Column) -> str:
    """The name of a property or child column of a node; raises FormatError naming its place when it is damaged."""
    try:
        return schema.name_of(column)
    except FormatError as error:
        raise schema.damaged("the name is not UTF-8", schema.NODES, paths.key(path), column) from error


def from_cells(path: str, cells: Iterable[Cell]) -> tuple[NodeState | None, int]:
    """The node that the visible cells of a row's data family make, one per column.

    Returns (state, 0), or (None, d) when there is no node; d is the revision that deleted it, 0 if it never was.
    Columns older than the newest ``deleted`` cell belong to an earlier life and are masked.
    """
    life = 0
    last = 0
    found: list[Cell] = []
    for cell in cells:
        qualifier = cell.qualifier
        if qualifier and qualifier[0] == schema.PROPERTY:
            found.append(cell)
        elif qualifier == schema.DELETED[1]:
            life = cell.timestamp
            if cell.value != schema.ALIVE:
                return None, life
        elif qualifier == schema.LAST_REVISION[1]:
            last = cell.timestamp
    if not life:
        return None, 0
    encoded = {
        name_of(path, cell[:2]): cell.value
        for cell in found
        if cell.timestamp >= life and cell.value != values.TOMBSTONE
    }
    return NodeState(path, life, last, encoded), 0
