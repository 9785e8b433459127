"""The logs of writers, in a store that does not order all writes (sections 3 and 5)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from hbasemk.errors import LeaseLostError, StoreError
from hbasemk.format import recent_commits, revisions, schema, writer_log
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel import settings
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.preparation import Preparation
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids import log_holder
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.leases import leases_of
from hbasemk.kernel.ids.log_holder import TakenLog
from hbasemk.kernel.journal.log_poller import Announced, LogPoller
from hbasemk.kernel.journal.logs import Logs
from hbasemk.kernel.journal.news import News
from hbasemk.kernel.journal.polled_revisions import PolledRevisions
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import CheckAndWrite, Get, NewCell, Put


def revisions_not_announced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Announcements, "announce", lambda *_: None)
    patch.setattr(Announcements, "announce_and", lambda self, _, create: self._store.once.check_and_write(*create))


def logs_without_other_pending_ids(patch: pytest.MonkeyPatch) -> None:
    def cell(self: Announcements) -> NewCell:
        return writer_log.cell(self._base, {one for one in self._open if one > self._acknowledged}, self._bound)

    patch.setattr(Announcements, "_cell", cell)


def bound_past_ids_that_are_not_announced(patch: pytest.MonkeyPatch) -> None:
    original = Announcements._cell

    def cell(self: Announcements) -> NewCell:
        if not self._idle:
            return original(self)
        # A renewal.
        return writer_log.cell(self._base, [one for one in self._open if one <= self._acknowledged], self._bound)

    patch.setattr(Announcements, "_cell", cell)


def failed_announcements_taken_as_sent(patch: pytest.MonkeyPatch) -> None:
    announce = Announcements.announce

    def ignore(self: Announcements, revision: int) -> None:
        with contextlib.suppress(StoreError, LeaseLostError):
            announce(self, revision)

    announce_and = Announcements.announce_and

    def ignore_too(self: Announcements, revision: int, create: CheckAndWrite) -> bool:
        try:
            return announce_and(self, revision, create)
        except (StoreError, LeaseLostError):
            return True

    patch.setattr(Announcements, "announce", ignore)
    patch.setattr(Announcements, "announce_and", ignore_too)


def pending_ids_of_the_earlier_holder_dropped(patch: pytest.MonkeyPatch) -> None:
    adopt = Announcements._adopt

    def forget(self: Announcements) -> None:
        nonce = self._nonce
        adopt(self)
        if self._nonce != nonce:
            self._open = set()

    patch.setattr(Announcements, "_adopt", forget)


def logs_written_by_any_holder(patch: pytest.MonkeyPatch) -> None:
    def send(self: Announcements, log: CheckAndWrite) -> None:
        self._store.write(schema.CLUSTER, [log.put])
        self._acknowledged = max(self._acknowledged, log.put.cells[0][3] or 0)

    def send_beside(self: Announcements, create: CheckAndWrite, log: CheckAndWrite) -> tuple[bool, bool]:
        created = self._store.once.check_and_write(*create)
        send(self, log)
        return created, True

    patch.setattr(Announcements, "_send", send)
    patch.setattr(Announcements, "_send_beside", send_beside)


def one_reading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogPoller, "_exclude", lambda *_: None)


def ids_that_left_a_log_between_the_readings_ignored(patch: pytest.MonkeyPatch) -> None:
    exclude = LogPoller._exclude

    def ignore(self: LogPoller, second: Announced, read_up_to: Mapping[int, int], news: News) -> None:
        second.gaps = {}
        exclude(self, second, read_up_to, news)

    patch.setattr(LogPoller, "_exclude", ignore)


def revisions_wait_for_one_poll_only(patch: pytest.MonkeyPatch) -> None:
    exclude = LogPoller._exclude

    def let_join(self: LogPoller, second: Announced, read_up_to: Mapping[int, int], news: News) -> None:
        exclude(self, second, read_up_to, news)
        joining = news.held_back.keys() & self.held_back.keys()
        news.held_back = {one: below for one, below in news.held_back.items() if one not in joining}
        news.deferred -= joining
        news.committed += joining

    patch.setattr(LogPoller, "_exclude", let_join)


def revisions_wait_for_the_lowest_only(patch: pytest.MonkeyPatch) -> None:
    exclude = LogPoller._exclude

    def lower(self: LogPoller, second: Announced, read_up_to: Mapping[int, int], news: News) -> None:
        exclude(self, second, read_up_to, news)
        news.held_back = {one: min(below, *second.new) for one, below in news.held_back.items()}

    patch.setattr(LogPoller, "_exclude", lower)


def polls_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PolledRevisions, "poll", lambda self: run_with_retries(self._runtime, self._poll))


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

    def ignore(self: LogPoller, ids: Collection[int], logs: Announced, sequence: Any, news: News) -> None:
        logs.gaps = {}
        read(self, ids, logs, sequence, news)

    patch.setattr(LogPoller, "_read_states", ignore)


def commits_shown_before_their_decision(patch: pytest.MonkeyPatch) -> None:
    prepare = Preparation.prepare

    def show(self: Preparation, draft: Draft) -> ChangeSet:
        plan = prepare(self, draft)
        if draft.revision and draft.encoded:
            self._announcements._commits.add(draft.revision, draft.encoded[0].value)
        return plan

    patch.setattr(Preparation, "prepare", show)


def changes_of_shown_commits_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recent_commits, "changes_of", lambda *_: [])


def watermark_past_the_bounds_of_logs(patch: pytest.MonkeyPatch) -> None:
    bound = Logs.bound
    patch.setattr(Logs, "bound", lambda self, *args: (revisions.MAX_REVISION, bound(self, *args)[1]))


def logs_of_expired_leases_not_closed(patch: pytest.MonkeyPatch) -> None:
    def bound(self: Logs, watermark: int, _damage: Damage) -> tuple[int, list[int]]:
        logs = self._journal.read_logs()
        leases = leases_of(self._store, list(logs))
        bounds = []
        for machine, log in logs.items():
            record = leases[machine]
            if log.is_open and record is not None and not self._lease.has_ended(machine, record):
                bounds.append(log.bound)
        announced = sorted(one for log in logs.values() for one in log.ids if one > watermark)
        return min(bounds, default=revisions.MAX_REVISION - 1) + 1, announced

    patch.setattr(Logs, "bound", bound)


def watermark_past_announced_revisions(patch: pytest.MonkeyPatch) -> None:
    bound = Logs.bound
    patch.setattr(Logs, "bound", lambda self, *args: (bound(self, *args)[0], []))


def watermark_past_new_claims(patch: pytest.MonkeyPatch) -> None:
    def take(store: RetryingStore, machine: int, lease: LeaseRecord) -> TakenLog:
        key, at = schema.log_key(machine), revisions.pack(lease.start, machine, 0)
        store.write(schema.CLUSTER, [Put(key, [NewCell(*schema.LOG_HOLDER, lease.nonce, at)])])
        row, current = store.read(schema.CLUSTER, [Get(key), Get(schema.SETTINGS_ROW)])
        _, watermark = settings.read(store)
        found = writer_log.decode(row)
        return TakenLog(found, max(found.bound, 0 if watermark is None else watermark.revision), current)

    patch.setattr(log_holder, "take", take)


def states_read_before_the_logs(patch: pytest.MonkeyPatch) -> None:
    """The states of what waits are those before the first reading, as if both ran at the same time."""
    read, states = LogPoller.read, LogPoller._read_states
    read_before: dict[int, News] = {}

    def read_early(self: LogPoller, sequence: Any, read_contents: Any) -> News:
        early = read_before[id(self)] = News()
        states(self, self._waiting, Announced(), sequence, early)
        return read(self, sequence, read_contents)

    def read_late(self: LogPoller, ids: Collection[int], logs: Announced, sequence: Any, news: News) -> None:
        early, waiting = read_before[id(self)], self._waiting.intersection(ids)
        states(self, set(ids) - waiting, logs, sequence, news)
        news.committed += [one for one in early.committed if one in waiting]
        news.pending |= waiting.intersection(early.pending)

    patch.setattr(LogPoller, "_read_states", read_late)
    patch.setattr(LogPoller, "read", read_early)
