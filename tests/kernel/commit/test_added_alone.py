"""Nodes that a process adds below a node which it alone writes (decision 62)."""

from __future__ import annotations

from collections import Counter

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.errors import InvalidChangeError, NodeExistsError, StoreNotAppliedError
from hbasemk.format import paths, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode, Expect, RemoveNode, Require, SetProperty
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, Get, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.failing import Died
from tests.support.joint import JointStore
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import STAGES, become_sole_writer, commit, known_rows, last_value, opened

ADDED_ALONE = Counter(
    {
        ("check_and_write", schema.CLUSTER): 1,
        ("check_and_write", schema.NODES): 2,
        ("check_and_write", schema.JOURNAL): 1,
    }
)
"""The calls of a commit that adds a node alone."""


def stage_of(instance: Instance) -> Stage:
    return known_rows(instance)[paths.key("/a")].stage


def sole_writer(world: World, store: Store | None = None) -> tuple[Instance, CountingStore, MemoryStore]:
    """Return an instance that alone writes /a, its counted store, and the store below it."""
    found = opened(world, store)
    become_sole_writer(found[0])
    found[1].take()
    return found


def children(instance: Instance) -> list[str]:
    return instance.reader.children(instance.head(), "/a", None, None)


def require_no_damage(instance: Instance) -> None:
    assert list(IntegrityCheck(instance).run()) == []


def test_a_node_is_added_with_four_calls_and_no_read(world: World) -> None:
    instance, counted, _ = sole_writer(world)
    for number in range(5):
        revision = commit(instance, AddNode(f"/a/{number}", {"n": number}))
        assert counted.take() == ADDED_ALONE
        assert last_value(counted) == schema.shared_mark(revision)
        counted.take()
    assert children(instance) == ["0", "1", "2", "3", "4"]
    assert instance.require(instance.head(), "/a/4").properties == {"n": 4}
    require_no_damage(instance)


def test_a_process_that_only_adds_nodes_becomes_a_sole_writer(world: World) -> None:
    instance, counted, _ = opened(world)
    for number in range(STAGES):
        commit(instance, AddNode(f"/a/{number}", {}))
    counted.take()
    commit(instance, AddNode("/a/next", {}))
    assert counted.take() == ADDED_ALONE
    require_no_damage(instance)


def test_a_commit_may_also_change_the_parent(world: World) -> None:
    instance, counted, _ = sole_writer(world)
    commit(instance, SetProperty("/a", "x", "new"), AddNode("/a/new", {"n": 1}), SetProperty("/a/new", "m", 2))
    assert counted.take() == ADDED_ALONE
    assert instance.require(instance.head(), "/a").properties["x"] == "new"
    assert instance.require(instance.head(), "/a/new").properties == {"n": 1, "m": 2}


def test_a_commit_that_also_gives_the_parent_a_new_property_reads_back(world: World) -> None:
    instance, counted, _ = sole_writer(world)
    commit(instance, SetProperty("/a", "last", "new"), AddNode("/a/new", {}))
    assert counted.take()["check_and_write", schema.NODES] == 0
    with pytest.raises(InvalidChangeError, match="cannot be both a property and a child"):
        commit(instance, SetProperty("/a", "new", 1), AddNode("/a/newer", {}))
    require_no_damage(instance)


def test_a_store_that_takes_one_row_in_a_call_takes_the_usual_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStore, "batch_rows", 1)
    instance, counted, _ = opened(world)
    for number in range(STAGES + 2):
        counted.take()
        commit(instance, AddNode(f"/a/{number}", {}))
        assert counted.take()["check_and_write", schema.NODES] == 0
        assert last_value(counted) == schema.TOUCHED
    require_no_damage(instance)


def test_a_store_with_joint_calls_makes_both_writes_at_once(world: World) -> None:
    together: list[tuple[str, str]] = []

    class Noting(JointStore):
        def check_and_write_both(self, first, second):  # type: ignore[no-untyped-def]
            together.append((first.table, second.table))
            return super().check_and_write_both(first, second)

    instance = open_instance(Noting(MemoryStore(world.clock)), world, mac=1)
    commit(instance, AddNode("/a", {}))
    become_sole_writer(instance)
    together.clear()
    commit(instance, AddNode("/a/new", {}))
    assert together == [(schema.NODES, schema.NODES)]
    assert children(instance) == ["new"]


def test_a_node_that_exists_is_found(world: World) -> None:
    instance, counted, _ = opened(world)
    commit(instance, AddNode("/a/new", {"n": 1}))
    other = open_instance(counted, world, mac=2)
    become_sole_writer(other)
    # It has not read the node.
    head = other.head()
    with pytest.raises(NodeExistsError, match="/a/new"):
        commit(other, AddNode("/a/new", {"n": 2}))
    assert other.head() == head
    assert other.require(head, "/a/new").properties == {"n": 1}
    assert stage_of(other) is Stage.LOOK
    # So a process that tries to add existing nodes again and again does not write each time.
    counted.take()
    with pytest.raises(NodeExistsError, match="/a/new"):
        commit(other, AddNode("/a/new", {"n": 2}))
    assert counted.take()["check_and_write", schema.NODES] == 0
    require_no_damage(other)


def test_a_node_with_an_earlier_life_takes_the_usual_steps(world: World) -> None:
    instance, counted, _ = opened(world)
    commit(instance, AddNode("/a/new", {"n": 1}))
    commit(instance, RemoveNode("/a/new"))
    other = open_instance(counted, world, mac=2)
    become_sole_writer(other)
    commit(other, AddNode("/a/new", {"m": 2}))
    assert other.require(other.head(), "/a/new").properties == {"m": 2}
    assert stage_of(other) is Stage.LOOK
    assert (other.statistics.conflicts, other.statistics.too_slow) == (0, 0)
    require_no_damage(other)


def test_a_node_that_another_process_has_added_meanwhile_is_found(world: World) -> None:
    instance, _, shared = sole_writer(world)
    other = open_instance(shared, world, mac=2)
    commit(other, AddNode("/a/new", {"by": "other"}))
    # This instance has not polled.
    with pytest.raises(NodeExistsError, match="/a/new"):
        commit(instance, AddNode("/a/new", {"by": "this"}))
    assert instance.require(instance.head(), "/a/new").properties == {"by": "other"}
    require_no_damage(instance)


def test_beside_another_child_the_usual_steps_follow(world: World) -> None:
    instance, counted, shared = sole_writer(world)
    other = open_instance(shared, world, mac=2)
    commit(other, AddNode("/a/other", {}))
    counted.take()
    commit(instance, AddNode("/a/new", {"n": 1}))
    calls = counted.take()
    # Both compare-and-sets, and then the write and the read-back.
    assert (calls["check_and_write", schema.NODES], calls["write", schema.NODES], calls["read", schema.NODES]) == (
        2,
        1,
        1,
    )
    instance.poll()
    assert children(instance) == ["new", "other"]
    assert instance.require(instance.head(), "/a/new").properties == {"n": 1}
    require_no_damage(instance)


@pytest.mark.parametrize("exists", [False, True])
def test_errors_of_operations_are_those_of_the_usual_steps(exists: bool, world: World) -> None:
    instance, counted, _ = opened(world)
    if exists:
        commit(instance, AddNode("/a/new", {}))
    other = open_instance(counted, world, mac=2)
    become_sole_writer(other)
    with pytest.raises(InvalidChangeError, match="'x'"):
        commit(other, AddNode("/a/x", {}))
    if exists:
        with pytest.raises(NodeExistsError, match="/a/new"):
            commit(other, Require("/a/new"), AddNode("/a/new", {}))
    else:
        commit(other, Expect("/a/new", None), AddNode("/a/new", {}))
        assert children(other) == ["new"]
    require_no_damage(other)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("row", ["/a", "/a/new"])
@pytest.mark.parametrize("applied", [False, True])
def test_a_failed_write_is_repeated(applied: bool, row: str, joint: bool, world: World) -> None:
    store = (JointStore if joint else FaultyStore)(MemoryStore(world.clock))
    instance, _, _ = sole_writer(world, store)
    failed: list[Call] = []
    last = 2 if row == "/a" else 1

    def fail(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.NODES) and len(failed) < last:
            failed.append(call)
            if len(failed) == last:
                raise lost_reply(call) if applied else StoreNotAppliedError("refused")

    if applied:
        store.after = fail
    else:
        store.before = fail
    commit(instance, AddNode("/a/new", {"n": 1}))
    store.before = store.after = None
    assert len(failed) == last
    assert instance.require(instance.head(), "/a/new").properties == {"n": 1}
    require_no_damage(instance)


@pytest.mark.parametrize("exists", [False, True])
def test_a_log_without_room_takes_the_usual_steps(exists: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, counted, _ = opened(world)
    if exists:
        commit(instance, AddNode("/a/new", {}))
    other = open_instance(counted, world, mac=2)
    become_sole_writer(other)
    monkeypatch.setattr(schema, "INTENTS", ())
    counted.take()
    if exists:
        with pytest.raises(NodeExistsError, match="/a/new"):
            commit(other, AddNode("/a/new", {}))
        commit(other, SetProperty("/b", "x", 1))
    else:
        commit(other, AddNode("/a/new", {}))
        calls = counted.take()
        assert (calls["check_and_write", schema.NODES], calls["read", schema.NODES]) == (0, 2)
    assert children(other) == ["new"]
    other.poll()
    assert other.journal.pending == frozenset()
    require_no_damage(other)


def test_the_cells_of_both_rows_are_deleted_after_a_crash(world: World) -> None:
    store = FaultyStore(MemoryStore(world.clock))
    instance, _, _ = sole_writer(world, store)
    other = open_instance(store.inner, world, mac=2)

    def die(call: Call) -> None:
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL):
            raise Died

    store.before = die
    with pytest.raises(Died):
        commit(instance, AddNode("/a/new", {"n": 1}))
    (revision,) = instance.outcomes.deferred
    gets = [Get(paths.key(path), since=revision, versions=ALL_VERSIONS) for path in ("/a", "/a/new")]
    assert all(row.cells for row in store.inner.read(schema.NODES, gets))
    world.advance(60)
    other.poll()
    other.maintain()
    assert other.outcomes.of(revision) is Outcome.ABORTED
    assert not any(row.cells for row in store.inner.read(schema.NODES, gets))
    require_no_damage(other)
