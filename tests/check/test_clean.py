"""No false alarms: the check reports no problem in an intact repository, even under concurrent work."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from pathlib import Path

import pytest

from hbasemk import Repository
from hbasemk.check import IntegrityCheck, context, found_cells, journal, nodes, statuses
from hbasemk.check.context import declared_by
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Increment, Operation, SetProperty
from hbasemk.repository import instance_of
from hbasemk.store.abc import Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.announced import make_id
from tests.support.branches import commit_on_branch
from tests.support.features import use_everything
from tests.support.proof import sizes
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables


@pytest.fixture
def tables() -> Tables:
    world = World()
    store = MemoryStore(world.clock)
    return Tables(store, lambda mac: open_instance(store, world, mac=mac, seed=mac), world.advance, world.clock)


def test_a_repository_that_used_every_feature_has_no_problems(tables: Tables) -> None:
    use_everything(tables)
    assert tables.problems() == []
    assert tables.problems(live=True) == []
    assert [problem.kind for problem in tables.problems(tables.instance)] == []
    # Now the writers in the middle of a commit are dead as well.
    tables.wait(60)
    assert {problem.kind for problem in tables.problems()} == {"pending revision of a dead writer"}
    tables.repair()
    assert tables.problems() == []


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("scale", sizes(None, 10, 1))
def test_the_changes_of_large_revisions_are_decoded_a_few_times_only(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, scale: int
) -> None:
    monkeypatch.setattr(statuses, "REMEMBERED_CELLS", statuses.REMEMBERED_CELLS // scale)
    names = [f"/{number}" for number in range(30_000 // scale)]
    tables.commit(*(AddNode(name, {"n": 0, "m": 0}) for name in names))
    tables.commit(*(SetProperty(name, "n", 1) for name in names))
    tables.commit(*(SetProperty(name, "m", 1) for name in names))
    decoded = 0

    def count(row: JournalRow) -> list[RowChange] | None:
        nonlocal decoded
        decoded += 1
        return declared_by(row)

    monkeypatch.setattr(context, "declared_by", count)
    assert tables.problems() == []
    print(f"{decoded} journal rows decoded")
    assert decoded <= 12


def test_a_rollback_in_progress_is_not_a_problem_while_others_work(tables: Tables) -> None:
    tables.commit(AddNode("/a", {}))
    revision = tables.dead_writer(RowChange("/a", "changed", ["p"]), aborted=True)
    assert tables.found(live=True) == []
    assert tables.found() == [("cell of an aborted revision", "/a", revisions.to_text(revision))]
    tables.wait(60)
    assert {kind for kind, _, _ in tables.found(live=True)} == {
        "cell of an aborted revision",
        "aborted revision that is not swept",
    }


def test_a_rollback_between_two_reads_of_the_check_is_not_a_problem(tables: Tables) -> None:
    tables.commit(AddNode("/a", {}))
    revision = tables.dead_writer(RowChange("/a", "changed", ["p"]), aborted=True)
    tables.wait(60)
    store = FaultyStore(tables.store)
    looking = open_instance(store, World(tables.now_ms()), mac=70)
    fresh_instance = tables.other()

    def after(call: Call) -> None:
        if call == Call("scan", schema.NODES, 1):
            fresh_instance.outcomes.recover_if_over(revision)

    store.after = after
    assert [problem.kind for problem in IntegrityCheck(looking, notes=True).run()] == []


def test_a_merge_that_is_decided_during_a_check_is_not_a_problem(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the check of the branch does not read the row of the merge, too.
    monkeypatch.setattr(journal, "ROWS", 1)
    tables.commit(AddNode("/a", {}))
    store = FaultyStore(tables.store)
    merging = open_instance(store, World(tables.now_ms()), mac=70)
    branch = commit_on_branch(merging, merging.begin_branch(merging.head()), [SetProperty("/a", "p", 1)])
    checked_nodes, merged = threading.Event(), threading.Event()
    found: list[str] = []

    def progress(table: str, rows: int) -> None:
        if table == schema.NODES:
            checked_nodes.set()
            assert merged.wait(60), rows

    checking = threading.Thread(
        target=lambda: found.extend(map(str, IntegrityCheck(tables.other(), live=True, progress=progress).run()))
    )
    calls: list[Call] = []

    def before(call: Call) -> None:
        calls.append(call)
        if call == Call("check_and_write", schema.JOURNAL, 1) and Call("write", schema.NODES, 1) in calls:
            # The merge is pending, and its cells exist.
            store.before = None
            checking.start()
            assert checked_nodes.wait(60)

    store.before = before
    merging.merge_branch(branch, None)
    merged.set()
    checking.join(60)
    assert found == []


@pytest.mark.parametrize(
    "then",
    [
        [Adjust("/a", "n", 1)],
        [Adjust("/a", "n", 2), Adjust("/a", "n", -2)],
        [Adjust("/a", "n", 0)],
        [Adjust("/a", "n", 1), SetProperty("/a", "n", 5)],
        [SetProperty("/a", "p", None)],
        [SetProperty("/a", "q", None)],
        [SetProperty("/a", "p", None), SetProperty("/a", "p", 2), Increment("/a", "p", 0), Increment("/a", "n", 0)],
    ],
)
def test_a_node_that_its_own_commit_changes_is_not_a_problem(then: list[Operation]) -> None:
    """Where calls are parallel, the changes are written before the commit knows its cells."""
    world = World()
    store = MemoryStore(world.clock, parallel=True)
    tables = Tables(store, lambda mac: open_instance(store, world, mac=mac, seed=mac), world.advance, world.clock)
    tables.commit(AddNode("/a", {"p": 1}), *then)
    assert tables.found() == []


@pytest.mark.parametrize("aborted", [False, True], ids=["pending", "aborted"])
def test_a_row_of_a_revision_that_was_not_announced_is_not_a_problem(tables: Tables, aborted: bool) -> None:
    # Found by a random schedule: the log was closed, so the writer aborted its revision, and died before it marked the row.
    tables.commit(AddNode("/a", {}))
    revision = tables.other().announcements.next(0, [])
    tables.row(revision, [RowChange("/a", "changed", ["p"])], aborted=aborted)
    tables.wait(60)
    assert tables.problems() == []


def test_a_base_below_a_revision_seen_earlier_is_not_a_lost_update(tables: Tables) -> None:
    tables.commit(AddNode("/a", {"p": 0}), AddNode("/b", {}))
    slow = make_id(tables.other())
    declared = RowChange("/b", "changed", ["q"])
    tables.row(slow, [declared], base=tables.instance.head().revision)
    tables.cells(slow, [declared])
    tables.wait(0.01)
    earlier = tables.other().commit(
        lambda _: OperationList([SetProperty("/a", "p", 1)]), "", retry_timeout=5, max_poll_age=0
    )
    tables.instance.poll()
    tables.journal(slow, schema.COMMITTED, schema.YES)
    tables.wait(0.01)
    # The base of `later` is the slow revision, which joined last. A view at it contains `earlier`, whose id is higher.
    later = tables.commit(SetProperty("/a", "p", 2))
    base = int.from_bytes(tables.cell(schema.JOURNAL, schema.revision_key(later), schema.BASE).value, "big")
    assert slow == base < earlier < later
    assert tables.problems() == []
    # A view at the slow revision never contains `later`, which is built on it.
    lost = tables.forge(RowChange("/a", "changed", ["p"]), base=slow)
    assert tables.found() == [("lost update", "/a", revisions.to_text(lost))]


def test_commits_continue_during_a_check(tmp_path: Path) -> None:
    path = str(tmp_path / "content.db")
    with (
        Repository(SqliteStore(path), poll_interval=0.05) as writing,
        Repository(SqliteStore(path), poll_interval=0) as looking,
    ):
        writing.run(lambda tx: [tx.add("/a", {"n": 0}), *(tx.add(f"/n{number}") for number in range(300))])
        ended = threading.Event()

        def write() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                base = writing.head
                writing.run(lambda tx: tx.increment("/a", "n"))
                writing.run(lambda tx, number=number: tx.add(f"/a/{number}", {"x": number}))
                if number % 3 == 0:
                    writing.run(lambda tx, number=number: tx.move(f"/a/{number}", f"/a/m{number}"))
                if number % 3 == 1:
                    writing.run(lambda tx, number=number: tx.remove(f"/a/{number}"))
                loser = writing.transaction(base=base)
                loser.set("/a", "n", -1)
                with pytest.raises(Exception, match="conflicts with"):
                    loser.commit()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            looks = 0
            while looks < 8 or (thread.is_alive() and looking.refresh()["/a"]["n"] < 10):
                looks += 1
                found = [str(one) for one in IntegrityCheck(instance_of(looking), notes=True, live=True).run()]
                assert found == []
        finally:
            ended.set()
            thread.join()
        assert looking.refresh()["/a"]["n"] >= 10


def test_nodes_with_large_values_are_read_a_few_at_a_time(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """HBase does not answer a scan of hundreds of megabytes in time."""
    size = 1000
    monkeypatch.setattr(nodes, "LARGE", 4 * size)
    tables.commit(*(AddNode(f"/{number:04}", {"p": "x" * size}) for number in range(200)))
    tables.commit(*(AddNode(f"/small{number:04}", {}) for number in range(2000)))
    answers: list[int] = []
    counts: list[int] = []
    scan = tables.store.scan

    def counted(table: str, scanned: Scan) -> list[Row]:
        rows = scan(table, scanned)
        if table == schema.NODES and scanned.families == (schema.DATA,):
            answers.append(sum(len(cell.value) for row in rows for cell in row.cells))
            counts.append(len(rows))
        return rows

    monkeypatch.setattr(tables.store, "scan", counted)
    assert tables.problems() == []
    assert max(answers) <= 8 * size
    assert max(counts) == nodes.ROWS
    # The small nodes take large batches.
    assert len(counts) < 200 + 100


@pytest.mark.no_cover
def test_damage_deep_in_a_history_and_in_a_wide_node_is_found(tables: Tables) -> None:
    first = tables.commit(AddNode("/a", {"n": 0}), AddNode("/a/x", {}))
    for number in range(700):
        tables.commit(SetProperty("/a", "n", number + 1))
    assert tables.problems() == []
    tables.put(schema.NODES, paths.key("/a"), (schema.property_column("n"), b"\x63", first))
    ghost = tables.stranger()
    tables.put(schema.NODES, paths.key("/a"), (schema.child_column("x"), schema.GONE, ghost))
    tables.commit(AddNode("/wide", {}), *(AddNode(f"/wide/{number:05}", {}) for number in range(9000)))
    lost = tables.commit(AddNode("/wide/05000x", {}))
    tables.put(schema.NODES, paths.key("/wide"), (schema.child_column("05000x"), schema.GONE, lost))
    assert sorted(tables.found()) == sorted(
        [
            ("undecodable value", "/a", revisions.to_text(first)),
            ("cell without journal row", "/a", revisions.to_text(ghost)),
            ("undeclared cell", "/wide", revisions.to_text(lost)),
            ("unlisted node", "/wide/05000x", revisions.to_text(lost)),
        ]
    )
    found = [problem.kind for problem in IntegrityCheck(tables.instance, path="/wide").run()]
    assert found == ["unlisted node"]
    assert [problem.kind for problem in IntegrityCheck(tables.instance, path="/wide/00001").run()] == []


@pytest.mark.no_cover
def test_rows_with_child_cells_only_are_found_at_any_key(tables: Tables) -> None:
    wide = [AddNode("/m", {})] + [AddNode(f"/m/{number:05}", {}) for number in range(4500)]
    folders = [AddNode(f"/f{number:02}", {}) for number in range(60)]
    tables.commit(*wide, *folders, *(AddNode(f"/f{number // 100:02}/{number}", {}) for number in range(6000)))
    ghosts = ["/a", "/f30x", "/m\0", "/m+", "/m0", "/z", "/f00/0/x", "/m/02000x", "/p/q/r/s"]
    for path in ghosts:
        revision = tables.stranger()
        cells = [(schema.child_column(f"{number}"), schema.PRESENT, revision) for number in range(5)]
        tables.put(schema.NODES, paths.key(path), *cells)
    for key in (b"\x00\x00", b"\xff\xff"):
        tables.put(schema.NODES, key, (schema.child_column("x"), schema.PRESENT, tables.stranger()))
    huge = tables.stranger()
    cells = [(schema.child_column(f"{number}"), schema.GONE, huge) for number in range(9000)]
    tables.put(schema.NODES, paths.key("/huge"), *cells)
    found = tables.found()
    ownerless = [path for kind, path, _ in found if kind == "cell without journal row"]
    # A wide row is reported page by page.
    assert sorted(ownerless) == sorted([*ghosts, *["/huge"] * 3])
    assert [kind for kind, _, _ in found if kind != "cell without journal row"] == ["row key"] * 2
    below = {"/m": ["/m/02000x"], "/f00": ["/f00/0/x"], "/p/q/r": ["/p/q/r/s"], "/z": ["/z"], "/a": ["/a"]}
    for top, expected in below.items():
        assert [problem.path for problem in IntegrityCheck(tables.instance, path=top).run()] == expected


def file_with_nodes(path: Path, count: int) -> str:
    """Create a SQLite file with so many nodes, and return its name."""
    with Repository(SqliteStore(str(path), durable=False), poll_interval=0) as repo:
        for at in range(0, count, 500):
            with repo.transaction() as tx:
                tx.add(f"/{at:06}", {"n": at})
                for number in range(at + 1, at + 500):
                    tx.add(f"/{at:06}/{number:06}", {"n": number, "text": "x" * 100})
    return str(path)


def peak_of(check: IntegrityCheck) -> float:
    """Return the peak memory in KiB of a check that finds no problem."""
    gc.collect()
    # Python's collector runs less often, the more objects the tests before have left. So the peak would depend on them.
    gc.freeze()
    tracemalloc.start()
    try:
        assert list(check.run()) == []
        return tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("scale", sizes(None, 5, 1))
def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    monkeypatch.setattr(nodes, "CHILDREN", nodes.CHILDREN // scale)
    peaks = {}
    for count in (10_000 // scale, 40_000 // scale):
        with Repository(SqliteStore(file_with_nodes(tmp_path / f"{count}.db", count)), poll_interval=0) as repo:
            check = IntegrityCheck(instance_of(repo))
            peaks[count] = peak_of(check)
            assert check.rows == count + 1
    print({count: f"{peak:.0f} KiB" for count, peak in peaks.items()})
    few, many = peaks.values()
    assert many < 1.5 * few


def tables_with_revisions(count: int) -> Tables:
    """A repository of 500 nodes that `count` revisions changed in turn, written at once, with the watermark at the last."""
    world = World()
    store = MemoryStore(world.clock)
    tables = Tables(store, lambda mac: open_instance(store, world, mac=mac, seed=mac), world.advance, world.clock)
    names = [f"/{number:03}" for number in range(500)]
    base = tables.commit(*(AddNode(name, {"n": 0}) for name in names))
    ms, machine = revisions.ms_of(base) + 1, revisions.machine_of(base)
    for number in range(count):
        revision = revisions.pack(ms + number // 128, machine, number % 128)
        declared = [RowChange(names[number % 500], "changed", ["n"])]
        tables.row(revision, declared, committed=True, base=base)
        tables.cells(revision, declared)
        base = revision
    tables.move_watermark(Watermark(base, frozenset()))
    return tables


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("scale", sizes(None, 10, 4, 1))
def test_memory_is_bounded_however_many_revisions_there_are(monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    # Both bounds are below the smaller number of revisions.
    monkeypatch.setattr(statuses, "REMEMBERED", statuses.REMEMBERED // scale)
    monkeypatch.setattr(found_cells, "REMEMBERED", statuses.REMEMBERED)
    peaks = {}
    for count in (30_000 // scale, 60_000 // scale):
        instance = tables_with_revisions(count).open_instance(2)
        check = IntegrityCheck(instance)
        peaks[count] = peak_of(check)
        assert check.counted[schema.JOURNAL] == count + 2
        assert check.rows == 501
    print({count: f"{peak:.0f} KiB" for count, peak in peaks.items()})
    few, many = peaks.values()
    assert many < 1.2 * few
