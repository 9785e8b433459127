"""Reserved names, which callers cannot use; no name is returned twice; long names below long paths."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hbasemk import InvalidChangeError, JsopError, NodeNotFoundError
from tests.support.microkernel import Cluster

RESERVED = (":childNodeCount", ":hash", ":id")


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize(
    "text",
    [
        '+"/a/{}":{{}}',
        '+"/a/n":{{"{}":{{}}}}',
        '+"/a/n":{{"m":{{"{}":{{"x":{{}}}}}}}}',
        '+"/a/n":{{"{}":1}}',
        '>"/b":"/a/{}"',
        '*"/b":"/a/{}"',
        '+"/{}":{{}}',
        '^"/a/{}":1',
    ],
)
def test_reserved_names_are_rejected(mk: Cluster, text: str, name: str) -> None:
    head = mk.commit("", '+"/a":{} +"/b":{}')
    with pytest.raises(InvalidChangeError, match=name):
        mk.commit("", text.format(name))
    assert mk.get_head_revision() == head


@pytest.mark.parametrize("text", ['^"/a/{}":null', '+"/a/{}":null', '-"/a/{}"'])
@pytest.mark.parametrize("name", RESERVED)
def test_a_property_with_a_reserved_name_can_be_removed(mk: Cluster, text: str, name: str) -> None:
    """A text with null was rejected: the name is reserved, and cannot be set."""
    mk.commit("", '+"/a":{}')
    repository = mk.next.repository
    repository.run(lambda tx: tx.set("/a", name, "mine"))
    mk.commit("", text.format(name))
    assert dict(repository.refresh()["/a"]) == {}


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize(
    "text",
    [
        '+"/a/{}/n":{{}}',
        '+"/a/{}/child/n":{{}}',
        '^"/a/{}/p":1',
        '^"/a/{}/child/p":1',
        '>"/b":"/a/{}/n"',
        '*"/b":"/a/{}/child/n"',
    ],
)
def test_nothing_is_added_or_set_below_a_reserved_name(mk: Cluster, text: str, name: str) -> None:
    """No difference, and no journal, would show the change."""
    mk.commit("", '+"/a":{} +"/b":{}')
    mk.next.repository.run(lambda tx: (tx.add(f"/a/{name}", {"p": 0}), tx.add(f"/a/{name}/child")))
    head = mk.get_head_revision()
    with pytest.raises(InvalidChangeError, match=f"/a/{name}.* reserved"):
        mk.commit("", text.format(name))
    assert mk.get_head_revision() == head


@pytest.mark.parametrize("name", RESERVED)
def test_a_node_below_a_reserved_name_can_be_read_copied_moved_and_removed(mk: Cluster, name: str) -> None:
    mk.commit("", '+"/a":{}')
    mk.next.repository.run(lambda tx: (tx.add(f"/a/{name}"), tx.add(f"/a/{name}/child", {"p": 0})))
    mk.commit("/a", f'^"{name}/child/p":null')
    assert mk.get_nodes(f"/a/{name}") == '{":childNodeCount":1,"child":{":childNodeCount":0}}'
    mk.commit("/a", f'*"{name}/child":"copied" >"{name}/child":"moved" -"{name}"')
    assert not mk.node_exists(f"/a/{name}")
    assert mk.get_nodes("/a", None, 0) == '{":childNodeCount":2,"copied":{},"moved":{}}'


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


def test_names_set_through_the_python_api_are_not_returned_twice(mk: Cluster) -> None:
    before = mk.commit("", '+"/a":{"p":1}')
    repository = mk.next.repository
    repository.run(lambda tx: [tx.set("/a", name, "mine") for name in RESERVED])
    repository.run(lambda tx: (tx.add("/b", {":hash": "mine", "q": 2}), tx.add("/b/:id", {"x": 1}), tx.add("/b/:id/c")))
    chosen = '{"properties":["*",":hash",":id"]}'
    found = json.loads(str(mk.get_nodes("/", None, 9, 0, -1, chosen)), object_pairs_hook=keys_once)
    for shown in (found["a"], found["b"]):
        assert "mine" not in shown.values()
    assert (found["a"]["p"], found["b"]["q"]) == (1, 2)
    assert not isinstance(found["b"][":id"], dict)
    diff = str(mk.diff(before, None))
    assert diff.split() == ['+"/b":{"q":2}']
    assert str(mk.diff(None, before)).split() == ['-"/b"']
    mk.commit("", diff.replace("/b", "/again"))


LONG_NODE, LONG_NAME = "x" * 20_000, "y" * 20_000
LONG_PROPERTY = f"/{LONG_NODE}/{LONG_NAME}"
"""The path of a property that is too long for a node."""


@pytest.mark.parametrize("path", ["", f"/{LONG_NODE}"], ids=["absolute", "relative"])
def test_a_property_below_a_long_path_can_be_changed_and_read(mk: Cluster, path: str) -> None:
    named = LONG_NAME if path else LONG_PROPERTY
    added = mk.commit("", f'+"/{LONG_NODE}":{{"{LONG_NAME}":1}}')
    changed = mk.commit(path, f'^"{named}":2')
    assert mk.commit(path, f'^"{named}":2') == changed
    assert mk.diff(added, changed) == f'^"{LONG_PROPERTY}":2'
    assert json.loads(str(mk.get_journal(changed, changed)))[0]["changes"] == f'^"{LONG_PROPERTY}":2'
    removed = mk.commit(path, f'-"{named}"')
    assert mk.diff(changed, removed) == f'^"{LONG_PROPERTY}":null'
    with pytest.raises(NodeNotFoundError, match="no property at"):
        mk.commit(path, f'-"{named}"')
    mk.commit("", str(mk.diff(removed, added)))
    assert json.loads(str(mk.get_nodes(f"/{LONG_NODE}")))[LONG_NAME] == 1


def test_a_property_below_a_long_path_that_trunk_has_removed_can_be_removed_again(mk: Cluster) -> None:
    base = mk.commit("", f'+"/{LONG_NODE}":{{"{LONG_NAME}":1}}')
    mk.commit("", f'-"{LONG_PROPERTY}"')
    mk.commit("", f'-"{LONG_PROPERTY}" ^"/p":1', base)
    assert json.loads(str(mk.get_nodes("/", None, 0)))["p"] == 1


@pytest.mark.parametrize(
    "text",
    [f'+"{LONG_PROPERTY}":{{}}', f'>"/test":"{LONG_PROPERTY}"', f'*"{LONG_PROPERTY}":"/a"', f'^"{LONG_PROPERTY}/z":1'],
)
def test_a_node_cannot_have_the_path_of_such_a_property(mk: Cluster, text: str) -> None:
    mk.commit("", f'+"/{LONG_NODE}":{{"{LONG_NAME}":1}}')
    with pytest.raises(JsopError, match="at most 32765"):
        mk.commit("", text)
