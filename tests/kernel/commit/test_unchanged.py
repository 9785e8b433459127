"""A change without effect depends on the value that it found: a concurrent change of it wins, or precedes it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import Branch, ConflictError, InvalidChangeError, MicroKernel, NodeExistsError, Repository, Transaction
from hbasemk.format.values import encode
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Instances, problems, tree

Change = Callable[[Transaction], Any]


def prepare(tx: Transaction) -> None:
    """Create the initial tree."""
    tx.add("/n", {"x": 1, "f": 1.5})
    tx.add("/n/kid", {"z": 1})
    tx.add("/log")


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    """Two instances on one tree. The second one's last poll counts as recent permanently, so its head grows stale."""
    one = opened()
    one.run(prepare)
    stale = opened()
    instance_of(stale).journal.is_recent = lambda seconds: True  # type: ignore[method-assign]
    return one, stale


UNCHANGED: dict[str, tuple[Change, Change]] = {
    "set to what is there": (lambda tx: tx.set("/n", "x", 1), lambda tx: tx.set("/n", "x", 2)),
    "set to what was removed": (lambda tx: tx.set("/n", "x", 1), lambda tx: tx.unset("/n", "x")),
    "unset what is not there": (lambda tx: tx.unset("/n", "none"), lambda tx: tx.set("/n", "none", 2)),
    "increment by nothing": (lambda tx: tx.increment("/n", "x", 0), lambda tx: tx.increment("/n", "x", 5)),
    "increment of a fraction by nothing": (lambda tx: tx.increment("/n", "f", 0), lambda tx: tx.set("/n", "f", 2.5)),
    "update": (lambda tx: tx.update("/n", {"x": 1, "f": 1.5}), lambda tx: tx.set("/n", "f", 2.5)),
    "set and set back": (
        lambda tx: (tx.set("/n", "x", 9), tx.set("/n", "x", 1)),
        lambda tx: tx.set("/n", "x", 2),
    ),
    "set and adjusted back": (
        lambda tx: (tx.set("/n", "x", 9), tx.adjust("/n", "x", -8)),
        lambda tx: tx.set("/n", "x", 2),
    ),
    "unset and adjusted back": (
        lambda tx: (tx.unset("/n", "x"), tx.adjust("/n", "x", 1)),
        lambda tx: tx.set("/n", "x", 2),
    ),
    "set and unset": (
        lambda tx: (tx.set("/n", "none", 9), tx.unset("/n", "none")),
        lambda tx: tx.set("/n", "none", 2),
    ),
    "up and down": (
        lambda tx: (tx.increment("/n", "x", 3), tx.increment("/n", "x", -3)),
        lambda tx: tx.set("/n", "x", 2),
    ),
    "set after reading": (lambda tx: tx.set("/n", "x", tx.get("/n", "x")), lambda tx: tx.set("/n", "x", 2)),
    "a node that was replaced": (
        lambda tx: tx.set("/n", "x", 1),
        lambda tx: (tx.remove("/n"), tx.add("/n", {"x": 2}), tx.add("/n/kid")),
    ),
    "add and remove again": (
        lambda tx: (tx.add("/n/new"), tx.remove("/n/new")),
        lambda tx: tx.add("/n/new"),
    ),
    "add and remove again where there is a property of that name": (
        lambda tx: (tx.add("/n/new"), tx.remove("/n/new")),
        lambda tx: tx.set("/n", "new", 1),
    ),
    "add below what is added and remove again": (
        lambda tx: (tx.add("/n/new"), tx.add("/n/new/below"), tx.remove("/n/new")),
        lambda tx: tx.add("/n/new"),
    ),
    "move there and back": (
        lambda tx: (tx.move("/n/kid", "/n/other"), tx.move("/n/other", "/n/kid")),
        lambda tx: tx.add("/n/other"),
    ),
}


@pytest.mark.parametrize(("change", "other"), UNCHANGED.values(), ids=UNCHANGED)
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_change_without_effect_conflicts_with_a_later_change_of_its_value(
    two: tuple[Repository, Repository], change: Change, other: Change, isolation: Any
) -> None:
    one, stale = two
    base = stale.head
    one.run(other)
    after = tree(one)
    transaction = stale.transaction(base=base, isolation=isolation)
    change(transaction)
    with pytest.raises(ConflictError) as raised:
        transaction.commit()
    assert raised.value.path in {"/n", "/n/kid"}
    assert tree(one) == tree(stale) == after


@pytest.mark.parametrize(("change", "other"), UNCHANGED.values(), ids=UNCHANGED)
def test_a_change_without_effect_conflicts_beside_another_change_as_well(
    two: tuple[Repository, Repository], change: Change, other: Change
) -> None:
    one, stale = two
    transaction = stale.transaction(base=stale.head)
    change(transaction)
    transaction.add("/log/entry")
    one.run(other)
    after = tree(one)
    with pytest.raises(ConflictError):
        transaction.commit()
    assert tree(one) == after


@pytest.mark.parametrize(("change", "other"), UNCHANGED.values(), ids=UNCHANGED)
def test_run_retries_a_change_without_effect_on_the_new_value(
    two: tuple[Repository, Repository], change: Change, other: Change
) -> None:
    one, stale = two
    expected: dict[str, Any] | str
    with Repository(MemoryStore(), poll_interval=0) as alone:
        alone.run(prepare)
        alone.run(other)
        try:
            alone.run(change)
            expected = tree(alone)
        except (NodeExistsError, InvalidChangeError) as error:
            expected = type(error).__name__
    one.run(other)
    try:
        stale.run(change)
    except (NodeExistsError, InvalidChangeError) as error:
        assert type(error).__name__ == expected
    else:
        assert tree(one) == expected


def test_a_set_on_a_stale_head_is_not_dropped(two: tuple[Repository, Repository]) -> None:
    one, stale = two
    for number in range(10):
        shown = stale.refresh()["/n"]["x"]
        one.run(lambda tx, number=number: tx.set("/n", "x", f"other {number}"))  # type: ignore[misc]
        assert stale.head["/n"]["x"] == shown
        stale.run(lambda tx, shown=shown: tx.set("/n", "x", shown))  # type: ignore[misc]
        assert stale.head["/n"]["x"] == shown
        assert one.refresh()["/n"]["x"] == shown


@pytest.mark.parametrize(
    "change", [change for name, (change, _) in UNCHANGED.items() if "move" not in name and "replaced" not in name]
)
def test_a_change_without_effect_creates_no_revision_and_no_conflict(
    two: tuple[Repository, Repository], change: Change
) -> None:
    one, stale = two
    base = stale.head
    one.run(lambda tx: (tx.set("/n", "other", 1), tx.add("/n/more"), tx.set("/n/kid", "z", 2)))
    head = one.head.revision
    with stale.transaction(base=base) as transaction:
        change(transaction)
    assert transaction.revision == base.revision
    assert one.refresh().revision == head


def test_one_of_two_writers_that_each_repeat_the_value_the_other_changes_fails(
    two: tuple[Repository, Repository],
) -> None:
    one, other = two
    base, same = one.refresh(), other.refresh()
    first, second = one.transaction(base=base), other.transaction(base=same)
    first.update("/n", {"x": 2, "f": 1.5})
    second.update("/n", {"x": 1, "f": 2.5})
    first.commit()
    with pytest.raises(ConflictError):
        second.commit()


# --- other front ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('^"/n/x":1', lambda tx: tx.set("/n", "x", 2)),
        ('^"/n/none":null', lambda tx: tx.set("/n", "none", 2)),
        ('^"/n/x":2 ^"/n/x":1', lambda tx: tx.set("/n", "x", 2)),
        ('+"/n/new":{} -"/n/new"', lambda tx: tx.add("/n/new")),
    ],
)
def test_a_change_text_without_effect_conflicts_on_its_base(
    two: tuple[Repository, Repository], text: str, other: Change
) -> None:
    one, stale = two
    base = stale.head.revision
    one.run(other)
    with pytest.raises(ConflictError):
        MicroKernel(stale).commit("", text, base)


def test_a_change_text_on_a_stale_head_is_not_dropped(two: tuple[Repository, Repository]) -> None:
    one, stale = two
    one.run(lambda tx: tx.set("/n", "x", 2))
    MicroKernel(stale).commit("", '^"/n/x":1')
    assert one.refresh()["/n"]["x"] == 1


# --- branches ------------------------------------------------------------------------------------------------

ON_A_BRANCH: dict[str, Callable[[Branch], Any]] = {
    "set to what is there": lambda branch: branch.run(lambda tx: tx.set("/n", "x", 1)),
    "and something else": lambda branch: branch.run(lambda tx: (tx.set("/n", "x", 1), tx.add("/log/entry"))),
    "set, and back by another commit": lambda branch: (
        branch.run(lambda tx: tx.set("/n", "x", 7)),
        branch.run(lambda tx: tx.set("/n", "x", 1)),
    ),
    "set and set back": lambda branch: branch.run(lambda tx: (tx.set("/n", "x", 7), tx.set("/n", "x", 1))),
}


@pytest.mark.parametrize("change", ON_A_BRANCH.values(), ids=ON_A_BRANCH)
def test_a_value_that_a_branch_repeats_must_be_unchanged_on_trunk(
    two: tuple[Repository, Repository], change: Callable[[Branch], Any]
) -> None:
    one, _ = two
    branch = one.branch()
    change(branch)
    one.run(lambda tx: tx.set("/n", "x", 2))
    after = tree(one)
    with pytest.raises(ConflictError) as caught:
        branch.merge()
    mine = caught.value.revision
    loser = "a commit that changes nothing" if mine is None else f"revision {mine}"
    assert str(caught.value).startswith(f"{loser} conflicts with {caught.value.other} over property 'x' of /n")
    assert tree(one) == after
    assert branch.rebase() == ["/n/:conflict"]
    assert branch.head["/n/:conflict/changeChangedProperty"]["x"] == 1
    branch.run(lambda tx: (tx.remove("/n/:conflict"), tx.set("/n", "x", 1)))
    branch.merge()
    assert one.refresh()["/n"]["x"] == 1


@pytest.mark.parametrize("change", ON_A_BRANCH.values(), ids=ON_A_BRANCH)
def test_a_value_that_a_branch_repeats_merges_if_trunk_did_not_change_it(
    two: tuple[Repository, Repository], change: Callable[[Branch], Any]
) -> None:
    one, _ = two
    branch = one.branch()
    change(branch)
    one.run(lambda tx: tx.set("/n", "f", 2.5))
    assert branch.rebase() == []
    one.run(lambda tx: tx.set("/n", "f", 3.5))
    branch.merge()
    assert one.refresh()["/n"] == {"x": 1, "f": 3.5}


def test_a_rebase_keeps_the_values_that_the_branch_repeated(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    branch = one.branch()
    branch.run(lambda tx: (tx.set("/n", "x", 1), tx.unset("/n", "none")))
    one.run(lambda tx: tx.set("/n", "f", 2.5))
    assert branch.rebase() == []
    one.run(lambda tx: tx.set("/n", "none", 2))
    with pytest.raises(ConflictError):
        branch.merge()
    # The branch repeated the absence of the property; the marker keeps what trunk has added.
    assert branch.rebase() == ["/n/:conflict"]
    assert branch.head["/n/:conflict/deleteAddedProperty"] == {"none": 2}
    branch.run(lambda tx: tx.remove("/n/:conflict"))
    branch.merge()
    assert one.refresh()["/n"]["none"] == 2


def test_a_node_added_and_removed_on_a_branch_does_not_conflict_with_trunk(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    branch = one.branch()
    branch.run(lambda tx: tx.add("/n/new"))
    branch.run(lambda tx: tx.remove("/n/new"))
    one.run(lambda tx: tx.add("/n/new", {"theirs": True}))
    head = one.refresh().revision
    assert branch.merge() == head


# --- import --------------------------------------------------------------------------------------------------


def test_a_json_import_depends_on_the_nodes_that_it_keeps(two: tuple[Repository, Repository]) -> None:
    from hbasemk.transfer.json.importer import JsonImport

    one, stale = two
    job = JsonImport("sqlite:///unused.db", io.BytesIO(b"{}"), "/n")
    batch = {"/n": {"x": encode(1), "f": encode(1.5)}, "/n/more": {}}
    transaction = stale.transaction(base=stale.head)
    job._apply(transaction, batch)
    one.run(lambda tx: tx.set("/n", "x", 2))
    with pytest.raises(ConflictError):
        transaction.commit()


# --- its cost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactions", [False, True])
def test_a_change_without_effect_costs_one_read_back(transactions: bool) -> None:
    store = CountingStore(MemoryStore(transactions=transactions))
    with Repository(store, poll_interval=0) as repository:
        repository.run(lambda tx: tx.add("/n", {"x": 1}))
        store.take()
        with repository.transaction(base=repository.head) as tx:
            tx.set("/n", "x", 1)
            tx.unset("/n", "none")
            tx.increment("/", "zero", 0)
            tx.unset("/", "zero")
        assert store.take() == {("read", "nodes"): 1}
        with repository.transaction(base=repository.head, isolation="serializable") as tx:
            tx.set("/n", "x", 1)
        assert store.take() == {("read", "nodes"): 1}
        assert problems(repository) == []


def test_the_log_leaves_out_a_node_whose_property_was_set_and_adjusted_back(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    one.run(lambda tx: (tx.set("/n", "x", 9), tx.adjust("/n", "x", -8), tx.set("/log", "k", 1)))
    one.run(lambda tx: (tx.set("/n", "f", 1), tx.adjust("/n", "f", 0.5), tx.set("/log", "k", 2)))
    second, first, *_ = one.log()
    assert [change.path for change in first.changes] == ["/log"]
    # The kind of number is another one: later sums that are whole read as ints.
    assert {change.path for change in second.changes} == {"/log", "/n"}
    one.adjust("/n", "f", 0.5)
    assert encode(one.head["/n"]["f"]) == encode(2)
