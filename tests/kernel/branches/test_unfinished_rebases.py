"""The new branch of a rebase in steps takes no effect before the rebase has ended the old one, wherever its process is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import BranchError
from hbasemk.format import revisions, schema
from hbasemk.format.branch_head import RebaseOf
from hbasemk.kernel.branches import unfinished_rebases
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, Adjust, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance


class Killed(BaseException):
    """The end of a process in the middle of a call."""


class Place:
    """A process whose rebases go step by step and may be killed, another one, and a branch that adds 1 to a number."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, *, transactions: bool) -> None:
        monkeypatch.setattr(Branches, "may_rebase_at_once", lambda *_: False)
        self.world = world
        self.store = MemoryStore(world.clock, transactions=transactions)
        self.one, self.two = open_instance(self.store, world, mac=1), open_instance(self.store, world, mac=2)
        commit(self.one, AddNode("/a", {"n": 0}))
        self.root = self.one.branches.begin(self.one.head(), "a draft")
        self.old = commit_on_branch(self.one, self.root, [Adjust("/a", "n", 1)])
        commit(self.one, SetProperty("/", "other", 1))

    def rebase(self) -> int:
        return rebase(self.one.branches, self.old, self.one.head())

    def killed(self, owner: object, method: str) -> None:
        """Rebase the branch, and kill the process before it calls a method for the first time."""

        def kill(*_: object) -> bool:
            raise Killed

        setattr(owner, method, kill)
        with pytest.raises(Killed):
            self.rebase()
        self.world.advance(60)

    def killed_before_claim_is_final(self) -> None:
        self.killed(self.one.branches._claims, "finalize")

    def killed_before_end(self) -> None:
        self.killed(self.one.branches._heads, "close_rebased")

    def unlisted(self) -> int:
        """Return the newest revision of the only branch in the journal that is open and not the old one."""
        found, _ = self.two.branches._heads._all_unswept()
        (head,) = (cell.value for root, cell in found.items() if root != self.root and len(cell.value) == 8)
        return int.from_bytes(head, "big")

    def listed(self) -> list[int]:
        self.two.poll()
        return [branch.newest for branch in self.two.open_branches()]

    def merge(self, revision: int) -> None:
        self.two.poll()
        self.two.branches.merge(revision, "")

    def number(self) -> object:
        self.two.poll()
        return self.two.require(self.two.head(), "/a").properties["n"]


@pytest.fixture(params=[False, True], ids=["in steps", "transactions"])
def place(request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(world, monkeypatch, transactions=request.param)


def refused(place: Place, revision: int, act: Callable[[Instance, int], object]) -> None:
    with pytest.raises(BranchError, match="belongs to a rebase that has not ended; rebase") as caught:
        act(place.two, revision)
    assert caught.value.continues_at == revisions.to_text(place.old)


def test_a_new_branch_is_not_used_while_the_old_one_is_open(place: Place) -> None:
    place.killed_before_claim_is_final()
    new = place.unlisted()
    assert place.listed() == [place.old]
    refused(place, new, lambda two, at: two.branches.merge(at, ""))
    refused(place, new, lambda two, at: rebase(two.branches, at, two.head()))
    place.merge(place.old)
    assert place.number() == 1
    assert place.listed() == []
    refused(place, new, lambda two, at: two.branches.merge(at, ""))
    assert place.number() == 1


def test_the_old_branch_can_be_rebased_again(place: Place) -> None:
    place.killed_before_claim_is_final()
    new = place.unlisted()
    place.two.poll()
    again = rebase(place.two.branches, place.old, place.two.head())
    assert place.listed() == [again]
    refused(place, new, lambda two, at: two.branches.merge(at, ""))
    place.merge(again)
    assert place.number() == 1


def test_whoever_uses_a_new_branch_ends_the_old_one_if_the_rebase_has_claimed_it_for_good(place: Place) -> None:
    place.killed_before_end()
    new = place.unlisted()
    assert place.listed() == [place.old]
    place.merge(new)
    assert place.number() == 1
    with pytest.raises(BranchError, match="rebased to") as caught:
        place.merge(place.old)
    assert caught.value.continues_at == revisions.to_text(new)
    assert place.number() == 1


def test_a_commit_to_the_old_branch_after_the_claim_keeps_the_new_one_unused(place: Place) -> None:
    place.killed_before_end()
    new = place.unlisted()
    later = commit_on_branch(place.two, place.old, [Adjust("/a", "n", 10)])
    refused(place, new, lambda two, at: two.branches.merge(at, ""))
    place.merge(later)
    assert place.number() == 11
    refused(place, new, lambda two, at: two.branches.merge(at, ""))


def test_another_process_finds_that_a_rebase_is_over_and_records_it(place: Place) -> None:
    new = place.rebase()
    root = place.two.branches.find(new).root
    assert link_of(place, root) == RebaseOf(place.root, place.old)
    assert place.listed() == [new]
    later = commit_on_branch(place.two, new, [Adjust("/a", "n", 10)])
    place.merge(later)
    assert place.number() == 11
    assert link_of(place, root) == RebaseOf(place.root, place.old, is_over=True)


def link_of(place: Place, root: int) -> RebaseOf | None:
    return next(journal_rows(place.two.store, [root], (schema.REBASE_OF,))).rebase_of


def test_the_process_of_a_rebase_merges_its_branch_without_a_look_at_the_old_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise AssertionError("it has ended the old branch itself")

    new = place.rebase()
    monkeypatch.setattr(place.one.branches._rebases, "has_ended_old", fail)
    place.one.branches.merge(new, "")
    assert place.number() == 1


def test_a_process_remembers_only_the_last_of_very_many_rebases(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    monkeypatch.setattr(unfinished_rebases, "MOST_KNOWN", 1)
    first = place.rebase()
    place.one.branches._rebases.know_over(12345)
    place.one.branches.merge(first, "")
    assert place.number() == 1
    assert link_of(place, place.two.branches.find(first).root) == RebaseOf(place.root, place.old, is_over=True)


def test_a_sweep_records_nothing_in_a_branch_that_has_ended(place: Place) -> None:
    new = place.rebase()
    root = place.two.branches.find(new).root
    place.one.branches.merge(new, "")
    place.world.advance(2 * HOUR)
    assert place.two.branches.sweep(BRANCH_RETENTION_MS) == [place.root, root]
    assert link_of(place, root) == RebaseOf(place.root, place.old)


def test_a_rebase_whose_old_branch_another_process_ends_succeeds(place: Place) -> None:
    """The other process has committed to the new branch before; so the old one leads to a later revision."""
    later: list[int] = []
    heads = place.one.branches._heads
    close = heads.close_rebased

    def take_over(root: int, newest: int, into: int) -> bool:
        if not later:
            later.append(commit_on_branch(place.two, into, [Adjust("/a", "n", 10)]))
            place.merge(later[0])
        return close(root, newest, into)

    heads.close_rebased = take_over  # type: ignore[method-assign]
    place.rebase()
    assert later
    assert place.number() == 11
    with pytest.raises(BranchError, match="rebased to"):
        place.merge(place.old)


def test_a_rebase_without_changes_is_over_as_well(place: Place) -> None:
    empty = place.one.branches.begin(place.one.head())
    commit(place.one, SetProperty("/", "other", 2))
    new = rebase(place.one.branches, empty, place.one.head())
    assert link_of(place, new) == RebaseOf(empty, empty)
    later = commit_on_branch(place.two, new, [Adjust("/a", "n", 5)])
    place.merge(later)
    assert place.number() == 5
    assert link_of(place, new) == RebaseOf(empty, empty, is_over=True)


@pytest.mark.parametrize("continued", [False, True])
def test_the_end_of_a_rebase_is_recorded_before_the_old_branch_is_deleted(place: Place, continued: bool) -> None:
    """Else nobody could tell any more that the rebase is over, and the new branch could not be merged."""
    world = place.world
    for seconds in (HOUR, 60):
        # The view of the new branch begins after the old branch, so it does not keep the rows of that one.
        world.advance(seconds)
        place.one.maintain()
        place.two.maintain()
        commit(place.one, SetProperty("/", "other", seconds))
    place.one.recovery.advance(to_end=True)
    place.one.poll()
    new = place.rebase()
    if continued:
        new = commit_on_branch(place.two, new, [Adjust("/a", "n", 10)])
    for number in range(5):
        world.advance(HOUR)
        three = open_instance(place.store, world, mac=10 + number)
        commit(three, SetProperty("/", "other", number))
        three.branches.sweep(BRANCH_RETENTION_MS)
        Collector(three).run(RETENTION_MS)
    assert not next(journal_rows(place.two.store, [place.root], (schema.BRANCH_HEAD,))).cells
    assert place.listed() == [new]
    place.merge(new)
    assert place.number() == (11 if continued else 1)


def test_a_late_record_of_the_end_of_a_rebase_creates_no_row(place: Place) -> None:
    place.rebase()
    key = schema.revision_key(1 << 30 | revisions.BRANCH_BIT)
    place.two.branches._heads.record_end_of_rebase(int.from_bytes(key, "big"), RebaseOf(place.root, place.old))
    assert place.store.read(schema.JOURNAL, [Get(key)])[0].cells == []
