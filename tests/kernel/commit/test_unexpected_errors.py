"""An error that only a defect or a lack of memory causes: a commit leaves no pending revision, and no committed one unseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.attempt import Attempts
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.journal import Journal
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import commit, opened


def fail_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let the next call of a method run out of memory."""
    original: Callable[..., Any] = getattr(owner, name)

    def method(*arguments: Any) -> Any:
        patch.setattr(owner, name, original)
        raise MemoryError

    patch.setattr(owner, name, method)


def commit_out_of_memory(instance: Instance) -> int:
    """Let a commit of x = 7 to /a fail, and return its revision."""
    begun: list[int] = []
    change = OperationList([SetProperty("/a", "x", 7)])
    with pytest.raises(MemoryError):
        instance.commit(lambda _: change, "", retry_timeout=9, max_poll_age=1000, begun=begun.append)
    (revision,) = begun
    return revision


@pytest.mark.parametrize(("owner", "name"), [(SoleRows, "choose"), (Attempts, "_resolve")])
def test_no_revision_stays_pending(owner: type, name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(world.clock, parallel=True)
    opened(world, store)
    # It reads /a while it creates the journal row.
    instance = open_instance(store, world, mac=2)
    fail_once(monkeypatch, owner, name)
    revision = commit_out_of_memory(instance)
    assert instance.outcomes.of(revision) is Outcome.ABORTED
    assert not instance.announcements.is_open(revision)
    assert not instance.outcomes.deferred


@pytest.mark.parametrize(
    ("owner", "name", "transactions"),
    [(Announcements, "committed", False), (SoleRows, "record", False), (Journal, "append_local", True)],
)
def test_a_committed_revision_joins_before_the_head_is_used(
    owner: type, name: str, transactions: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, _, _ = opened(world, transactions=transactions)
    fail_once(monkeypatch, owner, name)
    revision = commit_out_of_memory(instance)
    assert instance.head().revision == revision
    assert commit(instance, SetProperty("/a", "x", 8)) > revision
    assert not instance.outcomes.deferred
