"""The child count of a wide node equals the number of its names, whichever way it is computed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from hbasemk import FormatError, MicroKernel, NodeNotFoundError, Repository, Snapshot, StoreUnusableError
from hbasemk.format import paths, schema
from hbasemk.kernel.reading import child_count
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.store.abc import Get, NewCell, Put, Store
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.repositories import Instances

MANY = 1_100
"""Slightly more than the threshold of a wide node."""


def name(number: int) -> str:
    return f"/p/{number:05}"


def fill(repo: Repository, begin: int = 0, end: int = MANY) -> None:
    repo.run(lambda tx: [tx.add("/p")] if not tx.exists("/p") else None)
    repo.run(lambda tx: [tx.add(name(number)) for number in range(begin, end)])


def counted(snapshot: Snapshot, path: str = "/p") -> int:
    """Return the child count, which must equal the number of names. The second call reads the cached count."""
    expected = len(snapshot.children(path))
    assert snapshot.child_count(path) == expected
    assert snapshot[path].child_count == expected
    return expected


def memo_of(store: Store, path: str = "/p") -> Memo | None:
    row = store.read(schema.CLUSTER, [Get(schema.child_count_key(paths.key(path)), columns=(schema.CHILD_COUNT,))])[0]
    return Memo.decode(row.cells[0].value, path) if row.cells else None


def write_memo(store: Store, value: bytes, path: str = "/p") -> None:
    cell = NewCell(*schema.CHILD_COUNT, value)
    store.write(schema.CLUSTER, [Put(schema.child_count_key(paths.key(path)), [cell])])


@pytest.fixture(params=["from the journal", "from the node's row"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The source of the difference between two snapshots; by default such small nodes use the row."""
    if request.param == "from the journal":
        monkeypatch.setattr(child_count, "PER_REVISION", 1)
    else:
        monkeypatch.setattr(child_count, "FROM_JOURNAL", 0)
    return request.param


def test_few_children_are_counted_without_a_memo(opened: Instances) -> None:
    one = opened()
    fill(one, 0, 30)
    assert counted(one.head) == 30
    assert counted(opened().head) == 30
    assert counted(one.head, "/") == 1
    assert memo_of(one.store) is None
    with pytest.raises(NodeNotFoundError):
        one.head.child_count("/nowhere")


def test_a_second_instance_uses_the_memo_of_the_first(opened: Instances) -> None:
    one = opened()
    fill(one)
    assert counted(one.head) == MANY
    memo = memo_of(one.store)
    assert memo is not None
    assert memo.children == MANY
    # A wrong memo shows that it is used.
    write_memo(one.store, memo._replace(children=5 * MANY).encode())
    assert opened().head.child_count("/p") == 5 * MANY
    one.run(lambda tx: [tx.add(name(MANY)), tx.add(name(MANY + 1)), tx.remove(name(0))])
    assert opened().head.child_count("/p") == 5 * MANY + 1
    write_memo(one.store, memo.encode())
    assert counted(opened().head) == counted(one.head) == MANY + 1


def test_additions_and_removals_after_the_memo_are_added_to_it(opened: Instances, way: str) -> None:
    one = opened()
    fill(one)
    assert counted(one.head) == MANY
    memo = memo_of(one.store)
    one.run(lambda tx: [tx.remove(name(number)) for number in range(10)])
    assert counted(opened().head) == counted(one.head) == MANY - 10
    one.run(lambda tx: [tx.add(name(number)) for number in range(5)])
    one.run(lambda tx: tx.set("/p", "unrelated", way))
    assert counted(opened().head) == counted(one.head) == MANY - 5
    # Add and remove, and the reverse, in one commit and in several: no net change.
    one.run(lambda tx: [tx.add("/p/x"), tx.remove("/p/x"), tx.remove(name(100)), tx.add(name(100))])
    one.run(lambda tx: tx.remove(name(200)))
    one.run(lambda tx: tx.add(name(200)))
    assert counted(opened().head) == counted(one.head) == MANY - 5
    one.run(lambda tx: [tx.move(name(300), "/p/moved"), tx.move(name(301), "/elsewhere"), tx.copy("/p/moved", "/p/c")])
    assert counted(opened().head) == counted(one.head) == MANY - 5
    assert memo_of(one.store) == memo


def test_many_changes_lead_to_a_new_count_and_memo(opened: Instances) -> None:
    one = opened()
    fill(one)
    assert counted(one.head) == MANY
    fill(one, MANY, 2 * MANY)
    assert counted(one.head) == 2 * MANY
    memo = memo_of(one.store)
    assert memo is not None
    assert memo.children == 2 * MANY
    assert counted(opened().head) == 2 * MANY


def test_a_parent_that_was_removed_and_added_again_has_a_new_count(opened: Instances, way: str) -> None:
    one, two = opened(), opened()
    fill(one)
    wide = one.head
    assert counted(wide) == counted(two.refresh()) == MANY
    one.run(lambda tx: tx.remove("/p"))
    assert counted(opened().at(wide.revision)) == MANY
    for repo in (one, two, opened()):
        with pytest.raises(NodeNotFoundError):
            repo.refresh().child_count("/p")
    fill(one, 5, 10)
    for repo in (one, two, opened()):
        assert counted(repo.refresh()) == 5
        assert counted(repo.at(wide.revision)) == MANY
    fill(one, 2_000, 2_000 + 2 * MANY)
    for repo in (one, two, opened()):
        assert counted(repo.refresh()) == 2 * MANY + 5
        assert counted(repo.at(wide.revision)) == MANY
    # Removed and added again in one commit; the memo belongs to the previous life.
    one.run(lambda tx: [tx.remove("/p"), tx.add("/p"), tx.add("/p/only")])
    for repo in (one, two, opened()):
        assert counted(repo.refresh()) == 1


def test_an_old_revision_is_counted_from_a_newer_memo(opened: Instances, way: str) -> None:
    one = opened()
    fill(one)
    before = one.head
    one.run(lambda tx: [tx.remove(name(number)) for number in range(20)])
    middle = one.head
    one.run(lambda tx: [tx.add(name(number)) for number in range(5)])
    assert counted(one.head) == MANY - 15
    memo = memo_of(one.store)
    assert memo is not None
    write_memo(one.store, memo._replace(children=MANY - 15 + 70_000).encode())
    cold = opened()
    assert cold.at(before.revision).child_count("/p") == MANY + 70_000
    assert cold.at(middle.revision).child_count("/p") == MANY - 20 + 70_000
    write_memo(one.store, memo.encode())
    for repo in (one, opened()):
        assert counted(repo.at(before.revision)) == MANY
        assert counted(repo.at(middle.revision)) == MANY - 20
        assert counted(repo.head) == MANY - 15


def test_a_memo_can_be_newer_than_the_view_of_its_reader(opened: Instances, way: str) -> None:
    late = opened()
    one = opened()
    fill(one)
    before = late.refresh()
    one.run(lambda tx: tx.add("/p/x"))
    assert counted(one.head) == MANY + 1
    assert counted(before) == MANY
    assert counted(late.refresh()) == MANY + 1


def test_a_branch_counts_its_own_children(opened: Instances, way: str) -> None:
    one = opened()
    fill(one)
    branch = one.branch()
    branch.run(lambda tx: [tx.add("/p/x"), tx.add("/p/y"), *(tx.remove(name(number)) for number in range(10))])
    one.run(lambda tx: [tx.add(name(MANY)), tx.remove(name(50))])
    # The branch's cells are the newest in some columns, and the memo does not count them.
    assert counted(one.head) == MANY
    assert counted(branch.head) == MANY - 8
    memo = memo_of(one.store)
    assert memo is not None
    assert memo.children == MANY
    cold = opened()
    assert counted(cold.at(branch.revision)) == MANY - 8
    assert counted(cold.head) == MANY
    branch.run(lambda tx: [tx.add(name(3)), tx.remove("/p/x")])
    again = opened().resume_branch(branch.revision)
    assert counted(again.head) == counted(branch.head) == MANY - 8
    branch.merge()
    for repo in (one, cold, opened()):
        assert counted(repo.refresh()) == MANY - 8
    other = one.branch()
    other.run(lambda tx: [tx.remove("/p"), tx.add("/p"), tx.add("/p/only")])
    assert counted(other.head) == 1
    assert counted(one.head) == MANY - 8


def test_a_count_on_a_branch_leaves_no_memo(opened: Instances) -> None:
    one = opened()
    fill(one)
    branch = one.branch()
    branch.run(lambda tx: tx.add("/p/x"))
    assert counted(branch.head) == MANY + 1
    assert memo_of(one.store) is None
    assert counted(opened().head) == MANY


def test_repeated_counts_read_only_changed_columns(opened: Instances, new_store: Callable[[], Store]) -> None:
    one = opened()
    fill(one)
    store = CountingStore(new_store())
    two = opened(store)
    assert two.head.child_count("/p") == MANY
    store.take()
    assert two.head.child_count("/p") == MANY
    one.run(lambda tx: tx.set("/", "unrelated", 1))
    two.refresh()
    store.take()
    assert two.head.child_count("/p") == MANY
    assert store.take() == {}
    for number in range(10):
        one.run(lambda tx, number=number: tx.add(name(MANY + number)))
    two.refresh()
    store.take()
    assert two.head.child_count("/p") == MANY + 10
    # The node itself, since a commit touched it, and its changed columns.
    assert store.take() == {("read", "nodes"): 2}


def test_the_interface_shows_counts_without_the_names(opened: Instances, new_store: Callable[[], Store]) -> None:
    fill(opened(), 0, 3 * MANY)
    first = MicroKernel(opened())
    assert first.get_child_node_count("/p") == 3 * MANY
    store = CountingStore(new_store())
    kernel = MicroKernel(opened(store))
    assert kernel.get_child_node_count("/p") == 3 * MANY
    store.take()
    shown = json.loads(kernel.get_nodes("/p", None, 0, 10, 5) or "")
    assert shown == {":childNodeCount": 3 * MANY, **{f"{number:05}": {} for number in range(10, 15)}}
    assert store.take() == {("read", "nodes"): 1}
    shown = json.loads(kernel.get_nodes("/", None, 1, 0, 0) or "")
    assert shown == {":childNodeCount": 1}
    shown = json.loads(kernel.get_nodes("/", None, 1, 0, 3) or "")
    assert shown["p"] == {":childNodeCount": 3 * MANY, **{f"{number:05}": {} for number in range(3)}}
    everything = json.loads(kernel.get_nodes("/p", None, 0) or "")
    assert len(everything) - 1 == everything[":childNodeCount"] == 3 * MANY
    some = json.loads(kernel.get_nodes("/p", None, 0, 0, 2, '{"nodes":["*99"]}') or "")
    assert some == {":childNodeCount": 3 * MANY, "00099": {}, "00199": {}}
    none = json.loads(kernel.get_nodes("/p", None, 0, 0, 2, '{"properties":["*","-:childNodeCount"]}') or "")
    assert none == {"00000": {}, "00001": {}}


@pytest.mark.parametrize("prefix", ["0", "x"], ids=["before the hidden ones", "behind the hidden ones"])
@pytest.mark.parametrize("many", [3, MANY])
def test_hidden_children_are_neither_counted_nor_take_places_on_pages(
    opened: Instances, new_store: Callable[[], Store], prefix: str, many: int
) -> None:
    one = opened()
    names = [f"{prefix}{number:05}" for number in range(many)]
    one.run(lambda tx: [tx.add(path) for path in ("/p", *(f"/p/{name}" for name in (*names, ":hash", ":id")))])
    store = CountingStore(new_store())
    kernel = MicroKernel(opened(store))
    size = many - 10 if many > 10 else 2
    pages = [json.loads(kernel.get_nodes("/p", None, 0, offset, size) or "") for offset in (0, size)]
    assert [page.pop(":childNodeCount") for page in pages] == [many, many]
    assert [name for page in pages for name in page] == names
    assert kernel.get_child_node_count("/p") == many
    top = json.loads(kernel.get_nodes("/", None, 1, 0, 0) or "")
    assert top == {":childNodeCount": 1}
    top = json.loads(kernel.get_nodes("/", None, 1, 0, 1) or "")
    assert top["p"].pop(":childNodeCount") == many
    store.take()
    assert kernel.get_child_node_count("/p") == many
    assert store.take() == {}


def test_a_page_of_names_skips_removed_children(opened: Instances) -> None:
    one = opened()
    fill(one, 0, 2 * MANY)
    one.run(lambda tx: [tx.remove(name(number)) for number in range(MANY + 200)])
    kernel = MicroKernel(one)
    shown = json.loads(kernel.get_nodes("/p", None, 0, 0, 2) or "")
    assert shown == {":childNodeCount": MANY - 200, "01300": {}, "01301": {}}
    assert kernel.get_child_node_count("/p") == counted(opened().head) == MANY - 200


def test_counts_are_right_while_others_commit(opened: Instances) -> None:
    fill(opened())
    errors: list[BaseException] = []
    writers = [opened(), opened()]

    def turn(repo: Repository, number: int, added: str) -> None:
        repo.run(lambda tx: tx.remove(name(number)) if tx.exists(name(number)) else tx.add(name(number)))
        repo.run(lambda tx: tx.add(added))

    def write(number: int) -> None:
        try:
            for at in range(20):
                turn(writers[number], 10 * number + at % 10, f"/p/w{number}-{at}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    reader = opened()
    while any(thread.is_alive() for thread in threads):
        counted(reader.refresh())
        cold = opened()
        counted(cold.head)
        cold.close()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counted(reader.refresh()) == MANY + 40


def test_a_damaged_memo_stops_no_count(opened: Instances) -> None:
    one = opened()
    fill(one)
    write_memo(one.store, b"\x01damaged")
    assert counted(one.head) == MANY
    with pytest.raises(FormatError, match="stored child count of /p is damaged"):
        memo_of(one.store)
    one.store.delete_rows(schema.CLUSTER, [schema.child_count_key(paths.key("/p"))])


def test_a_count_succeeds_when_its_memo_cannot_be_written(opened: Instances, new_store: Callable[[], Store]) -> None:
    fill(opened())
    refused: list[Call] = []

    def refuse(call: Call) -> None:
        if call.method == "write" and call.table == schema.CLUSTER:
            refused.append(call)
            raise StoreUnusableError("only reading is allowed")

    store = FaultyStore(new_store())
    reader = opened(store)
    store.before = refuse
    assert counted(reader.head) == MANY
    assert len(refused) == 1
    assert memo_of(store) is None
