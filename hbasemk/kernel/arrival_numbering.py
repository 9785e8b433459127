"""The arrival numbers that an upgrade gives to the revisions of a store that orders all writes.

Versions with format 1 did not keep the order in which the rows of the journal are written. The numbering does this:

1. It creates the part of the journal that keeps arrival numbers, which it may find empty or filled in part.
2. It puts a random mark into the settings, beside the old format.
3. It gives every revision above the watermark an arrival number, in the order of ids: it writes one flag of the row
   again, with the same value. It aborts pending revisions instead: a late decision by their dead writers gets no number.

Old versions ignore the mark and the numbers, and find another instance's abort as after any recovery. After a crash the
next upgrade begins again with a mark of its own and numbers every revision once more. Readers use the last number of each
row, so only the order of the last run counts. Each write of step 3 is one transaction that applies only while the mark is
there, and so is the change of the format afterwards. So of several upgrades at once, the one that began last completes,
and none writes after the format has changed. The watermark has no arrival number yet, so new instances read all numbers.
These exist only for later revisions, and for those above the watermark at the time of an upgrade.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hbasemk.errors import FormatError
from hbasemk.format import journal_row, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel import settings
from hbasemk.kernel.journal.news import FLAGS
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row, Scan, scan_all

BATCH: Final = 1000
MARK: Final = "upgrade"
"""The field of the settings with the mark of the numbering that began last."""


def read_settings(store: RetryingStore) -> bytes:
    """Return the bytes of the settings."""
    return b"".join(cell.value for cell in store.read(schema.CLUSTER, [settings.CURRENT])[0].cells)


def replace_settings(store: RetryingStore, expected: bytes, new: bytes) -> bool:
    """Replace the settings if they still have the expected bytes; return whether they have the new ones."""
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, new)])
    # After a lost reply, the second attempt finds what the first one wrote.
    return store.check_and_write(schema.CLUSTER, schema.SETTINGS, expected, put) or read_settings(store) == new


class Numbering:
    """One run of the numbering. ``numbered`` and ``aborted`` count rows."""

    def __init__(self, store: RetryingStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._marked = b""
        self.numbered = 0
        self.aborted = 0

    def run(self, stored: bytes, floor: int) -> bytes:
        """Number all revisions above ``floor``; return the settings with the mark. ``stored``: the settings as read before.

        Raises FormatError if another upgrade runs at the same time.
        """
        self._store.create_tables(schema.TABLES)
        fields: dict[str, Any] = json.loads(stored)
        self._marked = json.dumps({**fields, MARK: f"{self._runtime.random.getrandbits(128):032x}"}).encode()
        if not replace_settings(self._store, stored, self._marked):
            raise self._overtaken()
        scan = Scan(schema.revision_key(floor + 1), None, BATCH, columns=FLAGS)
        for row in journal_row.decode(scan_all(self._store, schema.JOURNAL, scan)):
            self.aborted += self._number(row)
            self.numbered += 1
        return self._marked

    def _number(self, row: JournalRow) -> bool:
        """Give a row the next arrival number; return whether that aborted a pending revision.

        If another process changes the row at the same time, read it again: that change is final.
        """
        key = schema.revision_key(row.revision)
        while row.cells:
            kept = row.cells[0]
            put = Put(key, [NewCell(kept.family, kept.qualifier, kept.value)])
            decision = Decision(schema.JOURNAL, (kept.family, kept.qualifier), kept.value, put)
            abort = not row.is_branch and not row.aborted and row.value(schema.COMMITTED) == schema.NO
            if abort:
                put = Put(key, [NewCell(*schema.ABORT, schema.YES)])
                decision = Decision(schema.JOURNAL, schema.COMMITTED, schema.NO, put)
            also = [(schema.CLUSTER, settings.CURRENT)]
            number = self._store.write_if(schema.JOURNAL, (), (), self._is_marked, decision, also, durable=False)
            if number is None:
                raise self._overtaken()
            if number:
                return abort
            row = JournalRow(self._store.read(schema.JOURNAL, [Get(key, columns=FLAGS)])[0])
        return False

    def _is_marked(self, rows: list[Row]) -> bool:
        return [cell.value for cell in rows[-1].cells] == [self._marked]

    def _overtaken(self) -> FormatError:
        return FormatError(
            f"another process upgrades the repository at {self._store.location} at the same time; this process stopped. "
            "Wait until the other one has ended, and run `hbasemk upgrade` again to see the result."
        )
