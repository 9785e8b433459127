"""The number of round trips of reads of nodes and subtrees."""

from __future__ import annotations

from tests.support.round_trips import READ, Counted, fresh


def test_reading_an_uncached_node_is_one_call(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {READ: 1}
    other.close()


def test_reading_a_cached_node_at_head_is_no_call(counted: Counted) -> None:
    other = fresh(counted)
    for _ in range(100):
        assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {READ: 1}
    other.close()


def test_a_node_stays_cached_until_a_revision_touches_it(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head["/a/3"]["n"] == 3
    counted.repository.run(lambda tx: tx.set("/a/4", "n", 0))
    other.refresh()
    counted.store.take()
    assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {}
    counted.repository.run(lambda tx: tx.set("/a/3", "n", "new"))
    other.refresh()
    counted.store.take()
    assert other.head["/a/3"]["n"] == "new"
    assert counted.store.take() == {READ: 1}
    other.close()


def test_nodes_that_an_instance_commits_stay_in_its_cache(counted: Counted) -> None:
    counted.repository.run(lambda tx: tx.set("/a/3", "n", "own"))
    counted.store.take()
    assert counted.repository.head["/a/3"]["n"] == "own"
    assert counted.store.take() == {}


def test_many_nodes_at_once_are_one_call_a_batch(counted: Counted) -> None:
    other = fresh(counted)
    found = other.head.nodes([f"/a/{number}" for number in range(20)])
    assert len(found) == 20
    assert counted.store.take() == {READ: 1}
    other.close()


def test_a_subtree_is_one_call_a_level(counted: Counted) -> None:
    other = fresh(counted)
    assert len(list(other.head.walk("/a"))) == 41
    # Two levels, and one read that finds no third. HBase reads two levels at a time, so it also requests the next one.
    looks = 4 if counted.store.supports_parallel_calls else 3
    assert counted.store.take() == {READ: 1, ("scan", "nodes"): looks}
    other.close()
    other = fresh(counted)
    assert len(list(other.head.walk("/a", depth=1))) == 21
    assert counted.store.take() == {READ: 1, ("scan", "nodes"): 1}
    other.close()


def test_a_subtree_again_is_no_call_and_reads_only_what_has_changed(counted: Counted) -> None:
    other = fresh(counted)
    assert len(list(other.head.walk("/a"))) == 41
    old = other.head
    counted.store.take()
    for depth, nodes in ((None, 41), (1, 21)):
        assert len(list(other.head.walk("/a", depth))) == nodes
        assert other.head.children("/a") == sorted(map(str, range(20)))
        assert counted.store.take() == {}
    counted.repository.run(lambda tx: (tx.set("/a/3", "n", 4), tx.set("/a/4/x", "n", 5)))
    other.refresh()
    counted.store.take()
    assert sum(node.get("n") == 4 for node in other.head.walk("/a")) == 2
    # One call for a level with a changed node.
    assert counted.store.take() == {READ: 2}
    counted.repository.run(lambda tx: tx.add("/a/new", {"n": 4}))
    other.refresh()
    counted.store.take()
    assert sum(node.get("n") == 4 for node in other.head.walk("/a")) == 3
    assert sum(counted.store.take().values()) <= 5
    assert len(list(other.head.walk("/a"))) == 42
    assert counted.store.take() == {}
    assert len(list(old.walk("/a"))) == 41
    counted.store.take()
    assert len(list(old.walk("/a"))) == 41
    assert counted.store.take() == {}, "a held snapshot is cached as well"
    other.close()


def test_a_snapshot_at_an_old_revision_is_cached(counted: Counted) -> None:
    revision = counted.repository.head.revision
    for number in range(3):
        counted.repository.run(lambda tx, number=number: tx.set("/a/3", "n", -number))
    for repository in (counted.repository, fresh(counted)):
        held = repository.at(revision)
        counted.store.take()
        assert held["/a/3"]["n"] == 3
        assert sum(counted.store.take().values()) <= 2  # the newest version of a column is not visible
        for _ in range(2):
            assert held["/a/3"]["n"] == 3
            assert repository.at(revision)["/a/3"]["n"] == 3
            assert repository.head["/a/3"]["n"] == -2
        assert held.children("/a") == repository.at(revision).children("/a")
        assert counted.store.take()[READ] <= 2
        if repository is not counted.repository:
            repository.close()


def test_reading_the_newest_of_many_versions_stays_one_call(counted: Counted) -> None:
    for number in range(300):
        counted.repository.run(lambda tx, number=number: tx.set("/a", "n", number))
    other = fresh(counted)
    assert other.head["/a"]["n"] == 299
    assert counted.store.take() == {READ: 1}
    other.close()
