"""A damaged watermark in a repository of which old journal rows are deleted: no instance starts without their nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.check import IntegrityCheck, Repair, check_unopened
from hbasemk.check import problem as kinds
from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import NewCell, Put, Store
from tests.support.collecting import HOUR, collect, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.trimming import recorded


def collected(store: Store, world: World) -> Instance:
    """Return an instance of a repository with a horizon and a trim level; the watermark is above both."""
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"title": "x"}), AddNode("/b", {}))
    for number in range(8):
        world.advance(HOUR / 2)
        commit(one, SetProperty("/a", "p", number), AddNode(f"/a/{number}", {}))
        collect(one)
    assert fence.read_trim_level(one.store).revision
    return one


def replace(store: Store, revision: int) -> Callable[[], None]:
    """Let the watermark be another revision; return what writes the present one again."""

    def write(data: bytes) -> None:
        store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, data)])])

    before = settings.read_watermark(store).encode()
    write(Watermark(revision, frozenset()).encode())
    return lambda: write(before)


def test_an_instance_does_not_start_below_the_trim_level(ordered_store: Store, world: World) -> None:
    """It read an empty tree, and a repair of this tree hid all nodes for good."""
    store = ordered_store
    one = collected(store, world)
    before = tree(one)
    restore = replace(store, settings.read_watermark(store).revision ^ 1 << 62)
    with pytest.raises(
        FormatError, match="the watermark is .*, and the horizon is .*, which is never above it"
    ) as raised:
        open_instance(store, world, mac=2)
    assert kinds.WATERMARK in {found.kind for found in check_unopened(store, one.runtime, raised.value)}
    with pytest.raises(FormatError, match="never above it"):
        one.recovery.advance()
    restore()
    assert tree(open_instance(store, world, mac=3)) == before


def test_the_check_compares_the_watermark_with_the_horizon(store: Store, world: World) -> None:
    one = collected(store, world)
    level, horizon = fence.read_trim_level(one.store).revision, fence.read_horizon(one.store).revision
    low = next(revision for revision in recorded(store) if level < revision < horizon)
    restore = replace(store, low)
    assert [found.kind for found in IntegrityCheck(one).run()] == [kinds.WATERMARK]
    restore()
    assert list(IntegrityCheck(one).run()) == []


def test_the_tree_is_not_changed_while_the_watermark_names_no_revision(store: Store, world: World) -> None:
    """An instance that starts there lacks a revision, so a node that was removed seems to exist."""
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/a/k", {}))
    removed = commit(one, RemoveNode("/a"))
    # On SQLite an instance that starts reads the last write before the watermark, but no earlier one.
    commit(one, AddNode("/b", {}))
    one.recovery.advance()
    commit(one, AddNode("/a", {}))
    replace(store, removed - 256)  # the id of another machine at this moment
    repairing = open_instance(store, world, mac=2)
    repair = Repair(repairing).repair
    (unlisted,) = (found for found in IntegrityCheck(repairing).run() if found.kind == kinds.UNLISTED)
    assert unlisted.path == "/a/k"
    assert unlisted.repairable
    assert repair(unlisted) is None
    # An instance that starts at a later revision reads all of them.
    assert repairing.recovery.advance() is not None
    assert repair(unlisted) is None
    assert tree(open_instance(store, world, mac=3)) == {"/": {}, "/a": {}, "/b": {}}
