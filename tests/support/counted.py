"""hbasemk as a system under test whose store counts what it is asked, and a harness that keeps the count of each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness import Contender, Harness
from benchmarks.system import System
from benchmarks.systems.hbasemk import DistributedHbasemk, EmbeddedHbasemk
from hbasemk.kernel import schema
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import CountingStore, Traffic

NO_POLLS = 3600.0
"""An interval of polling in seconds within which a test is over: what polls cost is measured by itself."""


class CountedEmbedded(EmbeddedHbasemk):
    def __init__(self, url: str, owner: bool) -> None:
        super().__init__(url, owner, NO_POLLS)

    def _store(self) -> Store:
        self.counting = CountingStore(super()._store())
        return self.counting


class CountedDistributed(DistributedHbasemk):
    def __init__(self, url: str, owner: bool) -> None:
        super().__init__(url, owner, NO_POLLS)

    def _store(self) -> Store:
        self.counting = CountingStore(super()._store())
        return self.counting


class CountingHarness(Harness):
    """``used`` holds, for each scenario and operation, the most that one turn after the first asked of the store.

    What keeps a lease is left out: it comes after so many seconds, whatever is done meanwhile.
    """

    used: dict[tuple[str, str], dict[str, int]]

    def compare(
        self, operation: str, contenders: Sequence[Contender], call: Callable[[System, int], Any], **given: Any
    ) -> None:
        most = self.__dict__.setdefault("used", {}).setdefault((self.scenario, operation), asdict(Traffic()))

        def counted(system: System, turn: int) -> None:
            assert isinstance(system, (CountedEmbedded, CountedDistributed))
            system.counting.traffic()
            call(system, turn)
            if turn >= 0:
                for name, value in asdict(system.counting.traffic(schema.CLUSTER)).items():
                    most[name] = max(most[name], value)

        super().compare(operation, contenders, counted, **given)


class FailsToSet(EmbeddedHbasemk):
    def set(self, path: str, name: str, value: int | str) -> None:
        raise RuntimeError("on purpose")
