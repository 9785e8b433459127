"""An upload that fails deletes the chunks that it has written, unless another process may rely on them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.check import blobs as check_blobs
from hbasemk.errors import HbasemkError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import schema
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.blobs import LENGTH, USED
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, collect, commit
from tests.support.failing import is_whole
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance

CONTENT = b"twelve bytes, and some more"
REFUSED = StoreNotAppliedError("the disk is full; nothing was written. Free some space.")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kernel_blobs, check_blobs):
        monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(kernel_blobs, "AT_ONCE", 2)


@pytest.fixture
def ordered() -> bool:
    return True


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def inner(world: World, ordered: bool) -> MemoryStore:
    return MemoryStore(world.clock, transactions=True) if ordered else MarkingStore(world.clock)


@pytest.fixture
def faulty(inner: MemoryStore) -> FaultyStore:
    return FaultyStore(inner)


@pytest.fixture
def one(faulty: FaultyStore, world: World) -> Iterator[Instance]:
    one = open_instance(faulty, world)
    commit(one, AddNode("/a", {}))
    yield one
    faulty.before = faulty.after = None
    is_whole(one)


def write(instance: Instance, **options: bool) -> str:
    return instance.blobs.write(io.BytesIO(CONTENT), **options)


def cells(store: MemoryStore) -> list[bytes]:
    """Return the names of all cells of blobs."""
    return [cell.qualifier for row in store.scan(schema.BLOBS, Scan(None, None, 1000)) for cell in row.cells]


def at_call(number: int, methods: tuple[str, ...], act: Callable[[], Any]) -> Callable[[Call], None]:
    """Act at the call with this number that changes blobs by one of these methods."""
    made = [0]

    def before(call: Call) -> None:
        if call.table == schema.BLOBS and call.method in methods:
            made[0] += 1
            if made[0] == number:
                act()

    return before


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@BOTH_ORDERS
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), HbasemkError("an error")], ids=repr)
@pytest.mark.parametrize("number", range(1, 6))
def test_a_failed_upload_leaves_no_chunk(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, number: int, error: BaseException
) -> None:
    """All chunks of the calls before stayed for a day and a full collection."""
    faulty.before = at_call(number, ("write", "check_and_write"), raises(error))
    with pytest.raises(type(error)):
        write(one)
    assert set(cells(inner)) <= {USED[1]}
    assert one.blobs.read(write(one)) == CONTENT


@BOTH_ORDERS
@pytest.mark.parametrize("error", [REFUSED, StoreUnknownError("no answer")], ids=["refused", "no reply"])
def test_an_outage_that_ends_before_the_upload_gives_up_leaves_no_chunk(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, error: HbasemkError
) -> None:
    def before(call: Call) -> None:
        if (call.method, call.table) == ("write", schema.BLOBS) and inner.scan(schema.BLOBS, Scan(None, None, 1)):
            raise error

    faulty.before = before
    with pytest.raises(type(error)) as raised:
        write(one)
    assert str(raised.value) == str(error)
    assert set(cells(inner)) == {USED[1]}


def test_an_error_of_the_temporary_file_leaves_no_chunk(
    one: Instance, inner: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, left = tempfile.SpooledTemporaryFile.read, [5]

    def fails(self: Any, *arguments: int) -> bytes:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "Input/output error")
        return read(self, *arguments)

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "read", fails)
    with pytest.raises(OSError, match="Input/output"):
        write(one)
    assert left == [-1]
    assert set(cells(inner)) == {USED[1]}


def test_an_error_of_the_stream_stores_nothing(one: Instance, inner: MemoryStore) -> None:
    class Stream(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 8:
                raise OSError(5, "Input/output error")
            return super().read(size)

    with pytest.raises(OSError, match="Input/output"):
        one.blobs.write(Stream(CONTENT))
    assert cells(inner) == []


@BOTH_ORDERS
def test_the_error_says_that_chunks_remain(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, world: World
) -> None:
    """It said only that nothing was written. Another error, such as an interruption, stays as it is."""

    def before(call: Call) -> None:
        if call.table == schema.BLOBS and call.method != "read" and inner.scan(schema.BLOBS, Scan(None, None, 1)):
            raise StoreNotAppliedError(str(REFUSED))

    faulty.before = before
    with pytest.raises(StoreNotAppliedError) as raised:
        write(one)
    assert str(raised.value) == (
        f"{REFUSED} The blob is not stored, but chunks of it that were written before remain, because they could not be "
        "deleted: `hbasemk collect --full` deletes them a day later."
    )
    assert cells(inner) == [b"data", b"data"]
    faulty.before = None
    world.advance(30 * HOUR)
    commit(one, AddNode("/b", {}))
    collect(one, full=True)
    assert b"data" not in cells(inner)


@BOTH_ORDERS
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_blob_that_another_process_has_completed_stays(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, world: World, number: int, replace: bool
) -> None:
    other = open_instance(inner, world, mac=2)

    def act() -> None:
        assert other.blobs.read(write(other)) == CONTENT
        raise KeyboardInterrupt

    faulty.before = at_call(number, ("write", "check_and_write"), act)
    with pytest.raises(KeyboardInterrupt):
        write(one, replace=replace)
    assert other.blobs.read(write(other)) == CONTENT


@BOTH_ORDERS
def test_a_failed_repair_leaves_the_blob(one: Instance, faulty: FaultyStore) -> None:
    blob = write(one)
    for number in range(1, 6):
        faulty.before = at_call(number, ("write", "check_and_write"), raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            write(one, replace=True)
        assert one.blobs.read(blob) == CONTENT


@BOTH_ORDERS
def test_a_blob_whose_last_reply_is_lost_stays(one: Instance, faulty: FaultyStore) -> None:
    faulty.after = at_call(1, ("check_and_write",), raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write(one)
    faulty.after = None
    assert one.blobs.read(write(one)) == CONTENT


@BOTH_ORDERS
def test_a_writer_that_uploads_at_the_same_time_begins_again(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, world: World
) -> None:
    other = open_instance(inner, world, mac=2)

    def fails() -> None:
        interrupted = FaultyStore(inner)
        interrupted.before = at_call(2, ("write",), raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            write(open_instance(interrupted, world, mac=3))

    faulty.before = at_call(5, ("write", "check_and_write"), fails)
    blob = write(one)
    assert one.blobs.read(blob) == other.blobs.read(blob) == CONTENT
    assert cells(inner).count(LENGTH[1]) == 1


def test_a_writer_that_sleeps_for_hours_relies_on_no_deleted_chunk(
    one: Instance, faulty: FaultyStore, inner: MemoryStore, world: World
) -> None:
    """A collector removes what shows that the chunks were deleted only when no upload can be going on."""
    world.advance(30 * HOUR)
    commit(one, AddNode("/b", {}))
    collect(one)
    other = open_instance(inner, world, mac=2)

    def sleeps() -> None:
        interrupted = FaultyStore(inner)
        interrupted.before = at_call(5, ("write", "check_and_write"), raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            write(open_instance(interrupted, world, mac=3))
        world.advance(12 * HOUR)
        other.poll()
        Collector(other).run(RETENTION_MS, blobs=True)

    faulty.before = at_call(5, ("write", "check_and_write"), sleeps)
    assert other.blobs.read(write(one)) == CONTENT
