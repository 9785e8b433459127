"""The base of stores that wrap another store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from hbasemk.store.abc import FileIdentity, Limits, Put, Store

T = TypeVar("T")


class ReadOnce(Generic[T]):
    """A property that never changes: the first access stores it in the object.

    Before Python 3.12, ``functools.cached_property`` has a lock that all objects share. A child process that was forked while
    another thread holds it waits forever.
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self.__doc__ = read.__doc__
        self._read: Final = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, store: Any, owner: type | None = None) -> T:
        if store is None:
            # For tools that show the class.
            return cast("T", self)
        value = store.__dict__[self._name] = self._read(store)
        return value


class DelegatingStore(Store):
    """A store with the properties of ``inner``; a subclass defines the calls.

    A commit needs some properties many times. Those that never change are read once.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def location(self) -> str:
        """As the inner store."""
        return self.inner.location

    @ReadOnce
    def limits(self) -> Limits:
        """As the inner store."""
        return self.inner.limits

    @ReadOnce
    def supports_parallel_calls(self) -> bool:
        """As the inner store."""
        return self.inner.supports_parallel_calls

    def clock_ms(self) -> int | None:
        """As the inner store."""
        return self.inner.clock_ms()

    def change_counter(self) -> int | None:
        """As the inner store."""
        return self.inner.change_counter()

    def give_way(self, at_most: float) -> bool:
        """As the inner store."""
        return self.inner.give_way(at_most)

    @ReadOnce
    def batch_rows(self) -> int:
        """As the inner store."""
        return self.inner.batch_rows

    @ReadOnce
    def batch_bytes(self) -> int:
        """As the inner store."""
        return self.inner.batch_bytes

    @ReadOnce
    def supports_transactions(self) -> bool:
        """As the inner store."""
        return self.inner.supports_transactions

    @property
    def read_only(self) -> bool:
        """As the inner store."""
        return self.inner.read_only

    def files(self) -> Mapping[FileIdentity, str]:
        """As the inner store."""
        return self.inner.files()

    def give_back_space(self) -> bool:
        """As the inner store."""
        return self.inner.give_back_space()

    def check_puts(self, puts: Sequence[Put]) -> None:
        """As the inner store."""
        self.inner.check_puts(puts)

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()
