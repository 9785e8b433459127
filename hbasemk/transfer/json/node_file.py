"""The nodes of a JSON text in a temporary file: the text is read and validated once, and its nodes are read several times."""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, TypeAlias

from hbasemk.format.values import Encoded
from hbasemk.temporary_file import TemporaryFile

Nodes: TypeAlias = list[tuple[str, Encoded]]
"""Paths with encoded properties, parents first."""

LARGEST: Final = 4 << 20
"""The bytes of values above which a batch takes no further node."""
_LENGTH: Final = struct.Struct(">Q")


class NodeFile:
    """Batches of at most ``size`` nodes in a temporary file. Use it as a context manager; its end removes the file.

    The file takes about as much space as the text. Memory holds one batch.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._file = TemporaryFile()

    def write(self, nodes: Iterable[tuple[str, Encoded]]) -> Iterator[int]:
        """Append nodes; yield the number of nodes of each batch as soon as it is written. Raises OSError."""
        batch: Nodes = []
        size = 0
        for node in nodes:
            batch.append(node)
            size += sum(map(len, node[1].values()))
            if len(batch) >= self._size or size >= LARGEST:
                yield self._append(batch)
                batch, size = [], 0
        if batch:
            yield self._append(batch)

    def _append(self, batch: Nodes) -> int:
        data = marshal.dumps(batch)
        self._file.write(_LENGTH.pack(len(data)))
        self._file.write(data)
        return len(batch)

    def batches(self) -> Iterator[Nodes]:
        """Yield all batches from the beginning. Raises OSError."""
        self._file.rewind()
        while head := self._file.read(_LENGTH.size):
            batch: Nodes = marshal.loads(self._file.read(_LENGTH.unpack(head)[0]))
            yield batch

    def __enter__(self) -> NodeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)
