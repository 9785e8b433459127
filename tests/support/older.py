"""Repositories and processes of another format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hbasemk import Settings
from hbasemk.format import journal_row, schema
from hbasemk.kernel import settings
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import NewCell, Put, Scan, Store, scan_all

KEPT: Final = "field of another version"
SETTINGS: Final = Settings(lease_ms=2_000, max_clock_skew_ms=1_000)
OVER: Final = 4.0
"""Seconds after which a lease without renewals is over."""
COMMITTED: Final = 5


def commit(instance: Instance, *operations: Operation) -> int:
    """Commit on the head; return the revision."""
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


class Written(NamedTuple):
    """The revisions that a writer left: committed ones, one on a branch, and a pending one."""

    committed: list[int]
    branch: int
    pending: int

    def check(self, instance: Instance) -> None:
        """Raise AssertionError unless an instance reads all revisions and may commit."""
        assert [one for one in instance.journal if one in self.committed] == self.committed
        for number in range(COMMITTED):
            assert instance.reader.require(instance.head(), f"/n{number}").properties == {"v": number}
        assert instance.reader.require(instance.at(self.branch), "/n0").properties == {"v": "branch"}
        commit(instance, SetProperty("/n1", "v", "new"))


def write(writer: Instance) -> Written:
    """Commit, also on a branch, and begin a revision that is never decided."""
    committed = [commit(writer, AddNode(f"/n{number}", {"v": number})) for number in range(COMMITTED)]
    begun = writer.begin_branch(writer.head())
    branch = writer.commit_on_branch(begun, OperationList([SetProperty("/n0", "v", "branch")]), "")
    pending = writer.announcements.next(committed[-1], [])
    if not writer.store.supports_transactions:
        writer.announcements.announce(pending)
    row = journal_row.begin(b"n" * 16, committed[-1], "never decided")
    writer.store.write(schema.JOURNAL, [Put(schema.revision_key(pending), row)])
    return Written(committed, branch, pending)


def settings_fields(store: Store) -> dict[str, Any]:
    """Return the fields of the stored settings."""
    store.verify(schema.TABLES)
    (cell,) = store.read(schema.CLUSTER, [settings.CURRENT])[0].cells
    fields: dict[str, Any] = json.loads(cell.value)
    return fields


def set_format(store: Store, number: int) -> None:
    """Store another format number, and a field that only another version knows. Format 1 has no logs of writers."""
    fields = {**settings_fields(store), "format": number, "kept": KEPT}
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, json.dumps(fields).encode())])
    store.write(schema.CLUSTER, [put])
    if number == 1:
        logs = Scan(schema.LOGS_HEAD, schema.LOGS_END, 100)
        store.delete_rows(schema.CLUSTER, [row.key for row in scan_all(store, schema.CLUSTER, logs)])


def remove_arrivals(path: Path) -> None:
    """Remove all arrival numbers from a SQLite file, which versions with format 1 do not keep."""
    with closing(sqlite3.connect(path)) as db, db:
        tables = dict(db.execute("SELECT name, id FROM hbasemk_tables"))
        db.execute(f"DROP TABLE hbasemk_arrivals_{tables['journal']}")
        db.execute(f"DELETE FROM cluster_{tables['cluster']}_0 WHERE qualifier = ?", (schema.ARRIVAL[1],))


def work_as(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let this process work as a version with another format."""
    monkeypatch.setattr(settings, "FORMAT", number)
    monkeypatch.setattr(settings, "FORMAT_WITH_ORDER", number)


def dump(store: Store) -> dict[str, list[Any]]:
    """Return all cells of the repository."""
    store.verify(schema.TABLES)
    return {
        table.name: [(row.key, list(row.cells)) for row in scan_all(store, table.name, Scan(None, None, 1000))]
        for table in schema.TABLES
    }
