"""A branch takes effect once, and what it adjusts counts once, whatever merges, rebases and resets happen at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import BranchError, CommitUnknownError, ConflictError, HbasemkError, StoreError, UnknownRevisionError
from hbasemk.errors import ClosedError, LeaseLostError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.branches.one_transaction import BranchTransactions
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.one_transaction import OneTransaction
from hbasemk.kernel.commit.operations import AddNode, Adjust, Increment, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import AT_LEAST
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def shown(instance: Instance, view: View | None = None) -> Any:
    instance.poll()
    return instance.reader.require(view or instance.head(), "/a").properties["n"]


class Two:
    """Two processes and a branch of the first one that adjusts a property, which is 1 on trunk, by 100."""

    def __init__(self, world: World, transactions: bool) -> None:
        store = MemoryStore(world.clock, transactions=transactions)
        self.faulty = FaultyStore(store)
        self.one, self.two = open_instance(self.faulty, world, mac=1), open_instance(store, world, mac=2)
        commit(self.one, AddNode("/a", {"n": 1}))
        self.root = self.one.branches.begin(self.one.head())
        self.branch = commit_on_branch(self.one, self.root, [Adjust("/a", "n", 100)])


@pytest.fixture(params=[False, True], ids=["steps", "transactions"])
def two(request: pytest.FixtureRequest, world: World) -> Two:
    return Two(world, request.param)


def during_the_commit(two: Two, act: Callable[[], None]) -> list[bool]:
    """Act once, when the first process writes or decides a commit."""
    acted: list[bool] = []

    def before(call: Call) -> None:
        if call.method in ("write", "write_if") and call.table == schema.NODES and not acted:
            acted.append(True)
            act()

    two.faulty.before = before
    return acted


def test_a_branch_counts_once_if_two_processes_merge_it_at_the_same_time(two: Two) -> None:
    acted = during_the_commit(two, lambda: void(two.two.branches.merge(two.branch, "")))
    with pytest.raises(BranchError, match="merged into trunk"):
        two.one.branches.merge(two.branch, "")
    assert acted
    assert shown(two.one) == shown(two.two) == 101


def void(_: object) -> None:
    """Ignore a result."""


def test_a_branch_counts_once_if_it_is_rebased_while_another_process_merges_it(two: Two) -> None:
    rebased: list[int] = []

    def act() -> None:
        commit(two.two, SetProperty("/a", "other", 1))
        rebased.append(rebase(two.two.branches, two.branch, two.two.head(), ""))

    during_the_commit(two, act)
    with pytest.raises(BranchError, match="rebased to"):
        two.one.branches.merge(two.branch, "")
    assert shown(two.one) == 1
    two.two.branches.merge(rebased[0], "")
    assert shown(two.one) == 101


def test_a_branch_counts_once_if_it_is_merged_while_another_process_rebases_it(two: Two) -> None:
    commit(two.one, SetProperty("/a", "other", 1))
    merged: list[int] = []
    during_the_commit(two, lambda: merged.append(two.two.branches.merge(two.branch, "")))
    with pytest.raises(BranchError, match="merged into trunk"):
        rebase(two.one.branches, two.branch, two.one.head(), "")
    assert merged
    assert shown(two.one) == 101


def without_closing(two: Two, monkeypatch: pytest.MonkeyPatch) -> int:
    """Merge the branch in several steps, in a process that dies before it ends the branch."""
    with monkeypatch.context() as patch:
        patch.setattr(OneTransaction, "fits", lambda *_: False)
        patch.setattr(BranchHeads, "close_merged", lambda *_: True)
        merged = two.one.branches.merge(two.branch, "")
    two.two.poll()
    return merged


@pytest.mark.parametrize("again", ["merge", "rebase"])
def test_a_merge_whose_process_died_before_it_ended_the_branch_counts_once(
    two: Two, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_closing(two, monkeypatch)
    with pytest.raises((BranchError, ConflictError)):
        if again == "merge":
            two.two.branches.merge(two.branch, "")
        else:
            rebase(two.two.branches, two.branch, two.two.head(), "")
    # The second process has ended the branch for the first one.
    with pytest.raises(BranchError, match="merged into trunk"):
        two.two.branches.merge(two.branch, "")
    assert shown(two.one) == 101


def test_a_rebase_of_a_branch_that_continued_after_its_merge_leaves_out_the_merged_changes(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_closing(two, monkeypatch)
    later = commit_on_branch(two.two, two.branch, [Adjust("/a", "n", 1000), Adjust("/a", "new", 7)])
    rebased = rebase(two.two.branches, later, two.two.head(), "")
    assert shown(two.two, two.two.branches.find(rebased).view) == 1101
    two.two.branches.merge(rebased, "")
    assert shown(two.one) == 1101


@pytest.mark.parametrize("change", [Increment("/a", "n", 1000), SetProperty("/a", "n", 1101)], ids=["increment", "set"])
def test_a_later_set_of_the_branch_has_seen_its_merged_adjusts(
    two: Two, change: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_closing(two, monkeypatch)
    commit(two.two, Adjust("/a", "n", 7))
    later = commit_on_branch(two.two, two.branch, [change])
    assert shown(two.two, two.two.branches.find(later).view) == 1101
    with pytest.raises(BranchError, match="a part of the branch is merged into trunk"):
        two.two.branches.merge(later, "")
    rebased = rebase(two.two.branches, later, two.two.head(), "")
    assert shown(two.two, two.two.branches.find(rebased).view) == 1108
    two.two.branches.merge(rebased, "")
    assert shown(two.one) == 1108


def test_a_branch_that_reverts_its_merged_changes_reverts_them_on_trunk(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no effect any more, compared with its base. So it seemed to have nothing to merge."""
    without_closing(two, monkeypatch)
    assert shown(two.two) == 101
    later = commit_on_branch(two.two, two.branch, [Adjust("/a", "n", -100)])
    with pytest.raises(BranchError, match="a part of the branch is merged into trunk"):
        two.two.branches.merge(later, "")
    rebased = rebase(two.two.branches, later, two.two.head(), "")
    two.two.branches.merge(rebased, "")
    assert shown(two.one) == 1


def test_a_branch_without_effect_is_not_merged_after_the_whole_was_merged(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.branch = commit_on_branch(two.one, two.branch, [Adjust("/a", "n", -100), AddNode("/b", {})])
    merged = without_closing(two, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Branches, "net_effect", lambda *_: [])
        with pytest.raises(BranchError, match=f"merged into trunk as {revisions.to_text(merged)}"):
            two.two.branches.merge(two.branch, "")


@pytest.mark.parametrize("end", ["merge", "rebase", "abandon", "another process"])
def test_a_commit_to_a_branch_that_its_process_has_ended_reads_only_the_head(two: Two, end: str) -> None:
    commit(two.one, SetProperty("/a", "other", 1))
    if end == "merge":
        two.one.branches.merge(two.branch, "")
    elif end == "rebase":
        rebase(two.one.branches, two.branch, two.one.head(), "")
    elif end == "abandon":
        two.one.branches.abandon(two.branch)
    else:
        commit_on_branch(two.two, two.branch, [Adjust("/a", "n", 1)])
        with pytest.raises(BranchError):
            commit_on_branch(two.one, two.branch, [Adjust("/a", "n", 1)])
    calls: list[str] = []
    two.faulty.before = lambda call: calls.append(call.method)
    with pytest.raises(BranchError):
        commit_on_branch(two.one, two.branch, [Adjust("/a", "n", 1)])
    assert set(calls) == {"read"}


def test_the_end_of_a_branch_is_a_better_reason_than_a_wrong_change(two: Two) -> None:
    two.two.branches.abandon(two.branch)
    for change in (RemoveNode("/missing"), Adjust("/a", "n", 0)):
        with pytest.raises(BranchError, match="abandoned"):
            commit_on_branch(two.one, two.branch, [change])


@pytest.mark.parametrize("error", [UnknownRevisionError, StoreNotAppliedError])
def test_the_end_of_a_branch_is_a_better_reason_than_that_it_cannot_be_read(
    two: Two, error: type[HbasemkError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But while the store fails, a merge reads nothing more."""

    def fail(*_: object) -> None:
        raise error("a part of the branch is deleted")

    two.two.branches.abandon(two.branch)
    monkeypatch.setattr(Branches, "net_effect", fail)
    with pytest.raises(BranchError if error is UnknownRevisionError else error, match="abandoned|deleted"):
        two.one.branches.merge(two.branch, "")


def test_the_head_of_a_branch_is_read_again_after_some_seconds(two: Two, world: World) -> None:
    calls: list[tuple[str, str]] = []
    for seconds, reads in ((1, 0), (6, 1)):
        world.advance(seconds)
        calls.clear()
        two.faulty.before = lambda call: calls.append((call.method, call.table))
        two.branch = commit_on_branch(two.one, two.branch, [Adjust("/a", "n", 1)])
        assert calls.count(("read", "journal")) == reads


def test_a_rebase_to_a_revision_before_a_merge_of_the_branch_is_refused(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(two.one, SetProperty("/a", "other", 1))
    before = two.one.head()
    without_closing(two, monkeypatch)
    later = commit_on_branch(two.one, two.branch, [Adjust("/a", "n", 1000)])
    with pytest.raises(BranchError, match="rebase it to a revision that contains"):
        rebase(two.one.branches, later, before, "")


@pytest.mark.parametrize("claimed_before_the_reset", [True, False])
def test_a_branch_counts_once_if_it_is_reset_while_it_is_merged_and_rebased(
    two: Two, claimed_before_the_reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(two.one, SetProperty("/a", "other", 1))
    later: list[int] = []
    heads: list[int] = []
    close_rebased, replace = BranchHeads.close_rebased, BranchClaims._replace

    def reset() -> None:
        heads.append(two.two.branches.reset(later[0], two.branch))

    def close(self: BranchHeads, root: int, newest: int, into: int) -> bool:
        # The rebase of the first process is about to end the branch: the second process merges more of it.
        if self is not two.one.branches._heads:
            return close_rebased(self, root, newest, into)
        monkeypatch.setattr(BranchHeads, "close_rebased", close_rebased)
        later.append(commit_on_branch(two.two, two.branch, [SetProperty("/a", "later", 1)]))
        with pytest.raises((BranchError, ConflictError)):
            two.two.branches.merge(later[0], "")
        return close_rebased(self, root, newest, into)

    def replaced(self: BranchClaims, *arguments: Any) -> Any:
        if self is two.one.branches._claims or heads or not later:
            return replace(self, *arguments)
        if not claimed_before_the_reset:
            reset()
        done = replace(self, *arguments)
        if claimed_before_the_reset:
            reset()
        return done

    monkeypatch.setattr(BranchTransactions, "fits", lambda *_: False)
    monkeypatch.setattr(BranchHeads, "close_rebased", close)
    monkeypatch.setattr(BranchClaims, "_replace", replaced)
    with pytest.raises(BranchError, match="its branch continues at"):
        rebase(two.one.branches, two.branch, two.one.head(), "")
    assert heads
    assert two.branch not in heads
    if not claimed_before_the_reset and not two.faulty.supports_transactions:
        # The merge has found that the head had moved before its claim.
        two.two.branches.merge(heads[0], "")
    assert shown(two.one) == shown(two.two) == 101


@pytest.mark.parametrize("two", [True], ids=["transactions"], indirect=True)
def test_where_heads_return_a_rebase_in_steps_reads_the_head_after_its_claim(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset that has not seen the claim may still move the head back, so the claim must not become final."""
    commit(two.one, SetProperty("/a", "other", 1))
    replace = BranchClaims._replace

    def replaced(self: BranchClaims, *arguments: Any) -> Any:
        monkeypatch.setattr(BranchClaims, "_replace", replace)
        commit_on_branch(two.two, two.branch, [SetProperty("/a", "later", 1)])
        return replace(self, *arguments)

    monkeypatch.setattr(BranchTransactions, "fits", lambda *_: False)
    monkeypatch.setattr(BranchClaims, "_replace", replaced)
    with pytest.raises(BranchError, match="its branch continues at"):
        rebase(two.one.branches, two.branch, two.one.head(), "")
    claim = two.two.branches._heads.row(two.root).branch_claim
    assert claim is not None
    assert not claim.is_final


@pytest.mark.parametrize("swept", [False, True])
def test_a_rebase_of_a_branch_that_was_reset_during_its_merge_keeps_what_is_merged(
    two: Two, world: World, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, two.branch = two.branch, commit_on_branch(two.one, two.branch, [Adjust("/a", "n", 1000)])
    without_closing(two, monkeypatch)
    head = two.two.branches.reset(two.branch, first)
    assert two.two.branches.outcome(head) is Outcome.COMMITTED
    if swept:
        world.advance(60)
        two.two.poll()
        two.two.maintain()
    later = commit_on_branch(two.two, head, [Adjust("/a", "n", 10000)])
    rebased = rebase(two.two.branches, later, two.two.head(), "")
    two.two.branches.merge(rebased, "")
    assert shown(two.two) == 11101


def test_a_reset_of_a_branch_without_claims_returns_to_the_revision(two: Two) -> None:
    later = commit_on_branch(two.two, two.branch, [SetProperty("/a", "later", 1)])
    head = two.one.branches.reset(later, two.branch)
    # On HBase the request of a commit could otherwise arrive a second time, and undo the reset.
    assert (head == two.branch) is two.faulty.supports_transactions
    assert "later" not in two.one.reader.require(two.one.at(head), "/a").properties


@pytest.mark.parametrize("closed", [False, True])
def test_an_interrupted_rebase_gives_up_briefly_and_raises_the_interrupt(world: World, closed: bool) -> None:
    faulty = FaultyStore(MemoryStore(world.clock))
    one = open_instance(faulty, world, retry_timeout=60)
    commit(one, AddNode("/a", {"n": 1}))
    branch = commit_on_branch(one, one.branches.begin(one.head()), [Adjust("/a", "n", 100)])
    commit(one, SetProperty("/a", "other", 1))
    interrupted: list[float] = []

    def fail(call: Call) -> None:
        # Virtual time: it moves only during waits between attempts.
        if interrupted:
            raise ClosedError("closed") if closed else StoreNotAppliedError("out of reach")
        if (call.method, call.table) == ("write", schema.NODES):
            interrupted.append(world.ms)
            raise KeyboardInterrupt

    faulty.before = fail
    with pytest.raises(KeyboardInterrupt):
        rebase(one.branches, branch, one.head(), "")
    faulty.before = None
    assert interrupted
    assert world.ms - interrupted[0] < 5 * 1000 * AT_LEAST


@pytest.mark.parametrize("applied", [True, False])
def test_a_merge_with_an_unknown_outcome_counts_once(world: World, applied: bool) -> None:
    two = Two(world, transactions=False)
    failed: list[bool] = []

    def fail(call: Call) -> None:
        # All calls from the decision on fail, and the first one is applied or not.
        if call == ("check_and_write", schema.JOURNAL, 1):
            failed.append(True)
            if len(failed) >= 3:
                raise StoreUnknownError("no reply")

    setattr(two.faulty, "after" if applied else "before", fail)
    with pytest.raises((CommitUnknownError, StoreError)):
        two.one.branches.merge(two.branch, "")
    two.faulty.before = two.faulty.after = None
    two.two.poll()
    if applied:
        with pytest.raises((BranchError, ConflictError)):
            two.two.branches.merge(two.branch, "")
    else:
        two.two.branches.merge(two.branch, "")
    two.one.branches.resolve_pending()
    assert shown(two.one) == shown(two.two) == 101
    with pytest.raises(BranchError, match="merged into trunk"):
        two.one.branches.merge(two.branch, "")


def test_a_branch_counts_once_if_two_processes_merge_it(world: World) -> None:
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    one.commit(lambda _: OperationList([AddNode("/a", {"n": 1})]), "", retry_timeout=5, max_poll_age=0)
    branch = commit_on_branch(one, one.branches.begin(one.head()), [Adjust("/a", "n", 100)])
    merged: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.NODES) and not merged:
            merged.append(two.branches.merge(branch, ""))

    faulty.before = before
    with pytest.raises(BranchError, match="merged into trunk"):
        one.branches.merge(branch, "")
    assert merged
    one.poll()
    assert one.reader.require(one.head(), "/a").properties["n"] == 101


@pytest.fixture
def plain(world: World) -> Two:
    """A branch that adds /x and sets a property, and adjusts nothing."""
    two = Two(world, transactions=False)
    two.root = two.one.branches.begin(two.one.head())
    two.branch = commit_on_branch(two.one, two.root, [AddNode("/x", {}), SetProperty("/a", "p", "mine")])
    return two


def names(instance: Instance) -> set[str]:
    instance.poll()
    return {name for name in ("x", "y") if instance.reader.node(instance.head(), f"/{name}") is not None}


def test_a_rebase_of_a_branch_that_continued_after_its_merge_does_not_repeat_it(
    plain: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_closing(plain, monkeypatch)
    changes = [AddNode("/y", {}), SetProperty("/a", "q", 1), SetProperty("/a", "n", 1)]
    later = commit_on_branch(plain.two, plain.branch, changes)
    commit(plain.two, RemoveNode("/x"), SetProperty("/a", "p", None))
    rebased = rebase(plain.two.branches, later, plain.two.head(), "")
    plain.two.branches.merge(rebased, "")
    assert names(plain.one) == {"y"}
    assert dict(plain.one.reader.require(plain.one.head(), "/a").properties) == {"n": 1, "q": 1}


def test_a_rebase_after_a_merge_of_all_of_a_removed_node_leaves_no_marker(
    plain: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_closing(plain, monkeypatch)
    later = commit_on_branch(plain.two, plain.branch, [AddNode("/y", {})])
    commit(plain.two, RemoveNode("/a"))
    rebased = rebase(plain.two.branches, later, plain.two.head(), "")
    plain.two.branches.merge(rebased, "")
    assert names(plain.one) == {"x", "y"}
    assert plain.one.reader.node(plain.one.head(), "/:conflict") is None


def test_a_branch_without_adjusts_is_merged_once_if_another_process_rebases_it_before_it_ends(
    plain: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(plain.one, SetProperty("/a", "other", 1))
    close = BranchHeads.close_merged

    def rebase_before(self: BranchHeads, root: int, newest: int, revision: int) -> bool:
        monkeypatch.setattr(BranchHeads, "close_merged", close)
        commit(plain.two, RemoveNode("/x"))
        with pytest.raises(BranchError, match="merged into trunk"):
            rebase(plain.two.branches, plain.branch, plain.two.head(), "")
        return close(self, root, newest, revision)

    monkeypatch.setattr(BranchHeads, "close_merged", rebase_before)
    plain.one.branches.merge(plain.branch, "")
    assert names(plain.one) == set()


def test_a_branch_without_adjusts_is_not_merged_while_a_rebase_ends_it(
    plain: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(plain.one, SetProperty("/a", "other", 1))
    plain.two.poll()
    close = BranchHeads.close_rebased

    def merge_before(self: BranchHeads, root: int, newest: int, into: int) -> bool:
        monkeypatch.setattr(BranchHeads, "close_rebased", close)
        # The claim of the rebase is final, so this ends the branch for it.
        with pytest.raises(BranchError, match="rebased to"):
            plain.two.branches.merge(plain.branch, "")
        return close(self, root, newest, into)

    monkeypatch.setattr(BranchHeads, "close_rebased", merge_before)
    rebased = rebase(plain.one.branches, plain.branch, plain.one.head(), "")
    assert names(plain.two) == set()
    plain.two.branches.merge(rebased, "")
    assert names(plain.one) == {"x"}


@pytest.mark.parametrize("adjusts", [False, True])
def test_a_branch_is_merged_once_if_a_merge_in_steps_meets_one_in_a_transaction(
    world: World, adjusts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(world, transactions=True)
    if not adjusts:
        two.branch = commit_on_branch(two.one, two.one.branches.begin(two.one.head()), [AddNode("/x", {})])
    fits = OneTransaction.fits
    monkeypatch.setattr(
        OneTransaction, "fits", lambda self, *details: self is not parts(two.one) and fits(self, *details)
    )
    replace, merged = BranchClaims._replace, list[int]()

    def merge_before(self: BranchClaims, *arguments: Any) -> Any:
        # The first process has found no claim.
        if not merged:
            merged.append(two.two.branches.merge(two.branch, ""))
            if not adjusts:
                commit(two.two, RemoveNode("/x"))
        return replace(self, *arguments)

    monkeypatch.setattr(BranchClaims, "_replace", merge_before)
    with pytest.raises(BranchError, match="merged into trunk"):
        two.one.branches.merge(two.branch, "")
    assert merged
    assert shown(two.one) == shown(two.two) == (101 if adjusts else 1)
    assert names(two.one) == set()


def parts(instance: Instance) -> OneTransaction:
    """Return the part of an instance that commits in one transaction."""
    return instance.branches._committer.attempts._one_transaction


def test_a_merge_that_conflicts_says_so_although_the_store_fails_afterwards(world: World) -> None:
    faulty = FaultyStore(MemoryStore(world.clock, transactions=True))
    one = open_instance(faulty, world, retry_timeout=0.2)
    commit(one, AddNode("/a", {"p": 1}))
    branch = commit_on_branch(one, one.branches.begin(one.head()), [SetProperty("/a", "p", 2)])
    commit(one, SetProperty("/a", "p", 3))
    reads: list[Call] = []

    def fail(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES):
            reads.append(call)
        elif reads and (call.method, call.table) == ("read", schema.JOURNAL):
            raise StoreNotAppliedError("out of reach")

    faulty.before = fail
    with pytest.raises(ConflictError):
        one.branches.merge(branch, "")
    assert reads


@pytest.mark.parametrize("first_lives", [True, False])
def test_of_two_merges_without_adjusts_the_lower_id_wins(plain: Two, world: World, first_lives: bool) -> None:
    outcomes: list[bool] = []

    def before(call: Call) -> None:
        if (call.method, call.table) != ("write", schema.NODES) or outcomes:
            return
        outcomes.append(False)
        if not first_lives:
            world.advance(60)
        # The first merge has claimed the branch. The second one has a higher id.
        with contextlib.nullcontext() if not first_lives else pytest.raises(BranchError, match="If that one fails"):
            plain.two.branches.merge(plain.branch, "")
            outcomes.append(True)

    plain.faulty.before = before
    if first_lives:
        plain.one.branches.merge(plain.branch, "")
    else:
        with pytest.raises((BranchError, LeaseLostError)):
            plain.one.branches.merge(plain.branch, "")
    assert outcomes == ([False] if first_lives else [False, True])
    assert names(plain.two) == {"x"}


def test_a_merge_with_a_real_conflict_after_a_failed_one_says_so_at_once(plain: Two, world: World) -> None:
    commit(plain.two, SetProperty("/a", "p", "theirs"))
    for _ in range(2):
        # The second merge finds the claim of the first one.
        began = world.ms
        with pytest.raises(ConflictError, match="over property 'p'"):
            plain.one.branches.merge(plain.branch, "")
        assert world.ms == began
