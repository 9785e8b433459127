"""The repository changes between a check and its repair: the repair reads again, and takes nothing away from others."""

from __future__ import annotations

import io

import pytest

from hbasemk.check import IntegrityCheck, Problem, Repair
from hbasemk.check import problem as kinds
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.abc import ALL_VERSIONS, Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables
from tests.support.trimming import trim

CHANGE = RowChange("/a", "changed", ["p"])
CONTENT = b"a content of several chunks"
DAY = 24 * 3600.0


class Place:
    """A repository that a test damages, checks, changes and then repairs."""

    def __init__(self, *, ordered: bool = True) -> None:
        self.world = World()
        self.store = MemoryStore(self.world.clock, transactions=ordered)
        self.tables = Tables(
            self.store,
            lambda mac: open_instance(self.store, self.world, mac=mac, seed=mac),
            self.world.advance,
            self.world.clock,
        )
        self.tables.commit(AddNode("/a", {"p": 1}), AddNode("/b", {}))
        self.repairing = self.tables.open_instance(50)

    def found(self, kind: str) -> Problem:
        """Return the only problem of a kind, which a check finds."""
        problems = IntegrityCheck(self.repairing, notes=True, blobs=True).run()
        (found,) = [one for one in problems if one.kind == kind]
        assert found.repairable
        return found

    def repair(self, problem: Problem) -> str | None:
        return Repair(self.repairing).repair(problem)

    def commit_row(self, revision: int) -> None:
        """Let a row say that a revision is committed, as a decision does that arrives late."""
        self.tables.row(revision, [CHANGE], committed=True)
        self.tables.instance.announcements.decided(revision)

    def cells(self, revision: int) -> int:
        """Return how many cells of a revision the node has."""
        (row,) = self.store.read(schema.NODES, [Get(paths.key("/a"), versions=ALL_VERSIONS)])
        return sum(cell.timestamp == revision for cell in row.cells)

    def hidden(self) -> frozenset[int]:
        return read_watermark(self.repairing.store).hidden


@pytest.fixture(params=["scanned", "ordered"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(ordered=request.param == "ordered")


def test_cells_stay_if_their_revision_is_committed_meanwhile(place: Place) -> None:
    revision = place.tables.stranger()
    place.tables.cells(revision, [CHANGE])
    problem = place.found(kinds.NO_ROW)
    place.commit_row(revision)
    assert place.repair(problem) is None
    assert place.cells(revision) == 2


@pytest.mark.parametrize("kind", [kinds.DEAD, kinds.UNSWEPT, kinds.BELOW_WATERMARK])
def test_a_revision_of_a_writer_that_lives_is_left_alone(place: Place, kind: str) -> None:
    revision = place.tables.dead_writer(CHANGE)
    problem = Problem(kind, "", revisions.to_text(revision), "", repairable=True)
    assert place.repair(problem) is None
    assert place.repairing.outcomes.of(revision) is Outcome.PENDING
    assert place.cells(revision) == 2
    assert place.hidden() == frozenset()


def test_a_revision_that_committed_meanwhile_is_not_reported_as_aborted(place: Place) -> None:
    revision = place.tables.dead_writer(CHANGE)
    place.world.advance(60)
    problem = place.found(kinds.DEAD)
    place.commit_row(revision)
    assert place.repair(problem) is None
    assert place.cells(revision) == 2


def test_a_revision_that_committed_meanwhile_is_not_hidden(place: Place) -> None:
    revision = place.tables.dead_writer(CHANGE)
    place.world.advance(60)
    place.tables.watermark()
    place.tables.commit(SetProperty("/b", "q", 1))
    place.tables.watermark()
    (problem,) = [one for one in place.tables.problems() if one.kind == kinds.BELOW_WATERMARK and not one.path]
    assert problem.repairable
    place.commit_row(revision)
    assert place.repair(problem) is None
    assert place.hidden() == frozenset()
    assert place.cells(revision) == 2


def test_an_aborted_revision_stays_hidden(place: Place) -> None:
    revision = place.tables.forge(CHANGE)
    place.tables.commit(SetProperty("/b", "q", 1))
    place.tables.watermark(hide=[revision])
    problem = place.found(kinds.HIDDEN)
    place.tables.row(revision, [CHANGE], aborted=True)
    assert place.repair(problem) is None
    assert place.hidden() == {revision}


def test_a_row_that_is_written_again_after_it_was_deleted_shows_nothing(place: Place) -> None:
    revision = place.tables.dead_writer(CHANGE, aborted=True)
    for _ in range(3):
        place.tables.commit(SetProperty("/b", "q", 1))
    place.world.advance(60)
    place.tables.repair()
    last = trim(place.tables.instance, place.world)
    assert last > revision
    place.tables.watermark(hide=[revision])
    place.commit_row(revision)
    problem = Problem(kinds.HIDDEN, "", revisions.to_text(revision), "", repairable=True)
    assert place.repair(problem) is None
    assert place.hidden() == {revision}


# --- the tree ---------------------------------------------------------------------------------------------


def test_a_node_that_is_removed_meanwhile_is_not_listed(place: Place) -> None:
    path = "/a/none/x"
    place.tables.forge(RowChange(path, "added", ["q"]))
    problem = place.found(kinds.ORPHAN)
    place.tables.forge(RowChange(path, "removed"))
    assert place.repair(problem) == "already correct"
    assert place.tables.found() == []


def test_a_dangling_child_is_restored_if_it_has_children_meanwhile(place: Place) -> None:
    place.tables.forge(RowChange("/a", "changed", (), ["ghost"]))
    problem = place.found(kinds.DANGLING)
    place.tables.forge(RowChange("/a/ghost/x", "added", ["q"]))
    done = place.repair(problem)
    assert done is not None
    assert done.startswith("restored the node without properties, because there are nodes below it")
    assert place.tables.found() == []
    assert place.repairing.children(place.repairing.head(), "/a/ghost") == ["x"]


# --- uploads ----------------------------------------------------------------------------------------------


def begin_upload(place: Place, monkeypatch: pytest.MonkeyPatch, chunk: int = 4) -> None:
    """Let an upload end in the middle, and a day pass."""
    monkeypatch.setattr(kernel_blobs, "CHUNK", chunk)
    faulty = FaultyStore(place.store)
    writer = open_instance(faulty, place.world, mac=60)

    def die(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.BLOBS:
            raise KeyboardInterrupt

    faulty.before = die
    with pytest.raises(KeyboardInterrupt):
        writer.blobs.write(io.BytesIO(CONTENT))
    place.world.advance(2 * DAY)


def test_an_upload_that_ended_meanwhile_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_upload(place, monkeypatch)
    problem = place.found(kinds.UPLOAD)
    blob = place.tables.instance.blobs.write(io.BytesIO(CONTENT))
    assert place.repair(problem) == "already correct"
    assert place.tables.instance.blobs.read(blob) == CONTENT
    assert place.tables.instance.keep_blob(blob) == len(CONTENT)


def test_one_chunk_is_not_called_chunks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_upload(place, monkeypatch, chunk=len(CONTENT))
    problem = place.found(kinds.UPLOAD)
    assert problem.detail.startswith("1 chunk is stored, the last one a day ago")
    assert place.repair(problem) == "deleted 1 chunk"


def test_an_upload_that_continues_after_its_repair_is_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_blobs, "CHUNK", 4)
    faulty = FaultyStore(place.store)
    writer = open_instance(faulty, place.world, mac=60)
    done: list[str | None] = []

    def overtake(call: Call) -> None:
        if call.method == "check_and_write" and call.table == schema.BLOBS and not done:
            # The machine slept for two days before the end of the upload.
            place.world.advance(2 * DAY)
            done.append(place.repair(place.found(kinds.UPLOAD)))

    faulty.before = overtake
    blob = writer.blobs.write(io.BytesIO(CONTENT))
    assert done == ["deleted 7 chunks"]
    assert place.tables.instance.blobs.read(blob) == CONTENT
