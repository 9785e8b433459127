"""What a revision touches: enough to roll it back, to invalidate caches, and to tell observers.

Stored with the revision's journal row before any of its cells is written, so that whoever finds a dead writer's
revision knows every cell it can have left (I9).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import FormatError
from hbasemk.kernel import paths, schema
from hbasemk.store.abc import Cell, CellVersion, Column, Delete, NewCell

ADDED: Final = "a"
REMOVED: Final = "r"
CHANGED: Final = "c"

_PLAIN, _DEFLATED = b"\x01", b"\x02"
_DEFLATE_FROM: Final = 1024
_CHUNK: Final = 1024 * 1024


class RowChange(NamedTuple):
    """What one revision does to one node.

    ``kind`` is ADDED (also when it was removed and added again), REMOVED or CHANGED; ``properties`` are the names of
    properties written, ``present`` and ``gone`` the names of children that came and went.
    """

    path: str
    kind: str
    properties: Sequence[str] = ()
    present: Sequence[str] = ()
    gone: Sequence[str] = ()

    def columns(self) -> Iterator[Column]:
        """The columns that the revision writes in this node's row."""
        if self.kind != CHANGED:
            yield schema.DELETED
        yield schema.LAST_REVISION
        for name in self.properties:
            yield schema.property_column(name)
        for name in self.present:
            yield schema.child_column(name)
        for name in self.gone:
            yield schema.child_column(name)


def deletes(changes: Iterable[RowChange], revision: int) -> Iterator[Delete]:
    """The exact cell versions that a roll-back of ``revision`` removes, row by row."""
    for change in changes:
        yield Delete(paths.key(change.path), [CellVersion(*column, revision) for column in change.columns()])


def encode(changes: Iterable[RowChange]) -> list[NewCell]:
    """The journal cells that hold the changes, in chunks of at most 1 MiB."""
    rows: list[list[object]] = []
    for path, kind, *names in changes:
        while names and not names[-1]:
            names.pop()
        rows.append([path, kind, *(list(part) for part in names)])
    # Without escapes: reading would join two that make a pair, where row keys keep the two surrogates apart.
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    data = _PLAIN + text if len(text) < _DEFLATE_FROM else _DEFLATED + zlib.compress(text, 1)
    return [
        NewCell(schema.DATA, chunk_qualifier(number), data[at : at + _CHUNK])
        for number, at in enumerate(range(0, len(data), _CHUNK))
    ]


def decode(cells: Iterable[Cell]) -> list[RowChange]:
    """The changes in a journal row's cells; cells of other columns are skipped.

    Raises FormatError when they are missing or damaged.
    """
    data = b"".join(cell.value for cell in cells if is_chunk(cell.qualifier))
    try:
        text = zlib.decompress(data[1:]) if data[:1] == _DEFLATED else data[1:]
        return [RowChange(*row) for row in json.loads(text.decode("utf-8", "surrogatepass"))]
    except (ValueError, TypeError, zlib.error) as error:
        raise FormatError(f"the changes of a journal row are damaged ({len(data)} bytes: {data[:60]!r})") from error


def of_row(cells: Iterable[Cell]) -> list[RowChange]:
    """The changes that a journal row tells; none where it has none. Raises FormatError when they are damaged."""
    told = [cell for cell in cells if is_chunk(cell.qualifier)]
    return decode(told) if told else []


def chunk_qualifier(number: int) -> bytes:
    """The qualifier of a chunk; they sort in the order of the chunks."""
    return schema.CHANGES + (number.to_bytes(2, "big") if number else b"")


def is_chunk(qualifier: bytes) -> bool:
    """Whether a journal column holds a part of the changes."""
    return qualifier.startswith(schema.CHANGES)
