"""``get_journal`` along trunk and branches, forwards and backwards."""

from __future__ import annotations

import json

import pytest

from hbasemk import BranchError
from tests.support.microkernel import Cluster


def ids(text: object) -> list[str]:
    return [entry["id"] for entry in json.loads(str(text))]


def test_branch_entries_name_the_trunk_revision_below(mk: Cluster) -> None:
    mk.commit("", '+"/x":{}')
    base = mk.get_head_revision()
    mk.commit("", '+"/later":{}')
    root = mk.branch(base)
    one = mk.commit("", '+"/b":{}', root)
    two = mk.commit("", '^"/b/p":1', one)
    for first in (base, one):
        entries = json.loads(str(mk.get_journal(first, two)))
        assert [entry.get("branchRootId") for entry in entries][-2:] == [base, base]
    mk.merge(two)
    entries = json.loads(str(mk.get_journal(one, two)))
    assert [(entry["id"], entry["branchRootId"]) for entry in entries] == [(one, base), (two, base)]
    rebased = mk.commit("", '+"/c":{}', mk.branch(base))
    rebased = mk.rebase(rebased)
    assert json.loads(str(mk.get_journal(rebased, rebased)))[0]["branchRootId"] == mk.get_head_revision()


def test_a_journal_from_a_later_to_an_earlier_revision_is_empty(mk: Cluster) -> None:
    base = mk.get_head_revision()
    root = mk.branch(base)
    one = mk.commit("", '+"/b":{}', root)
    later = mk.commit("", '+"/later":{}')
    two = mk.commit("", '^"/b/p":1', one)
    assert mk.get_journal(two, one) == mk.get_journal(two, root) == "[]"
    assert mk.get_journal(later, base) == "[]"
    assert ids(mk.get_journal(one, two)) == [one, two]
    assert ids(mk.get_journal(base, two)) == [base, one, two]
    other = mk.commit("", '+"/o":{}', mk.branch(base))
    for first, last in ((other, two), (two, other), (two, base), (two, later)):
        with pytest.raises(BranchError):
            mk.get_journal(first, last)


def test_a_journal_from_a_trunk_revision_outside_the_branch_lists_only_later_revisions(mk: Cluster) -> None:
    base = mk.get_head_revision()
    one = mk.commit("", '+"/b":{}', mk.branch(base))
    later = mk.commit("", '+"/later":{}')
    two = mk.commit("", '^"/b/p":1', one)
    assert mk.get_journal(later, one) == "[]"
    assert ids(mk.get_journal(later, two)) == [two]
    rebased = mk.rebase(two)
    assert ids(mk.get_journal(later, rebased)) == [later, rebased]
