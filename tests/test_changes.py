"""Differences of snapshots, and log entries, as values."""

from __future__ import annotations

from collections.abc import Hashable

import hbasemk


def test_changes_and_log_entries_can_be_compared_but_not_hashed() -> None:
    with hbasemk.connect("memory://") as repo:
        before = repo.head
        repo.run(lambda tx: tx.add("/a", {"n": 1}))
        changes, entries = list(repo.diff(before, repo.head)), list(repo.log())
        assert changes == list(repo.diff(before, repo.head))
        assert entries == list(repo.log())
        # They contain dicts and lists.
        assert not any(isinstance(one, Hashable) for one in (*changes, *entries))
