"""Adjusts: numeric changes that do not conflict, and that each snapshot counts exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import (
    ConflictError,
    NodeNotFoundError,
    Repository,
    Transaction,
)
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Instances
from tests.support.runtime import World, open_instance

Change = Callable[[Transaction], object]


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    """Two instances on one node."""
    return opened.pair(lambda tx: tx.add("/a", {"n": 10, "text": "x"}))


def value(repository: Repository, name: str = "n") -> Any:
    return repository.refresh()["/a"].get(name)


def slots_of(repository: Repository, name: str = "n") -> list[int]:
    state = instance_of(repository).require(instance_of(repository).head(), "/a")
    return sorted(state.property_of(name).totals)


OTHERS: dict[str, tuple[Change, object]] = {
    "adjust": (lambda tx: tx.adjust("/a", "n", 100), 115),
    "set": (lambda tx: tx.set("/a", "n", 1000), 1005),
    "set of the same value": (lambda tx: tx.set("/a", "n", 10), 15),
    "set and adjust": (lambda tx: (tx.set("/a", "n", 1000), tx.adjust("/a", "n", 1)), 1006),
    "unset": (lambda tx: tx.unset("/a", "n"), None),
    "set of a text": (lambda tx: tx.set("/a", "n", "text"), "text"),
    "change of another property": (lambda tx: tx.set("/a", "other", 1), 15),
    "new child": (lambda tx: tx.add("/a/k"), 15),
}


@pytest.mark.parametrize(("change", "expected"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("adjust_is_last", [True, False])
def test_an_adjust_and_another_change_on_one_base_both_commit(
    two: tuple[Repository, Repository], change: Change, expected: object, adjust_is_last: bool
) -> None:
    one, other = two
    adjusting, changing = one.transaction(), other.transaction()
    adjusting.adjust("/a", "n", 5)
    change(changing)
    for tx in (changing, adjusting) if adjust_is_last else (adjusting, changing):
        tx.commit()
    assert value(one) == value(other) == expected
    assert one.statistics.conflicts == other.statistics.conflicts == 0


def test_a_set_that_has_seen_an_adjust_includes_it(two: tuple[Repository, Repository]) -> None:
    one, other = two
    one.adjust("/a", "n", 5)
    other.refresh()
    other.run(lambda tx: tx.set("/a", "n", 100))
    assert value(one) == 100
    one.adjust("/a", "n", 1)
    assert value(other) == 101


def test_two_first_adjusts_on_one_base_both_count(two: tuple[Repository, Repository]) -> None:
    one, other = two
    first, second = one.transaction(), other.transaction()
    first.adjust("/a", "new", 5)
    second.adjust("/a", "new", 7)
    first.commit()
    second.commit()
    assert value(one, "new") == value(other, "new") == 12
    # One that sees only one of them includes the other later.
    one.run(lambda tx: tx.unset("/a", "new"))
    assert value(other, "new") is None
    other.adjust("/a", "new", 1)
    assert value(one, "new") == 1


def test_a_set_that_saw_one_of_two_first_adjusts_keeps_the_other(opened: Instances) -> None:
    one, other, third = opened(), opened(), opened()
    one.run(lambda tx: tx.add("/a"))
    other.refresh()
    late = other.transaction()
    late.adjust("/a", "new", 7)
    one.adjust("/a", "new", 5)
    third.refresh()
    setting = third.transaction()
    setting.set("/a", "new", 100)
    late.commit()
    setting_lost = False
    try:
        setting.commit()
    except ConflictError:
        # The late adjust has a higher id than the set's view, so the set sees another base.
        setting_lost = True
    assert value(one, "new") == (12 if setting_lost else 107)


CONFLICTS: dict[str, Change] = {
    "removal of the node": lambda tx: tx.remove("/a"),
    "re-creation of the node": lambda tx: (tx.remove("/a"), tx.add("/a", {"n": 1})),
    "move of the node": lambda tx: tx.move("/a", "/b"),
}


@pytest.mark.parametrize("change", CONFLICTS.values(), ids=CONFLICTS)
def test_an_adjust_conflicts_with_the_end_of_its_node(two: tuple[Repository, Repository], change: Change) -> None:
    one, other = two
    tx = one.transaction()
    tx.adjust("/a", "n", 5)
    other.run(change)
    with pytest.raises(ConflictError):
        tx.commit()


FIRST_CONFLICTS: dict[str, Change] = {
    "set": lambda tx: tx.set("/a", "new", 1),
    "set to 0": lambda tx: tx.set("/a", "new", 0),
    "child of the name": lambda tx: tx.add("/a/new"),
}


@pytest.mark.parametrize("change", FIRST_CONFLICTS.values(), ids=FIRST_CONFLICTS)
def test_a_first_adjust_conflicts_with_another_meaning_of_its_name(
    two: tuple[Repository, Repository], change: Change
) -> None:
    one, other = two
    tx = one.transaction()
    tx.adjust("/a", "new", 5)
    other.run(change)
    with pytest.raises(ConflictError):
        tx.commit()


def test_eight_threads_adjust_one_property_without_a_conflict(opened: Instances) -> None:
    one = opened()
    one.run(lambda tx: tx.add("/a", {"n": 0}))
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                one.adjust("/a", "n", 1 << number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert value(one) == 20 * 255
    assert one.statistics.conflicts == 0
    # A slot that another thread has just released may hold a version that this thread does not see yet.
    assert len(slots_of(one)) <= 16


def test_commits_on_an_old_base_use_a_slot_that_the_base_shows(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    base = one.head
    for by in (1, 2, 4):
        with one.transaction(base=base) as tx:
            tx.adjust("/a", "n", by)
            assert tx.get("/a", "n") == 10 + by
    assert value(one) == 17
    assert len(slots_of(one)) == 3
    one.adjust("/a", "n", 8)
    assert len(slots_of(one)) == 3


def test_a_writer_whose_slot_is_taken_uses_another_one(two: tuple[Repository, Repository]) -> None:
    one, other = two
    one.adjust("/a", "n", 1)
    (taken,) = slots_of(one)

    def choose(draft: Any, places: Any) -> None:
        for place in places:
            draft.slots.setdefault(place, taken + len(tried))
            tried.append(draft.slots[place])

    tried: list[int] = []
    instance_of(other)._committer.attempts._slots.choose = choose  # type: ignore[method-assign]
    instance_of(other)._committer.attempts._preparation._slots.choose = choose  # type: ignore[method-assign]
    with other.transaction(base=other.head) as tx:
        tx.adjust("/a", "n", 2)
    assert tried == [taken, taken + 1]
    assert value(one) == 13
    assert other.statistics.conflicts == 0


@pytest.mark.parametrize("rounds", [2, 40])
def test_a_number_that_sixteen_processes_adjust_is_read_in_one_call_with_few_cells(world: World, rounds: int) -> None:
    store = MemoryStore(world.clock)
    processes = [open_instance(store, world, mac=mac) for mac in range(1, 17)]
    add = OperationList([AddNode("/a", {"n": 0})])
    processes[0].commit(lambda _: add, "", retry_timeout=5, max_poll_age=0)
    adjust = OperationList([Adjust("/a", "n", 1)])
    for process in processes * rounds:
        process.commit(lambda _: adjust, "", retry_timeout=5, max_poll_age=0)
    counting = CountingStore(store)
    reader = open_instance(counting, world, mac=17)
    counting.traffic()
    assert reader.require(reader.head(), "/a").properties["n"] == 16 * rounds
    used = counting.traffic()
    # The number of cells depends on the processes alone: "deleted", "lastRevision", the property, and a slot of each.
    assert (used.calls, used.cells_read) == (1, 3 + 16)
    assert sum(process.statistics.conflicts for process in processes) == 0


CHANGES: dict[str, tuple[Change, object]] = {
    "adjusts add up": (lambda tx: (tx.adjust("/a", "n", 5), tx.adjust("/a", "n", -2)), 13),
    "adjust after set": (lambda tx: (tx.set("/a", "n", 100), tx.adjust("/a", "n", 5)), 105),
    "adjust after a set of the same value": (lambda tx: (tx.set("/a", "n", 10), tx.adjust("/a", "n", 5)), 15),
    "set after adjust": (lambda tx: (tx.adjust("/a", "n", 5), tx.set("/a", "n", 100)), 100),
    "unset after adjust": (lambda tx: (tx.adjust("/a", "n", 5), tx.unset("/a", "n")), None),
    "adjust after unset": (lambda tx: (tx.unset("/a", "n"), tx.adjust("/a", "n", 5)), 5),
    "increment after adjust": (lambda tx: (tx.adjust("/a", "n", 5), tx.increment("/a", "n", 1)), 16),
    "adjust after increment": (lambda tx: (tx.increment("/a", "n", 1), tx.adjust("/a", "n", 5)), 16),
    "removed and added": (
        lambda tx: (tx.adjust("/a", "n", 5), tx.remove("/a"), tx.add("/a", {"n": 1}), tx.adjust("/a", "n", 2)),
        3,
    ),
    "back to the same value": (lambda tx: (tx.adjust("/a", "n", 5), tx.adjust("/a", "n", -5)), 10),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("before", [0, 90])
def test_a_transaction_shows_what_it_commits(
    two: tuple[Repository, Repository], change: Change, expected: object, before: int
) -> None:
    one, other = two
    if before:
        # The same with totals in the view.
        other.adjust("/a", "n", before)
        one.refresh()
        one.run(lambda tx: tx.set("/a", "n", 10))
    tx = one.transaction()
    change(tx)
    assert tx.get("/a", "n") == expected
    tx.commit()
    assert value(one) == value(other) == expected


def test_adjusts_travel_with_other_changes(two: tuple[Repository, Repository]) -> None:
    one, other = two
    with pytest.raises(NodeNotFoundError), one.transaction() as tx:
        tx.adjust("/a", "n", 5)
        tx.set("/none", "x", 1)
    with one.transaction() as tx:
        tx.adjust("/a", "n", 5)
        tx.add("/a/k", {"m": 1})
        tx.adjust("/a/k", "m", 2)
    assert value(other) == 15
    assert other.head["/a/k"]["m"] == 3


def test_an_adjust_by_nothing_makes_no_revision(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    before = one.refresh().revision
    assert one.adjust("/a", "n", 0) == before
    assert one.adjust("/a", "absent", 0.0) == before
    assert "absent" not in one.refresh()["/a"]


def test_old_snapshots_logs_diffs_and_copies_show_the_sum(two: tuple[Repository, Repository]) -> None:
    one, other = two
    revisions = [one.adjust("/a", "n", 1), other.adjust("/a", "n", 2), one.adjust("/a", "n", 4)]
    one.refresh()
    assert [one.at(revision)["/a"]["n"] for revision in revisions] == [11, 13, 17]
    assert [entry.revision for entry in one.log("/a")][:3] == revisions[::-1]
    assert [entry.changes[0].adjusted[0][0] for entry in list(one.log("/a"))[:3]] == ["n"] * 3
    (change,) = one.diff(one.at(revisions[0]), one.head)
    assert change.before is not None
    assert change.after is not None
    assert (change.before["n"], change.after["n"]) == (11, 17)
    one.run(lambda tx: tx.copy("/a", "/copy"))
    one.run(lambda tx: tx.move("/a", "/moved"))
    other.refresh()
    assert other.head["/copy"]["n"] == other.head["/moved"]["n"] == 17
    other.adjust("/moved", "n", 1)
    assert [level["n"] for level in (one.refresh()["/copy"], one.head["/moved"])] == [17, 18]
    one.run(lambda tx: (tx.remove("/moved"), tx.add("/moved", {"n": 1})))
    assert other.refresh()["/moved"]["n"] == 1


def test_a_watch_delivers_each_adjust(two: tuple[Repository, Repository]) -> None:
    one, other = two
    with other.watch("/a", timeout=0.01, since=other.head) as watch:
        made = [one.adjust("/a", "n", 1), one.adjust("/a", "new", 1)]
        other.refresh()
        assert [entry.revision for entry in watch] == made


def test_a_version_changes_with_each_adjust_and_is_the_same_everywhere(two: tuple[Repository, Repository]) -> None:
    one, other = two
    before = one.head["/a"].version
    one.adjust("/a", "n", 1)
    after = one.refresh()["/a"].version
    assert before != after == other.refresh()["/a"].version
    with pytest.raises(ConflictError), one.transaction() as tx:
        tx.adjust("/a", "n", 1, if_version=before)


SERIALIZABLE: dict[str, tuple[Change, Change]] = {
    "reading a counter protects it": (
        lambda tx: tx.set("/b", "x", tx.get("/a", "n")),
        lambda tx: tx.adjust("/a", "n", 1),
    ),
    "a set depends on adjusts": (lambda tx: tx.set("/a", "n", 5), lambda tx: tx.adjust("/a", "n", 1)),
    "a set of the same value depends on adjusts": (
        lambda tx: (tx.set("/a", "n", 10), tx.set("/b", "x", 1)),
        lambda tx: tx.adjust("/a", "n", 1),
    ),
    "an unset depends on adjusts": (lambda tx: tx.unset("/a", "n"), lambda tx: tx.adjust("/a", "n", 1)),
    "an adjust depends on sets": (lambda tx: tx.adjust("/a", "n", 1), lambda tx: tx.set("/a", "n", 5)),
    "an adjust by nothing depends on sets": (
        lambda tx: (tx.adjust("/a", "n", 0), tx.set("/b", "x", 1)),
        lambda tx: tx.set("/a", "n", 5),
    ),
    "adjusts that add up to 0 depend on sets": (
        lambda tx: (tx.adjust("/a", "n", 1), tx.adjust("/a", "n", -1), tx.set("/b", "x", 1)),
        lambda tx: tx.set("/a", "n", "text"),
    ),
}


@pytest.mark.parametrize(("change", "other_change"), SERIALIZABLE.values(), ids=SERIALIZABLE)
def test_a_serializable_transaction_conflicts(opened: Instances, change: Change, other_change: Change) -> None:
    one = opened()
    one.run(lambda tx: (tx.add("/a", {"n": 10}), tx.add("/b")))
    other = opened()
    tx = one.transaction(isolation="serializable")
    change(tx)
    other.run(other_change, isolation="serializable")
    with pytest.raises(ConflictError):
        tx.commit()


def test_serializable_adjusts_do_not_conflict_with_each_other(opened: Instances) -> None:
    one = opened()
    one.run(lambda tx: tx.add("/a", {"n": 10}))
    other = opened()
    tx = one.transaction(isolation="serializable")
    tx.adjust("/a", "n", 1)
    tx.adjust("/a", "new", 1)
    other.run(lambda made: (made.adjust("/a", "n", 2), made.adjust("/a", "new", 2)), isolation="serializable")
    tx.commit()
    assert (value(one), value(one, "new")) == (13, 3)


def test_an_increment_conflicts_with_an_adjust(two: tuple[Repository, Repository]) -> None:
    one, other = two
    tx = one.transaction()
    tx.increment("/a", "n", 1)
    other.adjust("/a", "n", 1)
    with pytest.raises(ConflictError):
        tx.commit()


def test_first_adjusts_of_very_many_properties_do_not_conflict(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_set, "COLUMNS", 5)
    repo = opened()
    repo.run(lambda tx: tx.add("/n"))
    both = repo.transaction(), repo.transaction()
    for tx in both:
        for number in range(12):
            tx.adjust("/n", f"p{number}", 1)
    for tx in both:
        tx.commit()
    assert dict(repo.head["/n"]) == {f"p{number}": 2 for number in range(12)}
