"""A store that records how large its answers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hbasemk.format import schema
from hbasemk.store.abc import Store
from hbasemk.store.sizes import size_of_rows
from hbasemk.testing.wrapped import Call, WrappedStore

T = TypeVar("T")


class AnswerSizes(WrappedStore):
    """A store whose calls should carry at most ``most`` bytes; ``sizes`` has the bytes of values in each answer from nodes."""

    def __init__(self, inner: Store, most: int) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []
        self._most = most

    @property
    def batch_bytes(self) -> int:
        return self._most

    def around(self, call: Call, do: Callable[[], T]) -> T:
        result = do()
        if call.table == schema.NODES and isinstance(result, list):
            self.sizes.append(size_of_rows(result))
        return result

    def take(self) -> list[int]:
        """Return and reset the sizes."""
        found, self.sizes = self.sizes, []
        return found
