"""Manual recovery ends and reports all unfinished work of dead writers, also when concurrent or interrupted."""

from __future__ import annotations

import itertools

import pytest

from hbasemk.check import Repair
from hbasemk.format import revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.rollback import ABORTED, BRANCH, DAMAGED, SWEPT, WAITING, recover
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables


class Died(BaseException):
    """The process died; no handler catches this."""


class Place:
    """A repository in which writers have died."""

    def __init__(self) -> None:
        self.world = World()
        self.store = MemoryStore(self.world.clock)
        self.tables = Tables(
            self.store,
            lambda mac: open_instance(self.store, self.world, mac=mac, seed=mac),
            self.world.advance,
            self.world.clock,
        )
        self.tables.commit(AddNode("/a", {"p": 0}), AddNode("/b", {"p": 0}))
        self.pending = self.tables.dead_writer(
            RowChange("/a", "changed", ["p"], ["x"]), RowChange("/a/x", "added", ["q"])
        )
        self.unswept = self.tables.dead_writer(RowChange("/b", "changed", ["p"]), aborted=True)
        self.empty = self.tables.dead_writer()

    def ended(self) -> list[tuple[int, str]]:
        """Recover, and return the reported revisions and actions."""
        reported = recover(self.tables.open_instance(40))
        return [(revisions.from_text(one.revision), one.result) for one in reported]


def test_revisions_of_live_writers_are_left_alone_and_reported_as_waiting() -> None:
    place = Place()
    assert sorted(place.ended()) == sorted([(place.pending, WAITING), (place.unswept, WAITING), (place.empty, WAITING)])
    assert place.tables.found(live=True) == []


def test_revisions_of_dead_writers_are_ended_and_reported() -> None:
    place = Place()
    place.world.advance(20)
    assert sorted(place.ended()) == sorted([(place.pending, ABORTED), (place.unswept, SWEPT), (place.empty, ABORTED)])
    assert place.tables.problems() == []
    assert place.ended() == []
    place.tables.commit(SetProperty("/a", "p", 1), AddNode("/a/x", {}))
    assert place.tables.problems() == []


def test_a_row_that_came_after_the_watermark_had_passed_is_ended_too() -> None:
    place = Place()
    late = place.tables.other().clock.next(0)
    place.world.advance(20)
    before = place.ended()
    place.world.advance(20)
    place.tables.commit(SetProperty("/a", "p", 1))
    place.tables.watermark(hide=[one for one, _ in before])
    place.tables.row(late)
    place.world.advance(20)
    assert [kind for kind, _, _ in place.tables.found()] == ["unresolved revision below the watermark"]
    assert place.ended() == [(late, ABORTED)]
    assert place.tables.problems() == []


def test_old_branches_are_abandoned_on_request() -> None:
    place = Place()
    place.world.advance(20)
    root = place.tables.branch()
    place.tables.commit_on_branch(root, AddNode("/c", {}))
    place.world.advance(30)
    instance = place.tables.open_instance(41)
    reported = [(revisions.from_text(one.revision), one.result) for one in recover(instance, 10_000)]
    assert (root, BRANCH) in reported
    assert place.tables.problems() == []


def calls_of_a_recovery() -> int:
    place = Place()
    place.world.advance(20)
    store = FaultyStore(place.store)
    calls = itertools.count()
    instance = open_instance(store, place.world, mac=42)
    store.before = lambda _: next(calls)
    list(recover(instance, 0))
    return next(calls)


@pytest.mark.parametrize("applied", [False, True])
def test_recovery_can_be_interrupted_at_any_call(applied: bool) -> None:
    count = calls_of_a_recovery()
    assert count > 10
    for number in range(count):
        place = Place()
        place.world.advance(20)
        store = FaultyStore(place.store)
        calls = itertools.count()

        def die(_: Call, number: int = number, calls: itertools.count[int] = calls) -> None:
            if next(calls) == number:
                raise Died

        instance = open_instance(store, place.world, mac=42)
        if applied:
            store.after = die
        else:
            store.before = die
        with pytest.raises(Died):
            list(recover(instance, 0))
        place.ended()
        assert place.tables.problems() == [], f"call {number}"


def test_two_instances_can_recover_at_once() -> None:
    count = calls_of_a_recovery()
    for number in range(count):
        place = Place()
        place.world.advance(20)
        store = FaultyStore(place.store)
        calls = itertools.count()
        other = place.tables.open_instance(43)
        reported: list[str] = []

        def meanwhile(_: Call, number: int = number, calls: itertools.count[int] = calls) -> None:
            if next(calls) == number:
                reported.extend(one.result for one in recover(other))  # noqa: B023 - called before the next turn

        instance = open_instance(store, place.world, mac=42)
        store.before = meanwhile
        reported += [one.result for one in recover(instance)]
        assert set(reported) <= {ABORTED, SWEPT}
        assert len(reported) >= 3
        assert place.tables.problems() == [], f"call {number}"


def test_two_concurrent_repairs_commit_once() -> None:
    place = Place()
    place.tables.forge(RowChange("/a", "changed", (), ["ghost"]))
    place.tables.forge(RowChange("/a/none/x", "added", ["p"]))
    place.tables.node("/b", place.tables.stranger())
    place.world.advance(20)
    problems = place.tables.problems()
    one, other = (Repair(place.tables.open_instance(mac)) for mac in (44, 45))
    for problem in problems:
        one.repair(problem)
    assert place.tables.problems() == []
    before = place.tables.open_instance(46).head()
    for problem in problems:
        other.repair(problem)
    assert place.tables.problems() == []
    assert place.tables.open_instance(46).head().revision == before.revision


def test_repair_changes_nothing_after_a_manual_repair() -> None:
    place = Place()
    place.tables.forge(RowChange("/a", "changed", (), ["ghost"]))
    place.world.advance(20)
    (dangling,) = [one for one in place.tables.problems() if one.kind == "dangling child"]
    place.tables.commit(AddNode("/a/ghost", {"by": "hand"}))
    repair = Repair(place.tables.open_instance(47))
    assert repair.repair(dangling) == "already correct"
    instance = place.tables.open_instance(48)
    assert instance.reader.require(instance.head(), "/a/ghost").properties == {"by": "hand"}


def test_repair_lists_nothing_under_the_name_of_a_property() -> None:
    place = Place()
    orphan = place.tables.forge(RowChange("/a/p/none/x", "added", ["q"]))
    unlisted = place.tables.forge(RowChange("/b/p", "added", ["q"]))
    place.world.advance(20)
    wanted = {("orphan node", "/a/p/none/x", orphan), ("unlisted node", "/b/p", unlisted)}
    for _ in range(2):
        found = place.tables.found()
        assert {(kind, path, revisions.from_text(revision)) for kind, path, revision in found} >= wanted
        assert {kind for kind, _, _ in found} <= {"orphan node", "unlisted node"} | {
            "pending revision of a dead writer",
            "aborted revision that is not swept",
            "cell of an aborted revision",
        }
        done = place.tables.repair()
        assert done.count(None) == 2
        place.world.advance(20)
    # Once the property is gone, it can be listed.
    place.tables.commit(SetProperty("/a", "p", None), SetProperty("/b", "p", None))
    place.tables.repair()
    assert place.tables.problems() == []


def test_damage_does_not_prevent_recovery_of_other_revisions() -> None:
    place = Place()
    place.tables.journal(place.pending, (schema.DATA, schema.CHANGES), b"\x01[[")
    machine = schema.machine_key(revisions.machine_of(place.empty))
    place.tables.put(schema.CLUSTER, machine, (schema.LEASE, b"short", None))
    place.world.advance(20)
    wrong = ("undecodable changes", "", revisions.to_text(place.pending))
    found = place.tables.found()
    assert wrong in found
    assert ("wrong lease", f"machine {revisions.machine_of(place.empty):04x}", "") in found
    assert len(place.tables.repair()) == len(found)
    assert wrong in place.tables.found()
    # The repair has replaced the lease by one that expires.
    assert sorted(place.ended()) == sorted([(place.pending, DAMAGED), (place.empty, WAITING)])
    place.world.advance(40)
    assert sorted(place.ended()) == sorted([(place.pending, DAMAGED), (place.empty, ABORTED)])


def test_recovery_reports_a_damaged_lease_and_continues() -> None:
    place = Place()
    machine = schema.machine_key(revisions.machine_of(place.empty))
    place.tables.put(schema.CLUSTER, machine, (schema.LEASE, b"short", None))
    place.world.advance(20)
    assert (place.empty, DAMAGED) in place.ended()


def test_recovery_reports_damage_and_continues() -> None:
    place = Place()
    place.tables.journal(place.pending, (schema.DATA, schema.CHANGES), b"\x01[[")
    place.world.advance(20)
    assert sorted(place.ended()) == sorted([(place.pending, DAMAGED), (place.unswept, SWEPT), (place.empty, ABORTED)])


def test_branches_are_abandoned_despite_other_damage() -> None:
    place = Place()
    place.tables.journal(place.pending, (schema.DATA, schema.CHANGES), b"\x01[[")
    root = place.tables.branch()
    place.world.advance(30)
    reported = [
        (revisions.from_text(one.revision), one.result) for one in recover(place.tables.open_instance(41), 10_000)
    ]
    assert (place.pending, DAMAGED) in reported
    assert (root, BRANCH) in reported
