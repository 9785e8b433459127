"""What a revision touches: enough to roll it back, to invalidate caches, and to tell observers.

Stored with the revision's journal row before any of its cells is written, so that whoever finds a dead writer's
revision knows every cell it can have left (I9).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import LimitError
from hbasemk.format import limits, paths, schema
from hbasemk.store.abc import Cell, CellVersion, Column, Delete, NewCell, Row

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"
_LETTERS: Final = {ADDED: "a", REMOVED: "r", CHANGED: "c"}
_KINDS: Final = {letter: kind for kind, letter in _LETTERS.items()}
"""The journal keeps one letter for each kind."""

_PLAIN, _DEFLATED = b"\x01", b"\x02"
_DEFLATE_FROM: Final = 1024
_AT_ONCE: Final = 5000
"""So many nodes are turned into text at once."""
FIRST_CHUNK: Final = 64 * 1024
"""The first chunk's length if there are more: polls read it of many rows at once, so it is short."""
CHUNK: Final = 1024 * 1024
INLINE: Final = 1024 * 1024
"""A revision's row is created with its changes up to this size; larger ones are added to it after that."""
LARGEST: Final = limits.MAX_CHANGES


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
    """The journal cells that hold the changes: a chunk of at most 64 KiB, and further ones of at most 1 MiB.

    Raises LimitError when they are larger than :data:`LARGEST`.
    """
    texts = _texts(changes)
    head = next(texts)
    further = next(texts, None)
    if further is None and len(head) < _DEFLATE_FROM:
        return _chunks(_PLAIN + head)
    deflate = zlib.compressobj(1)
    data = bytearray(_DEFLATED)
    data += deflate.compress(head)
    while further is not None and len(data) <= LARGEST:
        data += deflate.compress(further)
        further = next(texts, None)
    data += deflate.flush()
    if len(data) > LARGEST:
        raise LimitError(
            f"the commit touches too many nodes: what the journal has to keep of it takes more than {LARGEST} bytes, "
            "deflated. Nothing was committed. Divide the change into several commits."
        )
    return _chunks(bytes(data))


def _texts(changes: Iterable[RowChange]) -> Iterator[bytes]:
    """The JSON of the changes, in parts of some thousand nodes each."""
    rows: list[list[object]] = []
    before = "["
    for path, kind, *names in changes:
        while names and not names[-1]:
            names.pop()
        rows.append([path, _LETTERS[kind], *(list(part) for part in names)])
        if len(rows) == _AT_ONCE:
            yield _text(before, rows, "")
            before, rows = ",", []
    yield _text(before if rows or before == "[" else "", rows, "]")


def _text(before: str, rows: list[list[object]], after: str) -> bytes:
    # Without escapes: reading would join two that make a pair, where row keys keep the two surrogates apart.
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return f"{before}{text[1:-1]}{after}".encode("utf-8", "surrogatepass")


def _chunks(data: bytes) -> list[NewCell]:
    starts = [0, *range(FIRST_CHUNK, len(data), CHUNK)]
    ends = [*starts[1:], len(data)]
    return [
        NewCell(schema.DATA, chunk_qualifier(number), data[start:end])
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def size_of(told: Iterable[NewCell]) -> int:
    """How many bytes encoded changes take."""
    return sum(len(cell.value) for cell in told)


def decode(cells: Iterable[Cell], row: bytes = b"") -> list[RowChange]:
    """The changes in the cells of a journal row; cells of other columns are skipped.

    Raises FormatError when they are missing or damaged; it names the row by its key ``row``.
    """
    data = b"".join(cell.value for cell in cells if is_chunk(cell.qualifier))
    try:
        text = zlib.decompress(data[1:]) if data[:1] == _DEFLATED else data[1:]
        return [_row_change(*one) for one in json.loads(text.decode("utf-8", "surrogatepass"))]
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        raise schema.damaged(
            f"the changes of a journal row are damaged ({len(data)} bytes: {data[:60]!r})",
            schema.JOURNAL,
            row,
            (schema.DATA, schema.CHANGES),
        ) from error


def _row_change(path: str, kind: str, *names: Sequence[str]) -> RowChange:
    """One change as the journal has it; raises TypeError and ValueError where it is of another form."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("the path is not one")
    for part in names:
        # Whatever is not a text in a list ends this; nothing else looks at all of them so quickly.
        "".join(part)
        if not isinstance(part, list):
            raise TypeError("the names are not a list")
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of change; expected one of {sorted(_KINDS)}")
    return RowChange(path, _KINDS[kind], *names)


def of_row(row: Row) -> list[RowChange]:
    """The changes that a journal row tells. Raises FormatError when they are damaged.

    None where it has none, nor where the first chunk is absent: that is written last, and before any cell.
    """
    told = [cell for cell in row.cells if is_chunk(cell.qualifier)]
    return decode(told, row.key) if any(cell.qualifier == schema.CHANGES for cell in told) else []


def chunk_qualifier(number: int) -> bytes:
    """The qualifier of a chunk; they sort in the order of the chunks."""
    return schema.CHANGES + (number.to_bytes(2, "big") if number else b"")


def is_chunk(qualifier: bytes) -> bool:
    """Whether a journal column holds a part of the changes."""
    return qualifier.startswith(schema.CHANGES)
