"""The number of round trips of the list of open branches."""

from __future__ import annotations

import pytest

from hbasemk.kernel.branches import open_branches
from tests.support.round_trips import Counted


def test_the_list_of_open_branches_scans_only_first_rows(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    one = counted.repository
    monkeypatch.setattr(open_branches, "BATCH", 10)
    for _ in range(5):
        one.branch().abandon()
    counted.store.take()
    assert one.branches() == []
    assert counted.store.take() == {("scan", "journal"): 1}
    made = [one.branch(str(number)) for number in range(7)]
    counted.store.take()
    assert [found.message for found in one.branches()] == list("0123456")
    assert counted.store.take() == {("scan", "journal"): 2, ("read", "cluster"): 1, ("read", "journal"): 1}
    for branch in made:
        branch.abandon()
