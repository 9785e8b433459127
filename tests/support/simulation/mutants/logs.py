"""The logs of writers, in a store that does not order all writes (sections 3 and 5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from hbasemk.format import revisions, schema, writer_log
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel import settings
from hbasemk.kernel.ids import log_holder
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.log_holder import TakenLog
from hbasemk.kernel.journal.log_poller import LogPoller
from hbasemk.kernel.journal.logs import Logs
from hbasemk.kernel.journal.news import News
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Get, NewCell, Put


def revisions_not_announced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Announcements, "announce", lambda *_: None)


def logs_without_other_pending_ids(patch: pytest.MonkeyPatch) -> None:
    def cell(self: Announcements) -> NewCell:
        return writer_log.cell(self._base, {one for one in self._open if one > self._acknowledged}, self._bound)

    patch.setattr(Announcements, "_cell", cell)


def pending_ids_of_the_earlier_holder_dropped(patch: pytest.MonkeyPatch) -> None:
    adopt = Announcements._adopt

    def forget(self: Announcements) -> None:
        nonce = self._nonce
        adopt(self)
        if self._nonce != nonce:
            self._open = set()

    patch.setattr(Announcements, "_adopt", forget)


def logs_written_by_any_holder(patch: pytest.MonkeyPatch) -> None:
    def send(self: Announcements, cell: NewCell) -> None:
        self._store.write(schema.CLUSTER, [Put(schema.log_key(self._machine), [cell])])
        self._acknowledged = max(self._acknowledged, cell.timestamp or 0)

    patch.setattr(Announcements, "_send", send)


def one_reading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogPoller, "_exclude", lambda *_: None)


def deferred_revisions_forgotten(patch: pytest.MonkeyPatch) -> None:
    finish = LogPoller.finish

    def forget(self: LogPoller, news: News, pending: Collection[int], floor: int) -> None:
        news.deferred = set()
        finish(self, news, pending, floor)

    patch.setattr(LogPoller, "finish", forget)


def pending_revisions_forgotten(patch: pytest.MonkeyPatch) -> None:
    finish = LogPoller.finish
    patch.setattr(LogPoller, "finish", lambda self, news, _, floor: finish(self, news, (), floor))


def what_has_left_the_logs_not_read(patch: pytest.MonkeyPatch) -> None:
    read = LogPoller._read_states
    patch.setattr(LogPoller, "_read_states", lambda self, ids, gaps, order, news: read(self, ids, {}, order, news))


def watermark_past_the_bounds_of_logs(patch: pytest.MonkeyPatch) -> None:
    bound = Logs.bound
    patch.setattr(Logs, "bound", lambda self, watermark: (revisions.MAX_REVISION, bound(self, watermark)[1]))


def watermark_past_announced_revisions(patch: pytest.MonkeyPatch) -> None:
    bound = Logs.bound
    patch.setattr(Logs, "bound", lambda self, watermark: (bound(self, watermark)[0], []))


def watermark_past_new_claims(patch: pytest.MonkeyPatch) -> None:
    def take(store: RetryingStore, machine: int, lease: LeaseRecord) -> TakenLog:
        key, at = schema.log_key(machine), revisions.pack(lease.start, machine, 0)
        store.write(schema.CLUSTER, [Put(key, [NewCell(*schema.LOG_HOLDER, lease.nonce, at)])])
        (row,) = store.read(schema.CLUSTER, [Get(key)])
        _, watermark = settings.read(store)
        found = writer_log.decode(row)
        return TakenLog(found, max(found.bound, 0 if watermark is None else watermark.revision))

    patch.setattr(log_holder, "take", take)


def states_read_before_the_logs(patch: pytest.MonkeyPatch) -> None:
    """The states of what waits are those before the first reading, as if both ran at the same time."""
    read, states = LogPoller.read, LogPoller._read_states

    def read_early(self: LogPoller, sequence: Any, read_contents: Any) -> News:
        early = News()
        states(self, self._waiting, {}, sequence, early)

        def read_late(self: LogPoller, ids: Collection[int], gaps: Any, sequence: Any, news: News) -> None:
            waiting = self._waiting.intersection(ids)
            states(self, set(ids) - waiting, gaps, sequence, news)
            news.committed += [one for one in early.committed if one in waiting]
            news.pending |= waiting.intersection(early.pending)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(LogPoller, "_read_states", read_late)
            return read(self, sequence, read_contents)

    patch.setattr(LogPoller, "read", read_early)
