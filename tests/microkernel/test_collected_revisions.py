"""Revisions whose snapshots have been collected, or the snapshots before them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from hbasemk import MicroKernel, Repository, RevisionCollectedError
from hbasemk.check import IntegrityCheck
from hbasemk.kernel.collection.collector import Collector
from hbasemk.repository import instance_of
from hbasemk.store.abc import Store
from tests.support.collecting import set_grace


def _collected(kernel: MicroKernel) -> list[str]:
    """Make six revisions, and collect the first; the horizon is then one of the later ones."""
    revisions = [kernel.commit("", '+"/a":{}')]
    for number in range(4):
        time.sleep(0.1)
        revisions.append(kernel.commit("", f'^"/a/p":{number}'))
    Collector(instance_of(kernel.repository)).run(1)
    revisions.append(kernel.commit("", '^"/a/p":4'))
    assert [str(problem) for problem in IntegrityCheck(instance_of(kernel.repository)).run()] == []
    return revisions


@pytest.mark.parametrize("asked", ["same MicroKernel", "another one"])
def test_waiting_from_a_collected_revision_returns_the_head(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A client that was away for longer than the retention got RevisionCollectedError instead."""
    set_grace(monkeypatch, 0.0)
    with Repository(new_store(), poll_interval=0) as repo, Repository(new_store(), poll_interval=0) as other:
        old, *_, head = _collected(MicroKernel(repo))
        kernel = MicroKernel(repo if asked == "same MicroKernel" else other)
        with pytest.raises(RevisionCollectedError):
            kernel.node_exists("/a", old)
        assert kernel.wait_for_commit(old, 60_000) == kernel.wait_for_commit(old, 0) == head


@pytest.mark.parametrize("asked", ["same MicroKernel", "another one"])
def test_a_journal_from_the_oldest_snapshot_says_that_its_first_entry_has_no_changes(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The error named a revision that no caller knows, and advised to use the one that the caller had used."""
    set_grace(monkeypatch, 0.0)
    with Repository(new_store(), poll_interval=0) as repo, Repository(new_store(), poll_interval=0) as other:
        revisions = _collected(MicroKernel(repo))
        kernel = MicroKernel(repo if asked == "same MicroKernel" else other)
        with pytest.raises(RevisionCollectedError) as raised:
            kernel.node_exists("/a", revisions[0])
        oldest = raised.value.oldest
        assert oldest in revisions
        assert kernel.node_exists("/a", oldest)
        with pytest.raises(
            RevisionCollectedError, match=f"the changes of revision {oldest} can no longer be shown"
        ) as raised:
            kernel.get_journal(oldest, None)
        assert (raised.value.revision, raised.value.oldest) == (oldest, oldest)
        later = revisions[revisions.index(oldest) + 1 :]
        assert [entry["id"] for entry in json.loads(kernel.get_journal(later[0], None))] == later
        assert kernel.diff(oldest, None) == '^"/a/p":4'
