"""A JSOP text expects values by repeating them, on the revision that its caller has read."""

from __future__ import annotations

import json

import pytest

from hbasemk import ConflictError
from tests.microkernel.conftest import Cluster

EXPECTATIONS = {
    "a value": ('^"title":"x"', '^"title":"y"'),
    "the absence of a property": ('^"none":null', '^"none":1'),
    "the absence of a node": ('+"new":{} -"new"', '+"new":{}'),
}


def number(mk: Cluster) -> object:
    return json.loads(str(mk.get_nodes("/b", None, -1)))["n"]


@pytest.mark.parametrize(("expectation", "other"), EXPECTATIONS.values(), ids=EXPECTATIONS)
def test_a_repeated_value_is_expected(mk: Cluster, expectation: str, other: str) -> None:
    base = mk.commit("", '+"/a":{"title":"x"} +"/b":{"n":0}')
    mk.commit("/a", f'{expectation} ^"/b/n":1', base)
    assert number(mk) == 1
    base = mk.get_head_revision()
    mk.commit("/a", other)
    with pytest.raises(ConflictError, match="of /a"):
        mk.commit("/a", f'{expectation} ^"/b/n":2', base)
    assert number(mk) == 1


@pytest.mark.parametrize("on_branch", [False, True])
def test_an_expected_value_that_another_commit_changed_is_a_conflict(mk: Cluster, on_branch: bool) -> None:
    base = mk.commit("", '+"/a":{"count":1} +"/b":{"n":0}')
    if on_branch:
        branch = mk.commit("/a", '^"count":1 ^"/b/n":1', mk.branch(base))
    mk.next.repository.run(lambda tx: tx.set("/a", "count", 2))
    with pytest.raises(ConflictError):
        if on_branch:
            mk.merge(branch)
        else:
            mk.commit("/a", '^"count":1 ^"/b/n":1', base)
    assert number(mk) == 0
