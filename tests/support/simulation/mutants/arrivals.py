"""Polls of stores that order all writes: revisions join in the order of their arrival (section 5)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hbasemk.kernel.commit import deadline
from hbasemk.kernel.commit.deadline import OrderCheck
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.polled_revisions import PolledRevisions
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Arrivals
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulated_store import SimulatedStore
from hbasemk.testing.trace import Step


def own_commit_joins_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArrivalPoller, "follows", lambda *_: True)


def arrivals_joined_by_id(patch: pytest.MonkeyPatch) -> None:
    original = ArrivalPoller.read

    def read(self: ArrivalPoller, *arguments: Any) -> Any:
        news = original(self, *arguments)
        news.committed.sort()
        return news

    patch.setattr(ArrivalPoller, "read", read)


def cursor_past_what_was_read(patch: pytest.MonkeyPatch) -> None:
    original = ArrivalPoller.finish

    def finish(self: ArrivalPoller, news: Any, pending: Any, floor: int) -> None:
        news.last += 1
        original(self, news, pending, floor)

    patch.setattr(ArrivalPoller, "finish", finish)


def first_write_taken_for_the_arrival(patch: pytest.MonkeyPatch) -> None:
    original = MemoryStore.arrivals

    def arrivals(self: MemoryStore, table: str, after: int, limit: int, columns: Any) -> Arrivals:
        found = original(self, table, after, limit, columns)
        return found._replace(rows=sorted(found.rows, key=lambda row: row.key))

    patch.setattr(MemoryStore, "arrivals", arrivals)


def decided_twice(patch: pytest.MonkeyPatch) -> None:
    original = deadline.RepeatCheck.__call__
    patch.setattr(
        deadline.RepeatCheck, "__call__", lambda self, rows: original(self, [row._replace(cells=()) for row in rows])
    )


def no_read_back_beside_pending_revisions(patch: pytest.MonkeyPatch) -> None:
    def unchanged_since(self: PolledRevisions, view: View) -> int | None:
        return self.poller.cursor if isinstance(self.poller, ArrivalPoller) and view == self.head else None

    patch.setattr(PolledRevisions, "unchanged_since", unchanged_since)


def no_read_back_on_old_views(patch: pytest.MonkeyPatch) -> None:
    original = PolledRevisions.unchanged_since
    patch.setattr(PolledRevisions, "unchanged_since", lambda self, _: original(self, self.head))


def new_instances_read_from_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArrivalPoller, "number_before", lambda self, _: self.cursor)


def arrival_appended_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    def write_if(self: SimulatedStore, table: str, *arguments: Any, **named: Any) -> int | None:
        simulator, decision = self._actor.simulator, arguments[3]
        deciding = simulator.store._tables[decision.table]
        keys = [put.row for put in (decision.put, *decision.with_puts)]

        def write() -> int | None:
            number = self.inner.write_if(table, *arguments, **named)
            if number and deciding.written is not None:
                del deciding.written[-len(keys) :]
            return number

        number = simulator.step(self._actor, Step("write_if", decision.table, decision.put), write)
        if not number or deciding.written is None:
            return number
        arrive = partial(deciding.written.extend, keys)
        simulator.step(self._actor, Step("arrive", decision.table, decision.put), arrive)
        return deciding.last_number - len(decision.with_puts)

    patch.setattr(SimulatedStore, "write_if", write_if)


def ids_of_any_height_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OrderCheck, "__call__", lambda *_: True)
