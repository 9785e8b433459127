"""hbasemk as a system under test with a counting store, and a harness that keeps the counts of each operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness import Call, Contender, Harness
from benchmarks.system import System
from benchmarks.systems.hbasemk import DistributedHbasemk, EmbeddedHbasemk
from hbasemk.format import schema
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import CountingStore, Traffic

NO_POLLS = 3600.0
"""A polling interval in seconds that is longer than any test. The cost of polls has its own measurement."""


class _NoPolls(CountingStore):
    """A counting store without a change counter, so that background polling keeps to the interval."""

    def change_counter(self) -> int | None:
        return None


class CountedEmbedded(EmbeddedHbasemk):
    def __init__(self, url: str, owner: bool) -> None:
        super().__init__(url, owner, NO_POLLS)

    def _store(self) -> Store:
        self.counting = _NoPolls(super()._store())
        return self.counting


class CountedDistributed(DistributedHbasemk):
    def __init__(self, url: str, owner: bool) -> None:
        super().__init__(url, owner, NO_POLLS)

    def _store(self) -> Store:
        self.counting = _NoPolls(super()._store())
        return self.counting


class CountingHarness(Harness):
    """``used`` has the largest store traffic of one measured turn, for each scenario and operation.

    It excludes the renewal of leases, which depends on time and not on the operation.
    """

    used: dict[tuple[str, str], dict[str, int]]

    def compare_calls(self, calls: Mapping[str, Call], contenders: Sequence[Contender], **options: Any) -> None:
        counted = {operation: self._counted(operation, call) for operation, call in calls.items()}
        super().compare_calls(counted, contenders, **options)

    def _counted(self, operation: str, call: Call) -> Call:
        largest = self.__dict__.setdefault("used", {}).setdefault((self.scenario, operation), asdict(Traffic()))

        def counted(system: System, turn: int) -> None:
            assert isinstance(system, (CountedEmbedded, CountedDistributed))
            system.counting.traffic()
            call(system, turn)
            if turn >= 0:
                for name, value in asdict(system.counting.traffic(schema.CLUSTER)).items():
                    largest[name] = max(largest[name], value)

        return counted


class FailsToSet(EmbeddedHbasemk):
    def set(self, path: str, name: str, value: int | str) -> None:
        raise RuntimeError("on purpose")
