"""The logs of a repository of an older format, in a store that does not order all writes.

Versions with format 1 announced nothing. So the upgrade aborts what is pending above the watermark, and writes a log for each
machine id that says: up to this id, the journal shows everything. Versions with formats 2 and 3 announced their revisions, but
ignore marks: those with format 2 all of them, those with format 3 the shared ones. So the upgrade closes their logs and aborts
what is pending, also what they have announced without a journal row: a process that was paused commits nothing afterwards.
No process uses the repository meanwhile (``upgrade.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hbasemk.format import journal_row, revisions, schema, writer_log
from hbasemk.format.writer_log import WriterLog
from hbasemk.kernel.ids import log_holder
from hbasemk.kernel.journal.news import FLAGS
from hbasemk.kernel.journal.rows import create_aborted, journal_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import NewCell, Put, Scan, scan_all

BATCH: Final = 1000


class Entered(NamedTuple):
    """How many revisions above the watermark were entered into logs, and how many of them were pending and aborted."""

    entered: int
    aborted: int


def enter_all(store: RetryingStore, floor: int) -> Entered:
    """Enter all trunk revisions above ``floor`` into logs. One round trip for each 1000, for each pending one, and each log.

    A log that has a holder stays as it is: another upgrade has ended, and a process of this version uses the repository.
    """
    found, aborted = _abort_pending(store, floor)
    for machine, last in {revisions.machine_of(one): one for one in found}.items():
        put = Put(schema.log_key(machine), [writer_log.cell(last, (), last)])
        store.check_and_write(schema.CLUSTER, schema.LOG_HOLDER, None, put)
    return Entered(len(found), aborted)


def close_all(store: RetryingStore, floor: int) -> Entered:
    """Close all logs, and then abort all pending trunk revisions above ``floor``.

    Round trips as :func:`enter_all`, and two for each revision that was announced and has no journal row.
    """
    for machine, log in _logs(store):
        if log.is_open:
            log_holder.close(store, machine, log)
    # Now they announce nothing more.
    announced = [one for _, log in _logs(store) for one in log.ids if one > floor]
    missing = [row.revision for row in journal_rows(store, announced, FLAGS) if not row.cells]
    created = sum(create_aborted(store, revision) for revision in missing)
    return Entered(0, _abort_pending(store, floor)[1] + created)


def _logs(store: RetryingStore) -> Iterator[tuple[int, WriterLog]]:
    """Yield the logs of all writers, by machine id. One round trip for each 1000."""
    logs = Scan(schema.LOGS_HEAD, schema.LOGS_END, BATCH, columns=(schema.LOG, schema.LOG_HOLDER))
    for row in scan_all(store, schema.CLUSTER, logs):
        machine = schema.log_machine(row.key)
        if machine is not None:
            yield machine, writer_log.decode(row)


def _abort_pending(store: RetryingStore, floor: int) -> tuple[list[int], int]:
    """Abort the pending trunk revisions above ``floor``; return all trunk revisions there, and how many were aborted."""
    found: list[int] = []
    aborted = 0
    scan = Scan(schema.revision_key(floor + 1), None, BATCH, columns=FLAGS)
    for row in journal_row.decode(scan_all(store, schema.JOURNAL, scan)):
        if row.is_branch:
            continue
        if not row.committed and not row.aborted:
            put = Put(schema.revision_key(row.revision), [NewCell(*schema.ABORT, schema.YES)])
            aborted += store.check_and_write(schema.JOURNAL, schema.COMMITTED, schema.NO, put)
        found.append(row.revision)
    return found, aborted
