"""The log of a subtree: the same entries as a scan of the journal, at the cost of what touched the subtree."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import islice
from typing import Final

import pytest

from hbasemk import Branch, ConflictError, HbasemkError, LogEntry, Repository, Transaction, UnknownRevisionError
from hbasemk.format import revisions
from hbasemk.format.changes import is_chunk
from hbasemk.kernel import log, subtree_revisions
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.log import entries
from hbasemk.repository import instance_of
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.hbase import HBase
from tests.support.repositories import Instances, instances
from tests.support.seeds import random_of_test


def _shrink(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Make all batches small, so that a small tree takes many of them."""
    monkeypatch.setattr(log, "BATCH", chance.choice((2, 5, 1000)))
    monkeypatch.setattr(log, "FIRST_BATCH", chance.choice((1, 20)))
    monkeypatch.setattr(log, "HEAD_START", chance.choice((0, 1, 4)))
    monkeypatch.setattr(subtree_revisions, "ROWS", chance.choice((1, 3, 1000)))
    monkeypatch.setattr(subtree_revisions, "VERSIONS", chance.choice((1, 2, 16)))
    monkeypatch.setattr(subtree_revisions, "PAGE", chance.choice((2, 5, 1000)))
    monkeypatch.setattr(subtree_revisions, "MOST", chance.choice((3, 20, 1000)))


def _change(chance: random.Random, repository: Repository, paths: list[str]) -> None:
    """Make one random commit; some conflict on purpose, and some are on a branch that may be merged."""
    existing = [node.path for node in repository.head.walk()]
    path = chance.choice(existing)
    name = chance.choice("abc")
    child = f"/{name}" if path == "/" else f"{path}/{name}"
    paths.append(child)
    kind = chance.choice(("add", "add", "set", "set", "remove", "move", "branch", "conflict"))
    if kind == "add" and child not in repository.head and child.count("/") < 5:
        repository.run(lambda tx: tx.add(child, {"p": 1}))
    elif kind in ("remove", "move") and path != "/":
        if kind == "remove":
            repository.run(lambda tx: tx.remove(path))
        elif (target := f"/moved{len(paths)}") not in repository.head:
            paths.append(target)
            repository.run(lambda tx: tx.move(path, target))
    elif kind == "branch":
        branch = repository.branch()
        branch.run(lambda tx: tx.set(path, "b", len(paths)))
        if chance.random() < 0.5:
            branch.merge()
    elif kind == "conflict":
        base = repository.head
        repository.run(lambda tx: tx.set(path, "q", len(paths)))
        with suppress(ConflictError), repository.transaction(base=base) as tx:
            tx.set(path, "q", -1)
    else:
        repository.run(lambda tx: tx.set(path, "p", len(paths)))


def _compare(monkeypatch: pytest.MonkeyPatch, opened: Instances, changes: int) -> None:
    chance = random_of_test()
    writer, reader = opened(), opened()
    paths = ["/", "/never", "/never/there"]
    for _ in range(changes):
        with suppress(HbasemkError):
            _change(chance, writer, paths)
    whole = list(reader.log())
    for path in chance.sample(sorted(set(paths)), min(len(set(paths)), 25)):
        _shrink(monkeypatch, chance)
        expected = [entry for entry in whole if path == "/" or entry.touches(path)]
        assert list(reader.log(path)) == expected, path
        until = chance.choice(whole)
        later = whole.index(until)
        with suppress(UnknownRevisionError):
            assert list(reader.log(path, until.revision)) == [entry for entry in expected if entry in whole[later:]], (
                path
            )


def test_the_log_of_a_path_is_the_whole_log_without_the_revisions_that_did_not_touch_it(
    monkeypatch: pytest.MonkeyPatch, opened: Instances
) -> None:
    _compare(monkeypatch, opened, 120)


@pytest.mark.integration
def test_the_log_of_a_path_on_hbase(monkeypatch: pytest.MonkeyPatch, hbase: HBase) -> None:
    prefix = hbase.prefix_with_tables()
    with instances(lambda: HBaseStore([Address(hbase.host, hbase.thrift2)], prefix=prefix)) as opened:
        _compare(monkeypatch, opened, 60)


@pytest.fixture
def long(opened: Instances) -> tuple[CountingStore, Repository]:
    """An instance on a repository with hundreds of commits to ``/hot``, which began after those to ``/cold``."""
    store = CountingStore(opened.new_store())
    repository = opened(store)
    with repository.transaction() as tx:
        for top in ("/cold", "/hot"):
            tx.add(top)
            for number in range(20):
                tx.add(f"{top}/{number}", {"v": 0})
                tx.add(f"{top}/{number}/leaf", {"v": 0})
    repository.run(lambda tx: tx.set("/cold/3/leaf", "v", 1), "leaf")
    repository.run(lambda tx: tx.set("/cold/3", "v", 1), "node")
    for number in range(400):
        repository.run(lambda tx, number=number: tx.set("/hot/1/leaf", "v", number))
    repository.refresh()
    store.take()
    store.traffic()
    return store, repository


COSTS: Final[dict[str, tuple[list[str], int, int]]] = {
    "/never/there": ([], 1, 0),
    "/cold/3/leaf": (["leaf", ""], 3, 3),
    "/cold/3": (["node", "leaf", ""], 4, 5),
    "/cold": (["node", "leaf", ""], 5, 44),
}
"""The messages in the log of each path, and how many calls and rows it may take besides the poll."""


def test_the_log_of_a_path_costs_what_touched_it_and_not_the_journal(long: tuple[CountingStore, Repository]) -> None:
    store, repository = long
    for path, (messages, calls, rows) in COSTS.items():
        assert [entry.message for entry in repository.log(path)] == messages
        made = store.take()
        traffic = store.traffic()
        made.pop(("arrivals", "journal"), 0)
        if made.pop(("scan", "cluster"), 0):
            # The poll reads one log.
            rows += 1
        assert sum(made.values()) <= calls, (path, made)
        assert traffic.rows_read <= rows, path


def test_the_newest_entries_of_a_hot_path_take_few_calls(long: tuple[CountingStore, Repository]) -> None:
    store, repository = long
    newest = [entry.revision for entry in islice(repository.log(), 3)]
    store.take()
    assert [entry.revision for entry in islice(repository.log("/hot"), 3)] == newest
    assert sum(store.take().values()) <= 8


def test_the_first_revision_touches_the_root_that_it_creates(opened: Instances) -> None:
    one = opened()
    one.run(lambda tx: tx.add("/a"))
    touched = [(entry.base is None, entry.touches("/"), entry.touches("/a")) for entry in one.log()]
    assert touched == [(False, True, True), (True, True, False)]
    branch = one.branch()
    (begin,) = entries(instance_of(one), [revisions.from_text(branch.revision)])
    assert not begin.touches("/")


def test_the_log_of_a_path_contains_large_commits_whole(opened: Instances) -> None:
    repository = opened()
    chance = random.Random(1)
    names = [f"/a/{chance.randbytes(20).hex()}" for _ in range(3000)]
    repository.run(lambda tx: [tx.add("/a"), *(tx.add(name) for name in names)])
    (row,) = journal_rows(instance_of(repository).store, [instance_of(repository).head().revision])
    assert sum(is_chunk(cell.qualifier) for cell in row.cells) > 1
    for path in ("/a", names[0]):
        (entry,) = repository.log(path)
        assert {change.path for change in entry.changes} == {"/", "/a", *names}


def test_the_log_of_a_branch_is_its_own_revisions_and_then_the_log_of_its_view_of_trunk(opened: Instances) -> None:
    chance = random_of_test()
    writer, reader = opened(), opened()
    branches: list[tuple[Branch, list[tuple[str, str]], list[LogEntry]]] = []
    for number in range(60):
        path = f"/{number}"
        writer.run(lambda tx, path=path: tx.add(path, {"p": 0}))
        if number % 10 == 3:
            # Another instance may see these revisions in another order.
            opener = chance.choice((writer, reader))
            opener.refresh()
            branches.append((opener.branch(), [], list(opener.log())))
        for branch, own, _ in branches:
            if chance.random() < 0.3:
                changed = chance.choice((path, f"/{chance.randrange(4)}", f"/own{number}"))
                branch.run(lambda tx, changed=changed: _set_or_add(tx, changed))
                own.append((branch.revision, changed))
    for _, own, trunk in branches:
        for repository in (writer, reader, opened()):
            for kept in {0, len(own) // 2, len(own)} - {0}:
                until = own[kept - 1][0]
                entries = list(repository.log(until=until))
                assert [one.revision for one in entries[:kept]] == [one for one, _ in reversed(own[:kept])]
                assert entries[kept:] == trunk
                for path in ("/0", "/3", "/7", "/never", *(changed for _, changed in own)):
                    expected = [one for one in entries if one.touches(path)]
                    assert list(repository.log(path, until)) == expected


def _set_or_add(tx: Transaction, path: str) -> None:
    if tx.exists(path):
        tx.set(path, "q", 1)
    else:
        tx.add(path)


def test_the_log_of_a_branch_leaves_out_revisions_without_changes(opened: Instances) -> None:
    repository = opened()
    repository.run(lambda tx: tx.add("/a"), "trunk")
    branch = repository.branch("the branch")
    first = branch.revision
    assert [one.message for one in repository.log("/a", first)] == ["trunk"]
    assert list(repository.log(until=first)) == list(repository.log())
    branch.run(lambda tx: tx.set("/a", "n", 1), "changed")
    assert [one.message for one in repository.log("/a", branch.revision)] == ["changed", "trunk"]
    repository.run(lambda tx: tx.add("/b"), "after")
    assert branch.rebase() == []
    assert [one.message for one in repository.log(until=branch.revision)][:3] == ["the branch", "after", "trunk"]
    branch.merge("merged")
    # The revisions of an ended branch stay readable for an hour.
    assert [one.message for one in repository.log(until=branch.revision)][:3] == ["the branch", "after", "trunk"]
    assert next(repository.log()).message == "merged"


def test_the_log_of_an_unknown_branch_revision_is_an_error(opened: Instances) -> None:
    repository = opened()
    branch = repository.branch()
    unknown = f"{int(branch.revision, 16) + 0x100:016x}"
    for path in ("/", "/never"):
        with pytest.raises(UnknownRevisionError, match=unknown):
            next(repository.log(path, unknown))


def test_the_log_of_a_long_branch_reads_few_rows_at_once(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    repository = opened(store)
    branch = repository.branch()
    for number in range(300):
        branch.run(lambda tx, number=number: tx.set("/", "n", number))
    repository.refresh()
    store.take()
    store.traffic()
    assert next(repository.log("/", branch.revision)).revision == branch.revision
    assert store.traffic().rows_read < 300
    assert len(list(repository.log("/", branch.revision))) == 301


def test_changes_are_in_the_order_of_their_paths_on_each_store(opened: Instances) -> None:
    repo, reader = opened(), opened(poll_interval=0)
    before = reader.head
    repo.run(lambda tx: (tx.add("/b"), tx.add("/a"), tx.add("/a/x"), tx.set("/", "n", 1), tx.add("/a-b")))
    expected = ["/", "/a", "/a-b", "/a/x", "/b"]
    (entry,) = islice(repo.log(), 1)
    assert [change.path for change in entry.changes] == expected
    (entry,) = reader.watch(timeout=0, since=before)
    assert [change.path for change in entry.changes] == expected
