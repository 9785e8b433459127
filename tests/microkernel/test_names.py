"""Reserved names: callers cannot use them, and no name is returned twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hbasemk import InvalidChangeError
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
