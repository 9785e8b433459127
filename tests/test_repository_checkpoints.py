"""The API of checkpoints: made, listed, extended and released by any process; bad arguments change nothing."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import pytest

import hbasemk
from hbasemk import BranchError, CheckpointError, InvalidValueError, Repository, UnknownRevisionError, connect
from hbasemk.store.memory import MemoryStore
from tests.conftest import Checked


@pytest.fixture
def two(checked: Checked, tmp_path: Path) -> tuple[Repository, Repository]:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    return connect(url, poll_interval=0), connect(url, poll_interval=0)


def test_a_checkpoint_is_known_to_every_process(two: tuple[Repository, Repository]) -> None:
    one, other = two
    with one, other:
        one.run(lambda tx: tx.add("/a", {"n": 1}))
        before = datetime.datetime.now(datetime.timezone.utc)
        made = one.checkpoint(3600, message="before the import")
        one.run(lambda tx: tx.set("/a", "n", 2))
        (found,) = other.checkpoints()
        assert (found.name, found.revision, found.message) == (made.name, made.revision, "before the import")
        assert found.until == made.until
        hour = datetime.timedelta(hours=1)
        assert before + hour <= found.until <= before + hour + datetime.timedelta(minutes=1)
        assert found.until.tzinfo is datetime.timezone.utc
        assert other.refresh().revision != found.revision
        for snapshot in (found.snapshot, other.at(found.revision), made.snapshot):
            assert snapshot["/a"]["n"] == 1
        found.extend(7200)
        assert found.until > made.until
        made.release()
        assert other.checkpoints() == []
        for ended in (made, found):
            with pytest.raises(CheckpointError, match=f"checkpoint {made.name} cannot be released"):
                ended.release()
            with pytest.raises(CheckpointError, match=f"checkpoint {made.name} cannot be extended"):
                ended.extend(1)
            with pytest.raises(UnknownRevisionError, match="no checkpoint keeps revision"):
                _ = ended.snapshot
        assert other.at(made.revision)["/a"]["n"] == 1


def test_an_older_snapshot_is_kept(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        old = repo.head
        repo.run(lambda tx: tx.add("/a"))
        made = repo.checkpoint(0.001, old)
        assert made.revision == old.revision
        assert repr(made).startswith(f"<Checkpoint {old.revision}-")
        assert list(made.snapshot) == ["/"]


@pytest.mark.parametrize("others_first", [False, True])
def test_a_kept_snapshot_equals_the_others_of_its_revision(
    two: tuple[Repository, Repository], others_first: bool
) -> None:
    one, other = two
    with one, other:
        for number in range(5):
            (other if others_first else one).run(lambda tx, number=number: tx.add(f"/a{number}"))  # type: ignore[misc]
        head = one.refresh()
        made = one.checkpoint(3600, head)
        with connect(f"sqlite:///{one.store.location}", poll_interval=0) as later:
            for repo, newest in ((one, head), (one, one.head), (other, other.refresh()), (later, later.head)):
                for kept in (repo.at(head.revision), repo.checkpoints()[0].snapshot):
                    assert kept == newest
                    assert newest == kept
                    assert len({kept, newest}) == 1
        one.run(lambda tx: tx.add("/later"))
        assert one.at(head.revision) == head == made.snapshot
        assert one.head != head
        assert other.head != head, "a snapshot of another Repository object"


def test_a_snapshot_of_a_branch_equals_itself_in_another_object(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        branch = repo.branch()
        branch.run(lambda tx: tx.add("/a"))
        assert branch.head == repo.at(branch.revision) == repo.resume_branch(branch.revision).head
        assert branch.head != repo.head
        branch.abandon()


@pytest.mark.parametrize("bad", [0, -1, 0.0, math.nan, math.inf, -math.inf, 1e12, 10**400])
def test_a_lifetime_out_of_range_is_refused(real_store: MemoryStore, bad: float) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        with pytest.raises(InvalidValueError, match="lifetime must be a number of seconds, more than 0 and at most"):
            repo.checkpoint(bad)
        made = repo.checkpoint(60)
        with pytest.raises(InvalidValueError, match="lifetime must be a number of seconds"):
            made.extend(bad)
        assert [one.until for one in repo.checkpoints()] == [made.until]


def test_snapshots_that_cannot_be_kept_are_refused(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo, Repository(MemoryStore(), poll_interval=0) as foreign:
        branch = repo.branch()
        branch.run(lambda tx: tx.add("/a"))
        with pytest.raises(BranchError, match="keeps a snapshot of trunk, got branch revision"):
            repo.checkpoint(60, branch.head)
        with pytest.raises(ValueError, match="belongs to another Repository object"):
            repo.checkpoint(60, foreign.head)
        with pytest.raises(UnknownRevisionError):
            repo.checkpoint(60, repo.at("00000000000000a0"[:15] + "1"))
        with pytest.raises(InvalidValueError, match="message must have at most 1024 bytes, got 1026"):
            repo.checkpoint(60, message="ü" * 513)
        assert repo.checkpoints() == []
        assert repo.checkpoint(60, message="ü" * 512).message == "ü" * 512
        branch.abandon()


def test_the_checkpoints_of_a_microkernel_are_listed_as_one(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        mk = hbasemk.MicroKernel(repo)
        first = mk.checkpoint(60_000)
        assert mk.checkpoint(2**63 - 1) == mk.checkpoint(1) == first
        (found,) = repo.checkpoints()
        assert found.revision == first
        assert found.until.year == 9999
        mine = repo.checkpoint(60)
        found.release()
        assert [one.name for one in repo.checkpoints()] == [mine.name]
