"""The contract of the MicroKernel interface: reads."""

from __future__ import annotations

import json

import pytest

from hbasemk import HbasemkError, NodeNotFoundError, UnknownRevisionError
from tests.support.microkernel import Cluster, names, nodes


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


def test_an_unknown_revision_is_not_an_unknown_branch(mk: Cluster) -> None:
    with pytest.raises(UnknownRevisionError, match="branch revision"):
        mk.get_nodes("/", "00000000000000ff")


def test_properties_are_sorted_in_every_process(mk: Cluster) -> None:
    """The process that had committed a node showed its properties in the order of the commit."""
    before = mk.get_head_revision()
    mk.commit("/", '+"sorted":{"x":1,"b":2,"ü":3,"a":4}')
    text = '{"a":4,"b":2,"x":1,"ü":3'
    for _ in range(2):
        assert mk.get_nodes("/sorted") == text + ',":childNodeCount":0}'
        assert mk.diff(before, None) == f'+"/sorted":{text}}}'
    middle = mk.commit("/sorted", '^"x":2^"b":3^"c":4^"a":null')
    assert mk.diff(None, before) == '-"/sorted"'
    for _ in range(2):
        changes = mk.diff(before, middle, "/sorted")
        assert changes == '+"/sorted":{"b":3,"c":4,"x":2,"ü":3}'
