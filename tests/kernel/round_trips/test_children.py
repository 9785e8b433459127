"""The number of round trips of lists and counts of children."""

from __future__ import annotations

import pytest

from hbasemk import Repository
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading import reader
from hbasemk.repository import instance_of
from tests.support.round_trips import POLL, READ, Counted, fresh


def test_pages_of_children_read_all_names_after_some_time(counted: Counted) -> None:
    repository = counted.repository
    repository.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number:04}") for number in range(3_000))])
    other = fresh(counted)
    read = 0
    for number in range(40):
        after = f"{number * 7919 % 2_900:04}"
        page = other.head.children("/w", after, 100)
        assert page == [f"{one:04}" for one in range(int(after) + 1, int(after) + 101)]
        read += sum(counted.store.take().values())
    assert read == 26
    other.close()


@pytest.mark.parametrize(("where", "extra"), [("branch", 0), ("no cache", 3_000)])
def test_pages_that_no_cache_keeps_rarely_read_all_names(counted: Counted, where: str, extra: int) -> None:
    counted.repository.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number:04}") for number in range(3_000))])
    with Repository(
        counted.store, poll_interval=0, owns_store=False, cache_bytes=0 if where == "no cache" else 1 << 26
    ) as other:
        snapshot = other.branch().head if where == "branch" else other.head
        counted.store.traffic()
        for number in range(100):
            after = f"{number * 7919 % 2_900:04}"
            assert len(snapshot.children("/w", after, 100)) == 100
        # Each page reads the node and one name more than it returns.
        assert counted.store.traffic("journal", "cluster").cells_read <= 100 * 103 + extra


def test_a_page_of_a_known_node_reads_only_names(counted: Counted) -> None:
    other = fresh(counted)
    for known, cells in ((False, 5), (True, 4)):
        if known:
            assert other.head["/a"] is not None
        counted.store.take()
        counted.store.traffic()
        assert other.head.children("/a", "15", 3) == ["16", "17", "18"]
        assert counted.store.take() == {READ: 1}
        traffic = counted.store.traffic()
        assert (traffic.rows_read, traffic.cells_read) == (1 if known else 2, cells)
    counted.repository.run(lambda tx: tx.remove("/a"))
    assert "/a" not in other.refresh()
    counted.store.take()
    assert instance_of(other).children(instance_of(other).head(), "/a", "15", 3) == []
    assert counted.store.take() == {}
    other.close()


def test_a_page_in_a_transaction_reads_only_its_names(counted: Counted) -> None:
    other = fresh(counted)
    with other.transaction() as tx:
        tx.remove("/a/10")
        tx.remove("/a/16")
        tx.add("/a/170")
        assert tx.children("/a", "17", 0) == []
        counted.store.take()
        counted.store.traffic()
        assert tx.children("/a", "15", 3) == ["17", "170", "18"]
        assert counted.store.take() == {READ: 1}
        # The names after 15, and one more for each that was removed there; the last one shows that there are more.
        assert counted.store.traffic().cells_read == 5
    other.close()


@pytest.mark.parametrize("limit", [None, 10, 0])
def test_names_of_many_wide_nodes_are_read_in_bounded_calls(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    counted.repository.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number:02}") for number in range(45))])
    widths = {f"/w/{number:02}": 30 if number % 3 else number for number in range(45)}
    counted.repository.run(
        lambda tx: [tx.add(f"{path}/{one:02}") for path, width in widths.items() for one in range(width)]
    )
    monkeypatch.setattr(reader, "NAMES", 200)
    other = fresh(counted)
    instance = instance_of(other)
    states = [state for state in instance.nodes(instance.head(), list(widths)).values() if state]
    counted.store.take()
    counted.store.traffic()
    found = instance.children_of(instance.head(), states, limit)
    cells, calls = counted.store.traffic().cells_read, counted.store.take()[READ]
    # Each call but the last ones reads nearly as much as it may.
    assert cells / 200 <= calls <= cells / 200 + 3
    assert {path: names.names for path, names in found.items()} == {
        path: [f"{one:02}" for one in range(width)] for path, width in widths.items()
    }
    assert all(names.whole for names in found.values())
    other.close()


def test_children_are_one_call(counted: Counted) -> None:
    other = fresh(counted)
    assert len(other.head.children("/a")) == 20
    assert counted.store.take() == {READ: 1}
    assert len(other.head.children("/a")) == 20
    assert other.head.children("/a", "15", 2) == ["16", "17"]
    assert counted.store.take() == {}
    other.close()


def test_counting_few_children_is_one_call_besides_the_node(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head.child_count("/a") == 20
    assert counted.store.take() == {READ: 2}
    assert other.head.child_count("/a") == 20
    assert counted.store.take() == {}
    other.close()


@pytest.mark.parametrize("children", [1_500, 6_000])
def test_counting_many_children_takes_a_constant_number_of_calls(counted: Counted, children: int) -> None:
    repo = counted.repository
    repo.run(lambda tx: [tx.add(f"/a/20/{number}") for number in range(children)] if tx.add("/a/20") is None else None)
    counted.store.take()
    # The first count reads a page to see that they are many, looks for a memo, reads all, and writes a memo.
    assert repo.head.child_count("/a/20") == children
    assert counted.store.take() == {READ: 2, ("read", "cluster"): 1, ("write", "cluster"): 1}
    # The same process reads nothing unless the node changes; then it reads the written columns.
    repo.run(lambda tx: tx.set("/a/1", "n", 1))
    counted.store.take()
    assert repo.head.child_count("/a/20") == children
    assert counted.store.take() == {}
    repo.run(lambda tx: [tx.remove("/a/20/7"), tx.add("/a/20/new")])
    repo.run(lambda tx: tx.add("/a/20/another"))
    counted.store.take()
    assert repo.head.child_count("/a/20") == children + 1
    assert counted.store.take() == {READ: 1}
    # Another process reads the node, a page, the memo, the changes since it, and those columns. A poll shows that the memo
    # is not newer than the journal.
    other = fresh(counted)
    assert other.head.child_count("/a/20") == children + 1
    calls = counted.store.take()
    assert calls.pop(POLL, 0) <= 1
    assert calls.pop(("read", "journal"), 0) <= 1
    assert calls.pop(READ) <= 4
    assert calls == {("read", "cluster"): 1}
    assert other.head.child_count("/a/20") == children + 1
    assert counted.store.take() == {}
    other.close()


def test_counts_on_a_branch_read_what_has_changed(counted: Counted) -> None:
    repo = counted.repository
    repo.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number}") for number in range(3_000))])
    with repo.branch() as branch:
        assert branch.head.child_count("/w") == 3_000
        for number in range(3):
            branch.run(lambda tx, number=number: [tx.add(f"/w/new{number}"), tx.remove(f"/w/{number}")])
            branch.run(lambda tx, number=number: tx.add(f"/w/more{number}"))
            head = branch.head
            assert head["/w"] is not None
            counted.store.take()
            counted.store.traffic()
            assert head.child_count("/w") == 3_001 + number
            # The node, the two rows of the journal, the columns in both snapshots, and the heads of the branch.
            assert counted.store.traffic("journal", "cluster").cells_read <= 20
            assert sum(counted.store.take().values()) <= 6
    counted.store.take()


def test_counts_by_time_read_what_has_changed(counted: Counted) -> None:
    repo = counted.repository
    repo.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number}") for number in range(3_000))])
    instance = instance_of(repo)
    reads = []
    for number in range(3):
        repo.run(lambda tx, number=number: tx.add(f"/w/new{number}"))
        head = instance.head()
        # As of a checkpoint, or by time.
        view = View.of(head.revision, instance.journal.contents(head), head.upper)
        state = instance.require(view, "/w")
        counted.store.traffic()
        assert instance.child_count(view, state) == 3_001 + number
        reads.append(counted.store.traffic("journal", "cluster").cells_read)
    assert reads[0] > 3_000
    assert max(reads[1:]) <= 2


def test_a_short_list_passes_many_removed_children_in_few_calls(counted: Counted) -> None:
    repo = counted.repository
    repo.run(lambda tx: tx.add("/a/20"))
    repo.run(lambda tx: [tx.add(f"/a/20/{number:04}") for number in range(2_000)] and None)
    repo.run(lambda tx: [tx.remove(f"/a/20/{number:04}") for number in range(1_990)] and None)
    other = fresh(counted)
    assert other.head.children("/a/20", limit=1) == ["1990"]
    # Pages of 2, 9, 65, 513 and 4,097 columns.
    assert counted.store.take() == {READ: 5}
    other.close()
    third = fresh(counted)
    transaction = third.transaction()
    counted.store.take()
    assert transaction.children("/a/20", "0100", 2) == ["1990", "1991"]
    # The node, and pages of 3, 17, 129, 1,025 and 8,193 columns.
    assert counted.store.take() == {READ: 6}
    third.close()


def test_a_few_removed_children_cost_few_columns(counted: Counted) -> None:
    repo = counted.repository
    repo.run(lambda tx: tx.add("/a/20"))
    repo.run(lambda tx: [tx.add(f"/a/20/{number:04}") for number in range(2_000)] and None)
    repo.run(lambda tx: [tx.remove(f"/a/20/{number:04}") for number in (7, 300)] and None)
    other = fresh(counted)
    counted.store.traffic()
    assert len(other.head.children("/a/20", limit=1_000)) == 1_000
    # A page of 1,001 columns, the life of the node, and 8 columns and one more for each name that is missing.
    assert counted.store.take() == {READ: 2}
    assert counted.store.traffic().cells_read < 1_030
    other.close()
