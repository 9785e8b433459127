"""Claims on a store with parallel calls: a rebase makes its claim together with its new branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hbasemk import Branch, BranchError, Repository
from hbasemk.errors import StoreUnusableError
from hbasemk.format import journal_row, paths, schema
from hbasemk.store.abc import ALL_VERSIONS, CheckAndWrite, Get, Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import problems


class RefusingStore(FaultyStore):
    """Refuses to begin branches while ``refuses`` is True."""

    refuses = False

    def check_and_write_then_read(self, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        if self.refuses and check.column == schema.COMMITTED:
            raise StoreUnusableError("the test refuses new branches")
        return super().check_and_write_then_read(check, table, get)


class TwoUsers:
    """A branch of one process, in which it has set ``/a`` ``p`` to 1, and which another process can merge."""

    def __init__(self) -> None:
        shared = MemoryStore(parallel=True)
        self.store = RefusingStore(shared)
        self.one = Repository(self.store, poll_interval=0)
        self.two = Repository(shared, poll_interval=0, owns_store=False)
        self.one.run(lambda tx: tx.add("/a", {"p": 0}))
        self.branch = self.one.branch()
        self.branch.run(lambda tx: tx.set("/a", "p", 1))
        self.adopted = self.two.resume_branch(self.branch.revision)

    def once_before(self, method: str, table: str, do: Callable[[], object]) -> None:
        """Call ``do`` before the next call of the first process with this method and table."""

        def before(call: Call) -> None:
            if (call.method, call.table) == (method, table):
                self.store.before = None
                do()

        self.store.before = before

    def open_heads(self) -> list[journal_row.JournalRow]:
        """Return the first rows of branches that have not ended, also of new branches of rebases."""
        rows = self.store.scan(schema.JOURNAL, Scan(None, None, 1000))
        return [row for row in journal_row.decode(rows) if row.branch_head is not None and not row.branch_head.how]


@pytest.fixture
def users() -> Iterator[TwoUsers]:
    users = TwoUsers()
    yield users
    assert problems(users.two) == []
    users.two.close()
    users.one.close()


def rebase_fails(branch: Branch, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        branch.rebase()


def test_a_rebase_whose_new_branch_is_refused_can_be_made_again(users: TwoUsers) -> None:
    users.one.run(lambda tx: tx.add("/b"))
    users.store.refuses = True
    rebase_fails(users.branch, StoreUnusableError, "refuses new branches")
    # Its claim stays, and is replaced.
    (row,) = users.open_heads()
    assert row.branch_claim is not None
    users.store.refuses = False
    assert users.branch.rebase() == []
    assert len(users.open_heads()) == 1
    users.branch.merge()
    assert users.open_heads() == []
    assert dict(users.two.refresh()["/a"]) == {"p": 1}


def test_a_rebase_of_a_branch_that_is_being_merged_abandons_its_new_branch(users: TwoUsers) -> None:
    users.one.run(lambda tx: tx.add("/b"))
    users.once_before("check_and_write", schema.JOURNAL, users.adopted.merge)
    rebase_fails(users.branch, BranchError, "has been merged into trunk")
    assert users.open_heads() == []
    assert users.one.branches() == []


def test_a_merge_that_loses_its_claim_leaves_no_cells(users: TwoUsers) -> None:
    before = users.one.head.revision
    users.once_before("check_and_write", schema.CLUSTER, users.adopted.merge)
    with pytest.raises(BranchError, match="has been merged into trunk"):
        users.branch.merge()
    merged = users.two.refresh()
    assert dict(merged["/a"]) == {"p": 1}
    assert merged.revision == users.adopted.merged
    (row,) = users.store.read(schema.NODES, [Get(paths.key("/a"), versions=ALL_VERSIONS)])
    versions = {cell.timestamp for cell in row.cells if cell[:2] == schema.property_column("p")}
    assert versions == {int(revision, 16) for revision in (before, users.branch.revision, merged.revision)}
