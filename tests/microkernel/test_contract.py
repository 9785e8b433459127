"""The contract of the MicroKernel interface."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest

from hbasemk import (
    BlobNotFoundError,
    BranchError,
    ConflictError,
    HbasemkError,
    InvalidChangeError,
    JsopError,
    NodeExistsError,
    NodeNotFoundError,
    UnknownRevisionError,
)
from hbasemk.format import revisions
from hbasemk.kernel import diff as kernel_diff
from hbasemk.repository import instance_of
from tests.microkernel.conftest import Cluster


def nodes(mk: Cluster, path: str, revision_id: str | None = None, depth: int = 99, **more: Any) -> Any:
    text = mk.get_nodes(path, revision_id, depth, **more)
    return None if text is None else json.loads(text)  # type: ignore[arg-type]


def names(found: dict[str, Any]) -> list[str]:
    return [name for name, value in found.items() if isinstance(value, dict)]


# --- reading ---------------------------------------------------------------------------------------------


def test_get_nodes_shows_properties_counts_and_empty_children_at_the_depth(mk: Cluster) -> None:
    mk.commit("", '+"/r":{"d":0,"a":{"d":1,"b":{"d":2,"c":{}}}}')
    assert nodes(mk, "/r", depth=0) == {"d": 0, "a": {}, ":childNodeCount": 1}
    one = {"d": 0, ":childNodeCount": 1, "a": {"d": 1, ":childNodeCount": 1, "b": {}}}
    assert nodes(mk, "/r", depth=1) == one
    assert nodes(mk, "/r", depth=2)["a"]["b"] == {"d": 2, ":childNodeCount": 1, "c": {}}
    assert nodes(mk, "/r")["a"]["b"]["c"] == {":childNodeCount": 0}
    assert json.loads(mk.get_nodes("/r")) == one  # type: ignore[arg-type]
    assert nodes(mk, "/r", depth=-1) == {"d": 0, ":childNodeCount": 1}
    assert nodes(mk, "/r", depth=-1, offset=5, max_child_nodes=3) == {"d": 0, ":childNodeCount": 1}


def test_numbers_keep_their_spelling_and_values_their_types(mk: Cluster) -> None:
    mk.commit("", '+"/v":{"a":1.10,"b":1e3,"c":-0,"d":"1","e":[1,2.0,"x",true],"f":12345678901234567890123,"g":[]}')
    text = mk.get_nodes("/v", None, 0)
    for piece in ('"a":1.10', '"b":1e3', '"c":-0', '"d":"1"', '[1,2.0,"x",true]', "12345678901234567890123", '"g":[]'):
        assert piece in str(text)


def test_children_come_in_a_stable_order_page_by_page(mk: Cluster) -> None:
    mk.commit("", '+"/p":{' + ",".join(f'"n{number * 7919 % 100}":{{}}' for number in range(100)) + "}")
    head = mk.get_head_revision()
    everything = names(nodes(mk, "/p", head, 0))
    assert len(everything) == mk.get_child_node_count("/p", head) == 100
    assert [names(nodes(mk, "/p", head, 0, offset=at, max_child_nodes=1))[0] for at in range(0, 100, 9)] == everything[
        ::9
    ]
    page = nodes(mk, "/p", head, 0, offset=20, max_child_nodes=10)
    assert names(page) == everything[20:30]
    assert page[":childNodeCount"] == 100
    assert names(nodes(mk, "/p", head, 0, offset=95, max_child_nodes=10)) == everything[95:]
    assert names(nodes(mk, "/p", head, 0, max_child_nodes=0)) == []


def test_the_limit_holds_on_every_level_and_the_count_is_true(mk: Cluster) -> None:
    mk.commit("", '+"/p":{' + ",".join(f'"n{a}":{{"x":{{}},"y":{{}},"z":{{}}}}' for a in range(5)) + "}")
    found = nodes(mk, "/p", depth=1, max_child_nodes=2)
    assert names(found) == ["n0", "n1"]
    assert found[":childNodeCount"] == 5
    assert names(found["n1"]) == ["x", "y"]
    assert found["n1"][":childNodeCount"] == 3


def test_filters(mk: Cluster) -> None:
    kept = nodes(mk, "/", depth=1, filter='{ "properties" : [ "*ntProp", "-mult*" ] }')["test"]
    assert kept == {"intProp": 42}
    assert ":childNodeCount" in nodes(mk, "/", filter='{"properties":["*"]}')
    assert ":childNodeCount" not in nodes(mk, "/test", filter='{"properties":["*","-:childNodeCount"]}')
    mk.commit("", r'+"/f":{"a*b":1,"ab":2,"-c":3,"x1":{},"x2":{},"y":{}}')
    assert nodes(mk, "/f", depth=0, filter=r'{"properties":["a\\*b"]}') == {"a*b": 1, "x1": {}, "x2": {}, "y": {}}
    assert nodes(mk, "/f", depth=0, filter=r'{"properties":["\\-c"],"nodes":["y"]}') == {"-c": 3, "y": {}}
    shown = nodes(mk, "/f", depth=0, filter='{"nodes":["x*","-x2"]}')
    assert names(shown) == ["x1"]
    assert shown[":childNodeCount"] == 3
    with pytest.raises(ValueError, match="offset"):
        mk.get_nodes("/f", None, 0, 1, -1, '{"nodes":["x*"]}')
    for bad in ("{", "[]", '{"nodes":"x"}', '{"nodes":[1]}', '{"other":["x"]}'):
        with pytest.raises(HbasemkError):
            mk.get_nodes("/f", None, 0, 0, -1, bad)


def test_hash_and_id_are_returned_on_request_and_accepted_as_paths(mk: Cluster) -> None:
    chosen = '{"properties":["*",":hash",":id"]}'
    assert not {":hash", ":id"} & nodes(mk, "/").keys()
    kernel = mk.kernels[0]
    kernel.repository.refresh()
    before = json.loads(kernel.get_nodes("/", None, 1, 0, -1, chosen) or "")
    mk.commit("/test", '^"booleanProp":false')
    changed = nodes(mk, "/", depth=1, filter=chosen)
    mk.commit("/test", '^"booleanProp":true')
    after = nodes(mk, "/", depth=1, filter=chosen)
    assert before[":hash"] == after[":hash"] != changed[":hash"]
    assert before["test"][":hash"] != before[":hash"]
    mk.commit("", '*"/test":"/twin"')
    twins = nodes(mk, "/", depth=1, filter=chosen)
    assert twins["test"][":hash"] == twins["twin"][":hash"]
    mk.commit("", '-"/test"')
    for key in (":hash", ":id"):
        again = json.loads(kernel.get_nodes(before["test"][key], None, 0) or "")
        assert again["stringProp"] == "stringVal"


def test_existence_and_counts(mk: Cluster) -> None:
    old = mk.get_head_revision()
    mk.commit("", '-"/test"')
    assert not mk.node_exists("/test")
    assert mk.node_exists("/test", old)
    assert nodes(mk, "/test") is None
    assert mk.get_child_node_count("/") == 0
    with pytest.raises(NodeNotFoundError):
        mk.get_child_node_count("/test")


@pytest.mark.parametrize("bad", ["12345678", "zz", "0000000000000000", "7000000000000000", "7000000000000080"])
def test_unknown_revisions_are_named_in_errors(mk: Cluster, bad: str) -> None:
    for call in (
        lambda: mk.node_exists("/test", bad),
        lambda: mk.get_nodes("/test", bad),
        lambda: mk.get_child_node_count("/", bad),
        lambda: mk.commit("", '+"/x":{}', bad),
        lambda: mk.diff(bad, None),
        lambda: mk.get_journal(bad, None),
        lambda: mk.branch(bad),
        lambda: mk.merge(bad),
    ):
        with pytest.raises(HbasemkError, match="revision"):
            call()
    assert not mk.node_exists("/x")


def test_arguments_out_of_range_are_value_errors(mk: Cluster) -> None:
    for arguments in ((-2, 0, -1), (0, -1, -1), (0, 0, -2)):
        with pytest.raises(ValueError, match="out of range"):
            mk.get_nodes("/test", None, *arguments)
    for path in ("/test/", "test", "//", ""):
        with pytest.raises(HbasemkError):
            mk.get_nodes(path)


# --- changing --------------------------------------------------------------------------------------------


def test_operations_apply_in_order_each_seeing_the_ones_before(mk: Cluster) -> None:
    mk.commit("/", '+"n":{} +"n/c1":{} +"n/c2":{} +"n/c1/g":{} ^"n/p":41 ^"n/c1/p":42 ^"n/c1/g/p":43')
    assert nodes(mk, "/n")["c1"]["g"]["p"] == 43
    mk.commit("/", '+"x":{} +"x/a":{} *"x":"n/x1" >"x":"y" -"n/c2" +"n/c1/q":7 ^"n/p":null')
    found = nodes(mk, "/n")
    assert names(found) == ["c1", "x1"]
    assert found["c1"]["q"] == 7
    assert "p" not in found
    assert mk.node_exists("/y/a")
    assert not mk.node_exists("/x")


def test_a_copy_into_its_own_descendant_copies_the_state_before_it(mk: Cluster) -> None:
    mk.commit("/", '+"test/child":{} *"test":"test/copy"')
    found = nodes(mk, "/test")
    assert (found[":childNodeCount"], found["copy"][":childNodeCount"]) == (2, 1)
    assert mk.node_exists("/test/copy/child")
    assert not mk.node_exists("/test/copy/copy")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('+"/test":{}', NodeExistsError),
        ('+"/a/b":{}', NodeNotFoundError),
        ('^"/a/p":1', NodeNotFoundError),
        ('+"/a/p":1', NodeNotFoundError),
        ('-"/a"', NodeNotFoundError),
        ('-"/"', InvalidChangeError),
        ('>"/test":"/test/sub"', InvalidChangeError),
        ('>"/test":"/test"', InvalidChangeError),
        ('>"/a":"/b"', NodeNotFoundError),
        ('+"/b":{} >"/test":"/b"', NodeExistsError),
        ('*"/a":"/b"', NodeNotFoundError),
        ('*"/test":"/test"', NodeExistsError),
        ('+"/test/intProp":{}', InvalidChangeError),
        ('+"/test/c":{} ^"/test/c":1', InvalidChangeError),
        ('^"/test/:childNodeCount":1', InvalidChangeError),
        ('>"/test":{"before":"/x"}', JsopError),
        ('="/test":1', JsopError),
        ('+"relative":{}', JsopError),
        ('+"/ok":{} +"/bad":{', JsopError),
        ('+"/ok":{} -"/missing"', NodeNotFoundError),
    ],
)
def test_a_bad_change_text_changes_nothing(mk: Cluster, text: str, error: type[Exception]) -> None:
    head = mk.get_head_revision()
    with pytest.raises(error) as caught:
        mk.commit("", text)
    assert isinstance(caught.value, HbasemkError)
    assert mk.get_head_revision() == head
    assert not mk.node_exists("/ok")


def test_a_change_without_effect_returns_the_unchanged_head(mk: Cluster) -> None:
    head = mk.get_head_revision()
    for text in ("", "  ", '^"/test/intProp":42', '+"/x":{} -"/x"', '^"/test/none":null'):
        assert mk.commit("", text) == head
        assert mk.commit("", text, head) == head


def test_a_removal_takes_a_node_or_a_property(mk: Cluster) -> None:
    mk.commit("/test", '-"intProp" +"c":{}')
    assert "intProp" not in nodes(mk, "/test")
    mk.commit("/test", '-"c"')
    assert nodes(mk, "/test")[":childNodeCount"] == 0


def test_an_older_base_is_merged_where_it_does_not_conflict(mk: Cluster) -> None:
    base = mk.commit("", '+"/a":{"p":1} +"/b":{}')
    mk.commit("", '^"/a/q":1 +"/c":{} -"/b"')
    revision = mk.commit("", '^"/a/p":2 +"/d":{} -"/b"', base)
    found = nodes(mk, "/", revision)
    assert (found["a"]["p"], found["a"]["q"]) == (2, 1)
    assert {"c", "d"} <= found.keys()
    assert revision == mk.get_head_revision()
    for text in ('^"/a/q":2', '+"/c":{}', '>"/b":"/e"', '-"/a"', '+"/b/x":{}'):
        with pytest.raises(ConflictError):
            mk.commit("", text, base)
    assert mk.commit("", '-"/b"', base) == mk.get_head_revision()
    with pytest.raises(NodeNotFoundError):
        mk.commit("", '-"/b"')


# --- revisions -------------------------------------------------------------------------------------------


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


# --- branches --------------------------------------------------------------------------------------------


def test_a_branch_is_private_until_it_is_merged_as_a_whole(mk: Cluster) -> None:
    base = str(mk.get_head_revision())
    root = str(mk.branch(base))
    one = str(mk.commit("", '+"/branch":{}', root))
    two = str(mk.commit("", '+"/branch/foo":{}', one))
    mk.commit("", '+"/trunk":{}')
    assert not mk.node_exists("/branch")
    assert mk.node_exists("/branch/foo", two)
    assert not mk.node_exists("/branch/foo", one)
    assert not mk.node_exists("/trunk", two)
    assert two not in str(mk.get_revision_history(0, -1))
    merged = str(mk.merge(two, "merged"))
    assert merged == mk.get_head_revision()
    assert mk.node_exists("/branch/foo")
    assert mk.node_exists("/trunk")
    entry = json.loads(mk.get_journal(merged, merged))[0]  # type: ignore[arg-type]
    assert entry["msg"] == "merged"
    assert entry["changes"].replace(" ", "").strip() == '+"/branch":{"foo":{}}'
    along = json.loads(mk.get_journal(one, two))  # type: ignore[arg-type]
    assert [(entry["id"], entry["branchRootId"]) for entry in along] == [(one, base), (two, base)]
    assert mk.node_exists("/branch/foo", two)


def test_a_branch_changes_and_removes(mk: Cluster) -> None:
    mk.commit("", '+"/t":{"p1":1,"p2":2,"c":{"g":{}}}')
    branch = str(mk.branch())
    branch = str(mk.commit("", '^"/t/p1":"new" ^"/t/p2":null ^"/t/p3":3 -"/t/c"', branch))
    mk.commit("", '+"/t/other":{} ^"/t/p4":4')
    mk.merge(branch)
    assert nodes(mk, "/t") == {"p1": "new", "p3": 3, "p4": 4, ":childNodeCount": 1, "other": {":childNodeCount": 0}}


def test_a_conflicting_merge_raises_and_leaves_both_sides(mk: Cluster) -> None:
    mk.commit("", '+"/t":{"p":1}')
    branch = str(mk.commit("", '^"/t/p":"branch" +"/mine":{}', mk.branch()))
    mk.commit("", '^"/t/p":"trunk"')
    head = mk.get_head_revision()
    with pytest.raises(ConflictError):
        mk.merge(branch)
    assert mk.get_head_revision() == head
    assert not mk.node_exists("/mine")
    assert nodes(mk, "/t", branch)["p"] == "branch"
    rebased = str(mk.rebase(branch))
    assert rebased != branch
    with pytest.raises(BranchError, match="conflict markers"):
        mk.merge(rebased)
    cleaned = mk.commit("", '-"/t/:conflict"', rebased)
    mk.merge(cleaned)
    assert nodes(mk, "/t")["p"] == "trunk"
    assert mk.node_exists("/mine")


def test_a_branch_without_net_change_leaves_the_head(mk: Cluster) -> None:
    head = mk.get_head_revision()
    branch = mk.commit("", '+"/c":{}', mk.branch())
    branch = mk.commit("", '-"/c"', branch)
    assert mk.merge(branch) == head == mk.get_head_revision()


def test_wrong_revisions_for_branches_are_named_in_errors(mk: Cluster) -> None:
    trunk = str(mk.get_head_revision())
    root = str(mk.branch())
    first = str(mk.commit("", '+"/b":{}', root))
    second = str(mk.commit("", '+"/b/c":{}', first))
    other = str(mk.branch())
    for call in (
        lambda: mk.branch(first),
        lambda: mk.merge(trunk),
        lambda: mk.rebase(trunk),
        lambda: mk.reset(trunk, trunk),
        lambda: mk.commit("", '+"/x":{}', first),
        lambda: mk.merge(first),
        lambda: mk.reset(second, trunk),
        lambda: mk.reset(second, other),
        lambda: mk.get_journal(first, trunk),
        lambda: mk.get_journal(other, second),
    ):
        with pytest.raises(BranchError):
            call()
    assert nodes(mk, "/b", second) == {":childNodeCount": 1, "c": {":childNodeCount": 0}}
    mk.merge(second)
    for call in (lambda: mk.merge(second), lambda: mk.commit("", '+"/x":{}', second)):
        with pytest.raises(BranchError, match="merged"):
            call()


def test_reset_returns_a_branch_to_an_earlier_revision(mk: Cluster) -> None:
    root = str(mk.branch())
    first = str(mk.commit("", '+"/r":{"p":1}', root))
    second = str(mk.commit("", '^"/r/p":2 +"/r/c":{}', first))
    assert mk.reset(second, second) == second
    back = str(mk.reset(second, first))
    assert nodes(mk, "/r", back) == {"p": 1, ":childNodeCount": 0}
    third = mk.commit("", '^"/r/p":3', back)
    mk.merge(third)
    assert nodes(mk, "/r") == {"p": 3, ":childNodeCount": 0}


REBASES = [
    # branch, trunk, the marker's owner, the marker, the branch's tree afterwards
    ('^"/x/y/q":42', '^"/x/y/q":99', "/x/y", {"addExistingProperty": {"q": 42}}, ("q", 99)),
    ('^"/x/y/p":99', '^"/x/y/p":null', "/x/y", {"changeDeletedProperty": {"p": 99}}, ("p", None)),
    ('^"/x/y/p":null', '^"/x/y/p":99', "/x/y", {"deleteChangedProperty": {"p": 42}}, ("p", 99)),
    ('^"/x/y/p":41', '^"/x/y/p":99', "/x/y", {"changeChangedProperty": {"p": 41}}, ("p", 99)),
    ('^"/x/y/p":null', '^"/x/y/p":null', "/x/y", {"deleteDeletedProperty": {"p": 42}}, ("p", None)),
    ('+"/x/a":{}', '+"/x/a":{"b":{}}', "/x", {"addExistingNode": {"a": {}}}, None),
    ('-"/x/y"', '^"/x/y/p":1', "/x", {"deleteChangedNode": {"y": {"p": 42}}}, ("p", 1)),
    ('^"/x/r":42', '-"/x"', "/", {"changeDeletedNode": {"x": {"r": 42, "y": {"p": 42}}}}, None),
    ('+"/x/y/new":{}', '-"/x/y"', "/x", {"changeDeletedNode": {"y": {"p": 42, "new": {}}}}, None),
    ('-"/x/y"', '-"/x/y"', "/x", {"deleteDeletedNode": {"y": {"p": 42}}}, None),
]


def plain(found: Any) -> Any:
    """A tree without its counts."""
    if not isinstance(found, dict):
        return found
    return {name: plain(value) for name, value in found.items() if name != ":childNodeCount"}


@pytest.mark.parametrize(
    ("ours", "theirs", "owner", "marker", "left"), REBASES, ids=[next(iter(row[3])) for row in REBASES]
)
def test_rebase_takes_trunks_side_and_marks_the_conflict(
    mk: Cluster, ours: str, theirs: str, owner: str, marker: dict[str, Any], left: tuple[str, Any] | None
) -> None:
    mk.commit("", '+"/x":{"y":{"p":42}}')
    branch = mk.commit("", ours, mk.branch())
    mk.commit("", theirs)
    branch = str(mk.rebase(branch))
    assert plain(nodes(mk, owner.rstrip("/") + "/:conflict", branch)) == marker
    if left is not None:
        assert nodes(mk, "/x/y", branch).get(left[0]) == left[1]


def test_rebase_without_conflict_takes_both_sides(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"y":{"p":42}}')
    branch = mk.commit("", '^"/x/q":43 +"/x/new":{"deep":{"er":{}}} -"/x/y"', mk.branch())
    head = mk.commit("", '^"/x/p":42 +"/x/trunk":{}')
    branch = mk.rebase(branch, head)
    assert mk.rebase(branch, head) == branch
    expected = {"p": 42, "q": 43, "trunk": {}, "new": {"deep": {"er": {}}}}
    assert plain(nodes(mk, "/x", str(branch))) == expected
    mk.merge(branch)
    assert plain(nodes(mk, "/x")) == expected


def test_the_same_change_on_both_sides_is_not_a_conflict(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"p":1}')
    branch = mk.commit("", '^"/x/p":2 +"/x/same":{"k":1}', mk.branch())
    mk.commit("", '^"/x/p":2 +"/x/same":{"k":1}')
    branch = mk.rebase(branch)
    assert not mk.node_exists("/x/:conflict", branch)
    assert mk.merge(branch) == mk.get_head_revision()


# --- blobs -----------------------------------------------------------------------------------------------


def test_blobs_are_kept_once_and_read_in_parts(mk: Cluster) -> None:
    content = bytes(range(256)) * 12_345
    blob = str(mk.write(io.BytesIO(content)))
    assert mk.write(io.BytesIO(content)) == blob
    assert mk.get_length(blob) == len(content)
    for position, length in ((0, 10), (1_048_570, 20), (len(content) - 5, 50), (0, len(content)), (len(content), 10)):
        assert mk.read(blob, position, length) == content[position : position + length]
    empty = str(mk.write(io.BytesIO(b"")))
    assert mk.get_length(empty) == 0
    assert mk.read(empty, 0, 1) == b""
    mk.commit("", f'+"/file":{{"data":":blobId:{blob}","all":[":blobId:{empty}"]}}')
    assert nodes(mk, "/file")["data"] == f":blobId:{blob}"


def test_invalid_blob_arguments_are_named_in_errors(mk: Cluster) -> None:
    for blob in ("", "zz", "00" * 32, "AB" * 32):
        with pytest.raises(BlobNotFoundError):
            mk.get_length(blob)
        with pytest.raises(BlobNotFoundError):
            mk.read(blob, 0, 1)
    blob = mk.write(io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="negative"):
        mk.read(blob, -1, 1)


def test_a_broken_stream_stores_nothing_and_is_closed(mk: Cluster) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 2_000_000:
                raise OSError("the line was cut")
            return super().read(size)

    stream = Broken(b"x" * 5_000_000)
    with pytest.raises(OSError, match="cut"):
        mk.write(stream)
    assert stream.closed


def test_an_unknown_revision_is_not_an_unknown_branch(mk: Cluster) -> None:
    with pytest.raises(UnknownRevisionError, match="branch revision"):
        mk.get_nodes("/", "00000000000000ff")
