"""The contract of the MicroKernel interface: commits."""

from __future__ import annotations

import pytest

from hbasemk import ConflictError, HbasemkError, InvalidChangeError, JsopError, NodeExistsError, NodeNotFoundError
from tests.support.microkernel import Cluster, names, nodes


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
