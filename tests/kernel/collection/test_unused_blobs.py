"""Blobs that no cell refers to are deleted; those that a writer is about to refer to stay."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import blobs as check_blobs
from hbasemk.errors import BlobNotFoundError
from hbasemk.format import schema
from hbasemk.format.blob_use import USED, is_doomed
from hbasemk.format.values import BlobRef
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.blobs import Blobs
from hbasemk.kernel.collection import blob_references, unused_blobs
from hbasemk.kernel.collection.blob_references import ReferenceSet
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import collection_mutants
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance

LOST = hashlib.sha256(b"some content").hexdigest()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kernel_blobs, check_blobs):
        monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(blob_references, "ROWS", 2)
    monkeypatch.setattr(blob_references, "VERSIONS", 2)
    monkeypatch.setattr(blob_references, "DEEPER", 2)


@pytest.fixture
def one(store: MemoryStore, world: World) -> Instance:
    """An instance of a repository in which something is collected."""
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/z", {}))
    return one


def write(instance: Instance, content: bytes) -> str:
    return instance.blobs.write(io.BytesIO(content))


def collect(instance: Instance) -> Report:
    instance.poll()
    return Collector(instance).run(RETENTION_MS, blobs=True)


def rows(store: MemoryStore) -> int:
    return len(store.scan(schema.BLOBS, Scan(None, None, 1000)))


@BOTH_ORDERS
def test_a_blob_is_deleted_when_nothing_refers_to_it(one: Instance, store: MemoryStore, world: World) -> None:
    used, lost, old = (write(one, content) for content in (b"in use, long", b"never used, long", b"was used"))
    commit(one, SetProperty("/a", "p", BlobRef(used)), SetProperty("/z", "p", BlobRef(old)))
    commit(one, SetProperty("/z", "p", 1))
    world.advance(30 * 60)
    commit(one, SetProperty("/z", "q", 1))
    # Nothing goes before all of it is older than the retention and an hour.
    world.advance(1.4 * HOUR)
    assert not collect(one).cells["unused blobs"]
    world.advance(2 * HOUR)
    assert Collector(one).estimate(RETENTION_MS, blobs=True).cells["unused blobs"] == 2
    assert rows(store) == (3 + 1) + (4 + 1) + (2 + 1)
    assert collect(one).cells["unused blobs"] == 2
    assert one.blobs.read(used) == b"in use, long"
    for gone in (lost, old):
        with pytest.raises(BlobNotFoundError):
            one.blobs.read(gone)
    # What a writer may still look at goes a day later; on a store with markers it stays.
    world.advance(23 * HOUR)
    assert not collect(one).cells["unused blobs"]
    assert rows(store) == 4 + 2
    world.advance(2 * HOUR)
    assert not collect(one).cells["unused blobs"]
    assert rows(store) == 4 + (0 if store.supports_transactions else 2)
    assert write(one, b"was used") == old
    assert one.blobs.read(old) == b"was used"


KEEPERS: dict[str, Callable[[Instance, BlobRef], Any]] = {
    "an array": lambda one, ref: commit(one, SetProperty("/a", "p", [BlobRef(write(one, b"other")), ref])),
    "an old version above the horizon": lambda one, ref: [
        one.runtime.sleep(20 * HOUR),
        commit(one, SetProperty("/a", "p", ref)),
        commit(one, SetProperty("/a", "p", 1)),
    ],
    "one of many versions": lambda one, ref: [
        one.runtime.sleep(20 * HOUR),
        commit(one, SetProperty("/a", "p", ref)),
        [commit(one, SetProperty("/a", "p", number)) for number in range(9)],
    ],
    "a branch": lambda one, ref: commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", ref)]),
    "a node that was removed": lambda one, ref: [
        one.runtime.sleep(20 * HOUR),
        commit(one, AddNode("/b", {"p": ref})),
        commit(one, RemoveNode("/b")),
    ],
}


@BOTH_ORDERS
@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_blob_stays_while_any_cell_refers_to_it(one: Instance, world: World, keeper: str) -> None:
    ref = BlobRef(write(one, b"content"))
    commit(one, SetProperty("/z", "q", 1))
    KEEPERS[keeper](one, ref)
    world.advance(0.5 * HOUR)
    if keeper in ("an array", "a branch"):
        world.advance(20 * HOUR)
    Collector(one).run(RETENTION_MS)
    assert not collect(one).cells["unused blobs"]
    assert one.blobs.read(ref.id) == b"content"


@BOTH_ORDERS
def test_a_writer_that_finds_its_content_keeps_it(one: Instance, world: World) -> None:
    blob = write(one, b"content")
    commit(one, SetProperty("/z", "q", 1))
    for _ in range(5):
        world.advance(1.5 * HOUR)
        assert write(one, b"content") == blob
        assert not collect(one).cells["unused blobs"]
    world.advance(1.5 * HOUR)
    assert one.blobs.keep(blob) == 7
    assert not collect(one).cells["unused blobs"]
    world.advance(3 * HOUR)
    assert collect(one).cells["unused blobs"] == 1
    with pytest.raises(BlobNotFoundError):
        one.blobs.keep(blob)


@BOTH_ORDERS
def test_a_blob_of_an_older_version_is_first_given_time(one: Instance, store: MemoryStore, world: World) -> None:
    blob = write(one, b"content")
    (row,) = [row for row in store.scan(schema.BLOBS, Scan(None, None, 9)) if len(row.key) == 32]
    store.delete(schema.BLOBS, [Delete(row.key, [CellVersion(*USED, cell.timestamp) for cell in row.cells])])
    commit(one, SetProperty("/z", "q", 1))
    world.advance(30 * HOUR)
    assert not collect(one).cells["unused blobs"]
    assert one.blobs.read(blob) == b"content"
    world.advance(3 * HOUR)
    assert collect(one).cells["unused blobs"] == 1


def between(monkeypatch: pytest.MonkeyPatch, store: Any, method: str, table: str, act: Callable[[], Any]) -> None:
    """Do something before the first call of a method on a table."""
    original, done = getattr(store, method), []

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        if name == table and not done:
            done.append(True)
            act()
        return original(name, *arguments, **options)

    monkeypatch.setattr(store, method, call)


@BOTH_ORDERS
@pytest.mark.parametrize("method", ["check_and_write", "delete_below"])
def test_a_writer_that_wants_a_blob_while_it_is_swept_has_it_afterwards(
    one: Instance, store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    write(one, b"some content")
    commit(one, SetProperty("/z", "q", 1))
    world.advance(30 * HOUR)
    other = open_instance(store, world, mac=2)

    def use() -> None:
        commit(other, SetProperty("/a", "p", BlobRef(write(other, b"some content"))))

    between(monkeypatch, one.store, method, schema.BLOBS, use)
    collect(one)
    ref = open_instance(store, world, mac=3).require(other.head(), "/a").properties["p"]
    assert other.blobs.read(ref.id) == b"some content"  # type: ignore[union-attr]


@BOTH_ORDERS
def test_the_check_reports_no_blob_that_a_writer_uploads_again_after_a_collector_died(
    one: Instance, store: MemoryStore, world: World
) -> None:
    """A check runs before and after each call of the writer."""
    key = bytes.fromhex(write(one, b"some content"))
    assert one.blobs.doom(key, one.blobs.head(key), world.clock(), 0)
    calls: list[Call] = []

    def check(call: Call) -> None:
        calls.append(call)
        checker = open_instance(store, world, mac=3)
        assert [str(problem) for problem in IntegrityCheck(checker, live=True, blobs=True).run()] == []

    faulty = FaultyStore(store)
    writer = open_instance(faulty, world, mac=2)
    faulty.before = faulty.after = check
    commit(writer, SetProperty("/a", "p", BlobRef(write(writer, b"some content"))))
    assert len([call for call in calls if call.table == schema.BLOBS]) == 6


@BOTH_ORDERS
def test_an_upload_that_another_one_and_a_sweep_overtake_is_repeated(
    one: Instance, store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(one, SetProperty("/z", "q", 1))
    other = open_instance(store, world, mac=2)

    def overtake() -> None:
        write(other, b"some content")
        world.advance(30 * HOUR)
        assert collect(other).cells["unused blobs"] == 1

    between(monkeypatch, one.store, "check_and_write", schema.BLOBS, overtake)
    assert one.blobs.read(write(one, b"some content")) == b"some content"


@BOTH_ORDERS
def test_an_upload_that_compares_nothing_loses_its_content(
    one: Instance, store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Blobs._mark

    def unconditional(self: Blobs, key: bytes, found: Any, value: bytes, cells: Any, **options: Any) -> bool:
        if not original(self, key, found, value, cells, **options):
            self._store.write(schema.BLOBS, [Put(key, [NewCell(*USED, value), *cells])])
        return True

    monkeypatch.setattr(Blobs, "_mark", unconditional)
    with pytest.raises(BlobNotFoundError):
        test_an_upload_that_another_one_and_a_sweep_overtake_is_repeated(one, store, world, monkeypatch)
    (row,) = [row for row in store.scan(schema.BLOBS, Scan(None, None, 99)) if row.key.hex() == LOST]
    store.delete_rows(schema.BLOBS, [row.key])


@pytest.mark.parametrize("stamped", [True, False], ids=["", "by the server's clock"])
def test_an_upload_after_a_sweep_is_stored_although_a_servers_clock_goes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, stamped: bool
) -> None:
    back_ms: list[int] = [0]
    store = MarkingStore(world.clock, parallel=True, clocks={schema.BLOBS: lambda: world.clock() - back_ms[0]})
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/z", {}))
    blob = write(one, b"some content")
    commit(one, SetProperty("/z", "q", 1))
    world.advance(30 * HOUR)
    assert collect(one).cells["unused blobs"] == 1
    back_ms[0] = int(100 * HOUR * 1000)
    if stamped:
        assert write(one, b"some content") == blob
        assert one.blobs.read(blob) == b"some content"
        return
    # Without the timestamps that the writer chooses, markers hide the chunks.
    monkeypatch.setattr(Blobs, "_upload_ms", lambda *_: None)
    write(one, b"some content")
    with pytest.raises(BlobNotFoundError):
        one.blobs.read(blob)
    monkeypatch.undo()
    key = bytes.fromhex(blob)
    assert one.blobs.doom(key, one.blobs.head(key), world.clock(), 0)


@BOTH_ORDERS
def test_a_reference_that_is_copied_while_references_are_read_keeps_its_blob(
    one: Instance, store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is in a row that was read already; the source would go if the horizon rose."""
    ref = BlobRef(write(one, b"content"))
    commit(one, SetProperty("/z", "p", ref))
    world.advance(30 * HOUR)
    other = open_instance(store, world, mac=2)
    pages: list[Any] = []
    scan = one.store.scan

    def copy(table: str, page: Scan) -> Any:
        found = scan(table, page)
        if table == schema.NODES:
            pages.append(page)
            if len(pages) == 1:
                assert b"/z" not in b"".join(row.key for row in found)
                commit(other, SetProperty("/a", "p", ref), SetProperty("/z", "p", None))
                commit(other, SetProperty("/z", "q", 1))
                world.advance(2 * HOUR)
                Collector(other).run(RETENTION_MS)
        return found

    monkeypatch.setattr(one.store, "scan", copy)
    collect(one)
    assert len(pages) > 1
    assert other.blobs.read(ref.id) == b"content"


@BOTH_ORDERS
def test_blobs_stay_if_the_horizon_rises_while_references_are_read(
    one: Instance, store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the checkpoint that usually prevents it."""
    monkeypatch.setattr(unused_blobs, "_hold", lambda *_: None)
    test_a_reference_that_is_copied_while_references_are_read_keeps_its_blob(one, store, world, monkeypatch)


@BOTH_ORDERS
def test_a_sweep_that_was_killed_is_finished_by_a_later_one(one: Instance, store: MemoryStore, world: World) -> None:
    write(one, b"some content")
    commit(one, SetProperty("/z", "q", 1))
    world.advance(30 * HOUR)
    undisturbed = 0
    for at in range(9):
        copy = store.clone(world.clock)
        instance = open_instance(copy, world, mac=5)
        left = [at]

        def fails(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def step(table: str, *arguments: Any, **options: Any) -> Any:
                if table == schema.BLOBS:
                    left[0] -= 1
                    if left[0] < 0:
                        raise KeyboardInterrupt
                return call(table, *arguments, **options)

            return step

        instance.store.delete_below = fails(instance.store.delete_below)  # type: ignore[method-assign]
        instance.store.check_and_write = fails(instance.store.check_and_write)  # type: ignore[method-assign]
        try:
            collect(instance)
        except KeyboardInterrupt:
            undisturbed += 1
        world.advance(12 * HOUR)
        other = open_instance(copy, world, mac=6)
        collect(other)
        world.advance(36 * HOUR)
        collect(other)
        left = [cell.qualifier for row in copy.scan(schema.BLOBS, Scan(None, None, 10)) for cell in row.cells]
        assert left == ([] if store.supports_transactions else [USED[1]]), at
    assert undisturbed == 3


@BOTH_ORDERS
def test_a_reference_that_cannot_be_decoded_ends_the_run(one: Instance, store: MemoryStore, world: World) -> None:
    blob = write(one, b"content")
    revision = commit(one, SetProperty("/z", "q", [1]))
    store.write(schema.NODES, [Put(b"\0\1/z", [NewCell(schema.DATA, b"\x01q", b"\x09damaged", revision)])])
    world.advance(30 * HOUR)
    with pytest.raises(Exception, match="value|array|cannot"):
        collect(one)
    assert one.blobs.read(blob) == b"content"
    store.write(schema.NODES, [Put(b"\0\1/z", [NewCell(schema.DATA, b"\x01q", b"\x02\x01", revision)])])


@BOTH_ORDERS
@pytest.mark.parametrize("qualifier", [b"", b"\x00q", b"\x02q", b"\x09q", b"q"])
def test_a_blob_stays_while_a_column_with_a_damaged_name_refers_to_it(
    one: Instance, store: MemoryStore, world: World, qualifier: bytes
) -> None:
    """It was deleted, so a repair of the column could not bring it back."""
    blob = write(one, b"content")
    revision = commit(one, SetProperty("/z", "q", BlobRef(blob)))
    value = store.read(schema.NODES, [Get(b"\0\1/z", columns=[(schema.DATA, b"\x01q")])])[0].cells[0].value
    store.delete(schema.NODES, [Delete(b"\0\1/z", [CellVersion(schema.DATA, b"\x01q", revision)])])
    store.write(schema.NODES, [Put(b"\0\1/z", [NewCell(schema.DATA, qualifier, value, revision)])])
    world.advance(30 * HOUR)
    assert not collect(one).cells["unused blobs"]
    assert one.blobs.read(blob) == b"content"
    store.delete(schema.NODES, [Delete(b"\0\1/z", [CellVersion(schema.DATA, qualifier, revision)])])
    store.write(schema.NODES, [Put(b"\0\1/z", [NewCell(schema.DATA, b"\x01q", value, revision)])])


def test_a_column_without_a_name_refers_to_nothing(one: Instance, store: MemoryStore, world: World) -> None:
    """It ended the run with IndexError. Readers ignore such a column, and the integrity check reports it."""
    write(one, b"content")
    revision = commit(one, SetProperty("/z", "q", 1))
    damaged = [CellVersion(schema.DATA, b"", revision - at) for at in range(20)]
    store.write(
        schema.NODES, [Put(b"\0\1/z", [NewCell(schema.DATA, b"", b"\x01", cell.timestamp)]) for cell in damaged]
    )
    world.advance(30 * HOUR)
    assert collect(one).cells["unused blobs"] == 1
    store.delete(schema.NODES, [Delete(b"\0\1/z", damaged)])


def test_a_set_of_references_contains_what_was_added_and_little_else() -> None:
    found = ReferenceSet(2000, b"salt")
    keys = [number.to_bytes(32, "big") for number in range(200_000)]
    for key in keys[:100_000]:
        found.add(key)
    assert all(key in found for key in keys[:100_000])
    assert sum(key in found for key in keys[100_000:]) < 3000


def test_a_doomed_blob_is_not_complete() -> None:
    assert is_doomed(b"\x02" + bytes(8))
    assert not is_doomed(None)


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (
            collection_mutants.only_the_newest_versions_are_read,
            test_a_blob_stays_while_any_cell_refers_to_it,
            ("one of many versions",),
        ),
        (collection_mutants.blobs_go_at_once, test_a_writer_that_finds_its_content_keeps_it, ()),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_sweep_of_blobs_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ROWS", 2), ("VERSIONS", 2), ("DEEPER", 2)):
        monkeypatch.setattr(blob_references, name, value)
    world = World()
    store = MemoryStore(world.clock, transactions=True)
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/z", {}))
    mutant(monkeypatch)
    with pytest.raises((AssertionError, BlobNotFoundError)):
        test(one, world, *arguments)
    store.close()
