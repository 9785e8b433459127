"""The node cache never shows one snapshot what belongs to another."""

from __future__ import annotations

from tests.support.repositories import Instances


def test_what_was_read_at_an_old_revision_is_not_shown_at_head(opened: Instances) -> None:
    first = opened()
    first.run(lambda tx: tx.add("/a", {"n": 1}))
    old = first.head.revision
    first.run(lambda tx: tx.set("/a", "n", 2))
    for repo in (first, opened()):
        assert repo.at(old)["/a"]["n"] == 1
        assert repo.head["/a"]["n"] == 2
        assert repo.at(old)["/a"]["n"] == 1


def test_an_absent_node_is_remembered_until_it_is_added(opened: Instances) -> None:
    one, two = opened(), opened()
    assert "/a" not in two.head
    one.run(lambda tx: tx.add("/a"))
    assert "/a" not in two.head
    assert "/a" in two.refresh()


def test_a_small_cache_forgets_but_never_errs(opened: Instances) -> None:
    one, two = opened(cache_entries=4), opened(cache_entries=4)
    one.run(lambda tx: [tx.add(f"/n{number}", {"v": 0}) for number in range(20)])
    revisions = []
    for turn in range(1, 6):
        writer = (one, two)[turn % 2]
        writer.refresh()
        for number in range(20):
            writer.run(lambda tx, number=number, turn=turn: tx.set(f"/n{number}", "v", turn))
        revisions.append(writer.head.revision)
    for repo in (one, two, opened(cache_entries=4)):
        repo.refresh()
        for turn, revision in enumerate(revisions, 1):
            assert [repo.at(revision)[f"/n{number}"]["v"] for number in range(20)] == [turn] * 20
        assert [repo.head[f"/n{number}"]["v"] for number in range(20)] == [5] * 20
