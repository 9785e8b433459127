"""On a store with transactions, a new branch, a commit to a branch and a rebase are written as a whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from hbasemk import BranchError
from hbasemk.errors import CommitUnknownError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema
from hbasemk.format.horizon import Horizon
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.branches.one_transaction import BranchTransactions
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.one_transaction import OneTransaction
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance

MINE = SetProperty("/a", "p", "mine")


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


class Place:
    """A process on a store with transactions that counts and may fail, another process, and a branch of the first one."""

    def __init__(self, world: World) -> None:
        self.store = MemoryStore(world.clock, transactions=True)
        self.faulty = FaultyStore(self.store)
        self.one, self.two = open_instance(self.faulty, world, mac=1), open_instance(self.store, world, mac=2)
        commit(self.one, AddNode("/a", {"p": 1}))
        self.root = self.one.branches.begin(self.one.head())
        self.writes: Counter[str] = Counter()
        self.faulty.before = self.count

    def count(self, call: Call) -> None:
        if "write" in call.method:
            self.writes[call.method] += 1

    def rows(self) -> int:
        return len(list(scan_all(self.store, schema.JOURNAL, Scan(None, None, 1000, columns=(schema.NONCE,)))))

    def shown(self, revision: int) -> object:
        return self.two.reader.require(self.two.at(revision), "/a").properties["p"]

    def behind(self) -> int:
        """Commit to the branch and to trunk, and return the branch's head."""
        head = commit_on_branch(self.one, self.root, [MINE])
        commit(self.one, SetProperty("/", "other", 1))
        self.writes.clear()
        return head

    def rebase(self, head: int) -> int:
        return rebase(self.one.branches, head, self.one.head(), "")


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def once(place: Place, act: Callable[[], object], *, after: bool = False) -> None:
    """Act at the next transaction of the first process, before the store carries it out or after it."""

    def at(call: Call) -> None:
        if call.method == "write_if":
            place.faulty.before = place.faulty.after = None
            act()

    if after:
        place.faulty.after = at
    else:
        place.faulty.before = at


def lose_reply() -> None:
    raise StoreUnknownError("the reply was lost")


def test_each_step_is_one_transaction(place: Place) -> None:
    root = place.one.branches.begin(place.one.head())
    assert place.writes == {"write_if": 1}
    head = commit_on_branch(place.one, root, [MINE, AddNode("/a/b", {})])
    assert place.writes == {"write_if": 2}
    commit(place.one, SetProperty("/", "other", 1))
    place.writes.clear()
    rebased = place.rebase(head)
    assert place.writes == {"write_if": 1}
    assert place.shown(rebased) == "mine"
    ended = place.two.branches._heads.read(root)
    assert ended is not None
    assert ended.into == rebased
    place.two.branches.merge(rebased, "")
    place.one.poll()
    assert place.one.reader.require(place.one.head(), "/a").properties == {"p": "mine"}


def test_a_rebase_of_a_branch_without_commits_is_one_transaction(place: Place) -> None:
    commit(place.one, SetProperty("/", "other", 1))
    place.writes.clear()
    rebased = place.rebase(place.root)
    assert place.writes == {"write_if": 1}
    later = commit_on_branch(place.two, rebased, [MINE])
    assert place.shown(later) == "mine"


def test_a_commit_that_finds_another_head_writes_nothing(place: Place) -> None:
    others: list[int] = []
    once(place, lambda: others.append(commit_on_branch(place.two, place.root, [SetProperty("/a", "p", "theirs")])))
    with pytest.raises(BranchError, match="continues at"):
        commit_on_branch(place.one, place.root, [MINE])
    rows = place.rows()
    assert place.shown(others[0]) == "theirs"
    later = commit_on_branch(place.one, others[0], [MINE])
    assert place.shown(later) == "mine"
    assert place.rows() == rows + 1


@pytest.mark.parametrize("after", [False, True], ids=["not applied", "applied"])
def test_a_lost_reply_to_a_commit_or_a_rebase_is_sent_again(place: Place, after: bool) -> None:
    once(place, lose_reply, after=after)
    head = commit_on_branch(place.one, place.root, [MINE])
    assert place.shown(head) == "mine"
    commit(place.one, SetProperty("/", "other", 1))
    once(place, lose_reply, after=after)
    rows = place.rows()
    rebased = place.rebase(head)
    assert place.faulty.before is place.faulty.after is None
    assert place.shown(rebased) == "mine"
    assert place.rows() == rows + 2
    once(place, lose_reply, after=after)
    assert place.shown(place.one.branches.begin(place.one.head())) == 1
    assert place.rows() == rows + 3


def test_a_commit_whose_replies_are_all_lost_is_in_doubt(place: Place) -> None:
    lost: list[Call] = []

    def lose(call: Call) -> None:
        if call.method == "write_if" or lost:
            lost.append(call)
            raise lost_reply(call)

    place.faulty.after = lose
    with pytest.raises(CommitUnknownError, match="became the head") as raised:
        commit_on_branch(place.one, place.root, [MINE])
    place.faulty.after = None
    head = revisions.from_text(str(raised.value.revision))
    assert place.shown(head) == "mine"
    assert place.two.branches.require_head(head)


def test_a_commit_or_a_rebase_that_the_store_refuses_leaves_nothing(place: Place) -> None:
    head = place.behind()
    rows = place.rows()

    def refuse(call: Call) -> None:
        if call.method == "write_if":
            raise StoreNotAppliedError("out of reach")

    place.faulty.before = refuse
    with pytest.raises(StoreNotAppliedError):
        commit_on_branch(place.one, head, [SetProperty("/a", "p", "later")])
    with pytest.raises(StoreNotAppliedError):
        place.rebase(head)
    place.faulty.before = None
    assert place.rows() == rows
    assert place.shown(place.rebase(head)) == "mine"


def test_a_rebase_that_finds_another_head_names_it(place: Place) -> None:
    head = place.behind()
    others: list[int] = []
    once(place, lambda: others.append(commit_on_branch(place.two, head, [SetProperty("/a", "q", 1)])))
    with pytest.raises(BranchError, match="continues at"):
        place.rebase(head)
    place.one.poll()
    assert place.shown(place.rebase(others[0])) == "mine"


def test_a_rebase_of_a_claimed_branch_goes_step_by_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head = place.behind()
    with monkeypatch.context() as patch:
        # A merge in steps whose process dies before it ends the branch.
        patch.setattr(OneTransaction, "fits", lambda *_: False)
        patch.setattr(BranchHeads, "close_merged", lambda *_: True)
        merged = place.two.branches.merge(head, "")
    with pytest.raises(BranchError, match=f"merged into trunk as {revisions.to_text(merged)}"):
        place.rebase(head)


def test_a_rebase_that_is_too_large_goes_step_by_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head = place.behind()
    monkeypatch.setattr(BranchTransactions, "fits", lambda *_: False)
    rebased = place.rebase(head)
    assert place.shown(rebased) == "mine"
    # Transactions: the new branch and its head. The claim, the row and the cells of its commit, the final claim, and the end.
    assert place.writes == {"write_if": 2, "check_and_write": 4, "write": 1}


def announce(place: Place, floor: int) -> None:
    """Announce a horizon above the floor, as a collector does before it lists the branches."""
    table, row, column = fence.place(place.one.store)
    announced = Horizon(0, floor + 1, bytes(8))
    place.store.write(table, [Put(row, [NewCell(*column, announced.encode())])])


def test_a_new_branch_and_a_rebase_withdraw_an_announced_horizon(place: Place) -> None:
    head = place.behind()
    floor = place.one.journal.contents(place.one.head()).floor
    for act in (lambda: place.one.branches.begin(place.one.head()), lambda: place.rebase(head)):
        announce(place, floor)
        act()
        # The collector must list the branches again.
        assert fence.read_horizon(place.two.store).announced == 0
