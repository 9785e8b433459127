"""Memory and opening cost of an instance do not grow with the age of the repository."""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.format import journal_row, schema
from hbasemk.kernel import diff, log, periodic_work
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Increment, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import known_revisions
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.view import View
from hbasemk.microkernel.journal import journal as get_journal
from hbasemk.store.abc import Get, Scan, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support import proof
from tests.support.runtime import World, open_instance


class Metered(WrappedStore):
    """Counts round trips and the rows and cells that they return."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = self.rows = self.cells = 0

    def around(self, call: Call, do: Any) -> Any:
        self.calls += 1
        found = do()
        if isinstance(found, list):
            self.rows += len(found)
            self.cells += sum(len(row.cells) for row in found)
        return found


class Site:
    """A repository in memory with its own clock; the test sets the duration of a commit."""

    def __init__(self) -> None:
        self.world = World()
        self.store = MemoryStore(self.world.clock)
        self.writers = [open_instance(self.store, self.world, mac=mac, seed=mac) for mac in (1, 2)]
        self.writers[0].commit(lambda _: OperationList([AddNode("/a", {"n": 0})]), "", retry_timeout=1, max_poll_age=0)

    def commits(self, count: int, writer: int = 0, seconds: float = 0.2) -> list[int]:
        one = self.writers[writer]
        committed = []
        for number in range(count):
            operations = [SetProperty("/a", f"p{number % 7}", number), Increment("/a", "n", 1)]
            committed.append(
                one.commit(
                    lambda _, operations=operations: OperationList(operations), "", retry_timeout=1, max_poll_age=0.5
                )
            )  # type: ignore[misc]
            self.world.advance(seconds)
            if number % 20 == 0:
                one.maintain()
        return committed

    def check(self) -> None:
        self.world.advance(20)
        assert [str(problem) for problem in IntegrityCheck(open_instance(self.store, self.world, mac=9)).run()] == []


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances keep only a few revisions by position."""
    monkeypatch.setattr(known_revisions, "KEPT", 20)
    monkeypatch.setattr(periodic_work, "ADVANCE_AFTER", 10)


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site()
    yield opened
    opened.check()


def node(one: Instance, snapshot: View) -> dict[str, Any]:
    found = one.reader.require(snapshot, "/a")
    cells = one.reader.cells(snapshot, [Get(found_key(), families=(schema.DATA,))])[0]
    past_the_cache = {cell.qualifier[1:].decode(): cell.value for cell in cells if cell.qualifier[:1] == b"\x01"}
    assert past_the_cache == found.encoded
    return dict(found.properties)


def found_key() -> bytes:
    from hbasemk.format import paths

    return paths.key("/a")


@pytest.mark.usefixtures("short")
def test_held_snapshots_read_the_same_after_compaction(site: Site) -> None:
    reader = open_instance(site.store, site.world, mac=5)
    held: list[tuple[Instance, View, dict[str, Any]]] = []
    for number in range(30):
        # The order of arrival differs from that of ids: the second writer's commit begins first and ends last.
        late = site.writers[1]
        site.commits(15)
        late.poll()
        base = late.head()
        revision = late.announcements.next(max(base.upper, late.journal.highest_seen), [])
        site.commits(5, seconds=0.05)
        late.announcements.next = lambda *_, revision=revision: revision  # type: ignore[method-assign, misc]
        late.commit_on(base, OperationList([AddNode(f"/late{number}", {})]), "")
        del late.announcements.next
        for one in (reader, site.writers[0], late):
            one.poll()
            one.maintain()
            held.append((one, one.head(), node(one, one.head())))
        for one, snapshot, seen in held:
            assert node(one, snapshot) == seen
            assert snapshot == one.at(snapshot.revision) or not one.journal.floor < snapshot.revision
    for one in (reader, *site.writers):
        assert len(list(one.journal)) < 100
        assert len(one.journal) > 600


def listed(one: Instance, first: int, view: View) -> list[int]:
    """Return the revisions of a view from an id up in sequence order, from all rows of the journal."""
    scan = Scan(schema.revision_key(first), None, 1000)
    rows = journal_row.decode(one.store.scan(schema.JOURNAL, scan))
    found = [row.revision for row in rows if row.committed and not row.is_branch and one.sees(view, row.revision)]
    return sorted(found, key=one.journal.sort_key)


@pytest.mark.usefixtures("short")
def test_the_entries_of_a_view_come_in_sequence_order_from_small_batches(site: Site) -> None:
    one, late = site.writers
    held = [one.head()]
    concurrent: list[tuple[int, int]] = []
    for number in range(12):
        late.poll()
        base = late.head()
        revision = late.announcements.next(max(base.upper, late.journal.highest_seen), [])
        quick = site.commits(7, seconds=0.05)
        late.announcements.next = lambda *_, revision=revision: revision  # type: ignore[method-assign, misc]
        late.commit_on(base, OperationList([AddNode(f"/late{number}", {})]), "")
        del late.announcements.next
        one.poll()
        concurrent.append((revision, quick[0]))
        held += [one.head(), one.at(quick[3])]
        if number % 3 == 2:
            site.commits(15, seconds=0.5)
            late.maintain()
    assert one.journal.floor > 0
    # An id below another one, in a later position.
    assert any(one.journal.sort_key(low) > one.journal.sort_key(high) for low, high in concurrent)
    for view in [*held, one.at(held[5].revision)]:
        for first in (0, concurrent[2][1], concurrent[6][1], concurrent[-1][0], concurrent[-1][1]):
            expected = listed(one, first, view)
            for batch in (1, 3, 200):
                found = [int(entry.revision, 16) for entry in log.trunk_entries(one, first, view, batch)]
                assert found == expected, (view, first, batch)


@pytest.mark.usefixtures("short")
def test_journal_still_returns_dropped_revisions(site: Site) -> None:
    one = site.writers[0]
    before = one.head()
    revisions = site.commits(300)
    after = one.head()
    fresh = open_instance(site.store, site.world, mac=6)
    assert not one.journal.knows(revisions[10])
    # Snapshots by id, diffs, arrivals since a held snapshot, the log, the MicroKernel's journal, branches.
    assert node(one, one.at(revisions[10]))["n"] == 11
    assert one.journal.since(before) == revisions
    assert one.journal.since(one.at(revisions[10])) == revisions[11:]
    assert [change.path for change in diff.diff(one, before, after)] == ["/a"]
    assert [change.path for change in diff.diff(one, one.at(revisions[3]), one.at(revisions[200]))] == ["/a"]
    assert list(diff.diff(one, one.at(revisions[7]), one.at(revisions[7]))) == []
    logged = [int(entry.revision, 16) for entry in log.log(one)]
    assert logged[:300] == revisions[::-1]
    entries = json.loads(get_journal(one, revisions[5], revisions[-1], "/"))
    assert [int(entry["id"], 16) for entry in entries] == revisions[5:]
    assert entries == json.loads(get_journal(fresh, revisions[5], revisions[-1], "/"))
    root = one.branches.begin(before)
    assert node(one, one.at(root))["n"] == 0
    assert node(fresh, fresh.at(root))["n"] == 0
    root = one.branches.begin(one.at(revisions[50]))
    assert node(one, one.at(root))["n"] == node(fresh, fresh.at(root))["n"] == 51
    assert one.journal.previous(one.at(revisions[50])).upper < revisions[50]
    assert node(one, one.journal.previous(one.at(revisions[50])))["n"] == 50
    assert node(one, one.journal.previous(one.at(revisions[-1])))["n"] == 299


@pytest.mark.usefixtures("short")
def test_commit_on_a_dropped_base_finds_later_conflicts(site: Site) -> None:
    from hbasemk import ConflictError

    one = site.writers[0]
    before = one.head()
    revisions = site.commits(200)
    for base in (before, one.at(revisions[3])):
        with pytest.raises(ConflictError):
            one.commit_on(base, OperationList([Increment("/a", "n", 1)]), "")
        one.commit_on(
            base, OperationList([SetProperty("/a", "untouched", base.revision)]), ""
        ) if base is before else None
    assert node(one, one.head())["n"] == 200


@pytest.mark.usefixtures("short")
def test_watcher_that_slept_misses_nothing(site: Site) -> None:
    sleeper = open_instance(site.store, site.world, mac=5)
    seen = sleeper.head()
    revisions: list[int] = []
    for _ in range(10):
        revisions += site.commits(30)
        sleeper.poll()
        sleeper.maintain()
    assert not sleeper.journal.knows(revisions[0])
    assert sleeper.journal.since(seen) == revisions


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("rounds", [3, pytest.param(6, marks=proof.PROOF)])
def test_long_lived_instance_uses_no_more_memory_than_a_new_one(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    monkeypatch.setattr(known_revisions, "KEPT", 200)
    site = Site()
    writer = site.writers[0]
    reader = open_instance(site.store, site.world, mac=5)
    sizes: list[int] = []
    bytes_kept: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(rounds):
            site.commits(600)
            reader.poll()
            reader.maintain()
            for one in (writer, reader):
                kept = one.journal._sequence
                sizes.append(
                    max(len(kept.ids), len(kept.positions), len(kept.uppers), len(one.journal._pins._references))
                )
            gc.collect()
            taken = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(True, f"{os.path.dirname(known_revisions.__file__)}/*.py")]
            )
            bytes_kept.append(sum(one.size for one in taken.statistics("filename")))
    finally:
        tracemalloc.stop()
    print(f"bytes kept by the journals of two instances after each 600 revisions: {bytes_kept}")
    assert len(writer.journal) > 600 * rounds
    assert len(reader.journal) > 600 * rounds
    assert max(sizes) < 1000
    # Keeping all of them would take some 200 bytes for each of 3600 or 7200.
    assert 0 < max(bytes_kept) < 250_000
    site.check()


class Cost:
    """The cost of opening an instance."""

    def __init__(self, site: Site) -> None:
        gc.collect()
        metered = Metered(site.store)
        tracemalloc.start()
        try:
            opened = open_instance(metered, site.world, mac=77)
            gc.collect()
            self.kept, self.peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.calls, self.rows, self.cells = metered.calls, metered.rows, metered.cells
        assert opened.head().revision == site.writers[0].head().revision

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.rows} rows, {self.cells} cells, {self.kept} bytes kept, {self.peak} at most"


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("revisions", proof.sizes("HBASEMK_TEST_REVISIONS", None, 10_000, 100_000))
def test_opening_cost_does_not_depend_on_repository_age(revisions: int) -> None:
    young, old = Site(), Site()
    young.commits(100, seconds=0.05)
    old.commits(int(revisions), seconds=0.05)
    one, other = Cost(young), Cost(old)
    print(f"opened with 100 revisions: {one}; with {revisions}: {other}")
    # The last 500 revisions or so, and those of the last 5 s, are above the watermark.
    assert other.calls <= one.calls + 1
    assert other.rows <= one.rows + periodic_work.ADVANCE_AFTER + 200
    assert other.kept <= one.kept + 400 * (periodic_work.ADVANCE_AFTER + 200)
    assert other.peak <= one.peak + 3000 * (periodic_work.ADVANCE_AFTER + 200)
    young.check()
    old.check()


@pytest.mark.no_cover
def test_many_short_lived_instances_leave_a_short_journal() -> None:
    site = Site()
    for number in range(1200):
        short_lived = open_instance(site.store, site.world, mac=100, seed=number)
        short_lived.commit(lambda _: OperationList([Increment("/a", "n", 1)]), "", retry_timeout=1, max_poll_age=0)
        short_lived.close()
        site.world.advance(6)
    opened = open_instance(site.store, site.world, mac=5)
    assert len(opened.journal) <= periodic_work.ADVANCE_AFTER + 10
    site.check()


def test_opening_does_not_read_changes_above_the_watermark() -> None:
    site = Site()
    site.writers[0].commit(
        lambda _: OperationList([AddNode(f"/wide{number}", {"text": "x" * 50}) for number in range(3000)]),
        "",
        retry_timeout=1,
        max_poll_age=0,
    )
    assert Cost(site).cells < 20
    site.check()


def test_commits_to_branches_leave_nothing_in_the_memory_of_other_instances(ordered_store: Store, world: World) -> None:
    one, other = (open_instance(ordered_store, world, mac=mac) for mac in (1, 2))
    one.commit(lambda _: OperationList([AddNode("/a", {})]), "", retry_timeout=1, max_poll_age=0)
    other.poll()
    poller = other.journal.poller
    assert isinstance(poller, ArrivalPoller)
    kept = len(poller._before)
    branch = one.begin_branch(one.head())
    for number in range(50):
        branch = one.commit_on_branch(branch, OperationList([SetProperty("/a", "n", number)]), "")
        other.poll()
    assert len(poller._before) == kept


def test_what_only_a_lower_watermark_needs_is_dropped_early(ordered_store: Store, world: World) -> None:
    one, other = (open_instance(ordered_store, world, mac=mac) for mac in (1, 2))
    for number in range(50):
        one.commit(lambda _, number=number: OperationList([AddNode(f"/{number}", {})]), "", retry_timeout=1, max_poll_age=0)  # type: ignore[misc]  # fmt: skip
    other.poll()
    poller = other.journal.poller
    assert isinstance(poller, ArrivalPoller)
    assert len(poller._before) == 50
    other.recovery.advance()
    assert not poller._before
