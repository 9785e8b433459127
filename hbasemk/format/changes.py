"""The changes of a revision: what is needed to roll it back, to invalidate caches, and to inform watchers.

The journal row, or the log of its writer, contains them before any cell of the revision is written. So an instance that finds
the revision of a dead writer knows every cell that the writer may have written (I9).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hbasemk.errors import LimitError
from hbasemk.format import limits, paths, schema
from hbasemk.format.plural import counted
from hbasemk.store.abc import Cell, CellVersion, Column, Delete, NewCell

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"
FOLDED: Final = "folded"
LIVES: Final = (ADDED, REMOVED)
"""The kinds of changes that begin or end a life of a node."""
_LETTERS: Final = {ADDED: "a", REMOVED: "r", CHANGED: "c", FOLDED: "f"}
_KINDS: Final = {letter: kind for kind, letter in _LETTERS.items()}
"""The journal keeps one letter for each kind."""

_PLAIN, _DEFLATED = b"\x01", b"\x02"
_DEFLATE_FROM: Final = 1024
_FEW: Final = 32
"""Up to so many names of properties are encoded once for many nodes."""
_SMALL: Final = 512
"""Changes up to this many bytes are remembered after they were parsed."""
_AT_ONCE: Final = 5000
"""The number of nodes that are encoded as text at once."""
FIRST_CHUNK: Final = 64 * 1024
"""The length of the first of several chunks. It is short because polls read the first chunks of many rows at once."""
CHUNK: Final = 1024 * 1024
INLINE: Final = 1024 * 1024
"""Changes up to this size are part of the row when it is created; larger ones are added afterwards."""
LARGEST: Final = limits.MAX_CHANGES


class RowChange(NamedTuple):
    """The change of one revision to one node.

    ``kind`` is ``"added"`` (also if the node was removed and added again), ``"removed"``, ``"changed"``, or ``"folded"``: the
    revision moved totals of slots into the property, whose value stays. ``properties`` are the names of the properties written,
    ``children_added`` and ``children_removed`` those of its children. ``adjusted`` holds the properties adjusted, each as
    (name, machine id, number of the slot); only an adjust that creates its property is in ``properties``, too.
    """

    path: str
    kind: str
    properties: Sequence[str] = ()
    children_added: Sequence[str] = ()
    children_removed: Sequence[str] = ()
    adjusted: Sequence[tuple[str, int, int]] = ()

    @property
    def lives(self) -> bool:
        """Whether the revision begins or ends a life of the node."""
        return self.kind in LIVES

    def columns(self) -> Iterator[Column]:
        """Yield the columns that the revision writes in this node's row."""
        if self.lives:
            yield schema.DELETED
        yield schema.LAST_REVISION
        for name in self.properties:
            yield schema.property_column(name)
        for name in self.children_added:
            yield schema.child_column(name)
        for name in self.children_removed:
            yield schema.child_column(name)
        for name, machine, number in self.adjusted:
            yield schema.slot_column(name, machine << 16 | number)


def deletes(changes: Iterable[RowChange], revision: int) -> Iterator[Delete]:
    """Yield, row by row, the exact cell versions that a roll-back of ``revision`` deletes."""
    for change in changes:
        yield Delete(paths.key(change.path), [CellVersion(*column, revision) for column in change.columns()])


_to_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_from_json: Final = json.JSONDecoder().decode


def encode(changes: Sequence[RowChange]) -> list[NewCell]:
    """Encode changes as journal cells: a chunk of at most 64 KiB, and further chunks of at most 1 MiB.

    Raises LimitError if they are larger than :data:`LARGEST`.
    """
    if len(changes) < _AT_ONCE:
        text = _text("[", changes, "]")
        if len(text) < _DEFLATE_FROM:
            return [NewCell(schema.DATA, schema.CHANGES, _PLAIN + text)]
        texts = iter((text,))
    else:
        texts = _texts(changes)
    deflate = zlib.compressobj(1)
    data = bytearray(_DEFLATED)
    for text in texts:
        data += deflate.compress(text)
        if len(data) > LARGEST:
            break
    data += deflate.flush()
    if len(data) > LARGEST:
        raise LimitError(
            f"the commit touches too many nodes: its list of changes has more than {LARGEST} bytes after compression. "
            "Nothing was committed. Divide the change into several commits."
        )
    return _chunks(bytes(data))


def _texts(changes: Sequence[RowChange]) -> Iterator[bytes]:
    """Yield the JSON of many changes, in parts of a few thousand nodes each."""
    starts = range(0, len(changes), _AT_ONCE)
    for start in starts:
        before, after = "," if start else "[", "]" if start == starts[-1] else ""
        yield _text(before, changes[start : start + _AT_ONCE], after)


def _text(before: str, changes: Sequence[RowChange], after: str) -> bytes:
    rows: list[str] = []
    for path, kind, properties, children_added, children_removed, adjusted in changes:
        if (
            not (children_added or children_removed or adjusted)
            and type(properties) is tuple
            and len(properties) <= _FEW
        ):
            # Many nodes of a load, and most small commits, change the same properties.
            rows.append(f"[{_to_json(path)},{_kind_and_names(kind, properties)}")
            continue
        # Leave out what is empty at the end.
        length = 6 if adjusted else 5 if children_removed else 4 if children_added else 3 if properties else 2
        row = (path, _LETTERS[kind], properties, children_added, children_removed, adjusted)[:length]
        rows.append(_to_json(row))
    # Do not escape: a JSON reader would join two escaped surrogates that form a pair, but row keys keep them separate.
    return f"{before}{','.join(rows)}{after}".encode("utf-8", "surrogatepass")


@lru_cache(maxsize=256)
def _kind_and_names(kind: str, properties: tuple[str, ...]) -> str:
    """Return the JSON of a change after its path."""
    return _to_json([_LETTERS[kind], properties] if properties else [_LETTERS[kind]])[1:]


def _chunks(data: bytes) -> list[NewCell]:
    starts = [0, *range(FIRST_CHUNK, len(data), CHUNK)]
    ends = [*starts[1:], len(data)]
    return [
        NewCell(schema.DATA, chunk_qualifier(number), data[start:end])
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def size_of(chunks: Iterable[NewCell]) -> int:
    """Return the size of encoded changes in bytes."""
    size = 0
    for chunk in chunks:
        size += len(chunk[2])
    return size


def parse(data: bytes) -> list[RowChange]:
    """Parse encoded changes; raise ValueError if they are damaged."""
    try:
        text = zlib.decompress(data[1:]) if data[:1] == _DEFLATED else data[1:]
        rows = _from_json(text.decode("utf-8", "surrogatepass"))
        if type(rows) is not list or not {*map(type, rows)} <= {list}:
            raise TypeError("the changes are not lists in a list")
        return [_row_change(*one) for one in rows]
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        size = counted(len(data), "byte")
        raise ValueError(f"the changes of a revision are damaged ({size}: {data[:60]!r})") from error


def _row_change(path: str, kind: str, *names: Sequence[Any]) -> RowChange:
    """Parse one change of a journal row; raise TypeError or ValueError if its form is wrong."""
    # A full check of each path takes too long, and only these paths can fail it, except for their length.
    if not isinstance(path, str) or path[:1] != "/" or path[-1] == "/" or "//" in path or "/." in path:
        paths.check_path(path)
    if len(names) > 3:
        names = (*names[:3], [_slot(*one) for one in names[3]], *names[4:])
    for part in names[:3]:
        # This raises TypeError if a name is not a str; it is the fastest check of all names.
        "".join(part)
        if not isinstance(part, list):
            raise TypeError("the names are not a list")
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of change; expected one of {sorted(_KINDS)}")
    return RowChange(path, _KINDS[kind], *names)


def _slot(name: str, machine: int, number: int) -> tuple[str, int, int]:
    if not isinstance(name, str) or not all(type(one) is int and 0 <= one <= 0xFFFF for one in (machine, number)):
        raise ValueError("a slot must be a name and two integers below 65536")
    return name, machine, number


def parse_shared(data: bytes) -> Sequence[RowChange]:
    """As :func:`parse`. Callers with the same small changes share the result, so none may change the names in it."""
    return _parse_small(data) if len(data) <= _SMALL else parse(data)


@lru_cache(maxsize=1024)
def _parse_small(data: bytes) -> Sequence[RowChange]:
    # Many revisions change the same node again and again.
    return tuple(parse(data))


def decode(
    cells: Iterable[Cell], row: bytes = b"", parser: Callable[[bytes], Sequence[RowChange]] = parse
) -> Sequence[RowChange]:
    """Decode the changes in the cells of a journal row; skip cells of other columns.

    ``parser``: :func:`parse` or :func:`parse_shared`. Raises FormatError if the changes are missing or damaged; the error names
    the row key ``row``.
    """
    data = b"".join([value for _, qualifier, _, value in cells if qualifier.startswith(schema.CHANGES)])
    try:
        return parser(data)
    except ValueError as error:
        raise schema.damaged(str(error), schema.JOURNAL, row, (schema.DATA, schema.CHANGES)) from error


def chunk_qualifier(number: int) -> bytes:
    """Return the qualifier of a chunk; qualifiers sort in the order of the chunks."""
    return schema.CHANGES + (number.to_bytes(2, "big") if number else b"")


def is_chunk(qualifier: bytes) -> bool:
    """Return whether a journal column holds a part of the changes."""
    return qualifier.startswith(schema.CHANGES)
