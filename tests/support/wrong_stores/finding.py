"""A wrong store, and the test of the conformance suite that must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hbasemk.store.memory import MemoryStore
from tests.support.conformance import run_test

S = TypeVar("S", bound=type[MemoryStore])


@dataclass(frozen=True)
class Finding:
    """One wrong store, and a test that must find it."""

    store: type[MemoryStore]
    test: str
    arguments: dict[str, Any]

    def run(self, store: type[MemoryStore]) -> None:
        """Run the test on a store of this type."""
        run_test(store(), self.test, **self.arguments)


FINDINGS: Final[list[Finding]] = []


def found_by(test: str, **arguments: Any) -> Callable[[S], S]:
    """Register a wrong store; ``arguments`` are the parameters of the test."""

    def register(store: S) -> S:
        FINDINGS.append(Finding(store, f"test_{test}", arguments))
        return store

    return register


class Right(MemoryStore):
    """The memory store, with transactions."""

    def __init__(self) -> None:
        super().__init__(transactions=True)
