"""The check of the writers' logs, in a store that does not order all writes (section 5 of the protocol)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.format import recent_commits, revisions, schema, writer_log
from hbasemk.format.horizon import Horizon
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import TrimLevel
from hbasemk.format.watermark import Watermark
from hbasemk.format.writer_log import Claims, WriterLog
from hbasemk.kernel.journal.news import FLAGS_AND_CHANGES
from hbasemk.store.abc import Get, Row


class Logs:
    """What the writers have announced, to validate committed revisions."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._logs: dict[int, WriterLog] = {}

    def check_row(self, row: Row) -> Iterator[Problem]:
        """Check one row of the table ``cluster`` that polls read; other rows have no problem."""
        machine = schema.log_machine(row.key)
        if machine is not None:
            try:
                self._logs[machine] = writer_log.decode(row)
                yield from self._check_commits(machine, recent_commits.of_row(row))
            except FormatError as error:
                yield Problem(kinds.LOG, f"machine {machine:04x}", "", str(error))
        elif row.key in {schema.LOGS_HEAD, schema.LOGS_TAIL}:
            yield from self._check_mark(row)

    def _check_commits(self, machine: int, commits: Mapping[int, bytes]) -> Iterator[Problem]:
        """Check that the commits which a log shows are those of the journal."""
        # Read after the log, so each of them has been decided. No poll uses the log of a writer that has ended.
        gets = [Get(schema.revision_key(one), columns=FLAGS_AND_CHANGES) for one in commits]
        rows = map(JournalRow, self._context.read(schema.JOURNAL, gets))
        for (revision, encoded), row in zip(commits.items(), rows, strict=True):
            is_equal = row.value((schema.DATA, schema.CHANGES)) == encoded
            if (row.committed and is_equal) or self._context.is_trimmed(revision):
                continue
            severity = kinds.LEFTOVER if self._context.is_lease_over(revision) else kinds.DAMAGE
            differs = "has other changes" if row.committed else "does not say that it is committed"
            detail = f"the log shows it as committed, but its journal row {differs}"
            yield Problem(kinds.LOG, f"machine {machine:04x}", text(revision), detail, severity)

    def _check_mark(self, row: Row) -> Iterator[Problem]:
        """Check the row before the logs, or the one after them."""
        where = row.key.decode()
        for cell in row.cells:
            try:
                if cell[:2] == schema.WATERMARK:
                    copied = Watermark.decode_copy(cell)
                    yield from self._check_mark_below(where, copied, "polls take it for the watermark")
                elif cell[:2] == schema.HORIZON:
                    horizon = Horizon.decode(cell.value, (schema.CLUSTER, row.key, schema.HORIZON))
                    yield from self._check_mark_below(where, horizon.revision, "it is the horizon")
                elif cell[:2] == schema.TRIMMED:
                    TrimLevel.decode(cell.value, (schema.CLUSTER, row.key, schema.TRIMMED))
            except FormatError as error:
                yield Problem(kinds.LOG, where, "", str(error))

    def _check_mark_below(self, where: str, mark: int, what: str) -> Iterator[Problem]:
        """Check that no mark in the rows around the logs is above the watermark, which is read after it."""
        get = Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK, schema.CLAIMS))
        found = {cell[:2]: cell for cell in self._context.read(schema.CLUSTER, [get])[0].cells}
        # A clock that goes back hides a later watermark, but not the counter of claims.
        watermark = found.get(schema.WATERMARK)
        highest = max(
            0 if watermark is None else Watermark.revision_of(watermark.value),
            Claims.decode(found.get(schema.CLAIMS)).watermark,
        )
        if mark > highest:
            detail = f"{what}, and the watermark is {text(highest)}: polls miss revisions between"
            yield Problem(kinds.LOG, where, text(mark), detail)

    def check_announced(self, revision: int) -> Iterator[Problem]:
        """Check that the log of its writer shows a committed revision of trunk above the watermark, or has shown it."""
        if not self.is_announced(revision) and not self._context.is_collected(revision):
            machine = revisions.machine_of(revision)
            detail = (
                f"the log of machine {machine:04x} does not show it, so polls miss it until the watermark passes it"
            )
            # While its writer may live, the watermark may have to wait for it.
            repairable = self._context.is_lease_over(revision)
            yield Problem(kinds.UNANNOUNCED, "", text(revision), detail, repairable=repairable)

    def is_announced(self, revision: int) -> bool:
        """Return whether polls find a revision of trunk: the watermark has passed it, or the log of its writer shows it.

        True also if the log is damaged, which the check of the logs reports.
        """
        mark = self._context.initial_watermark
        if self._context.store.supports_transactions or mark is None or revision <= mark.revision:
            return True
        if self._shows(revision):
            return True
        # The log may have been read before the announcement.
        machine = revisions.machine_of(revision)
        get = Get(schema.log_key(machine), columns=(schema.LOG, schema.LOG_HOLDER))
        try:
            self._logs[machine] = writer_log.decode(self._context.read(schema.CLUSTER, [get])[0])
        except FormatError:
            return True
        return self._shows(revision)

    def _shows(self, revision: int) -> bool:
        log = self._logs.get(revisions.machine_of(revision))
        return log is not None and (revision <= log.base or revision in log.ids)
