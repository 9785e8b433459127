"""Revisions whose snapshots have been collected, or the snapshots before them."""

from __future__ import annotations

import json

import pytest

from hbasemk import MicroKernel, RevisionCollectedError, UnknownRevisionError
from hbasemk.check import IntegrityCheck
from hbasemk.repository import instance_of
from tests.support.microkernel import collect_after


def _collected(kernel: MicroKernel) -> list[str]:
    """Make six revisions, and collect the first; the horizon is then one of the later ones."""
    revisions = [kernel.commit("", '+"/a":{}'), *collect_after(kernel, *(f'^"/a/p":{number}' for number in range(4)))]
    revisions.append(kernel.commit("", '^"/a/p":4'))
    assert [str(problem) for problem in IntegrityCheck(instance_of(kernel.repository)).run()] == []
    return revisions


def test_waiting_from_a_collected_revision_returns_the_head(writer_and_reader: tuple[MicroKernel, MicroKernel]) -> None:
    """A client that was away for longer than the retention got RevisionCollectedError instead."""
    writer, kernel = writer_and_reader
    old, *_, head = _collected(writer)
    with pytest.raises(RevisionCollectedError):
        kernel.node_exists("/a", old)
    assert kernel.wait_for_commit(old, 60_000) == kernel.wait_for_commit(old, 0) == head


def test_waiting_from_a_revision_of_a_deleted_branch_is_an_error(
    writer_and_reader: tuple[MicroKernel, MicroKernel],
) -> None:
    writer, kernel = writer_and_reader
    branch = writer.commit("", '+"/a":{}', writer.branch())
    writer.merge(branch)
    writer.repository.sweep_branches(0)
    with pytest.raises(UnknownRevisionError, match="or its branch has ended and its data has been deleted"):
        kernel.wait_for_commit(branch, 60_000)


def test_a_journal_from_the_oldest_snapshot_says_that_its_first_entry_has_no_changes(
    writer_and_reader: tuple[MicroKernel, MicroKernel],
) -> None:
    """The error named a revision that no caller knows, and advised to use the one that the caller had used."""
    writer, kernel = writer_and_reader
    revisions = _collected(writer)
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
