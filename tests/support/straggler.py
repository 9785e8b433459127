"""A commit with a low id that decides only after a checkpoint of a higher one was taken."""

from __future__ import annotations

from hbasemk.errors import CheckpointError
from hbasemk.format import schema
from hbasemk.kernel import checkpoints
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.runtime import START_MS, World, open_instance
from tests.support.simulation.crashes.sites import tree

HOUR = 3_600_000


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {"n": 0})]), "", retry_timeout=5, max_poll_age=0)


class Straggler:
    """A commit of ``/late`` that decides only after a newer one, ``revision``, of which ``maker`` takes a checkpoint."""

    def __init__(self, store: MemoryStore, world: World) -> None:
        faulty = FaultyStore(store)
        self.store, self.world = store, world
        slow, quick, self.maker, self.other = (
            open_instance(one, world, mac=mac) for mac, one in enumerate((faulty, store, store, store), 1)
        )
        add(slow, "/a")
        self.revision = 0

        def before(call: Call) -> None:
            if call.method in ("write", "write_if") and call.table == schema.NODES and not self.revision:
                # The slow commit has its id and its journal row.
                self.revision = add(quick, "/quick")
                self.maker.poll()
                self.view = self.maker.head()
                checkpoints.keep(self.maker, self.view, START_MS + 5 * HOUR)

        faulty.before = before
        self.late = add(slow, "/late")
        assert self.late < self.revision == self.view.revision
        self.tree = tree(self.maker, self.view)
        assert "/late" not in self.tree

    def must_be_exact(self, instance: Instance) -> None:
        view = instance.at(self.revision)
        assert view.revision == self.revision
        assert tree(instance, view) == self.tree
        assert not instance.sees(view, self.late)


def opened_late(world: World) -> None:
    """Let an instance poll before the straggler commits, and read the checkpoints long afterwards: it must be exact, too."""
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    slow, quick = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    checkpoints.keep(quick, quick.head(), START_MS + 5 * HOUR)
    reader: list[Instance] = []
    newest: list[int] = []

    def before(call: Call) -> None:
        if call.method == "write" and call.table == schema.NODES and not newest:
            newest.append(add(quick, "/quick"))
            reader.append(open_instance(store, world, mac=3))

    faulty.before = before
    late = add(slow, "/late")
    maker = open_instance(store, world, mac=4)
    view = maker.head()
    assert view.revision == newest[0] > late
    world.advance(60)
    add(maker, "/newer")
    maker.poll()
    world.advance(60)
    maker.poll()
    maker.recovery.advance()
    assert maker.journal.contents(view).floor >= late
    checkpoints.keep(maker, view, START_MS + 5 * HOUR)
    (instance,) = reader
    found = instance.at(newest[0])
    assert instance.sees(found, late)
    assert "/late" in tree(instance, found)


def kept_twice(world: World) -> None:
    """Let two instances keep different snapshots of one revision: only one of them succeeds."""
    straggler = Straggler(MemoryStore(world.clock), world)
    straggler.other.poll()
    try:
        checkpoints.keep(straggler.other, straggler.other.head(), START_MS + HOUR)
    except CheckpointError:
        return
    raise AssertionError("a checkpoint was made of a snapshot that it does not keep")


def changed_together(world: World) -> None:
    """Let two instances change the checkpoints of one revision at the same time: no change is lost."""
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    mine, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2, seed=2)
    one = checkpoints.keep(mine, mine.head(), START_MS + HOUR)
    made: list[checkpoints.Checkpoint] = []
    # The next write to the table is the change itself.
    mine.lease.measure()

    def before(call: Call) -> None:
        if call.method in ("write", "check_and_write") and call.table == schema.CLUSTER and not made:
            made.append(checkpoints.keep(other, other.head(), START_MS + HOUR))

    faulty.before = before
    longer = checkpoints.extend(mine, one.revision, one.number, 3 * HOUR)
    assert set(checkpoints.all_of(mine)) == {longer, *made}
