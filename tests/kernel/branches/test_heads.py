"""Branches that end or advance while another instance merges, rebases or reads them: all see it, and nothing is partial."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import BranchError, CommitUnknownError, FormatError, Repository, StoreUnknownError, UnknownRevisionError
from hbasemk.branch import Branch
from hbasemk.check import IntegrityCheck
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.branches.cache import LONGEST, BranchCache, BranchState
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS
from hbasemk.kernel.rollback import recover
from hbasemk.repository import instance_of
from hbasemk.store.abc import NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.repositories import Instances, tree
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import DIED, Died, Steps, problems

READING = ("read", "nodes")
WRITING = ("write", "nodes")


def meanwhile(store: FaultyStore, when: tuple[str, str], do: Callable[[], object]) -> None:
    """Run a function just before the next call of a kind; write_if counts as a write."""

    def before(call: Call) -> None:
        if (call.method.removesuffix("_if"), call.table) == when:
            store.before = None
            do()

    store.before = before


def heads(repo: Repository) -> list[bytes]:
    """Return the stored heads of all branches, oldest branch first."""
    rows = scan_all(repo.store, schema.JOURNAL, Scan(None, None, 1000, columns=(schema.BRANCH_HEAD,)))
    return [cell.value for row in rows for cell in row.cells]


def live(repo: Repository) -> list[str]:
    """Return the newest revisions of the open branches."""
    return [head.hex() for head in heads(repo) if len(head) == 8]


def begun(repo: Repository, *paths: str) -> str:
    """Begin a branch that adds nodes; return its newest revision. Another process reads them when it merges the branch."""
    repo.refresh()
    branch = repo.branch()
    branch.run(lambda tx: [tx.add(path) for path in paths])
    return branch.revision


@pytest.mark.parametrize("how", ["merge", "rebase"])
def test_a_branch_swept_while_it_is_read_is_not_merged_or_rebased_in_part(opened: Instances, how: str) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store, retry_timeout=0.2), opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.resume_branch(begun(other, *(f"/a/{number}" for number in range(3))))
    repo.run(lambda tx: tx.add("/b"))
    meanwhile(store, READING, lambda: other.sweep_branches(0))
    with pytest.raises(BranchError, match="abandoned"):
        getattr(branch, how)()
    assert store.before is None
    assert tree(other) == {"/": {}, "/a": {}, "/b": {}}
    assert live(other) == []


@pytest.mark.parametrize(("when", "made_here"), [(READING, False), (WRITING, False), (WRITING, True)])
def test_a_commit_to_a_branch_during_its_rebase_fails_the_rebase(
    opened: Instances, when: tuple[str, str], made_here: bool
) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store, retry_timeout=0.2), opened()
    repo.run(lambda tx: tx.add("/a"))
    others = other.resume_branch(begun(repo if made_here else other, "/a/mine"))
    branch = repo.resume_branch(others.revision)
    repo.run(lambda tx: tx.add("/b"))
    before = branch.revision
    meanwhile(store, when, lambda: others.run(lambda tx: tx.add("/a/others")))
    with pytest.raises(BranchError, match=f"continues at {others.revision[:4]}"):
        branch.rebase()
    assert branch.revision == before
    assert live(repo) == [others.revision]
    others.merge()
    assert tree(repo).keys() == {"/", "/a", "/b", "/a/mine", "/a/others"}


@pytest.mark.parametrize(("when", "made_here"), [(READING, False), (WRITING, False), (WRITING, True)])
def test_a_commit_to_a_branch_during_its_merge_is_reported(
    opened: Instances, when: tuple[str, str], made_here: bool
) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store, retry_timeout=0.2), opened()
    repo.run(lambda tx: tx.add("/a"))
    others = other.resume_branch(begun(repo if made_here else other, "/a/mine"))
    branch = repo.resume_branch(others.revision)
    meanwhile(store, when, lambda: others.run(lambda tx: tx.add("/a/others")))
    if when == READING or store.supports_transactions:
        # A transaction commits the merge only if it ends the branch.
        with pytest.raises(BranchError, match="is not the newest of its branch: its branch continues at"):
            branch.merge()
        assert tree(other).keys() == {"/", "/a"}
        others.merge()
        assert tree(other).keys() == {"/", "/a", "/a/mine", "/a/others"}
        return
    with pytest.raises(BranchError, match="is merged into trunk as .*, but .* continues at") as raised:
        branch.merge()
    assert others.revision in str(raised.value)
    assert repo.refresh().revision in str(raised.value)
    assert tree(other).keys() == {"/", "/a", "/a/mine"}
    assert live(repo) == [others.revision]


def test_changes_after_an_empty_merge_are_merged(opened: Instances) -> None:
    repo = opened()
    with repo.branch() as branch:
        branch.merge()
        branch.run(lambda tx: tx.add("/x"))
    assert tree(repo).keys() == {"/", "/x"}
    with repo.branch() as branch:
        branch.run(lambda tx: tx.add("/y"))
        first = branch.revision
        branch.run(lambda tx: tx.remove("/y"))
        branch.merge()
        branch.reset(first)
    assert tree(repo).keys() == {"/", "/x", "/y"}
    with repo.branch() as branch:
        branch.run(lambda tx: tx.add("/z"))
        branch.merge()
    assert repo.refresh().revision == branch.merged


def is_last_step(calls: list[Call]) -> bool:
    """Return whether the last call makes a commit to a branch its head: the transaction, or the second compare-and-set."""
    last = calls[-1].method
    return last == "write_if" or (last == "check_and_write" and [one.method for one in calls].count(last) > 1)


def attempt_that_never_arrived(store: FaultyStore, branch: Branch) -> str:
    """Commit to a branch; the store never receives the last step. Return the id."""
    steps: list[Call] = []

    def before(call: Call) -> None:
        steps.append(call)
        if is_last_step(steps):
            raise StoreUnknownError("out of reach")

    store.before = before
    with pytest.raises(CommitUnknownError) as raised:
        branch.run(lambda tx: tx.add("/never"))
    store.before = None
    return str(raised.value.revision)


@pytest.mark.parametrize("end", ["merge", "rebase", "abandon"])
def test_an_outcome_on_a_branch_stays_the_same_when_the_branch_ends(opened: Instances, end: str) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store, retry_timeout=0.2), opened()
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/first"))
    first = branch.revision
    branch.run(lambda tx: tx.add("/one"))
    outcomes = {attempt_that_never_arrived(store, branch): Outcome.ABORTED, first: Outcome.COMMITTED}
    outcomes[branch.revision] = Outcome.COMMITTED
    assert {revision: other.outcome(revision) for revision in outcomes} == outcomes
    other.run(lambda tx: tx.add("/trunk"))
    getattr(other.resume_branch(branch.revision), end)()
    assert {revision: other.outcome(revision) for revision in outcomes} == outcomes
    assert {revision: repo.outcome(revision) for revision in outcomes} == outcomes


@pytest.mark.parametrize(("form", "why"), [(b"a", "abandoned"), (b"m", "merged into trunk as"), (b"r", "rebased to")])
def test_heads_in_earlier_formats_are_still_read(opened: Instances, form: bytes, why: str) -> None:
    repo = opened()
    branch = repo.branch()
    root = branch.revision
    branch.run(lambda tx: tx.add("/one"))
    into = {b"a": b"", b"m": bytes.fromhex(repo.head.revision), b"r": bytes.fromhex(repo.branch().revision)}[form]
    head = NewCell(*schema.BRANCH_HEAD, form + into)
    repo.store.write(schema.JOURNAL, [Put(bytes.fromhex(root), [head])])
    with pytest.raises(BranchError, match=f"{why}.*{into.hex()}"):
        branch.merge()
    assert repo.outcome(branch.revision) == Outcome.COMMITTED


@pytest.mark.parametrize("arrives", [True, False], ids=["committed", "never arrived"])
@pytest.mark.parametrize("then", ["queried", "merged again", "maintained"])
def test_a_merge_in_doubt_ends_its_branch_once_it_is_known_to_be_committed(
    opened: Instances, arrives: bool, then: str
) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store, retry_timeout=0.2), opened()
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/x"))
    decides = "write_if" if store.supports_transactions else "check_and_write"
    written: list[Call] = []

    def away(call: Call) -> None:
        raise StoreUnknownError("out of reach")

    def at_the_end(call: Call) -> None:
        if call.method.startswith("write") and call.table == "nodes":
            written.append(call)
        if written and call.method == decides:
            store.before = away
            away(call)

    if arrives:
        store.after = at_the_end
    else:
        store.before = at_the_end
    with pytest.raises(CommitUnknownError) as raised:
        branch.merge()
    store.before = store.after = None
    revision = str(raised.value.revision)
    if then == "queried":
        assert repo.outcome(revision) is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    elif then == "tended":
        instance_of(repo).maintain()
        assert len(live(other)) == (0 if arrives else 1)
    if arrives:
        with pytest.raises(BranchError, match=f"merged into trunk as {revision}"):
            branch.merge()
        with pytest.raises(BranchError, match=f"merged into trunk as {revision}"):
            other.resume_branch(branch.revision)
    else:
        assert branch.merge() != revision
    assert live(other) == []
    assert tree(other).keys() == {"/", "/x"}


@pytest.mark.parametrize("then", ["goes on", "merged", "back"])
def test_a_branch_commit_with_a_lost_reply_stays_when_others_continue_on_it(opened: Instances, then: str) -> None:
    """On HBase a commit that others have reset meanwhile does not become the head again."""
    store = FaultyStore(opened.new_store())
    # The time limit must not end while the other instance goes on.
    repo, other = opened(store, retry_timeout=60), opened()
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/one"))
    before = branch.revision
    steps: list[Call] = []

    def after(call: Call) -> None:
        steps.append(call)
        if is_last_step(steps):
            # The head is moved. Another instance sees it and continues before the reply arrives.
            store.after = None
            others = other.resume_branch(live(other)[0])
            if then == "back":
                others.run(lambda tx: tx.add("/two"))
                others.reset(before)
            elif then == "merged":
                others.merge()
            else:
                others.run(lambda tx: tx.add("/two"))
            raise lost_reply(call)

    store.after = after
    if then == "back" and not store.supports_transactions:
        with pytest.raises(BranchError, match="continues at"):
            branch.run(lambda tx: tx.add("/mine"))
        other.resume_branch(live(other)[0]).merge()
        assert tree(other).keys() == {"/", "/one"}
        return
    branch.run(lambda tx: tx.add("/mine"))
    assert store.after is None
    assert repo.outcome(branch.revision) is Outcome.COMMITTED
    if then != "merged":
        other.resume_branch(live(other)[0]).merge()
    assert tree(other).keys() == {"/", "/one", "/mine"} | ({"/two"} if then == "goes on" else set())


def test_a_swept_branch_is_not_found_by_instances_that_knew_it(store: MemoryStore, world: World) -> None:
    mine, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    root = mine.branches.begin(mine.head())
    revision = commit_on_branch(mine, root, [AddNode("/x", {"p": 1})])
    assert mine.reader.require(mine.at(revision), "/x").properties == {"p": 1}
    assert other.branches.sweep(0) == [root]
    world.advance(6)
    for one in (revision, root):
        with pytest.raises(UnknownRevisionError, match="its branch has ended"):
            mine.at(one)
    with pytest.raises(UnknownRevisionError):
        mine.branches.find(revision)


def test_a_process_that_lost_its_lease_continues_branches_under_a_new_one(store: MemoryStore, world: World) -> None:
    mine = open_instance(store, world, mac=7, seed=1)
    root = mine.branches.begin(mine.head())
    first = commit_on_branch(mine, root, [AddNode("/x", {"p": 1})])

    def lose_lease() -> None:
        machine = mine.lease.machine
        world.advance(16)
        assert (
            revisions.machine_of(open_instance(store, world, mac=machine, seed=int(world.ms)).clock.next(0)) == machine
        )

    lose_lease()
    second = commit_on_branch(mine, first, [AddNode("/x/y", {})])
    lose_lease()
    assert mine.branches.begin(mine.head()) > second
    mine.branches.merge(second, "")
    assert mine.reader.node(mine.head(), "/x/y")
    assert problems(mine) == []


HOUR = 3600


def ended_branch(mine: Instance, how: str) -> tuple[int, int]:
    """Create a branch that has ended; return its first and its newest revision."""
    root = mine.branches.begin(mine.head())
    revision = commit_on_branch(mine, root, [AddNode("/mine", {"p": 1})])
    if how == "merged":
        mine.branches.merge(revision, "")
    elif how == "rebased":
        mine.commit(lambda _: OperationList([AddNode("/trunk", {})]), "", retry_timeout=1, max_poll_age=0)
        rebase(mine.branches, revision, mine.head(), "")
    else:
        mine.branches.abandon(revision)
    return root, revision


@pytest.mark.parametrize("how", ["merged", "rebased", "abandoned"])
def test_an_ended_branch_is_readable_for_an_hour_and_then_swept(store: MemoryStore, world: World, how: str) -> None:
    mine, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    going_on = other.branches.begin(other.head())
    root, revision = ended_branch(mine, how)
    world.advance(HOUR - 60)
    assert other.branches.sweep(BRANCH_RETENTION_MS) == []
    assert other.reader.require(other.at(revision), "/mine").properties == {"p": 1}
    world.advance(120)
    assert other.branches.sweep(BRANCH_RETENTION_MS) == [root]
    with pytest.raises(UnknownRevisionError):
        open_instance(store, world, mac=3).at(revision)
    assert other.branches.require_head(going_on)
    # The head of a rebased branch refers to its successor permanently.
    ended = Outcome.ABORTED if how == "abandoned" else Outcome.COMMITTED
    assert mine.outcome(revision) is other.outcome(revision) is ended
    assert problems(other) == []


LOOKS: dict[str, Callable[[Instance], object]] = {
    "at the next look": lambda other: other.branches.sweep(BRANCH_RETENTION_MS),
    "by recover()": lambda other: list(recover(other)),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("how", ["merged", "rebased", "abandoned"])
def test_a_sweep_that_was_begun_is_finished(world: World, how: str, look: Callable[[Instance], object]) -> None:
    for dies_at in range(1, 40):
        store = MemoryStore(world.clock)
        steps = Steps(store)
        mine, other = open_instance(steps, world, mac=1), open_instance(store, world, mac=2)
        root, _ = ended_branch(mine, how)
        steps.fail(dies_at, DIED)
        try:
            mine.branches.sweep(0)
        except Died:
            # Before it deletes a rebased branch, a sweep records the end of the rebase.
            before = 1 if how == "rebased" else 0
            is_begun = steps.log[-dies_at - 1 :].count("check_and_write journal") > before
            look(other)
            _, unswept = other.branches._heads._all_unswept()
            assert (root not in unswept) == is_begun
            assert problems(other) == []
            continue
        assert dies_at > 5
        break
    else:
        raise AssertionError("a sweep of so many steps")


@pytest.mark.damages("what a branch revision touched cannot be read")
def test_an_unreadable_branch_does_not_prevent_the_sweep_of_others(world: World) -> None:
    store = MemoryStore(world.clock)
    mine, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    (bad, damaged), (good, _) = (ended_branch(mine, "abandoned") for _ in range(2))
    store.write(schema.JOURNAL, [Put(schema.revision_key(damaged), [NewCell(schema.DATA, schema.CHANGES, b"\x01[[")])])
    world.advance(HOUR + 1)
    with pytest.raises(FormatError, match=revisions.to_text(damaged)):
        list(recover(other))
    _, unswept = other.branches._heads._all_unswept()
    # Readers of the damaged revision see the earlier one, so that one stays, too.
    assert unswept == {bad: [bad, damaged]}
    assert good not in unswept
    assert [problem.kind for problem in IntegrityCheck(other).run()] == ["undecodable changes"]


def test_the_memory_of_a_long_branch_does_not_grow_with_the_square_of_its_length() -> None:
    world = World()
    instance = open_instance(MemoryStore(world.clock), world)
    states = BranchCache(instance.runtime)
    own: list[int] = []
    for revision in range(1, 2001):
        own.append(revision)
        view = View(1, 0, 1)
        states.keep(revision, BranchState(1, 1, tuple(own), view, view._replace(own=frozenset(own))))
        assert states.get(revision) is not None
    assert states.ids <= LONGEST
    assert states.get(1) is None
    # A state above the limit is cached alone.
    states.keep(1, BranchState(1, 1, tuple(range(2 * LONGEST)), view, view))
    assert states.get(1) is not None
    assert states.get(2000) is None
    states.drop(1)
    assert states.ids == 0


def test_the_error_for_an_old_revision_says_where_the_branch_continues(opened: Instances) -> None:
    """A program that was killed before it stored the newest revision had to parse the message."""
    repo, other = opened(), opened()
    branch = repo.branch()
    stored = branch.revision
    branch.run(lambda tx: tx.add("/mine"))
    repo.run(lambda tx: tx.add("/theirs"))
    committed = branch.revision
    assert continuation(other, stored) == committed

    branch.rebase()
    assert continuation(other, committed) == branch.revision
    assert other.resume_branch(branch.revision).head.children("/") == ["mine", "theirs"]

    branch.merge()
    assert continuation(other, branch.revision) is None


def continuation(repo: Repository, revision: str) -> str | None:
    with pytest.raises(BranchError) as raised:
        repo.resume_branch(revision)
    return raised.value.continues_at
