"""A copy of more nodes than a commit may add is refused before it is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import LimitError, MicroKernel, Repository, Transaction
from hbasemk.format import limits, schema
from hbasemk.kernel.commit import staging
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Checked

COPIES = 40


def _by_python(repo: Repository) -> None:
    def change(tx: Transaction) -> None:
        for number in range(COPIES):
            tx.copy("/a", f"/a/c{number}")

    repo.run(change)


def _by_python_that_reads(repo: Repository) -> None:
    with repo.transaction() as tx:
        for number in range(COPIES):
            tx.copy("/a", f"/a/c{number}")
            assert tx.exists(f"/a/c{number}")


def _by_jsop(repo: Repository) -> None:
    MicroKernel(repo).commit("/", " ".join(f'*"a":"a/c{number}"' for number in range(COPIES)))


@pytest.mark.parametrize("copy", [_by_python, _by_python_that_reads, _by_jsop])
def test_the_copy_that_passes_the_limit_is_not_built(
    copy: Callable[[Repository], None], monkeypatch: pytest.MonkeyPatch, checked: Checked
) -> None:
    monkeypatch.setattr(limits, "MAX_PATHS", 20_000)
    built: list[str] = []

    class Counted(StagedNode):
        def __init__(self, path: str, *more: object) -> None:
            built.append(path)
            super().__init__(path, *more)  # type: ignore[arg-type]

    with Repository(checked(MemoryStore()), poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"p": 1}))
        head = repo.head
        monkeypatch.setattr(staging, "StagedNode", Counted)
        with pytest.raises(LimitError, match="more than 20000 bytes in total .one is '/a/c10'"):
            copy(repo)
        assert repo.refresh() == head
    # 1,024 nodes are below the limit; the next copy would add as many.
    assert 1024 <= len(built) <= 1024 + 2 * COPIES


def test_a_copy_of_a_stored_tree_stops_to_read_at_the_limit(monkeypatch: pytest.MonkeyPatch, checked: Checked) -> None:
    store = CountingStore(checked(MemoryStore()))
    with Repository(store, poll_interval=0, cache_bytes=0) as repo:
        with repo.transaction() as tx:
            tx.add("/a")
            for number in range(5000):
                tx.add(f"/a/{number}")
        monkeypatch.setattr(limits, "MAX_PATHS", 5000)
        for change in (lambda tx: tx.copy("/a", "/b"), lambda tx: tx.move("/a", "/b")):
            store.traffic()
            with pytest.raises(LimitError, match="one is '/b'"):
                repo.run(change)
            assert store.traffic(schema.JOURNAL, schema.CLUSTER).rows_read <= 2100
        # What is removed does not count.
        with repo.transaction() as tx:
            for number in range(5000):
                if number % 10:
                    tx.remove(f"/a/{number}")
            tx.copy("/a", "/b")
        assert repo.head.child_count("/b") == 500
