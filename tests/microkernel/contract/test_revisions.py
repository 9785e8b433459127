"""The contract of the MicroKernel interface: revisions, the journal and diffs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from hbasemk import StoreNotAppliedError
from hbasemk.format import revisions
from hbasemk.kernel import diff as kernel_diff
from hbasemk.kernel.instance import Instance
from hbasemk.repository import instance_of
from tests.support.microkernel import Cluster, nodes


def test_the_revision_history_is_listed_oldest_first(mk: Cluster) -> None:
    begin = mk.commit("", '+"/h":{"a":{},"b":{}}', None, "begin")
    revisions = [mk.commit("/h/a", f'^"p":{number}', None, f"commit {number}") for number in range(5)]
    other = mk.commit("/h/b", '^"p":1', None, "other")
    everything = json.loads(mk.get_revision_history(0, -1))  # type: ignore[arg-type]
    assert [entry["id"] for entry in everything][-7:] == [begin, *revisions, other]
    assert len(json.loads(mk.get_revision_history(0, 1))) == 1  # type: ignore[arg-type]
    since = next(entry["ts"] for entry in everything if entry["id"] == revisions[2])
    recent = json.loads(mk.get_revision_history(since, -1, "/h/a"))  # type: ignore[arg-type]
    assert recent[-1] == {"id": revisions[4], "ts": recent[-1]["ts"], "msg": "commit 4"}
    assert all(entry["ts"] >= since for entry in recent)
    assert [entry["id"] for entry in json.loads(mk.get_revision_history(0, -1, "/h/b"))] == [begin, other]  # type: ignore[arg-type]
    assert mk.get_revision_history(0, -1, "/blah") == "[]"
    assert mk.get_revision_history(10**15, -1) == "[]"


def test_the_journal_lists_changes_between_two_revisions(mk: Cluster) -> None:
    first = mk.commit("", '+"/j":{"a":{},"b":{}}', None, "first")
    second = mk.commit("", '^"/j/a/p":123', None, "second")
    third = mk.commit("", '^"/j/b/p":456', None, "third")
    entries = json.loads(mk.get_journal(first, third))  # type: ignore[arg-type]
    assert [(entry["id"], entry["msg"]) for entry in entries] == [
        (first, "first"),
        (second, "second"),
        (third, "third"),
    ]
    assert entries[1]["changes"] == '^"/j/a/p":123\n' or entries[1]["changes"].strip() == '^"/j/a/p":123'
    limited = json.loads(mk.get_journal(first, None, "/j/b"))  # type: ignore[arg-type]
    assert [entry["id"] for entry in limited] == [first, third]
    assert "123" not in "".join(entry["changes"] for entry in limited)
    assert mk.get_journal(third, first) == "[]"
    assert mk.get_journal(second, None, "/blah") == "[]"


def test_diff_goes_both_ways_and_applies(mk: Cluster) -> None:
    one = mk.commit("", '+"/d":{"p":1,"q":[1],"x":{"y":{"z":1}},"gone":{}}')
    two = mk.commit("", '^"/d/p":1.10 ^"/d/q":null -"/d/gone" +"/d/new":{"k":"v","s":{}} >"/d/x":"/d/moved"')
    forward, back = str(mk.diff(one, two)), str(mk.diff(two, one))
    assert mk.diff(one, one) == ""
    first, second = nodes(mk, "/", one), nodes(mk, "/", two)
    third = mk.commit("", back)
    assert nodes(mk, "/", str(third)) == first
    fourth = mk.commit("", forward)
    assert nodes(mk, "/", str(fourth)) == second
    assert mk.diff(two, fourth) == ""
    assert mk.diff(one, two, "/blah") == ""
    assert '"/d/new"' in str(mk.diff(one, two, "/d/new"))
    assert "moved" not in str(mk.diff(one, two, "/d/new"))


def test_a_name_may_change_from_property_to_child_and_back(mk: Cluster) -> None:
    one = mk.commit("", '+"/k":{"a":1,"b":{}}')
    two = mk.commit("", '^"/k/a":null -"/k/b" +"/k/a":{} ^"/k/b":1')
    mk.commit("", str(mk.diff(two, one)))
    assert nodes(mk, "/k") == nodes(mk, "/k", one)


def test_a_diff_of_a_node_that_takes_the_name_of_a_property_applies(mk: Cluster) -> None:
    """It only added the node, so a commit on the first revision failed."""
    one = str(mk.commit("", '+"/k":{"a":1}'))
    two = str(mk.commit("", '^"/k/a":null +"/k/a":{"b":{}} ^"/k/c":1'))
    (entry,) = json.loads(mk.get_journal(two, two, "/k/a"))  # type: ignore[arg-type]
    for text in (str(mk.diff(one, two, "/k/a")), str(mk.diff(one, two, "/k/a", 1)), entry["changes"]):
        applied = str(mk.commit("", text, mk.branch(one)))
        assert mk.diff(applied, two, "/k/a") == ""
        assert mk.diff(applied, two) == '^"/k/c":1'
    assert mk.diff(one, two, "/k/a", 0) == '^"/k/a":null\n+"/k/a":{}'
    assert mk.diff(two, one, "/k/a") == '-"/k/a"'


def test_diff_stops_at_the_depth_and_marks_deeper_changes(mk: Cluster) -> None:
    base = mk.commit("/test", '+"foo":{}')
    mk.commit("/test/foo", '+"bar":{"p1":123}')
    head = mk.commit("/test/foo/bar", '^"p1":456')
    assert mk.diff(base, head, "/", 99) == mk.diff(base, head, "/", -1)
    assert "456" in str(mk.diff(base, head, "/", 5))
    assert str(mk.diff(base, head, "/", 0)).strip() == '^"/test":{}'
    assert str(mk.diff(base, head, "/", 1)).strip() == '^"/test/foo":{}'
    assert "bar" in str(mk.diff(base, head, "/", 2))


def test_diff_from_the_journal_equals_the_walk_over_the_trees(mk: Cluster) -> None:
    texts = (
        '+"/w":{"a":{"b":{"c":{}}}}',
        '^"/w/a/p":1 +"/w/x":{}',
        '-"/w/a/b"',
        '>"/w/a":"/w/x/a"',
        '+"/w/a":{"b":{}} ^"/w/x/a/p":null',
        '-"/w"',
        '+"/w":{"a":{}}',
    )
    ids = [mk.get_head_revision(), *(mk.commit("", text) for text in texts)]
    instance = instance_of(mk.next.repository)

    def listed(found: Iterable[kernel_diff.NodeChange]) -> list[tuple[Any, ...]]:
        return [(c.path, c.before and c.before.encoded, c.after and c.after.encoded) for c in found]

    for one in ids:
        for other in ids:
            before, after = (instance.at(revisions.from_text(str(text))) for text in (one, other))
            walked = listed(kernel_diff.walk(instance, before, after))
            assert listed(kernel_diff.diff(instance, before, after)) == walked


def test_waiting_ends_when_the_head_has_moved(mk: Cluster) -> None:
    old = mk.get_head_revision()
    new = mk.commit("", '+"/moved":{}')
    assert mk.wait_for_commit(old, 60_000) == new
    assert mk.wait_for_commit(new, 1) == new
    assert mk.wait_for_commit(new, 0) == new
    assert mk.wait_for_commit(None, 600_000) == new
    branch = mk.branch()
    mk.commit("", '+"/private":{}', branch)
    assert mk.wait_for_commit(new, 1) == new


def test_a_checkpoint_is_the_head_and_is_remembered(mk: Cluster) -> None:
    head = mk.get_head_revision()
    assert mk.checkpoint(60_000) == head
    mk.commit("", '-"/test"')
    assert mk.node_exists("/test", head)
    with pytest.raises(ValueError, match="lifetime_ms must be positive"):
        mk.checkpoint(0)


def test_waiting_beside_the_present_head_does_not_ask_the_store(mk: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent store delayed the end of the wait by the whole retry timeout."""
    head = mk.commit("", '+"/waited":{}')

    def silent(*_: object) -> None:
        raise StoreNotAppliedError("the store does not answer")

    monkeypatch.setattr(Instance, "at", silent)
    assert mk.wait_for_commit(head, 1) == head
