"""The check of arrival numbers: what it reports, what a repair changes, and what is no damage beside writers and collectors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hbasemk import Repository, connect
from hbasemk.check import IntegrityCheck, Repair
from hbasemk.check import problem as kinds
from hbasemk.check.arrivals import ArrivalsCheck
from hbasemk.check.context import CheckContext
from hbasemk.format import revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.inspection import HeadInspection
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get, Scan, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.commands import run_captured
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables
from tests.support.trimming import trim, written_after


@pytest.fixture
def world() -> World:
    """Return the clocks of all processes."""
    return World()


@pytest.fixture(params=["memory", "sqlite"])
def tables(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Tables]:
    """Return a repository in memory or in a file."""
    store: Store
    if request.param == "memory":
        store = MemoryStore(world.clock, transactions=True)
    else:
        store = SqliteStore(str(tmp_path / "content.db"), clock=world.clock)
    yield Tables(store, lambda mac: open_instance(store, world, mac=mac, seed=mac), world.advance, world.clock)
    store.close()


def rename(tables: Tables, revision: int, to: bytes) -> None:
    """Let the arrival numbers of a revision's row name another row."""
    key, store = schema.revision_key(revision), tables.store
    if isinstance(store, MemoryStore):
        written = store._table(schema.JOURNAL).written
        assert written is not None
        written[:] = [to if one == key else one for one in written]
        return
    with closing(sqlite3.connect(store.location)) as sql, sql:
        sql.execute(f"UPDATE {arrivals_of(sql)} SET row = ? WHERE row = ?", (to, key))


def arrivals_of(sql: sqlite3.Connection) -> str:
    """Return the SQL table with the arrival numbers of the journal."""
    return f"hbasemk_arrivals_{sql.execute('SELECT id FROM hbasemk_tables WHERE name = ?', (schema.JOURNAL,)).fetchone()[0]}"


def add(repository: Repository, path: str) -> None:
    """Commit one node."""
    repository.run(lambda tx: tx.add(path))


def found(tables: Tables) -> list[tuple[str, str, str]]:
    """Return kind, revision and severity of each problem that a new instance finds."""
    return [(one.kind, one.revision, one.severity) for one in tables.problems(live=True)]


def paths_of(tables: Tables) -> list[str]:
    """Return the children of the root that a new instance sees."""
    instance = tables.other()
    return sorted(
        state.path for level in instance.levels(instance.head(), "/", 1) for state in level if state.path != "/"
    )


def test_a_committed_revision_without_a_number_is_found_and_numbered_again(tables: Tables) -> None:
    lost = tables.commit(AddNode("/lost", {"p": 1}))
    tables.commit(AddNode("/kept", {}))
    before = tables.store.read(schema.JOURNAL, [Get(schema.revision_key(lost))])
    assert found(tables) == []
    rename(tables, lost, schema.NOTICE_FIRST)
    assert paths_of(tables) == ["/kept"]
    assert found(tables) == [(kinds.NOT_NUMBERED, revisions.to_text(lost), kinds.DAMAGE)]
    running = tables.other()
    assert tables.repair() == ["gave its row an arrival number"]
    assert found(tables) == []
    assert paths_of(tables) == ["/kept", "/lost"]
    running.poll()
    assert running.node(running.head(), "/lost") is not None
    assert tables.store.read(schema.JOURNAL, [Get(schema.revision_key(lost))]) == before


def test_a_repair_writes_nothing_if_polls_find_the_revision(tables: Tables) -> None:
    lost = tables.commit(AddNode("/lost", {}))
    rename(tables, lost, schema.NOTICE_FIRST)
    (problem,) = tables.problems(live=True)
    repairs = [Repair(tables.open_instance(number)) for number in (60, 61)]
    assert [repair.repair(problem) for repair in repairs] == ["gave its row an arrival number", "already correct"]
    tables.instance.recovery.advance()
    assert repairs[0].repair(problem) == "already correct"


def test_a_repair_beside_a_writer_begins_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = tables.commit(AddNode("/lost", {}))
    rename(tables, lost, schema.NOTICE_FIRST)
    (problem,) = tables.problems(live=True)
    repairing = tables.open_instance(60)
    read = repairing.store.read

    def commit_before(table: str, gets: list[Get]) -> object:
        if table == schema.JOURNAL and gets[0].row == schema.revision_key(lost):
            monkeypatch.undo()
            tables.commit(AddNode("/meanwhile", {}))
        return read(table, gets)

    monkeypatch.setattr(repairing.store, "read", commit_before)
    assert Repair(repairing).repair(problem) == "gave its row an arrival number"
    assert paths_of(tables) == ["/lost", "/meanwhile"]


def test_a_number_that_names_no_row_is_damage(tables: Tables) -> None:
    tables.commit(AddNode("/a", {}))
    gone = tables.commit(SetProperty("/a", "p", 1))
    tables.store.delete_rows(schema.JOURNAL, [schema.revision_key(gone)])
    assert (kinds.NUMBER, revisions.to_text(gone), kinds.DAMAGE) in found(tables)


def test_a_number_with_a_foreign_key_is_damage(tables: Tables) -> None:
    lost = tables.commit(AddNode("/lost", {}))
    rename(tables, lost, b"foreign")
    assert sorted(found(tables)) == [
        (kinds.NOT_NUMBERED, revisions.to_text(lost), kinds.DAMAGE),
        (kinds.NUMBER, b"foreign".hex(), kinds.DAMAGE),
    ]


def test_a_number_of_the_watermark_that_is_too_high_hides_revisions(tables: Tables) -> None:
    hidden = tables.commit(AddNode("/hidden", {}))
    last = tables.store.arrivals(schema.JOURNAL, 0, 1000, ()).last
    tables.put(schema.CLUSTER, schema.SETTINGS_ROW, (schema.ARRIVAL, last.to_bytes(8, "big"), None))
    assert found(tables) == [(kinds.NOT_NUMBERED, revisions.to_text(hidden), kinds.DAMAGE)]
    assert tables.repair() == ["gave its row an arrival number"]
    assert paths_of(tables) == ["/hidden"]


def test_undecided_and_aborted_revisions_need_no_number(tables: Tables) -> None:
    tables.commit(AddNode("/a", {}))
    for revision in (
        tables.dead_writer(RowChange("/a", "changed", ["p"])),
        tables.dead_writer(aborted=True, swept=schema.SWEPT_CLEAN),
    ):
        rename(tables, revision, schema.NOTICE_FIRST)
    assert found(tables) == []


def test_rows_that_are_trimmed_during_the_check_are_no_damage(tables: Tables, world: World) -> None:
    one = tables.instance
    for number in range(10):
        tables.commit(AddNode(f"/{number}", {}))
    context = CheckContext(HeadInspection(one), live=True)
    check = ArrivalsCheck(context)
    rows = [JournalRow(row) for row in tables.store.scan(schema.JOURNAL, Scan(None, None, 1000)) if len(row.key) == 8]
    assert sum(row.committed for row in rows) == 11
    trim(one, world)
    assert written_after(tables.store) > 10
    assert list(check.check(rows)) == []
    assert list(check.read_on()) == []


def test_missing_numbers_of_the_whole_journal_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "content.db"
    url = f"sqlite:///{path}"
    with connect(url, poll_interval=0) as repository:
        add(repository, "/a")
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute(f"DROP TABLE {arrivals_of(sql)}")
    code, out, _ = run_captured(capfd, "--url", url, "check")
    assert code == 1
    assert kinds.NUMBER in out


def test_the_command_finds_and_repairs_what_new_processes_do_not_see(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "content.db"
    url = f"sqlite:///{path}"

    def run(*words: str) -> tuple[int, str]:
        return run_captured(capfd, "--url", url, *words)[:2]

    with connect(url, poll_interval=0) as repository:
        for name in "abc":
            add(repository, f"/{name}")
        lost = repository.head.revision
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute(f"DELETE FROM {arrivals_of(sql)} WHERE row = ?", (bytes.fromhex(lost),))
    code, out = run("check")
    assert code == 1
    assert kinds.NOT_NUMBERED in out
    assert lost in out
    assert run("check", "--repair")[0] == 0
    assert run("check")[0] == 0
    assert run("ls")[1].split() == ["a", "b", "c"]


def test_a_check_beside_writers_reports_no_missing_number(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/content.db?durable=no"
    with connect(url) as looking, connect(url) as writing:
        ended = threading.Event()

        def write() -> None:
            for number in range(400):
                add(writing, f"/{number}")
                if number % 50 == 0:
                    instance_of(writing).recovery.advance()
            ended.set()

        thread = threading.Thread(target=write)
        thread.start()
        checks = 0
        while not ended.is_set() or not checks:
            assert [str(one) for one in IntegrityCheck(instance_of(looking), live=True).run()] == []
            checks += 1
        thread.join()
