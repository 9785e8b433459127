"""Polls of stores that order all writes: revisions join in the order of their arrival (section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.kernel.commit import deadline
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.polled_revisions import PolledRevisions
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Arrivals
from hbasemk.store.memory import MemoryStore


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
