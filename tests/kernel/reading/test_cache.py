"""The node cache never returns the state of another snapshot."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import Repository
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.format.paths import key
from hbasemk.kernel.journal import polled_revisions
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import Entry, NodeCache
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.proof import PROOF
from tests.support.repositories import Instances
from tests.support.runtime import World, open_instance


def test_state_read_at_an_old_revision_is_not_returned_at_head(opened: Instances) -> None:
    first = opened()
    first.run(lambda tx: tx.add("/a", {"n": 1}))
    old = first.head.revision
    first.run(lambda tx: tx.set("/a", "n", 2))
    for repo in (first, opened()):
        assert repo.at(old)["/a"]["n"] == 1
        assert repo.head["/a"]["n"] == 2
        assert repo.at(old)["/a"]["n"] == 1


def test_absent_node_is_cached_until_it_is_added(opened: Instances) -> None:
    one, two = opened(), opened()
    assert "/a" not in two.head
    one.run(lambda tx: tx.add("/a"))
    assert "/a" not in two.head
    assert "/a" in two.refresh()


def test_small_cache_evicts_but_is_never_wrong(opened: Instances) -> None:
    one, two = opened(cache_bytes=4000), opened(cache_bytes=4000)
    one.run(lambda tx: [tx.add(f"/n{number}", {"v": 0}) for number in range(20)])
    revisions = []
    for turn in range(1, 6):
        writer = (one, two)[turn % 2]
        writer.refresh()
        for number in range(20):
            writer.run(lambda tx, number=number, turn=turn: tx.set(f"/n{number}", "v", turn))
        revisions.append(writer.head.revision)
    for repo in (one, two, opened(cache_bytes=4000)):
        repo.refresh()
        for turn, revision in enumerate(revisions, 1):
            assert [repo.at(revision)[f"/n{number}"]["v"] for number in range(20)] == [turn] * 20
        assert [repo.head[f"/n{number}"]["v"] for number in range(20)] == [5] * 20


class _Paused(dict[object, Entry]):
    """A generation that runs a function of another thread right after its first lookup."""

    def __init__(self, entries: dict[object, Entry], then: Callable[[], None]) -> None:
        super().__init__(entries)
        self.then: Callable[[], None] | None = then

    def get(self, key: object, default: Any = None) -> Any:
        found = super().get(key, default)
        then, self.then = self.then, None
        if then is not None:
            thread = threading.Thread(target=then)
            thread.start()
            thread.join(5)
        return found


def _at(position: int) -> View:
    return View(1000 + position, position, 1000 + position)


def _touches(position: int, path: str) -> Arrival:
    return Arrival(1000 + position, position, [RowChange(path, CHANGED, ["n"])])


def test_promotion_does_not_restore_an_entry_dropped_by_an_arrival() -> None:
    cache = NodeCache(threading.RLock(), 2500)
    old = NodeState("/a", 1, 1000, {}, {})
    cache.put("/a", _at(0), old)
    cache.put("/b", _at(0), None)
    cache.put("/c", _at(0), None)
    cache._old = _Paused(cache._old, lambda: cache.arrived([_touches(1, "/a")]))
    shown = cache.get("/a", _at(0))
    assert shown is None or shown.state is old
    assert cache.get("/a", _at(1)) is None


def test_state_stored_during_an_arrival_is_not_the_replaced_one() -> None:
    shown = []

    class Slow(NodeCache):
        """A cache in which a revision arrives between the decision to keep a node and its insertion."""

        def _keep(self, key: object, entry: Entry) -> int:
            arriving.start()
            # If a lock excludes the arrival, it waits longer than this.
            arriving.join(0.2)
            size = super()._keep(key, entry)
            shown.append(None if arriving.is_alive() else self.get("/a", _at(1)))
            return size

    cache = Slow(threading.RLock(), 4)
    arriving = threading.Thread(target=lambda: cache.arrived([_touches(1, "/a")]))
    cache.put("/a", _at(0), None)
    arriving.join()
    assert shown == [None]
    assert cache.get("/a", _at(1)) is None


class _Interruption:
    """Calls a method as usual; one call is followed or preceded by a KeyboardInterrupt, like Ctrl-C."""

    def __init__(self, call: Callable[..., Any], *, before: bool, number: int = 1) -> None:
        self.call = call
        self.before = before
        self.left = number

    def __call__(self, *arguments: Any) -> Any:
        if self.before:
            self.strike()
        result = self.call(*arguments)
        self.strike()
        return result

    def strike(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("where", ["cache drops", "count is notified", "order", "head"])
@pytest.mark.parametrize("own", [True, False])
def test_an_interrupted_arrival_leaves_nothing_stale(opened: Instances, where: str, before: bool, own: bool) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: (tx.add("/a", {"n": 0}), tx.add("/b", {"n": 0})))
    two.refresh()
    assert two.head["/a"]["n"] == two.head["/b"]["n"] == 0
    kernel = instance_of(two)
    journal = kernel.journal
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if where == "cache drops":
            patch.setattr(kernel.cache, "_drop", _Interruption(kernel.cache._drop, before=before))
        elif where == "count is notified":
            interruption = _Interruption(journal.listeners[-1], before=before)
            patch.setattr(journal, "listeners", [*journal.listeners[:-1], interruption])
        elif where == "order":
            joins = _Interruption(RevisionSequence.extend, before=before)
            patch.setattr(RevisionSequence, "extend", lambda order, found: joins(order, found))
        else:
            patch.setattr(journal, "_view_at", _Interruption(journal._view_at, before=before))
        if own:
            two.run(lambda tx: (tx.set("/a", "n", 100), tx.set("/b", "n", 100)))
        else:
            one.run(lambda tx: (tx.set("/a", "n", 100), tx.set("/b", "n", 100)))
            two.refresh()
    one.refresh()
    assert two.refresh()["/a"]["n"] == two.head["/b"]["n"] == 100
    assert two.head.revision == one.head.revision
    one.run(lambda tx: tx.add("/c"))
    two.run(lambda tx: tx.increment("/a", "n"))
    assert [one.refresh()["/a"]["n"], two.head["/a"]["n"], two.head["/b"]["n"]] == [101, 101, 100]
    assert journal.head.position == len(journal) - 1


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("where", ["count is notified", "order"])
@pytest.mark.parametrize(("together", "number"), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)])
def test_a_poll_that_is_interrupted_between_arrivals_leaves_nothing_stale(
    opened: Instances, where: str, before: bool, together: int, number: int
) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: [tx.add(path, {"n": 0}) for path in ("/a", "/b", "/c")])
    two.refresh()
    assert [two.head[path]["n"] for path in ("/a", "/b", "/c")] == [0, 0, 0]
    journal = instance_of(two).journal
    moved: list[int] = []
    journal.watchers.append(lambda: moved.append(journal.head.position))
    for path in ("/a", "/b", "/c"):
        one.run(lambda tx, path=path: tx.set(path, "n", 1))
    before_poll = journal.head
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(polled_revisions, "TOGETHER", together)
        if where == "order":
            joins = _Interruption(RevisionSequence.extend, before=before, number=number)
            patch.setattr(RevisionSequence, "extend", lambda order, found: joins(order, found))
        else:
            interruption = _Interruption(journal.listeners[-1], before=before, number=number)
            patch.setattr(journal, "listeners", [*journal.listeners[:-1], interruption])
        two.refresh()
    # The head moves once, when all have joined.
    assert journal.head == before_poll
    assert [two.head[path]["n"] for path in ("/a", "/b", "/c")] == [0, 0, 0]
    two.refresh()
    assert [two.head[path]["n"] for path in ("/a", "/b", "/c")] == [1, 1, 1]
    assert two.head.revision == one.head.revision
    assert moved[-1] == journal.head.position == len(journal) - 1


def test_a_poll_moves_the_head_once(opened: Instances) -> None:
    one, two = opened(), opened()
    journal = instance_of(two).journal
    two.refresh()
    moved: list[int] = []
    journal.watchers.append(lambda: moved.append(journal.head.position))
    for number in range(5):
        one.run(lambda tx, number=number: tx.add(f"/{number}"))
    two.refresh()
    assert moved == [len(journal) - 1]


def test_a_view_with_an_extent_has_entries_of_its_own() -> None:
    cache = NodeCache(threading.RLock(), 2500)
    first, extent, other = _at(-1), View.of(900, Extent(900), 900), View.of(901, Extent(901), 901)
    cache.put("/a", extent, None)
    assert cache.get("/a", extent) is not None
    assert cache.get("/a", first) is cache.get("/a", other) is None
    cache.put("/b", first, None)
    assert cache.get("/b", first) is not None
    assert cache.get("/b", extent) is None
    branch = extent._replace(own=frozenset({5}))
    cache.put("/a", branch, None)
    assert cache.get("/a", branch) is None


@pytest.mark.no_cover
def test_the_cache_counts_the_extents_of_its_views() -> None:
    limit = 1_000_000
    cache = NodeCache(threading.RLock(), limit)
    tracemalloc.start()
    for number in range(500):
        first = 1 << 40 | number << 20
        view = View.of(first, Extent(5, tuple(range(first, first + 500))), first + 500)
        for path in ("/a", "/b"):
            cache.put(path, view, None)
            assert cache.get("/a", view) is not None
    # An equal extent of another view finds what the cache kept for this one.
    assert cache.get("/b", View.of(first, Extent(5, tuple(range(first, first + 500))), first + 500)) is not None
    del view
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cache.statistics.bytes <= limit
    assert used < 1.4 * limit
    too_large = View.of(1, Extent(1, tuple(range(2, 100_000))), 1)
    cache.put("/a", too_large, None)
    assert cache.get("/a", too_large) is None


def test_many_lookups_at_once_find_what_single_ones_find() -> None:
    cache = NodeCache(threading.RLock(), 6000)
    extent = View.of(900, Extent(900), 900)
    paths = [f"/{number}" for number in range(6)]
    cache.put_all(_at(3), [(path, NodeState(path, 1, 1003, {}, {}), ()) for path in paths[:4]])
    cache.put_all(extent, [(path, None, ()) for path in paths])
    for position in (4, 5):
        cache.arrived([_touches(position, paths[position - 4])])
        cache.put(paths[position - 4], _at(position), NodeState(paths[position - 4], 1, 1000 + position, {}, {}))
    for view in (_at(2), _at(3), _at(4), _at(5), extent, _at(5)._replace(own=frozenset({5}))):
        for wanted in (paths, paths[:4], paths[:1], []):
            single = [cache.get(path, view) for path in wanted]
            hits = cache.statistics.hits
            assert list(cache.get_all(wanted, view)) == single
            assert cache.statistics.hits - hits == sum(entry is not None for entry in single)


def test_states_built_on_a_view_with_an_extent_are_not_cached(world: World) -> None:
    one = open_instance(MemoryStore(world.clock), world)
    head, node = one.head(), [RowChange("/a", CHANGED, ["n"])]
    for built_on, cached in ((View.of(head.revision, Extent(head.revision), head.upper), False), (head, True)):
        fresh = open_instance(MemoryStore(world.clock), world)
        revision = fresh.announcements.next(fresh.head().upper, [])
        fresh.journal.append_local(revision, node, {"/a": NodeState("/a", 1, revision, {}, {})}, built_on, 0, 0)
        assert (fresh.cache.get("/a", fresh.head()) is not None) == cached


def test_entries_of_an_announced_position_are_dropped_if_another_revision_takes_it() -> None:
    cache = NodeCache(threading.RLock(), 2500)
    state = NodeState("/a", 1, 1001, {}, {})
    cache.arrived([Arrival(1001, 1, [RowChange("/a", CHANGED, ["n"])], {"/a": state}, 0)])
    cache.forget(1)
    cache.put("/a", _at(0), None)
    assert cache.get("/a", _at(1)) is None
    cache.put("/a", _at(1), None)
    assert cache.get("/a", _at(1)) is not None


@contextmanager
def _eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_two_nodes_of_one_snapshot_agree_while_revisions_arrive(opened: Instances) -> None:
    reader, writer = opened(cache_bytes=8000), opened()
    paths = [f"/{number}" for number in range(6)]
    writer.run(lambda tx: [tx.add(path, {"n": 0}) for path in paths])
    reader.refresh()
    over = threading.Event()
    bad: list[tuple[str, list[object]]] = []
    failed: list[BaseException] = []

    def read() -> None:
        while not over.is_set():
            head = reader.head
            shown = [head[path]["n"] for path in paths]
            if len(set(shown)) > 1:
                bad.append((head.revision, shown))
                return

    def poll() -> None:
        while not over.is_set():
            reader.refresh()

    def work(turn: Callable[[], None]) -> None:
        try:
            turn()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in (read, read, poll)]
    with _eager_threads():
        for thread in threads:
            thread.start()
        try:
            for number in range(1, 101):
                writer.run(lambda tx, number=number: [tx.set(path, "n", number) for path in paths])
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert failed == []
    assert bad == []
    head = reader.refresh()
    assert [head[path]["n"] for path in paths] == [100] * 6


@pytest.mark.no_cover
@pytest.mark.parametrize("opened", ["memory", pytest.param("sqlite", marks=PROOF)], indirect=True)
@pytest.mark.parametrize(
    "end", ["", "x" * 195, "\u0416" * 195, "\U0001f600" * 195], ids=["short", "long", "cyrillic", "emoji"]
)
def test_the_cache_takes_about_as_many_bytes_as_it_says(opened: Instances, end: str) -> None:
    count = 1_000 if end else 4_000
    opened().run(
        lambda tx: [
            tx.add("/w"),
            *(tx.add(f"/w/{number:05}{end}", {"title": f"node {number}", "n": number}) for number in range(count)),
        ]
    )
    for limit in (1_200_000, 1 << 30):
        repo = opened(cache_bytes=limit)
        gc.collect()
        tracemalloc.start()
        names = repo.head.children("/w")
        if limit == 1 << 30 and end:
            # Names alone, before the paths of the nodes.
            del names
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
            said = repo.cache_statistics.bytes
            assert 0.6 * said < used < 1.4 * said + 100_000, (used, said)
            names = repo.head.children("/w")
        for name in names:
            assert repo.head[f"/w/{name}"]["n"] == int(name[:5])
        del name, names
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        said = repo.cache_statistics.bytes
        assert said <= limit
        # The path of a node counts twice, although most entries share it with their node.
        assert 0.55 * said < used < 1.4 * said + 300_000, (used, said)


class _Names(list[str]):
    """A list of names that counts how often it was read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return super().__iter__()


def test_an_arrival_does_not_measure_the_cached_names_of_its_node() -> None:
    cache = NodeCache(threading.RLock(), 1_000_000)
    names = _Names(f"{number:03}" for number in range(900))
    size = cache.put_all(_at(0), [("/a", NodeState("/a", 1, 1000, {}, {}), names)])
    measured = names.read
    for position in range(1, 4):
        cache.arrived([_touches(position, "/a")])
        cache.put("/a", _at(position), NodeState("/a", 1, 1000 + position, {}, {}))
        assert cache.children("/a", _at(position)) is names
    assert names.read == measured
    assert cache.statistics.bytes == size


LARGE_VALUES: dict[str, Callable[[int], Any]] = {
    "ints": lambda number: list(range(1000 + number, 3000 + number)),
    "floats": lambda number: [float(number + one) for one in range(2000)],
    "short strings": lambda number: [f"{number + one:05}" for one in range(2000)],
    "long strings": lambda number: [f"{number:05}" * 200] * 20,
    "text": lambda number: f"{number:05}" * 4000,
    "cyrillic text": lambda number: "\u0416\u0443" * 4000,
    "an emoji": lambda number: f"{number:05}" * 4000 + "\U0001f600",
}


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", LARGE_VALUES)
def test_the_cache_counts_large_values_as_they_are_decoded(tmp_path: Path, kind: str) -> None:
    file = str(tmp_path / "content.db")
    with Repository(SqliteStore(file, durable=False), poll_interval=0) as repo:
        repo.run(lambda tx: [tx.add(f"/{number}", {"v": LARGE_VALUES[kind](number)}) for number in range(100)])
    with Repository(SqliteStore(file), poll_interval=0) as repo:
        gc.collect()
        tracemalloc.start()
        for number in range(100):
            assert repo.head[f"/{number}"]["v"] == LARGE_VALUES[kind](number)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        said = repo.cache_statistics.bytes
    assert 0.6 * said < used < 1.4 * said, (used, said)


def test_the_cache_counts_hits_and_misses(opened: Instances) -> None:
    opened().run(lambda tx: tx.add("/a"))
    repo = opened()
    before = repo.cache_statistics
    assert "/a" in repo.head
    assert "/a" in repo.head
    hits, misses, size = repo.cache_statistics
    assert (hits - before.hits, misses - before.misses) == (1, 1)
    assert size > before.bytes


def test_without_a_cache_every_read_is_a_call(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    repo = opened(store, cache_bytes=0)
    repo.run(lambda tx: (tx.add("/a"), tx.add("/a/b")))
    store.take()
    for _ in range(2):
        assert "/a" in repo.head
        assert repo.head.children("/a") == ["b"]
        assert len(list(repo.head.walk())) == 3
        assert store.take()["read", "nodes"] == 3
    assert repo.cache_statistics.bytes == 0


def test_one_walk_over_a_large_tree_does_not_replace_the_whole_cache(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    opened().run(lambda tx: [tx.add(path) for path in ("/hot", "/w", *(f"/w/{number}" for number in range(3_000)))])
    repo = opened(store, cache_bytes=1_000_000)
    assert "/hot" in repo.head
    for _ in range(2):
        assert sum(1 for _ in repo.head.walk("/w")) == 3_001
    store.take()
    assert "/hot" in repo.head
    assert store.take() == {}


def test_an_own_commit_keeps_the_list_of_children_of_a_node_whose_properties_change(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    repo = opened(store)
    repo.run(lambda tx: (tx.add("/a"), tx.add("/a/b")))
    assert repo.head.children("/a") == ["b"]
    repo.run(lambda tx: tx.set("/a", "p", 1))
    store.take()
    assert repo.head.children("/a") == ["b"]
    assert repo.head["/a"]["p"] == 1
    assert store.take() == {}
    repo.run(lambda tx: tx.add("/a/c"))
    assert repo.head.children("/a") == ["b", "c"]
    repo.run(lambda tx: tx.remove("/a/b"))
    assert repo.head.children("/a") == ["c"]
    repo.run(lambda tx: (tx.remove("/a"), tx.add("/a")))
    assert repo.head.children("/a") == []


def test_levels_come_in_the_order_of_their_bytes_from_the_cache_too(opened: Instances) -> None:
    repo = opened()
    tops = ["/a", "/a!", "/a b", "/\U0001f600", "/\uffff", "/\ud800"]
    repo.run(lambda tx: [tx.add(path) for top in tops for path in (top, f"{top}/x", f"{top}/!", f"{top}/\u00e9")])
    first = [node.path for node in repo.head.walk()]
    assert first[1:] == sorted(first[1:], key=key)
    assert [node.path for node in repo.head.walk()] == first
    for path in ("/", *tops):
        names = repo.head.children(path)
        for after in names:
            assert repo.head.children(path, after, 2) == names[names.index(after) + 1 :][:2]
