"""The base of stores that wrap another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from hbasemk.store.abc import FileIdentity, Limits, Put, Store


class DelegatingStore(Store):
    """A store with the properties of ``inner``; a subclass defines the calls.

    Cached are those that never change: a commit asks for them many times.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def location(self) -> str:
        """As the inner store."""
        return self.inner.location

    @cached_property
    def limits(self) -> Limits:  # type: ignore[override]
        """As the inner store."""
        return self.inner.limits

    @cached_property
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

    @cached_property
    def batch_rows(self) -> int:
        """As the inner store."""
        return self.inner.batch_rows

    @cached_property
    def batch_bytes(self) -> int:
        """As the inner store."""
        return self.inner.batch_bytes

    @cached_property
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
