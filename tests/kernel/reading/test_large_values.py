"""Nodes with large values are read in answers of a bounded size."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hbasemk import Repository
from hbasemk.repository import instance_of
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.transfer.json.exporter import export_json
from tests.support.answer_sizes import AnswerSizes
from tests.support.memory_use import little_memory
from tests.support.round_trips import ParallelMemory

MOST = 20_000
VALUE = 2_000


@pytest.fixture(params=["memory", "parallel", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AnswerSizes:
    stores: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "parallel": ParallelMemory,
        "sqlite": lambda: SqliteStore(str(tmp_path / "content.db")),
    }
    return AnswerSizes(stores[request.param](), MOST)


def add_nodes(store: Store, small: int, large: int) -> list[str]:
    """Add a folder with small nodes and then large ones, and return their paths."""
    found = [f"/a/s{number:04}" for number in range(small)] + [f"/a/z{number:04}" for number in range(large)]
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a"))
        for path in found:
            repo.run(lambda tx: tx.add(path, {"p": "x" * (VALUE if path > "/a/z" else 1)}))  # noqa: B023 - used at once
    return found


def test_a_walk_over_large_nodes_reads_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 30, 60)
    with Repository(store, poll_interval=0) as repo:
        store.take()
        assert [node.path for node in repo.head.walk("/a")] == ["/a", *found]
        sizes = store.take()
        assert max(sizes) <= MOST + VALUE
        # They are not smaller than necessary.
        assert len(sizes) < 60 * VALUE // MOST + 8


def test_a_walk_over_known_names_of_large_nodes_reads_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 30, 60)
    with Repository(store, poll_interval=0) as repo:
        repo.run(lambda tx: [tx.remove(path) for path in found[40:50]])
        left = found[:40] + found[50:]
        assert repo.head.children("/a") == [path.rpartition("/")[2] for path in left]
        store.take()
        assert [node.path for node in repo.head.walk("/a")] == ["/a", *left]
        assert max(store.take()) <= MOST + VALUE


def test_a_walk_over_half_of_the_nodes_reads_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 90, 80)
    with Repository(store, poll_interval=0) as repo:
        repo.head.children("/a")
        repo.head.nodes(found[:90])
        instance = instance_of(repo)
        store.take()
        batches = list(instance.levels(instance.head(), "/a", 1))
        assert [state.path for batch in batches for state in batch] == found
        sizes = store.take()
        assert max(sizes) <= MOST + VALUE
        assert len(sizes) <= 80 * VALUE // MOST + 1
        assert max(sum(len(state.encoded["p"]) for state in batch) for batch in batches) <= MOST


def test_a_diff_reads_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 30, 80)
    with Repository(store, poll_interval=0) as repo:
        before = repo.head
        repo.run(lambda tx: [tx.set(path, "p", "y" * VALUE) for path in found])
        with Repository(store, poll_interval=0, owns_store=False) as other:
            views = other.at(before.revision), other.head
            store.take()
            assert [change.path for change in other.diff(*views)] == found
            sizes = store.take()
            assert max(sizes) <= MOST + VALUE
            assert len(sizes) <= (80 + 110) * VALUE // MOST + 2


def test_many_nodes_are_read_in_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 90, 80)
    with Repository(store, poll_interval=0) as repo:
        store.take()
        nodes = repo.head.nodes([*found, "/none"])
        assert [path for path, node in nodes.items() if node is not None] == found
        assert max(store.take()) <= MOST + VALUE


@pytest.mark.parametrize("kept", [20, 400])
def test_a_walk_over_known_names_reads_few_rows_of_deleted_nodes(store: AnswerSizes, kept: int) -> None:
    found = add_nodes(store, kept, 0)
    dead = [f"{path}/{number:03}" for path in found[:1] for number in range(3)]
    with Repository(store, poll_interval=0) as repo:
        below = [f"/a/s{number:04}{letter}" for number in range(kept) for letter in "abcdefgh"]
        repo.run(lambda tx: [tx.add(path) for path in [*below, *dead]])
        repo.run(lambda tx: [tx.remove(path) for path in below])
        assert len(repo.head.children("/a")) == kept
        store.take()
        assert [node.path for node in repo.head.walk("/a", 1)] == ["/a", *found]
        # The first answers show that most rows are those of deleted nodes.
        assert len(store.take()) <= 4 + kept // 100


def test_a_walk_holds_little_besides_the_cache(tmp_path: Path) -> None:
    inner = SqliteStore(str(tmp_path / "content.db"), durable=False)
    count, size, most = 40, 500_000, 1_000_000
    with Repository(AnswerSizes(inner, most), poll_interval=0, cache_bytes=1_000_000) as repo:
        for number in range(count):
            repo.run(lambda tx: tx.add(f"/{number}", {"p": "x" * size}))  # noqa: B023 - used at once
    with Repository(
        AnswerSizes(SqliteStore(str(tmp_path / "content.db")), most), poll_interval=0, cache_bytes=1_000_000
    ) as repo:
        tracemalloc.start()
        try:
            assert sum(1 for _ in repo.head.walk()) == count + 1
            assert tracemalloc.get_traced_memory()[1] < count * size // 3
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", ["diff", "walk"])
def test_reads_by_path_hold_little_besides_the_cache(tmp_path: Path, kind: str) -> None:
    count, size, most = 40, 500_000, 1_000_000
    found = [f"/{number:02}" for number in range(2 * count)]

    def opened() -> Repository:
        store = AnswerSizes(SqliteStore(str(tmp_path / "content.db"), durable=False), most)
        return Repository(store, poll_interval=0, cache_bytes=1_000_000)

    with opened() as repo:
        repo.run(lambda tx: [tx.add(path) for path in found])
        for path in found[:count]:
            repo.run(lambda tx: tx.set(path, "p", "x" * size))  # noqa: B023 - used at once
        before = repo.head.revision
        for path in found[:count]:
            repo.run(lambda tx: tx.set(path, "p", "y" * size))  # noqa: B023 - used at once
    with opened() as repo:
        repo.head.children("/")
        repo.head.nodes(found[count:])
        old = repo.at(before)
        with little_memory(count * size // 3):
            if kind == "diff":
                assert sum(1 for _ in repo.diff(old, repo.head)) == count
            else:
                assert sum(1 for _ in repo.head.walk()) == 2 * count + 1


def test_an_export_as_json_reads_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 30, 60)
    with Repository(store, poll_interval=0) as repo:
        store.take()
        exported = json.loads("".join(export_json(repo.head, "/a")))
        assert ["/a/" + name for name in exported["children"]] == found
        assert max(store.take()) <= MOST + VALUE


def test_a_walk_holds_a_small_answer_at_a_time(store: AnswerSizes) -> None:
    found = add_nodes(store, 10, 40)
    with Repository(store, poll_interval=0) as repo:
        instance = instance_of(repo)
        batches = list(instance.levels(instance.head(), "/a"))
        assert [state.path for batch in batches for state in batch] == found
        assert max(len(batch) for batch in batches) <= 10 + MOST // VALUE + 1


def test_older_versions_of_large_values_are_read_in_small_answers(store: AnswerSizes) -> None:
    found = add_nodes(store, 0, 10)
    with Repository(store, poll_interval=0) as repo:
        for letter in "uvwx":
            repo.run(lambda tx: [tx.set(path, "p", letter * VALUE) for path in found])  # noqa: B023 - used at once
        branch = repo.branch()
        branch.run(lambda tx: [tx.set(path, "p", "y" * VALUE) for path in found])
        repo.run(lambda tx: tx.set("/a", "newer", True))
        with Repository(store, poll_interval=0, owns_store=False) as other:
            store.take()
            assert {str(node["p"]) for node in other.head.walk("/a") if node.path != "/a"} == {"x" * VALUE}
            assert max(store.take()) <= MOST + VALUE
